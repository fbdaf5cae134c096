"""Loading engines: from the value of an entry point, in a thread, once."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import Future
from importlib import import_module

from stockade.contracts.engine import Engine
from stockade.errors import EngineFailed

log = logging.getLogger("stockade.inside")


class Loader:
    """Imports engine classes; each entry (``module:attribute``) once, also when it fails."""

    def __init__(self) -> None:
        self._loading: dict[str, Future[type[Engine]]] = {}

    def preload(self, entry: str) -> None:
        """Start importing the engine and what it says is slow. Returns at once."""
        if entry in self._loading:
            return
        future = self._loading[entry] = Future()
        # A daemon thread: an import that hangs must not keep the program from ending.
        threading.Thread(target=_load_into, args=(future, entry), name="stockade-preload", daemon=True).start()

    async def load(self, entry: str) -> type[Engine]:
        """The engine class. Raises `EngineFailed` that says what to install."""
        self.preload(entry)
        return await asyncio.shield(asyncio.wrap_future(self._loading[entry]))


def _load_into(future: Future[type[Engine]], entry: str) -> None:
    try:
        engine = load(entry)
        engine.preload()
    except EngineFailed as error:
        future.set_exception(error)
    except BaseException as error:
        # SystemExit and AssertionError of a foreign module, too, are only a broken engine.
        log.exception("engine %s cannot be loaded", entry)
        failure = EngineFailed(
            f"engine {entry} cannot be loaded: {type(error).__name__}: {error}",
            hint="The sandbox's log has the traceback; reinstall the engine's package where the sandbox runs.",
        )
        failure.__cause__ = error
        future.set_exception(failure)
    else:
        future.set_result(engine)


def load(entry: str) -> type[Engine]:
    """Import ``module:attribute`` and check the contract. Raises `EngineFailed`, or what the import raises."""
    module, _, attribute = entry.partition(":")
    found: object = import_module(module)
    for name in attribute.split("."):
        found = getattr(found, name)
    if not (isinstance(found, type) and issubclass(found, Engine)):
        raise EngineFailed(f"{entry} is not an Engine class", hint="Its entry point must name a subclass of Engine.")
    major, minor = found.API_VERSION
    if major != Engine.API_VERSION[0] or minor > Engine.API_VERSION[1]:
        raise EngineFailed(
            f"engine {entry} is written for contract {major}.{minor}, this is {Engine.API_VERSION[0]}."
            f"{Engine.API_VERSION[1]}",
            hint="Install the engine's version that matches this stockade.",
        )
    return found

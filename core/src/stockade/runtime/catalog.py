"""The named plugins that a kernel uses: drivers, engines, the minter. Loaded when they are chosen."""

from __future__ import annotations

import asyncio
import logging

from stockade.contracts.authority import TokenMinter
from stockade.contracts.driver import Driver
from stockade.contracts.engine import Engine
from stockade.errors import UsageError
from stockade.model.authority import SandboxRequest
from stockade.plugins import discovery
from stockade.plugins.hooks import Boot
from stockade.plugins.scan import of_kind
from stockade.settings import Settings

log = logging.getLogger("stockade.plugins")


class Catalog:
    """One instance of each driver, one class of each engine, and at most one minter."""

    def __init__(self, settings: Settings, boot: Boot) -> None:
        self._settings = settings
        self._boot = boot
        self._drivers: dict[str, Driver] = {}
        self._engines: dict[str, tuple[str, type[Engine]]] = {}
        self.minter = self._load_minter()

    def choose_driver(self, request: SandboxRequest) -> str:
        """See `choose_driver`."""
        return choose_driver(self._settings, self._boot, request)

    def driver(self, name: str) -> Driver:
        """The driver of this name, made when it is first asked for. Raises `PluginError`."""
        if name not in self._drivers:
            loaded = discovery.load("driver", name, self._settings.selection)
            self._drivers[name] = loaded.obj(self._settings.options(name))
        return self._drivers[name]

    def engine(self, name: str | None) -> tuple[str, str, type[Engine]]:
        """Name, entry point value and class of an engine: the one named, the setting's, or the first by name.

        The first, and not an error: which agent answers is no matter of safety, unlike the choice of a driver.
        """
        chosen = name or self._settings.engine or self._first_engine()
        if chosen not in self._engines:
            loaded = discovery.load("engine", chosen, self._settings.selection)
            self._engines[chosen] = (loaded.entry.value, loaded.obj)
        return (chosen, *self._engines[chosen])

    def _first_engine(self) -> str:
        names = _available(self._settings, "engine")
        if len(names) < 2:
            return _only(self._settings, "engine")
        log.warning("no engine was named: %s runs (installed: %s)", names[0], ", ".join(names))
        return names[0]

    def _load_minter(self) -> TokenMinter | None:
        names = _available(self._settings, "minter")
        if not names:
            log.info("no token minter is installed: turns carry no token")
            return None
        name = names[0] if len(names) == 1 else _only(self._settings, "minter")
        options = {**self._settings.options(name), "home": self._settings.home}
        minter: TokenMinter = discovery.load("minter", name, self._settings.selection).obj(options)
        return minter

    def preflight(self, engine: type[Engine]) -> None:
        """Check that every route the engine needs is served and configured, before anything is made."""
        for route, dialect in engine.ROUTES.items():
            served = self._boot.routes.get(route)
            if served is None:
                raise UsageError(
                    f"the engine needs the route {route!r} and no plugin serves it",
                    hint="pip install stockade-gateway" if route == "model" else "",
                )
            served.value.preflight(dialect)

    async def aclose(self) -> None:
        """Close drivers, routes, policies and the minter; their failures are logged."""
        closing = [d.aclose() for d in self._drivers.values()] + [r.value.aclose() for r in self._boot.routes.values()]
        closing += [policy.value.aclose() for policy in self._boot.policies]
        if self.minter is not None:
            closing.append(self.minter.aclose())
        for result in await asyncio.gather(*closing, return_exceptions=True):
            if isinstance(result, BaseException):
                log.error("a plugin failed to close: %r", result)


def choose_driver(settings: Settings, boot: Boot, request: SandboxRequest) -> str:
    """The driver for a request that names none: a plugin's choice, the setting, or the only one."""
    names = _available(settings, "driver")
    return boot.hooks.select_driver(request, names) or settings.driver or _only(settings, "driver")


def _available(settings: Settings, kind: str) -> list[str]:
    return sorted({e.name for e in of_kind(kind) if settings.selection.enabled(e)})


def _only(settings: Settings, kind: str) -> str:
    names = _available(settings, kind)
    if len(names) != 1:
        found = f"installed: {', '.join(names)}" if names else "none is installed"
        raise UsageError(
            f"no {kind} was named and there is not exactly one ({found})",
            hint=f"Use --{kind}, the setting {kind}, or install one: pip install 'stockade[claude,process]'",
        )
    return names[0]

"""Writes a cassette while a run goes on."""

from __future__ import annotations

import base64
import json
import logging
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO, Any

from stockade.contracts.route import Origin
from stockade.errors import UsageError
from stockade_gateway.cassette.checks import Check, check
from stockade_gateway.cassette.secrets import Mask, of_origin
from stockade_gateway.cassette.tape import cut, head, is_head
from stockade_gateway.taps import Tap

log = logging.getLogger("stockade.gateway")

HEADERS = frozenset({"content-type", "retry-after", "retry-after-ms", "x-should-retry"})
"""Headers of an answer that are kept: those that tell an agent what to do. Ids of requests and accounts are not."""


class Recorder:
    """Writes beside ``path``, and gives the file its name when the run has ended: a cassette is whole, or not there.

    ``secrets`` are removed from everything, and so are each caller's own.
    """

    def __init__(self, path: Path, secrets: Collection[str]) -> None:
        self._path = path.absolute()
        self._part = self._path.with_name(f".{path.name}.{os.getpid()}.part")
        self._secrets = frozenset(secrets)
        self._sessions: dict[tuple[str, str], int] = {}
        self._calls: dict[int, int] = {}
        self._file: IO[str] | None = None
        self._opened = False

    def open(self) -> None:
        """Begin the file. Idempotent. Raises `UsageError` when it cannot be written, or is there and no cassette."""
        if not self._opened:
            self._file = self._begin()
            self._opened = True

    def tap(self, path: str, body: dict[str, Any], origin: Origin, secrets: Collection[str]) -> Tap:
        """For one call; ``secrets`` are those of its upstream. The order is that of the calls of this method."""
        self.open()
        session = self._sessions.setdefault((origin.sandbox, origin.session), len(self._sessions) + 1)
        call = self._calls[session] = self._calls.get(session, 0) + 1
        mask = Mask({*self._secrets, *of_origin(origin), *secrets})
        return _Call(self, session, call, check(path, body, mask), mask)

    def write(self, line: dict[str, Any]) -> None:
        """One call. A disk that is full is logged: the run goes on, without a cassette."""
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
        except OSError as error:
            log.error("the cassette %s cannot be written: %s", self._path.name, error.strerror)
            self._drop()

    def close(self) -> None:
        """Give the file its name. Idempotent."""
        if self._file is None:
            return
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._part.replace(self._path)
            self._file = None
        except OSError as error:
            log.error("the cassette %s cannot be written: %s", self._path.name, error.strerror)
            self._drop()

    def _begin(self) -> IO[str]:
        hint = "Name a file in a folder where you may write, or remove what is there."
        try:
            if self._path.exists():
                with open(self._path, encoding="utf-8", errors="replace") as file:
                    if not is_head(file.readline(4096)):
                        raise UsageError(f"{self._path} exists and is no cassette: it is not replaced", hint=hint)
            descriptor = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            file = os.fdopen(descriptor, "w", encoding="utf-8", errors="replace")
            file.write(head())
        except OSError as error:
            raise UsageError(f"no cassette can be written to {self._path}: {error.strerror}", hint=hint) from error
        return file

    def _drop(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError:
                log.debug("what was left to write is lost")
        self._part.unlink(missing_ok=True)


class _Call(Tap):
    def __init__(self, recorder: Recorder, session: int, call: int, asked: Check, mask: Mask) -> None:
        self._recorder = recorder
        self._line: dict[str, Any] = {"session": session, "call": call, "asked": asked}
        self._mask = mask
        self._type = ""
        self._data: list[bytes] = []

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        kept = {name.lower(): value for name, value in headers.items() if name.lower() in HEADERS}
        self._type = kept.get("content-type", "").partition(";")[0].strip()
        self._line |= {"status": status, "headers": self._mask.value(kept)}

    def data(self, chunk: bytes) -> None:
        self._data.append(chunk)

    def end(self, whole: bool) -> None:
        self._recorder.write(self._line | self._body(b"".join(self._data)) | {"whole": whole})

    def _body(self, data: bytes) -> dict[str, Any]:
        try:
            if self._type == "text/event-stream":
                return {"events": self._mask.events([piece.decode() for piece in cut(data)])}
            text = data.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(data).decode()}
        if self._type == "application/json":
            try:
                return {"json": self._mask.value(json.loads(text))}
            except (ValueError, RecursionError):
                log.debug("an answer says that it is JSON, and is not")
        return {"text": self._mask.text(text)}

"""Trusted keys that somebody else publishes: a JWK set (RFC 7517) in a file or behind a URL."""

from __future__ import annotations

import json
import os
import threading
import time
import urllib.error
import urllib.request
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from stockade.errors import SettingsError
from stockade_authority.compact import ALGORITHM, KID
from stockade_authority.errors import KeysMissing, KeysUnavailable, KeyUnknown
from stockade_authority.signing import Keys

if TYPE_CHECKING:
    from joserfc.jwk import ECKey

MAX_SIZE = 256 * 1024
"""Bytes of a JWK set."""
FETCH_EVERY = 300.0
"""Seconds after which a fetched set is fetched again."""
FETCH_AGAIN = 5.0
"""Seconds between two fetches, however many unknown keys are named."""
MAX_AGE = 3600.0
"""Seconds for which a set is trusted that cannot be fetched again."""
FETCH_TIME = 5.0
"""Seconds for one fetch."""


class _Published(Keys):
    """Keys from the last set that could be had."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._keys: dict[str, ECKey] = {}
        self._trouble = "it was not read yet"
        self._lock = threading.Lock()

    @abstractmethod
    def _usable(self) -> bool: ...

    def get(self, kid: str) -> ECKey:
        if not self._usable():
            raise KeysUnavailable(
                f"the trusted keys at {self._where} cannot be had: {self._trouble}",
                hint="Until they can, nothing is accepted. Check the address and who serves it.",
            )
        if not self._keys:
            raise KeysMissing(
                f"the JWK set at {self._where} has no key for {ALGORITHM}, so nothing can be trusted",
                hint="Publish one: stockade keys jwks --out FILE",
            )
        try:
            return self._keys[kid]
        except KeyError:
            raise KeyUnknown("the key that the token names is not in the JWK set") from None


class JwksFile(_Published):
    """A file, read again when it was replaced or changed."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path = path
        self._stamp: tuple[int, int, int] | None = None

    def _usable(self) -> bool:
        try:
            info = os.stat(self._path)
            stamp = (info.st_ino, info.st_mtime_ns, info.st_size)
            if stamp != self._stamp:
                with open(self._path, "rb") as file:
                    self._keys = parse(file.read(MAX_SIZE + 1))
                self._stamp = stamp
        except OSError as error:
            self._stamp, self._trouble = None, error.strerror or str(error)
        except ValueError as error:
            self._stamp, self._trouble = None, str(error)
        return self._stamp is not None


class JwksUrl(_Published):
    """A URL: ``https``, or ``http`` on this machine only. `refresh` fetches; until the first time there is no key."""

    def __init__(self, url: str, *, max_age: float = MAX_AGE) -> None:
        parts = urlsplit(url)
        local = parts.hostname in ("127.0.0.1", "localhost", "::1")
        if parts.scheme != "https" and not (parts.scheme == "http" and local):
            raise SettingsError(
                "keys are only trusted from https, or http on this machine", hint="Give https://HOST/PATH, or a file."
            )
        super().__init__(f"{parts.scheme}://{parts.hostname}{parts.path}")
        self._url = url
        self._max_age = max_age
        self._fetched = self._tried = -float("inf")

    def _usable(self) -> bool:
        return time.monotonic() - self._fetched < self._max_age

    def due(self) -> bool:
        now = time.monotonic()
        return now - self._fetched >= FETCH_EVERY and now - self._tried >= FETCH_AGAIN

    def refresh(self) -> None:
        with self._lock:
            if time.monotonic() - self._tried < FETCH_AGAIN:
                return
            self._tried = time.monotonic()
        try:
            opener = urllib.request.build_opener(_NoRedirect())
            with opener.open(self._url, timeout=FETCH_TIME) as answer:
                self._keys = parse(answer.read(MAX_SIZE + 1))
            self._fetched = time.monotonic()
        except (OSError, ValueError) as error:  # HTTP's own errors are OSErrors
            self._trouble = f"{type(error).__name__}: {error}"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Where the keys come from is what the operator said, and not what a server says."""

    def redirect_request(self, *_: Any) -> None:
        return None


def open_keys(where: str) -> Keys:
    """The keys at a URL or in a file, as a setting names them. Raises `SettingsError` for a URL that is not safe."""
    return JwksUrl(where) if "://" in where else JwksFile(Path(where).expanduser())


def parse(data: bytes) -> dict[str, ECKey]:
    """The keys of a set that can verify ES256, by name; others are passed over. Raises `ValueError`."""
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey

    if len(data) > MAX_SIZE:
        raise ValueError(f"the JWK set is over {MAX_SIZE} bytes")
    try:
        members = json.loads(data)["keys"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError("it is no JWK set") from None
    if not isinstance(members, list):
        raise ValueError("it is no JWK set")
    found: dict[str, ECKey] = {}
    for member in members:
        if not isinstance(member, dict) or (member.get("kty"), member.get("crv")) != ("EC", "P-256"):
            continue
        if member.get("use", "sig") != "sig" or member.get("alg", ALGORITHM) != ALGORITHM:
            continue
        kid = member.get("kid")
        if "d" in member:
            raise ValueError("it has a private key in it: publish only what `stockade keys jwks` writes")
        if not isinstance(kid, str) or not KID.fullmatch(kid) or kid in found:
            raise ValueError("a key has no name, an impossible one, or another key's")
        try:
            key = ECKey.import_key({name: member[name] for name in ("kty", "crv", "x", "y")})
            key.public_key  # noqa: B018 - read for its check that the point is on the curve
        except (JoseError, ValueError, TypeError, KeyError):
            raise ValueError("a key is no point of the curve") from None
        found[kid] = key
    return found

"""The key files of a state root: PEM under ``keys/``, private to the user, changed only by replacing.

``NAME.pem`` is a key; its name is its ``kid``. All of them verify; the one that the file ``signing`` names
signs. A file with a public key only verifies: it is that of a signer elsewhere.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stockade.errors import UsageError
from stockade_authority.compact import ALGORITHM, KID
from stockade_authority.errors import KeysMissing, KeysUnavailable, KeysUnsafe, KeyUnknown
from stockade_authority.signing import Keys, Signer

if TYPE_CHECKING:
    from joserfc.jwk import ECKey

SIGNING = "signing"
RACY = 50_000_000
"""Nanoseconds in which two changes of a folder may have one time stamp."""
_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class KeyFile:
    """One key as ``stockade keys list`` shows it. ``made`` is in seconds since the epoch."""

    kid: str
    made: float
    private: bool
    signing: bool


class FileSigner(Signer):
    """Signs with a private key in memory."""

    def __init__(self, kid: str, key: ECKey) -> None:
        super().__init__({})
        self._kid = kid
        self._key = key

    @property
    def kid(self) -> str:
        return self._kid

    def sign(self, data: bytes) -> bytes:
        from joserfc.jws import JWSRegistry

        return JWSRegistry.algorithms[ALGORITHM].sign(data, self._key)


class Keyring(Keys):
    """The keys in one folder. Sees at once what another process changes; every change is one rename."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stamp = -1
        self._keys: dict[str, ECKey] = {}
        self._signing = ""

    # -- what signs and what verifies -----------------------------------------------------------------

    def get(self, kid: str) -> ECKey:
        self._look()
        if not self._keys:
            raise KeysMissing(
                f"there is no key in {self.folder}, so nothing can be trusted",
                hint="`stockade keys generate` makes one; the first turn does it, too.",
            )
        try:
            return self._keys[kid]
        except KeyError:
            raise KeyUnknown("the key that the token names is not in the keyring") from None

    def signer(self) -> FileSigner:
        """The key that signs. Where there is none, one is made, by one process of all that ask."""
        self._look()
        if not self._signing:
            with self._changing():
                self._look()
                if not self._signing:
                    self._sign_with(self._add(""))
            self._look()
        key = self._keys.get(self._signing)
        if key is None or not key.is_private:
            raise KeysUnavailable(
                f"{self.folder / SIGNING} names the key {self._signing!r}, and there is no such private key",
                hint="`stockade keys rotate` makes another one and signs with it.",
            )
        return FileSigner(self._signing, key)

    # -- changing them ----------------------------------------------------------------------------------

    def files(self) -> list[KeyFile]:
        """All keys, oldest first."""
        self._look()
        found = [
            KeyFile(kid, self._path(kid).stat().st_mtime, key.is_private, kid == self._signing)
            for kid, key in self._keys.items()
        ]
        return sorted(found, key=lambda f: (f.made, f.kid))

    def generate(self, kid: str = "") -> str:
        """Add a key, which verifies; the first also signs. Named by its thumbprint (RFC 7638), or ``kid``."""
        with self._changing():
            self._look()
            name = self._add(kid)
            if not self._signing:
                self._sign_with(name)
        return name

    def rotate(self, kid: str = "") -> str:
        """Sign with the key ``kid`` from now on, or with a new one; the others still verify."""
        with self._changing():
            self._look()
            if kid and (kid not in self._keys or not self._keys[kid].is_private):
                raise UsageError(f"there is no private key {kid!r}", hint=self._known())
            name = kid or self._add("")
            self._sign_with(name)
        return name

    def retire(self, kid: str) -> None:
        """Delete a key: what it signed is worth nothing from now on."""
        with self._changing():
            self._look()
            if kid not in self._keys:
                raise UsageError(f"there is no key {kid!r}", hint=self._known())
            if kid == self._signing:
                raise UsageError(f"the key {kid!r} is the one that signs", hint="First: stockade keys rotate")
            self._path(kid).unlink()

    def jwks(self) -> dict[str, Any]:
        """The public halves as a JWK set (RFC 7517), the signing key first."""
        self._look()
        names = sorted(self._keys, key=lambda kid: (kid != self._signing, kid))
        more = {"use": "sig", "alg": ALGORITHM}
        return {"keys": [{**self._keys[kid].as_dict(private=False), **more, "kid": kid} for kid in names]}

    # -- files ------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Read everything again if the folder has changed."""
        try:
            info = os.lstat(self.folder)
        except FileNotFoundError:
            self._stamp, self._keys, self._signing = -1, {}, ""
            return
        except OSError as error:
            raise self._unavailable(error) from error
        _private(self.folder, info)
        if info.st_mtime_ns == self._stamp:
            return
        keys, signing = {}, ""
        try:
            for name in sorted(os.listdir(self.folder)):
                kid = name.removesuffix(".pem")
                with contextlib.suppress(FileNotFoundError):  # deleted meanwhile: the folder's time has changed
                    if name == SIGNING:
                        signing = _read(self.folder / name).decode(errors="replace").strip()
                    elif kid != name:
                        keys[kid] = self._key(kid, _read(self.folder / name))
        except OSError as error:
            raise self._unavailable(error) from error
        self._keys, self._signing = keys, signing
        self._stamp = info.st_mtime_ns if time.time_ns() - info.st_mtime_ns > RACY else -1

    def _key(self, kid: str, pem: bytes) -> ECKey:
        from joserfc.errors import JoseError
        from joserfc.jwk import ECKey

        try:
            key = ECKey.import_key(pem)
        except (JoseError, ValueError, TypeError, ArithmeticError):
            key = None
        if key is None or key.curve_name != "P-256" or not KID.fullmatch(kid):
            raise KeysUnavailable(
                f"{self._path(kid)} is not a P-256 key in PEM without a password",
                hint="Move it out of the folder. Its name may have letters, digits, - and _.",
            )
        return key

    def _add(self, kid: str) -> str:
        from joserfc.jwk import ECKey

        if kid and (not KID.fullmatch(kid) or kid.startswith("-")):
            raise UsageError(
                f"a key cannot be named {kid!r}", hint="Use 1 to 64 letters, digits, - and _, no - at the start."
            )
        if kid in self._keys:
            raise UsageError(f"there is a key {kid!r} already", hint=self._known())
        key = ECKey.generate_key("P-256")
        while not kid and key.thumbprint().startswith("-"):  # it would be taken for an option
            key = ECKey.generate_key("P-256")
        name = kid or key.thumbprint()
        self._write(self._path(name), key.as_pem(private=True))
        self._stamp = -1
        return name

    def _sign_with(self, kid: str) -> None:
        self._write(self.folder / SIGNING, kid.encode() + b"\n")
        self._stamp = -1

    def _write(self, path: Path, data: bytes) -> None:
        """Whole or not at all, also when the power goes."""
        new = path.with_suffix(".new")
        new.unlink(missing_ok=True)
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.rename(path)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """One process at a time. Makes the folder."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _private(self.folder, os.lstat(self.folder))
            lock = os.open(self.folder / ".lock", os.O_CREAT | os.O_RDWR | _FLAGS, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                self._stamp = -1
                yield
            finally:
                os.close(lock)
                self._stamp = -1
        except OSError as error:
            raise self._unavailable(error) from error

    def _path(self, kid: str) -> Path:
        return self.folder / f"{kid}.pem"

    def _known(self) -> str:
        return f"There are: {', '.join(self._keys) or 'none'}."

    def _unavailable(self, error: OSError) -> KeysUnavailable:
        return KeysUnavailable(
            f"the keys in {self.folder} cannot be used: {error.strerror or error}",
            hint="Check the folder's owner and permissions, and the free space.",
        )


def _read(path: Path) -> bytes:
    with open(os.open(path, os.O_RDONLY | _FLAGS), "rb") as file:
        _private(path, os.fstat(file.fileno()))
        return file.read(64 * 1024)


def _private(path: Path, info: os.stat_result) -> None:
    mode = stat.S_IMODE(info.st_mode)
    wanted = "700" if stat.S_ISDIR(info.st_mode) else "600"
    if stat.S_ISLNK(info.st_mode):
        raise KeysUnsafe(f"{path} is a symbolic link", hint="Put the keys themselves there.")
    if info.st_uid != os.geteuid():
        raise KeysUnsafe(f"{path} belongs to another user", hint=f"As its owner: chown {os.geteuid()} {path}")
    if mode & 0o077:
        raise KeysUnsafe(f"{path} can be opened by others (mode {mode:04o})", hint=f"chmod {wanted} {path}")

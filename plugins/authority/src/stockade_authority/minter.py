"""The token minter ``warrant``: signs each turn's claims, and remembers what was revoked."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Collection, Mapping
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stockade import TokenMinter
from stockade.errors import SettingsError
from stockade.model.authority import Claims, Token
from stockade_authority import warrants
from stockade_authority.denylist import Denylist
from stockade_authority.signing import Signer

if TYPE_CHECKING:
    from stockade_authority.keys import Keyring

SIGNERS = "stockade.signers"
"""Group of the entry points of signers."""
_SLOW = ("joserfc.jws", "joserfc.jwk")


class Options(BaseModel):
    """The table ``[plugin.warrant]``. What a signer needs besides may stand there, too."""

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True)

    home: Path
    """The state root, from the kernel."""
    lifetime: Annotated[float, Field(ge=1, le=warrants.MAX_LIFETIME, allow_inf_nan=False)] = 300.0
    """Seconds for which a warrant is good; it is renewed while its turn runs."""
    issuer: Annotated[str, Field(min_length=1, max_length=256)] = warrants.ISSUER
    """The claim ``iss``, which verifiers compare."""
    signer: str = ""
    """Entry point of what signs instead of the key files."""


class WarrantMinter(TokenMinter):
    """Mints warrants (``docs/reference/warrants.md``). The first one makes a key where there is none."""

    API_VERSION = (1, 0)

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        try:
            self._options = Options.model_validate(dict(options))
        except ValidationError as error:
            said = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False))
            raise SettingsError(f"the minter is configured wrongly: {said}", hint="See [plugin.warrant].") from None
        if extra := sorted(self._options.model_extra or {}) if not self._options.signer else []:
            raise SettingsError(
                f"no such setting: {', '.join(f'plugin.warrant.{name}' for name in extra)}",
                hint="Known: lifetime, issuer, signer.",
            )
        self._lock = threading.Lock()
        self._parts: tuple[Keyring | Signer, Denylist] | None = None
        self._expires: dict[str, float] = {}
        # The cryptography takes a tenth of a second to import, which the first turn need not wait for.
        threading.Thread(target=lambda: [import_module(name) for name in _SLOW], name="stockade-warrant").start()

    async def mint(self, claims: Claims) -> Token:
        return await asyncio.to_thread(self._mint, claims)

    async def revoke(self, token_ids: Collection[str], reason: str) -> None:
        """In this process at once, in every other when this returns."""
        now = time.time()
        gone = {id: self._expires.pop(id, now + warrants.MAX_LIFETIME) for id in token_ids}
        if self._parts is not None:
            self._parts[1].deny_here(gone)
        await asyncio.to_thread(lambda: self._ready()[1].deny(gone, reason))

    async def aclose(self) -> None:
        parts, self._parts = self._parts, None
        if parts is not None:
            parts[1].close()

    def _mint(self, claims: Claims) -> Token:
        from stockade_authority import compact
        from stockade_authority.keys import Keyring

        keys, _ = self._ready()
        id = secrets.token_urlsafe(16)
        options = self._options
        members = warrants.write(claims, id=id, issuer=options.issuer, now=time.time(), lifetime=options.lifetime)
        signer = keys.signer() if isinstance(keys, Keyring) else keys
        value = compact.seal(members, signer, warrants.TYP)
        self._expires[id] = members["exp"]
        return Token(id, value, members["exp"])

    def _ready(self) -> tuple[Keyring | Signer, Denylist]:
        """What needs the disk, made when it is first needed."""
        from stockade_authority.keys import Keyring

        with self._lock:
            if self._parts is None:
                home = self._options.home
                keys = self._signer() if self._options.signer else Keyring(home / "keys")
                self._parts = (keys, Denylist(home))
            return self._parts

    def _signer(self) -> Signer:
        name = self._options.signer
        found = [entry for entry in metadata.entry_points(group=SIGNERS) if entry.name == name]
        made = found[0].load() if len(found) == 1 else None
        if not (isinstance(made, type) and issubclass(made, Signer)):
            raise SettingsError(
                f"plugin.warrant.signer: there is not exactly one signer {name!r}",
                hint=f"Install the package that offers it in the entry point group {SIGNERS}.",
            )
        return made(self.options)

"""Checks the warrant of every call: signature, times, audience, sandbox, denylist; then the model.

Needs `stockade-authority` (``pip install 'stockade-gateway[authority]'``), and imports it when the first warrant
is to be checked. Where one cannot be checked, no call is made.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stockade.contracts.route import Origin
from stockade.errors import AuthFailed, Denied, NotConfigured, Revoked
from stockade_gateway.refusals import Refused

if TYPE_CHECKING:
    from stockade.settings import Settings
    from stockade_authority.verify import Verifier, Warrant
    from stockade_gateway.config import Options

log = logging.getLogger("stockade.gateway")

_INSTALL = "Install what checks warrants: pip install 'stockade-gateway[authority]'."


class Warrants:
    """Those of one route. ``home`` is the state root whose keys and denylist count, ``None`` where there is none.

    ``jwks`` is a path or a URL of keys that take the place of those in ``home``; ``issuer`` is the claim ``iss``,
    empty for the usual one. Without ``checked``, a turn only has to have a token, whatever is in it.
    """

    def __init__(self, home: Path | None = None, *, jwks: str = "", issuer: str = "", checked: bool = True) -> None:
        self._home = home
        self._jwks = jwks
        self._issuer = issuer
        self._checked = checked
        self._verifier: Verifier | None = None
        self._making = asyncio.Lock()

    @classmethod
    def from_settings(cls, settings: Settings, options: Options) -> Warrants:
        """As ``[plugin.gateway]`` says; the issuer is that of ``[plugin.warrant]`` unless it says otherwise."""
        if options.warrants == "off":
            log.warning("plugin.gateway.warrants is off: no warrant is checked, and no budget kept")
        issuer = options.issuer or str(settings.options("warrant").get("issuer", ""))
        return cls(settings.home, jwks=options.jwks, issuer=issuer, checked=options.warrants == "on")

    async def of(self, origin: Origin) -> Warrant | None:
        """The warrant of the turn that calls; ``None`` where there are none, or none is checked.

        Raises `Refused`.
        """
        if not origin.warranted and not self._jwks:
            return None
        while True:
            token = origin.token
            if token is None:
                raise Refused(401, Revoked("no turn with a warrant runs in this session", sandbox=origin.sandbox))
            if not self._checked:
                return None
            try:
                return await self.check(token.value, audience=origin.route, sandbox=origin.sandbox)
            except Refused:
                if origin.token is token or origin.token is None:
                    raise
                # It was renewed, and the old one revoked, while keys were fetched.

    async def check(self, value: str, *, audience: str, sandbox: str | None = None) -> Warrant:
        """The warrant in ``value``. ``sandbox`` is the caller's, ``None`` where nobody sees it. Raises `Refused`."""
        about: dict[str, Any] = {"sandbox": sandbox or ""}
        if self._home is None and not self._jwks:
            raise Refused(503, AuthFailed("this gateway has no keys to check a warrant with", **about))
        try:
            from stockade_authority.errors import TokenMisdirected, TokenRefused, TokenRevoked, TrustError
        except ImportError:
            log.error("a turn has a warrant, and stockade-authority is not installed: the call is refused")
            raise Refused(503, AuthFailed("no warrant can be checked here", hint=_INSTALL, **about)) from None
        try:
            verifier = self._verifier or await self._ready()
            return await verifier.check(value, audience=audience, sandbox=sandbox)
        except TokenRevoked as error:
            raise Refused(401, Revoked(error.message, hint=error.hint, **about)) from error
        except TokenRefused as error:
            log.warning("%s: %s (%s)", sandbox, error.message, error.code)
            status = 403 if isinstance(error, TokenMisdirected) else 401
            raise Refused(status, AuthFailed(error.message, hint=error.hint, **about)) from error
        except TrustError as error:
            log.error("%s: no warrant can be checked: %s (%s)", sandbox, error.message, error.code)
            said = f"no warrant can be checked now ({error.code})"  # where the keys are is not the sandbox's business
            raise Refused(503, AuthFailed(said, hint=error.hint or error.message, **about)) from error

    async def prepare(self) -> None:
        """Open the keys and the denylist now, and not at the first call. Raises `StockadeError`."""
        try:
            self._verifier = self._verifier or await self._ready()
        except ImportError as error:
            raise NotConfigured("no warrant can be checked here", hint=_INSTALL) from error

    async def aclose(self) -> None:
        """Close the denylist. Idempotent."""
        verifier, self._verifier = self._verifier, None
        if verifier is not None:
            verifier.close()

    async def _ready(self) -> Verifier:
        async with self._making:
            if self._verifier is None:
                self._verifier = await asyncio.to_thread(self._make)
            return self._verifier

    def _make(self) -> Verifier:
        from stockade_authority.denylist import Denylist
        from stockade_authority.verify import ISSUER, Verifier, local, open_keys

        issuer = self._issuer or ISSUER
        if not self._jwks and self._home is not None:
            return local(self._home, issuer=issuer)
        denylist = Denylist(self._home) if self._home is not None else None
        return Verifier(open_keys(self._jwks), denylist, issuer=issuer)


def allow(warrant: Warrant, models: set[str]) -> None:
    """Refuses a call that names a model which is not the warrant's. Raises `Refused`."""
    if warrant.models is None or (models and models <= set(warrant.models)):
        return
    named = ", ".join(sorted(name[:64] for name in models - set(warrant.models))) or "no model"
    allowed = ", ".join(warrant.models) or "none at all"
    raise Refused(
        403,
        Denied(
            f"the turn's warrant does not allow {named}; it allows {allowed}",
            sandbox=warrant.sandbox,
            hint="The models of a turn are narrowed by plugins (hook token_claims).",
        ),
    )

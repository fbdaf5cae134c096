"""Checks warrants: for the gateway in a kernel, and for one that runs on its own.

Independent of the kernel. Where the keys come from is a `Keys`: the state root's own (`local`), or a JWK set
in a file or behind a URL (`open_keys`)::

    verifier = local(settings.home)                                  # in the kernel's process, or beside it
    verifier = Verifier(open_keys("https://…/jwks.json"), None)      # elsewhere: no denylist reaches there
    warrant = await verifier.check(token, audience="model", sandbox=origin.sandbox)

A refusal is a `TokenRefused` (401; `TokenMisdirected` 403); not being able to tell is a `TrustError` (503, L46).
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from stockade_authority import compact, warrants
from stockade_authority.denylist import Denylist
from stockade_authority.errors import KeyUnknown, TokenEarly, TokenExpired, TokenMisdirected, TokenRevoked
from stockade_authority.jwks import open_keys
from stockade_authority.keys import Keyring
from stockade_authority.signing import Keys
from stockade_authority.warrants import ISSUER, Budget, Warrant

__all__ = ["ISSUER", "Budget", "Verifier", "Warrant", "local", "open_keys"]

LEEWAY = 5
"""Seconds by which the clock of whoever minted may be ahead. The end of a warrant has none: it is renewed before."""
REMEMBERED = 4096
"""Warrants whose signature is not checked again."""


class Verifier:
    """Checks warrants of one issuer. Make one and keep it: it remembers what it has checked.

    ``denylist`` is ``None`` only where none can be reached; then a warrant is good until it expires.
    Use it in one thread.
    """

    def __init__(
        self,
        keys: Keys,
        denylist: Denylist | None,
        *,
        issuer: str = ISSUER,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._keys = keys
        self._denylist = denylist
        self._issuer = issuer
        self._clock = clock
        self._checked: OrderedDict[str, Warrant] = OrderedDict()

    def verify(self, value: str, *, audience: str, sandbox: str | None = None) -> Warrant:
        """The warrant, when everything about it is right, now.

        ``audience`` is the route; ``sandbox`` the id of the caller's, ``None`` when that cannot be seen.
        The signature is checked once for each ``value``; key, times, audience, sandbox and denylist every
        time. Takes microseconds then, and never waits for a network. Raises `TokenRefused` and `TrustError`.
        """
        warrant = self._checked.get(value)
        if warrant is None:
            members, kid = compact.unseal(value, warrants.TYP, self._keys)
            warrant = warrants.read(members, kid)
            self._checked[value] = warrant
            if len(self._checked) > REMEMBERED:
                self._checked.popitem(last=False)
        else:
            self._checked.move_to_end(value)
            self._keys.get(warrant.key)  # may have been retired
        self._check(warrant, audience, sandbox)
        return warrant

    async def check(self, value: str, *, audience: str, sandbox: str | None = None) -> Warrant:
        """As `verify`, and the keys are fetched anew when that is due, or when the key is not known.

        Only this can make use of a `JwksUrl`. May take a few seconds when the keys' server is slow.
        """
        if self._keys.due():
            await asyncio.to_thread(self._keys.refresh)
        try:
            return self.verify(value, audience=audience, sandbox=sandbox)
        except KeyUnknown:
            await asyncio.to_thread(self._keys.refresh)
            return self.verify(value, audience=audience, sandbox=sandbox)

    def close(self) -> None:
        """Close the denylist. Idempotent."""
        if self._denylist is not None:
            self._denylist.close()

    def _check(self, warrant: Warrant, audience: str, sandbox: str | None) -> None:
        now = self._clock()
        if warrant.issuer != self._issuer:
            raise TokenMisdirected("the warrant is of another issuer")
        if warrant.audience != audience:
            raise TokenMisdirected(f"the warrant is not for the route {audience!r}")
        if sandbox is not None and warrant.sandbox != sandbox:
            raise TokenMisdirected("the warrant is bound to another sandbox")
        if now >= warrant.expires:
            raise TokenExpired("the warrant has expired")
        if now < max(warrant.not_before, warrant.issued) - LEEWAY:
            raise TokenEarly("the warrant is not valid yet", hint="Compare the clocks of the two machines.")
        if self._denylist is not None and self._denylist.denies(warrant.id):
            raise TokenRevoked("the warrant was revoked")


def local(home: Path, *, issuer: str = ISSUER) -> Verifier:
    """A verifier with the keys and the denylist of the state root ``home``. Raises `DenylistUnavailable`."""
    return Verifier(Keyring(home / "keys"), Denylist(home), issuer=issuer)

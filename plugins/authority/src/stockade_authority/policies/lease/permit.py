"""What is known of one lease: the newest genuine one, and why there is none newer."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

from stockade.errors import StockadeError
from stockade_authority.jwks import open_keys
from stockade_authority.policies.lease import source
from stockade_authority.policies.lease.document import Lease, unseal
from stockade_authority.policies.lease.errors import LeaseError, LeaseExpired, LeaseMissing, LeaseRevoked
from stockade_authority.policies.lease.grants import write_private

if TYPE_CHECKING:
    from stockade_authority.policies.config import LeaseOptions

log = logging.getLogger("stockade.lease")


class Permit:
    """A lease and its cache, ``$STOCKADE_HOME/lease/NAME.jwt``.

    The cache spares nothing of the check: it is verified like what comes from the server, and only a newer
    one replaces it, so that no old lease comes back after its revocation.
    """

    def __init__(self, home: Path, options: LeaseOptions) -> None:
        self._options = options
        self._keys = open_keys(options.keys)
        self._cache = home / "lease" / f"{options.name}.jwt"
        self._cached = not options.url
        self._text = ""
        self.lease: Lease | None = None
        self.trouble: StockadeError | None = None
        """Why the last look brought nothing; ``None`` after a good one."""

    @property
    def where(self) -> str:
        """Where the lease comes from."""
        return self._options.url or str(self._options.file)

    def look(self) -> None:
        """Read the lease anew. Blocks for seconds at most; raises nothing."""
        if self._keys.due():
            self._keys.refresh()
        if not self._cached:
            self._read_cache()
        self._check_key()
        try:
            text = source.read(self._options)
            changed = self._accept(text)
        except StockadeError as error:
            self._note(error)
            if self._options.file and isinstance(error, LeaseMissing):
                self.lease = None  # a file is all there is: who removes it means it
            return
        self._note(None)
        if changed and self._options.url:
            self._write_cache(text)

    def check(self, now: float) -> Lease:
        """The lease, if it is good at ``now``. Raises the `LeaseError` or `TrustError` that says why not."""
        if self.lease is None:
            raise self.trouble or LeaseMissing(f"no lease {self._options.name!r} was read yet")
        lease = self.lease
        if lease.status == "revoked":
            raise LeaseRevoked(
                f"the lease {lease.name!r} was revoked at {clock(lease.issued)}", hint="Ask whoever issues it."
            )
        if now >= lease.expires:
            since = f"; {self.trouble.message}" if self.trouble else ""
            raise LeaseExpired(
                f"the lease {lease.name!r} expired at {clock(lease.expires)}{since}",
                hint=f"Look whether its server runs, or renew it: stockade lease issue {lease.name}",
            )
        return lease

    def _accept(self, text: str) -> bool:
        lease = unseal(text, self._options.name, self._keys, time.time())
        if not lease.newer_than(self.lease):
            return False
        self.lease, self._text = lease, text
        return True

    def _check_key(self) -> None:
        """A lease whose key is trusted no more is none."""
        if self.lease is not None:
            try:
                unseal(self._text, self._options.name, self._keys, time.time())
            except LeaseError as error:
                log.warning("lease %r: %s", self._options.name, error.message)
                self.lease = None
            except StockadeError:
                pass  # nobody can say so now; what was good stays so until it expires

    def _note(self, trouble: StockadeError | None) -> None:
        """Say it when the state of things changes, and not each time."""
        before, self.trouble = self.trouble, trouble
        lease = self.lease
        if trouble is not None and (before is None or before.message != trouble.message):
            held = lease is not None and lease.status == "active" and time.time() < lease.expires
            until = f"; going on with the lease until {clock(lease.expires)}" if lease and held else ""
            log.warning("lease %r: %s%s", self._options.name, trouble.message, until)
        elif trouble is None and before is not None:
            log.warning("lease %r: %s can be read again", self._options.name, self.where)

    def _read_cache(self) -> None:
        try:
            self._accept(self._cache.read_bytes()[: source.MAX_SIZE + 1].decode("ascii", "replace"))
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("the cached lease %s cannot be read: %s", self._cache, error.strerror)
        except LeaseError as error:
            log.warning("the cached lease %s is not used: %s", self._cache, error.message)
        except StockadeError:
            return  # no key could be had: look again at the next time
        self._cached = True

    def _write_cache(self, text: str) -> None:
        try:
            self._cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(self._cache, text)
        except OSError as error:
            log.warning("the lease cannot be kept at %s: %s", self._cache, error.strerror)


def clock(moment: float) -> str:
    """A time for people, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(moment))

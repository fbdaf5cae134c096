"""Why there is no permit to run. Each is a reason of its own, for people and for monitors."""

from __future__ import annotations

from stockade.errors import StockadeError


class LeaseError(StockadeError):
    """Base: there is no valid lease."""

    code = "lease"


class LeaseMissing(LeaseError):
    """There is no lease of that name, or no file."""

    code = "lease_missing"


class LeaseExpired(LeaseError):
    """Its time is over, and there is no newer one."""

    code = "lease_expired"


class LeaseRevoked(LeaseError):
    """Whoever gave it took it back."""

    code = "lease_revoked"


class LeaseUnreachable(LeaseError):
    """Its server does not answer, or not with a lease, and there was none before."""

    code = "lease_unreachable"


class LeaseBadSignature(LeaseError):
    """Its signature is not that of a trusted key."""

    code = "lease_bad_signature"


class LeaseInvalid(LeaseError):
    """It is signed, and no lease: of another name, of a later time, or with members that it must not have."""

    code = "lease_invalid"

"""Why a token is not accepted, and why nobody can say.

Two families, because a caller must tell them apart: `TokenRefused` is the holder's trouble (401 or 403),
`TrustError` the host's (503). A trust root that cannot be read is never mistaken for one without keys (L46).
"""

from __future__ import annotations

from stockade.errors import StockadeError


class TokenRefused(StockadeError):
    """Base: a signed token is not accepted. Never repeats anything of the token."""

    code = "token_refused"


class TokenMalformed(TokenRefused):
    """It is no ES256 compact JWS of the expected type, or its claims are not as they must be."""

    code = "token_malformed"


class TokenForged(TokenRefused):
    """The signature is not that of the named key over these bytes."""

    code = "token_forged"


class KeyUnknown(TokenRefused):
    """The key that it names is none of the trusted ones, or none any more."""

    code = "key_unknown"


class TokenExpired(TokenRefused):
    """Its time is over."""

    code = "token_expired"


class TokenEarly(TokenRefused):
    """Its time has not come: a clock is wrong."""

    code = "token_early"


class TokenMisdirected(TokenRefused):
    """It is genuine, and for another route, another sandbox or of another issuer (L45)."""

    code = "token_misdirected"


class TokenRevoked(TokenRefused):
    """It was revoked: its turn or its sandbox has ended, or somebody revoked its route."""

    code = "token_revoked"


class TrustError(StockadeError):
    """Base: nobody can say whether a token is good. Nothing is accepted meanwhile."""

    code = "trust"


class KeysMissing(TrustError):
    """There is a place for keys, and no key in it (L47)."""

    code = "keys_missing"


class KeysUnavailable(TrustError):
    """The keys cannot be read or fetched (L46)."""

    code = "keys_unavailable"


class KeysUnsafe(TrustError):
    """Others could read or replace the keys, so they prove nothing."""

    code = "keys_unsafe"


class SignerFailed(TrustError):
    """The signer gave no signature, or one that is none."""

    code = "signer_failed"


class DenylistUnavailable(TrustError):
    """The list of revoked tokens cannot be read or written."""

    code = "denylist_unavailable"

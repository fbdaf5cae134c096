"""Signed claims: ES256 compact JWS (RFC 7515, 7518), and nothing else of what JOSE allows.

joserfc does the cryptography: of the maintained libraries it is the quickest to import (75 ms over the
bare cryptography; PyJWT 95, jwcrypto 105) and to verify (0.20 ms; 0.27, 0.36). What surrounds it here is a
profile that leaves no choice to whoever made the token: one algorithm, three header members, one encoding of
every byte, one signature for every key and message. Follows RFC 8725.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, Never

from stockade_authority.errors import SignerFailed, TokenForged, TokenMalformed
from stockade_authority.signing import Keys, Signer

ALGORITHM = "ES256"
MAX_SIZE = 8 * 1024
"""Bytes of one token."""
MAX_NUMBER = 2**53 - 1
"""The largest number in claims, as in all of JSON's readers (RFC 8259 §6)."""
KID = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What a key's name may be; it becomes a file's name (L58)."""

_SEGMENT = re.compile(r"[A-Za-z0-9_-]+")
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Of the curve P-256."""


def seal(claims: Mapping[str, Any], signer: Signer, typ: str) -> str:
    """Sign ``claims`` (JSON, whole numbers only) as a token of type ``typ``. Blocks as long as the signer does.

    Raises `SignerFailed` for a signature that is none, and whatever the signer raises.
    """
    head = {"alg": ALGORITHM, "kid": signer.kid, "typ": typ}
    if not KID.fullmatch(head["kid"]):
        raise SignerFailed("the signer's key has a name that is not possible", hint="Use letters, digits, - and _.")
    signed = f"{_encoded(head)}.{_encoded(claims)}"
    return f"{signed}.{_base64(_canonical(signer.sign(signed.encode())))}"


def unseal(value: object, typ: str, keys: Keys) -> tuple[dict[str, Any], str]:
    """The claims of a token of type ``typ``, and the name of the key that signed it.

    Says nothing about time, audience or meaning. Raises `TokenMalformed`, `TokenForged`, and what
    `Keys.get` raises.
    """
    from joserfc import jws
    from joserfc.errors import JoseError

    if not isinstance(value, str) or len(value) > MAX_SIZE:
        raise TokenMalformed(f"this is no token: not text, or over {MAX_SIZE} bytes")
    segments = value.split(".")
    if len(segments) != 3:
        raise TokenMalformed("a token has three parts")
    header, payload, signature = map(_decoded, segments)
    head, claims = _object(header), _object(payload)
    if head.keys() != {"alg", "kid", "typ"} or head["alg"] != ALGORITHM or head["typ"] != typ:
        # No jwk, jku, x5u, x5c: a token does not bring its own key. No crit, no b64: nothing to misunderstand.
        raise TokenMalformed(f"the header must be alg {ALGORITHM}, typ {typ} and a kid, and nothing else")
    kid = head["kid"]
    if not isinstance(kid, str) or not KID.fullmatch(kid):
        raise TokenMalformed("the name of the key is not possible")
    key = keys.get(kid)
    if len(signature) != 64 or int.from_bytes(signature[32:]) > _ORDER // 2:
        # Of the two signatures that say the same, ours is the one with the smaller s.
        raise TokenForged("the signature is not in its one form")
    try:
        jws.deserialize_compact(value, key, [ALGORITHM])
    except (JoseError, ValueError) as error:
        raise TokenForged("the signature is not that of the named key") from error
    return claims, kid


def _canonical(signature: bytes) -> bytes:
    r, s = int.from_bytes(signature[:32]), int.from_bytes(signature[32:])
    if len(signature) != 64 or not 0 < r < _ORDER or not 0 < s < _ORDER:
        raise SignerFailed("the signer's answer is no ES256 signature", hint="It must be r and s, 32 bytes each.")
    return signature[:32] + min(s, _ORDER - s).to_bytes(32)


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _encoded(value: Mapping[str, Any]) -> str:
    return _base64(json.dumps(value, separators=(",", ":"), allow_nan=False).encode())


def _decoded(segment: str) -> bytes:
    if not _SEGMENT.fullmatch(segment):
        raise TokenMalformed("a part is empty, or not base64url without padding")
    try:
        data = base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    except ValueError:
        raise TokenMalformed("a part is not base64url") from None
    if _base64(data) != segment:
        raise TokenMalformed("a part is base64url in a form that is not the one")
    return data


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(
            data.decode(), object_pairs_hook=_distinct, parse_int=_whole, parse_float=_refused, parse_constant=_refused
        )
    except (ValueError, RecursionError):
        raise TokenMalformed(
            "a part is not JSON, or has members twice, fractions or numbers that are too large"
        ) from None
    if not isinstance(value, dict):
        raise TokenMalformed("a part is not a JSON object")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a member twice")
    return found


def _whole(text: str) -> int:
    if len(text) > 17 or abs(int(text)) > MAX_NUMBER:  # first the length: long numbers take long to read
        raise ValueError("too large")
    return int(text)


def _refused(text: str) -> Never:
    raise ValueError("not a whole number")

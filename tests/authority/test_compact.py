"""What is accepted as signed: one form, and none of the known ways around a signature.

The attacks are those of RFC 8725, RFC 7515 §10 and the JWT libraries' published advisories.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa, utils
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import ECKey

from stockade_authority import compact
from stockade_authority.errors import KeyUnknown, SignerFailed, TokenForged, TokenMalformed, TokenRefused
from stockade_authority.keys import FileSigner, Keyring
from stockade_authority.signing import Signer

TYP = "test+jwt"
CLAIMS = {"sub": "sb-1", "n": 1}
N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def b64(data: bytes | str | dict[str, Any]) -> str:
    raw = json.dumps(data).encode() if isinstance(data, dict) else data.encode() if isinstance(data, str) else data
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


class Forge:
    """Makes tokens that the real code would not, signed with the real key unless said otherwise."""

    def __init__(self, keyring: Keyring) -> None:
        self.keyring = keyring
        self.signer = keyring.signer()
        self.kid = self.signer.kid
        self.head = {"alg": "ES256", "kid": self.kid, "typ": TYP}

    def make(
        self,
        head: dict[str, Any] | str | None = None,
        claims: dict[str, Any] | str | bytes = CLAIMS,
        sign: Callable[[bytes], bytes] | None = None,
    ) -> str:
        signed = f"{b64(self.head if head is None else head)}.{b64(claims)}"
        return f"{signed}.{b64((sign or self.low)(signed.encode()))}"

    def low(self, data: bytes) -> bytes:
        return compact._canonical(self.signer.sign(data))

    @property
    def public_pem(self) -> bytes:
        return self.keyring.get(self.kid).as_pem(private=False)

    def refused(self, value: object, error: type[TokenRefused]) -> None:
        with pytest.raises(TokenRefused) as caught:
            compact.unseal(value, TYP, self.keyring)
        assert type(caught.value) is error, caught.value
        # Whatever was sent, the complaint repeats nothing of it.
        assert str(value)[:20] not in str(caught.value) or not value


@pytest.fixture
def forge(keyring: Keyring) -> Forge:
    return Forge(keyring)


def test_what_was_sealed_is_unsealed(keyring: Keyring, signer: FileSigner) -> None:
    value = compact.seal(CLAIMS, signer, TYP)
    assert compact.unseal(value, TYP, keyring) == (CLAIMS, signer.kid)
    assert json.loads(base64.urlsafe_b64decode(value.split(".")[0] + "==")) == {
        "alg": "ES256",
        "kid": signer.kid,
        "typ": TYP,
    }


def test_the_forge_makes_good_tokens_too(forge: Forge, keyring: Keyring) -> None:
    assert compact.unseal(forge.make(), TYP, keyring)[0] == CLAIMS


# -- the algorithm is not the token's choice ---------------------------------------------------------


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "nOnE", ""])
def test_no_signature_is_no_algorithm(forge: Forge, alg: str) -> None:
    for signature in ("", b64(b"")):
        forge.refused(f"{b64(forge.head | {'alg': alg})}.{b64(CLAIMS)}.{signature}", TokenMalformed)
    forge.refused(forge.make(forge.head | {"alg": alg}), TokenMalformed)


def test_the_public_key_is_no_secret_for_hmac(forge: Forge) -> None:
    public = forge.keyring.get(forge.kid)
    der = public.public_key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    for secret in (forge.public_pem, forge.public_pem.strip(), der, json.dumps(public.as_dict(private=False)).encode()):
        value = forge.make(forge.head | {"alg": "HS256"}, sign=lambda d, s=secret: hmac.digest(s, d, hashlib.sha256))
        forge.refused(value, TokenMalformed)
        forge.refused(forge.make(sign=lambda d, s=secret: hmac.digest(s, d, hashlib.sha256) * 2), TokenForged)


@pytest.mark.parametrize(
    "alg", ["ES384", "ES512", "ES256K", "RS256", "PS256", "EdDSA", "es256", "HS256", 256, None, ["ES256"]]
)
def test_another_algorithm_is_refused(forge: Forge, alg: object) -> None:
    forge.refused(forge.make(forge.head | {"alg": alg}), TokenMalformed)


# -- the key is not the token's choice -----------------------------------------------------------------


def other_key() -> tuple[ECKey, Callable[[bytes], bytes]]:
    key = ECKey.generate_key("P-256")
    return key, lambda data: compact._canonical(FileSigner("x", key).sign(data))


@pytest.mark.parametrize("name", ["jwk", "jku", "x5u", "x5c", "x5t", "x5t#S256"])
def test_a_key_that_the_token_brings_is_not_used(forge: Forge, name: str) -> None:
    key, sign = other_key()
    values = {"jwk": key.as_dict(private=False), "x5c": ["MIIB"]}
    value = values.get(name, "http://127.0.0.1:1/keys")
    forge.refused(forge.make(forge.head | {name: value}, sign=sign), TokenMalformed)
    forge.refused(forge.make(forge.head | {name: value}), TokenMalformed)
    without_kid = {"alg": "ES256", "typ": TYP, name: value}
    forge.refused(forge.make(without_kid, sign=sign), TokenMalformed)


@pytest.mark.requirement("L58")
@pytest.mark.parametrize(
    "kid",
    [
        "../../etc/passwd",
        "/dev/null",
        "..",
        "a/b",
        "a.pem",
        "x' OR '1'='1",
        "a\x00b",
        "",
        "ä",
        "a" * 65,
        "http://x",
        "| id",
        7,
        None,
        ["k"],
        {},
    ],
)
def test_a_key_name_that_is_more_than_a_name_is_refused(forge: Forge, kid: object) -> None:
    forge.refused(forge.make(forge.head | {"kid": kid}), TokenMalformed)


def test_a_key_that_nobody_trusts_is_unknown(forge: Forge) -> None:
    key, sign = other_key()
    forge.refused(forge.make(forge.head | {"kid": key.thumbprint()}, sign=sign), KeyUnknown)


def test_another_key_under_a_trusted_name_is_a_forgery(forge: Forge) -> None:
    _, sign = other_key()
    forge.refused(forge.make(sign=sign), TokenForged)


@pytest.mark.parametrize("curve", [ec.SECP384R1(), ec.SECP521R1(), ec.SECP256K1()])
def test_another_curve_is_a_forgery(forge: Forge, curve: ec.EllipticCurve) -> None:
    key = ec.generate_private_key(curve)

    def sign(data: bytes) -> bytes:
        r, s = utils.decode_dss_signature(key.sign(data, ec.ECDSA(hashes.SHA256())))
        size = (curve.key_size + 7) // 8
        return r.to_bytes(size) + s.to_bytes(size)

    forge.refused(forge.make(sign=sign), TokenForged)


def test_another_kind_of_key_is_a_forgery(forge: Forge) -> None:
    from cryptography.hazmat.primitives.asymmetric import padding

    key = rsa.generate_private_key(65537, 2048)
    forge.refused(forge.make(sign=lambda d: key.sign(d, padding.PKCS1v15(), hashes.SHA256())), TokenForged)


# -- the signature has one form --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("r", "s"), [(0, 0), (0, 1), (1, 0), (1, 1), (N, N), (N, 1), (1, N), (N - 1, N - 1), (2**256 - 1, 2**256 - 1)]
)
def test_a_signature_of_special_numbers_is_a_forgery(forge: Forge, r: int, s: int) -> None:
    forge.refused(forge.make(sign=lambda _: r.to_bytes(32) + s.to_bytes(32)), TokenForged)


def test_the_other_signature_that_says_the_same_is_refused(forge: Forge) -> None:
    def flip(data: bytes) -> bytes:
        signature = forge.low(data)
        return signature[:32] + (N - int.from_bytes(signature[32:])).to_bytes(32)

    forge.refused(forge.make(sign=flip), TokenForged)


def test_a_signature_in_der_is_refused(forge: Forge) -> None:
    def der(data: bytes) -> bytes:
        signature = forge.low(data)
        return utils.encode_dss_signature(int.from_bytes(signature[:32]), int.from_bytes(signature[32:]))

    forge.refused(forge.make(sign=der), TokenForged)


@pytest.mark.parametrize(
    "change", [lambda s: s + b"\0", lambda s: b"\0" + s, lambda s: s[:-1], lambda s: s[32:] + s[:32]]
)
def test_a_signature_of_another_length_or_order_is_a_forgery(forge: Forge, change: Callable[[bytes], bytes]) -> None:
    forge.refused(forge.make(sign=lambda d: change(forge.low(d))), TokenForged)


def test_every_bit_of_a_token_counts(forge: Forge) -> None:
    value = forge.make()
    for place in range(len(value)):
        for letter in "A_.":
            changed = value[:place] + letter + value[place + 1 :]
            if changed != value:
                with pytest.raises(TokenRefused):
                    compact.unseal(changed, TYP, forge.keyring)


# -- the header says three things --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        {"crit": []}, {"crit": ["exp"]}, {"crit": ["b64"], "b64": False}, {"b64": False}, {"b64": True}, {"zip": "DEF"},
        {"cty": "JWT"}, {"enc": "A128GCM"}, {"exp": 1}, {"ALG": "none"},
    ],
)  # fmt: skip
def test_another_header_member_is_refused(forge: Forge, more: dict[str, Any]) -> None:
    forge.refused(forge.make(forge.head | more), TokenMalformed)


def test_an_unencoded_payload_is_refused(forge: Forge) -> None:
    head = b64(forge.head | {"b64": False, "crit": ["b64"]})
    signed = f"{head}.plain"
    forge.refused(f"{signed}.{b64(forge.low(signed.encode()))}", TokenMalformed)


@pytest.mark.parametrize("typ", ["JWT", "at+jwt", TYP.upper(), "application/" + TYP, "", None])
def test_a_token_of_another_type_is_refused(forge: Forge, typ: object) -> None:
    forge.refused(forge.make(forge.head | {"typ": typ}), TokenMalformed)


@pytest.mark.parametrize("missing", ["alg", "kid", "typ"])
def test_a_missing_header_member_is_refused(forge: Forge, missing: str) -> None:
    forge.refused(forge.make({n: v for n, v in forge.head.items() if n != missing}), TokenMalformed)


def test_a_member_that_is_there_twice_is_refused(forge: Forge) -> None:
    head = json.dumps(forge.head)
    forge.refused(forge.make(head[:-1] + ', "alg": "ES256"}'), TokenMalformed)
    forge.refused(forge.make(head[:-1] + ', "al\\u0067": "none"}'), TokenMalformed)
    forge.refused(forge.make(claims='{"sub": "sb-1", "sub": "sb-2"}'), TokenMalformed)
    forge.refused(forge.make(claims='{"budget": {"requests": 1, "requests": 9}}'), TokenMalformed)


# -- one encoding ------------------------------------------------------------------------------------------


def spoilt(value: str) -> list[str]:
    head, claims, signature = value.split(".")
    return [
        f"{head}=.{claims}.{signature}",
        f"{head}.{claims}=.{signature}",
        f"{head}.{claims}.{signature}==",
        f" {value}",
        f"{value} ",
        f"{value}\n",
        f"{head}.{claims}.\n{signature}",
        f"{head}.{claims} .{signature}",
        f"{head}.{claims}.{signature[:10]} {signature[10:]}",
        f"{head}.{claims}.{signature}\x00",
        f"{head}.{claims}.{signature}.",
        f".{head}.{claims}.{signature}",
        f"{head}.{claims}",
        f"{head}.{claims}.",
        f"{head}..{signature}",
        f".{claims}.{signature}",
        "..",
        "",
        f"{head}.{claims}.{signature}.{signature}",
        f"{head}.{claims}.{signature[:-1]}",  # 85 letters: impossible in base64
        f"{head}.{claims}.+/{signature[2:]}",
        f"{head}.{claims}.\u00e4{signature[1:]}",
        f"Bearer {value}",
        json.dumps({"protected": head, "payload": claims, "signature": signature}),
    ]


@pytest.mark.parametrize("number", range(24))
def test_another_encoding_of_the_same_is_refused(forge: Forge, number: int) -> None:
    forge.refused(spoilt(forge.make())[number], TokenMalformed)


def test_bits_that_base64_does_not_need_must_be_zero(forge: Forge) -> None:
    value = forge.make()
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    assert value[-1] in "AQgw"  # 64 bytes leave four bits
    forge.refused(value[:-1] + alphabet[alphabet.index(value[-1]) + 1], TokenMalformed)


@pytest.mark.parametrize("value", [None, 7, b"a.b.c", ["a.b.c"], object()])
def test_what_is_no_text_is_refused(forge: Forge, value: object) -> None:
    forge.refused(value, TokenMalformed)


def test_a_token_over_the_cap_is_refused_unread(forge: Forge) -> None:
    forge.refused(forge.make(claims={"x": "y" * compact.MAX_SIZE}), TokenMalformed)
    begun = time.perf_counter()
    forge.refused("A" * 50_000_000 + ".A.A", TokenMalformed)
    forge.refused("." * 8000, TokenMalformed)
    assert time.perf_counter() - begun < 5


@pytest.mark.parametrize(
    "claims",
    [
        '{"n": NaN}', '{"n": Infinity}', '{"n": -Infinity}', '{"n": 1e999}', '{"n": 1.5}', '{"n": 1e3}',
        '{"n": 9007199254740992}', '{"n": ' + "9" * 5000 + "}", "[" * 4000, "[1]", '"x"', "null",
        "7", " ", "{", '{"n": 1}x', '{"n": 01}', "{'n': 1}", b"\xff\xfe{}", b'{"n": "\xff"}',
    ],
)  # fmt: skip
def test_claims_that_are_no_plain_json_object_are_refused(forge: Forge, claims: str | bytes) -> None:
    forge.refused(forge.make(claims=claims), TokenMalformed)


def test_a_token_inside_a_token_is_refused(forge: Forge) -> None:
    forge.refused(forge.make(claims=forge.make()), TokenMalformed)
    encrypted = ".".join([b64({"alg": "dir", "enc": "A128GCM"}), "", b64("iv"), b64("text"), b64("tag")])
    forge.refused(encrypted, TokenMalformed)


@given(st.text(max_size=300))
def test_garbage_never_crashes(text: str) -> None:
    class Nothing(Keyring):
        def __init__(self) -> None: ...

        def get(self, kid: str) -> ECKey:
            raise KeyUnknown("nobody")

    for value in (text, f"{b64(text)}.{b64(text)}.{b64(text)}"):
        with pytest.raises(TokenRefused):
            compact.unseal(value, TYP, Nothing())


# -- signers -------------------------------------------------------------------------------------------------


class Odd(Signer):
    kid = "odd"

    def __init__(self, signature: bytes) -> None:
        self.signature = signature

    def sign(self, data: bytes) -> bytes:
        return self.signature


@pytest.mark.parametrize("signature", [b"", b"\0" * 64, b"\xff" * 64, b"\1" * 63, b"\1" * 65])
def test_a_signer_that_gives_no_signature_mints_no_token(signature: bytes) -> None:
    with pytest.raises(SignerFailed):
        compact.seal(CLAIMS, Odd(signature), TYP)


def test_a_signer_may_give_either_of_the_two_signatures(forge: Forge, keyring: Keyring) -> None:
    class High(Signer):
        kid = forge.kid

        def __init__(self) -> None: ...

        def sign(self, data: bytes) -> bytes:
            signature = forge.low(data)
            return signature[:32] + (N - int.from_bytes(signature[32:])).to_bytes(32)

    assert compact.unseal(compact.seal(CLAIMS, High(), TYP), TYP, keyring)[0] == CLAIMS

"""Trusted keys that somebody else publishes: strict reading, and "cannot be had" is not "there is none"."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import ECKey

from stockade.errors import SettingsError
from stockade_authority import compact, jwks, warrants
from stockade_authority.errors import KeysMissing, KeysUnavailable, KeyUnknown
from stockade_authority.jwks import JwksFile, JwksUrl, open_keys, parse
from stockade_authority.keys import Keyring
from stockade_authority.verify import Verifier

from .conftest import Issue


class Publisher:
    """A JWK set on loopback; ``status`` and ``body`` may be changed."""

    def __init__(self) -> None:
        self.status, self.body, self.asked = 200, b"", 0
        self.headers: dict[str, str] = {}
        publisher = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                publisher.asked += 1
                self.send_response(publisher.status)
                for name, value in publisher.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(publisher.body)

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/jwks.json"


@contextlib.contextmanager
def serving() -> Iterator[Publisher]:
    publisher = Publisher()
    thread = threading.Thread(target=publisher.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield publisher
    finally:
        publisher.server.shutdown()
        thread.join()
        publisher.server.server_close()


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with serving() as publisher:
        yield publisher


def member(**changes: Any) -> dict[str, Any]:
    key = {**ECKey.generate_key("P-256").as_dict(private=False), "kid": "k", "use": "sig", "alg": "ES256"}
    return {name: value for name, value in (key | changes).items() if value is not None}


def a_set(*keys: Any) -> bytes:
    return json.dumps({"keys": keys}).encode()


def test_what_the_keyring_publishes_is_understood(keyring: Keyring) -> None:
    keyring.generate("second")
    found = parse(json.dumps(keyring.jwks()).encode())
    assert {kid: key.thumbprint() for kid, key in found.items()} == {
        kid: keyring.get(kid).thumbprint() for kid in (keyring.signer().kid, "second")
    }


@pytest.mark.parametrize(
    "changes", [{"kty": "RSA"}, {"kty": "oct", "k": "c2VjcmV0"}, {"crv": "P-384"}, {"use": "enc"}, {"alg": "ES384"}]
)
def test_a_key_for_something_else_is_passed_over(changes: dict[str, Any]) -> None:
    assert list(parse(a_set(member(kid="good"), member(**changes), "no key", None))) == ["good"]


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b"{}", b'{"keys": {}}', b"\xff", b"[" * 100_000, b"<html>", b" " * (jwks.MAX_SIZE + 1),
        a_set(member(d="AAAA")), a_set(member(kid=None)), a_set(member(kid="../x")), a_set(member(), member()),
        a_set(member(x="AAAA")), a_set(member(y=None)), a_set(member(x=7)), a_set(member(x="A" * 43, y="A" * 43)),
    ],
)  # fmt: skip
def test_a_set_that_is_wrong_is_refused_whole(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse(data)


@pytest.mark.requirement("L46", "L47")
def test_a_file_that_is_not_there_is_not_a_file_without_keys(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    keys = JwksFile(path)
    with pytest.raises(KeysUnavailable, match="No such file"):
        keys.get("k")
    path.write_bytes(a_set())
    with pytest.raises(KeysMissing):
        keys.get("k")
    path.write_bytes(a_set(member()))
    assert keys.get("k")
    with pytest.raises(KeyUnknown):
        keys.get("another")
    path.write_bytes(b"{")
    with pytest.raises(KeysUnavailable, match="no JWK set"):
        keys.get("k")
    path.unlink()
    with pytest.raises(KeysUnavailable):
        keys.get("k")


@pytest.mark.requirement("L46", "L47")
def test_a_server_that_does_not_answer_is_not_one_without_keys(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwks, "FETCH_AGAIN", 0)
    keys = JwksUrl(publisher.url)
    with pytest.raises(KeysUnavailable, match="not read yet"):
        keys.get("k")
    for status, body in ((503, b""), (200, b"<html>"), (200, b" " * (jwks.MAX_SIZE + 1)), (404, a_set(member()))):
        publisher.status, publisher.body = status, body
        keys.refresh()
        with pytest.raises(KeysUnavailable):
            keys.get("k")
    publisher.status, publisher.body = 200, a_set()
    keys.refresh()
    with pytest.raises(KeysMissing):
        keys.get("k")
    publisher.body = a_set(member())
    keys.refresh()
    assert keys.get("k")


def test_keys_are_kept_while_the_server_is_away_and_not_for_ever(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwks, "FETCH_AGAIN", 0)
    publisher.body = a_set(member())
    keys = JwksUrl(publisher.url)
    keys.refresh()
    publisher.status = 503
    keys.refresh()
    assert keys.get("k")
    keys._fetched -= jwks.MAX_AGE
    with pytest.raises(KeysUnavailable):
        keys.get("k")


def test_a_redirect_is_not_followed(publisher: Publisher) -> None:
    with serving() as elsewhere:
        elsewhere.body = a_set(member())
        publisher.status, publisher.headers = 302, {"Location": elsewhere.url}
        keys = JwksUrl(publisher.url)
        keys.refresh()
        with pytest.raises(KeysUnavailable):
            keys.get("k")
        assert elsewhere.asked == 0


@pytest.mark.parametrize(
    "url", ["http://keys.example.com/jwks", "ftp://127.0.0.1/x", "file:///etc/passwd", "http:///x"]
)
def test_keys_come_over_https_or_from_this_machine(url: str) -> None:
    with pytest.raises(SettingsError):
        open_keys(url)


def test_a_credential_in_the_address_is_not_shown() -> None:
    keys = JwksUrl("https://user:canary-1@keys.example.com/jwks?token=canary-2")
    with pytest.raises(KeysUnavailable) as error:
        keys.get("k")
    assert "canary" not in str(error.value)


async def test_a_verifier_elsewhere_fetches_the_keys_and_again_after_a_rotation(
    publisher: Publisher, keyring: Keyring, issue: Issue, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher.body = json.dumps(keyring.jwks()).encode()
    verifier = Verifier(open_keys(publisher.url), None)
    for _ in range(3):
        assert (await verifier.check(issue(), audience="model")).sandbox == "sb-1"
    assert publisher.asked == 1
    new = keyring.rotate()
    publisher.body = json.dumps(keyring.jwks()).encode()
    members, _ = compact.unseal(issue(), warrants.TYP, keyring)
    rotated = compact.seal(members, keyring.signer(), warrants.TYP)
    with pytest.raises(KeyUnknown):  # too soon after the last fetch: unknown keys cannot make it fetch at will
        await verifier.check(rotated, audience="model")
    assert publisher.asked == 1
    monkeypatch.setattr(jwks, "FETCH_AGAIN", 0)
    assert (await verifier.check(rotated, audience="model")).key == new
    assert publisher.asked == 2

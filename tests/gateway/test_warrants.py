"""No call without a good warrant: who is refused, how, and what the kernel learns of it."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web

from stockade.contracts.route import Caller, Origin
from stockade.model.authority import Token
from stockade.settings import Settings
from stockade_gateway.route import ModelRoute
from stockade_gateway.testing import serve_tcp
from stockade_gateway.warrants import Warrants

from .conftest import CANARY, KEY, Vendor, ask

if TYPE_CHECKING:
    from .warranted import Authority

RESPONSES = {"model": "m", "input": "go"}


async def call(url: str, path: str = "/v1/messages", **body: Any) -> tuple[int, Any]:
    """One call with the session's key: status and JSON."""
    async with aiohttp.ClientSession(headers={"x-api-key": KEY}) as client:
        async with client.post(url + path, json={**ask(), **body}) as said:
            return said.status, await said.json()


@pytest.mark.requirement("L45")
async def test_a_warrant_from_the_minter_opens_the_route_and_goes_nowhere(
    authority: Authority, vendor: Vendor, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"ok": True})

    vendor.answer = answer
    origin = await authority.origin()
    async with serve_tcp(authority.route(vendor), origin) as url:
        assert (await call(url))[0] == 200
    assert origin.token is not None and origin.caller.refused is None
    [request] = vendor.seen
    assert origin.token.value not in str(request.headers) + caplog.text


async def expired(authority: Authority, origin: Origin) -> None:
    await authority.renew(origin, expires=time.time() - 1)


async def of_another_sandbox(authority: Authority, origin: Origin) -> None:
    await authority.renew(origin, sandbox="sb-2")


async def for_another_route(authority: Authority, origin: Origin) -> None:
    await authority.renew(origin, audience="cursor")


async def revoked(authority: Authority, origin: Origin) -> None:
    assert origin.token is not None
    await authority.minter.revoke([origin.token.id], "lost")


async def taken_away(authority: Authority, origin: Origin) -> None:
    origin.caller.token = None


async def garbage(authority: Authority, origin: Origin) -> None:
    origin.caller.token = Token("t", CANARY)


async def unsigned(authority: Authority, origin: Origin) -> None:
    assert origin.token is not None
    head, body, _ = origin.token.value.split(".")
    origin.caller.token = Token("t", f"{head}.{body}.")


@pytest.mark.requirement("L45", "F77")
@pytest.mark.parametrize(
    ("spoil", "status", "code"),
    [
        (expired, 401, "auth"),
        (of_another_sandbox, 403, "auth"),
        (for_another_route, 403, "auth"),
        (revoked, 401, "revoked"),
        (taken_away, 401, "revoked"),
        (garbage, 401, "auth"),
        (unsigned, 401, "auth"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_any_other_warrant_is_refused_in_the_callers_dialect(
    authority: Authority, vendor: Vendor, caplog: pytest.LogCaptureFixture, spoil: Any, status: int, code: str
) -> None:
    origin = await authority.origin()
    await spoil(authority, origin)
    kinds = {401: "authentication_error", 403: "permission_error"}
    async with serve_tcp(authority.route(vendor), origin) as url:
        said, body = await call(url)
        assert (said, body["error"]["type"]) == (status, kinds[status])
        assert body["error"]["message"]
        said, body = await call(url, "/v1/responses", **RESPONSES)
        assert (said, body["error"]["type"]) == (status, "invalid_request_error")
    assert vendor.seen == []
    assert origin.caller.refused is not None and origin.caller.refused.code == code
    assert CANARY not in caplog.text + str(body) + str(origin.caller.refused)


@pytest.mark.requirement("L45")
async def test_a_connection_is_refused_between_turns_and_served_in_the_next(authority: Authority) -> None:
    origin = await authority.origin()
    async with serve_tcp(authority.route(), origin) as url:
        assert (await call(url))[0] == 200
        origin.caller.token, origin.caller.turn = None, ""
        assert (await call(url))[0] == 401
        origin.caller.turn = "turn-2"
        await authority.renew(origin)
        assert (await call(url))[0] == 200


async def test_a_warrant_that_is_renewed_while_it_is_checked_is_no_refusal(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    make = Warrants._make

    def slowly(self: Warrants) -> Any:
        go_on.wait(30)
        return make(self)

    monkeypatch.setattr(Warrants, "_make", slowly)
    origin = await authority.origin()
    warrants = Warrants(authority.home)
    old = origin.token
    assert old is not None
    checking = asyncio.ensure_future(warrants.of(origin))
    await asyncio.sleep(0)  # it has begun, and waits for the keys
    await authority.renew(origin)
    await authority.minter.revoke([old.id], "renewed")
    go_on.set()
    found = await checking
    assert found is not None and origin.token is not None and found.id == origin.token.id
    await warrants.aclose()


async def test_one_signature_check_a_warrant(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    from stockade_authority import compact

    seen: list[str] = []
    unseal = compact.unseal

    def counting(value: str, *more: Any) -> Any:
        seen.append(value)
        return unseal(value, *more)

    monkeypatch.setattr(compact, "unseal", counting)
    origin = await authority.origin()
    async with serve_tcp(authority.route(), origin) as url:
        for _ in range(5):
            assert (await call(url))[0] == 200
    assert len(seen) == 1


# -- models ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
@pytest.mark.parametrize(
    "body",
    [
        {"model": "opus"},
        {"model": "m", "MODEL": "opus"},
        {"model": "m", "tools": [{"name": "advisor", "model": "opus"}]},
        {"model": "m", "fallbacks": [{"model": "opus"}]},
    ],
    ids=json.dumps,
)
async def test_a_model_that_the_warrant_does_not_have_is_refused(authority: Authority, path: str, body: Any) -> None:
    origin = await authority.origin(models=("m", "n"))
    async with serve_tcp(authority.route(), origin) as url:
        assert (await call(url, path))[0] == 200
        status, said = await call(url, path, **body)
    assert (status, said["error"]["type"]) == (403, "permission_error")
    assert "opus" in said["error"]["message"] and "m, n" in said["error"]["message"]
    assert origin.caller.refused is not None and origin.caller.refused.code == "denied"


async def test_a_warrant_for_no_models_allows_none(authority: Authority) -> None:
    async with serve_tcp(authority.route(), await authority.origin(models=())) as url:
        assert (await call(url))[0] == 403


# -- what the warrant is checked with ----------------------------------------------------------------------------


@pytest.mark.requirement("L46", "L47")
@pytest.mark.parametrize("lack", ["keys", "denylist"])
async def test_without_what_to_check_with_nothing_is_served(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture, lack: str
) -> None:
    origin = await authority.origin()
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "keys").mkdir(parents=True, mode=0o700)
    if lack == "denylist":
        (elsewhere / "denylist.db").mkdir()
    route = authority.route(warrants=Warrants(elsewhere))
    async with serve_tcp(route, origin) as url:
        status, body = await call(url)
    assert status == 503
    assert str(tmp_path) not in str(body)
    assert {"keys": "keys_missing", "denylist": "denylist_unavailable"}[lack] in caplog.text


@pytest.mark.parametrize("as_url", [False, True])
async def test_a_foreign_minters_keys_come_from_a_jwk_set(
    authority: Authority, tmp_path: Path, vendor: Vendor, as_url: bool
) -> None:
    from stockade_authority.keys import Keyring

    origin = await authority.origin()
    jwks = Keyring(authority.home / "keys").jwks()

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response(jwks)

    vendor.answer = answer
    (tmp_path / "jwks.json").write_text(json.dumps(jwks))
    where = f"{vendor.url}/jwks.json" if as_url else str(tmp_path / "jwks.json")
    for issuer, status in (("", 200), ("https://corp.example", 403)):
        route = authority.route(warrants=Warrants(tmp_path / "other", jwks=where, issuer=issuer))
        async with serve_tcp(route, origin) as url:
            assert (await call(url))[0] == status


async def test_where_keys_are_named_a_kernel_without_a_minter_gets_nothing(tmp_path: Path) -> None:
    origin = Origin("sb-1", "s", "model", key=KEY)
    async with serve_tcp(ModelRoute({}, warrants=Warrants(tmp_path, jwks="jwks.json")), origin) as url:
        assert (await call(url))[0] == 401


async def test_switched_off_it_says_so_and_still_wants_a_turn(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        route = ModelRoute.from_settings(Settings.load(rehearse="talk", plugin={"gateway": {"warrants": "off"}}))
    assert "no warrant is checked" in caplog.text
    origin = Origin("sb-1", "s", "model", key=KEY, warranted=True, caller=Caller(token=Token("t", "of another make")))
    async with serve_tcp(route, origin) as url:
        assert (await call(url))[0] == 200
        origin.caller.token = None
        assert (await call(url))[0] == 401


async def test_without_what_checks_warrants_a_minted_one_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "stockade_authority.errors", None)
    origin = Origin("sb-1", "s", "model", key=KEY, warranted=True, caller=Caller(token=Token("t", CANARY)))
    async with serve_tcp(ModelRoute({}, warrants=Warrants(tmp_path)), origin) as url:
        status, body = await call(url)
    assert status == 503
    assert "stockade-authority is not installed" in caplog.text
    assert origin.caller.refused is not None and "stockade-gateway[authority]" in origin.caller.refused.hint
    assert CANARY not in caplog.text + str(body)


def test_the_gateway_imports_no_cryptography_before_the_first_warrant() -> None:
    code = (
        "import sys; from stockade_gateway.route import ModelRoute; from stockade.settings import Settings;"
        "ModelRoute.from_settings(Settings.load(rehearse='talk'));"
        "print(*[m for m in ('stockade_authority', 'joserfc', 'cryptography') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.fixture
def settings() -> Callable[..., Settings]:
    return lambda **table: Settings.load(rehearse="talk", plugin={"gateway": table, "warrant": {"issuer": "corp"}})


async def test_the_issuer_is_that_of_the_minter_unless_the_gateway_says_otherwise(
    authority: Authority, settings: Callable[..., Settings], tmp_path: Path
) -> None:
    from stockade_authority.minter import WarrantMinter

    minter = WarrantMinter({"home": tmp_path / "home", "issuer": "corp"})
    authority.minter = minter
    origin = await authority.origin()
    for table, status in (({}, 200), ({"issuer": "stockade"}, 403)):
        chosen = settings(**table).model_copy(update={"home": tmp_path / "home"})
        async with serve_tcp(ModelRoute.from_settings(chosen), origin) as url:
            assert (await call(url))[0] == status

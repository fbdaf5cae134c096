"""A turn's budget: reserved before a call, settled after it, whatever becomes of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from stockade.contracts.route import Caller
from stockade.errors import SettingsError
from stockade_gateway import prices, usage
from stockade_gateway.budgets import Amount, Budgets
from stockade_gateway.refusals import Refused
from stockade_gateway.testing import serve_tcp
from stockade_gateway.usage import Report, Tokens

from .conftest import KEY, Vendor, ask

if TYPE_CHECKING:
    from .warranted import Authority

PATHS = [("/v1/messages", "rate_limit_error"), ("/v1/responses", "insufficient_quota")]


def said(input: int, output: int) -> dict[str, Any]:
    """A whole answer of the fake vendor."""
    return {"type": "message", "usage": {"input_tokens": input, "output_tokens": output}}


def answering(body: dict[str, Any], status: int = 200) -> Callable[[web.Request], Any]:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status)

    return answer


def event(**data: Any) -> bytes:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


START = event(type="message_start", message={"usage": {"input_tokens": 100, "output_tokens": 1}})
DELTA = event(type="message_delta", delta={}, usage={"output_tokens": 40})


async def call(url: str, path: str = "/v1/messages", **body: Any) -> tuple[int, Any]:
    async with aiohttp.ClientSession(headers={"x-api-key": KEY}) as client:
        async with client.post(url + path, json={**ask(), **body}) as answer:
            return answer.status, await answer.json()


@pytest.mark.requirement("L70")
@pytest.mark.parametrize(("path", "kind"), PATHS)
async def test_a_hundred_calls_at_once_for_ten_requests_give_ten(
    authority: Authority, vendor: Vendor, path: str, kind: str
) -> None:
    vendor.answer = answering(said(1, 1))
    origin = await authority.origin(requests=10)
    async with serve_tcp(authority.route(vendor), origin) as url:
        answers = await asyncio.gather(*(call(url, path) for _ in range(100)))
    assert sorted(status for status, _ in answers) == [200] * 10 + [429] * 90
    assert len(vendor.seen) == 10
    refused = next(body for status, body in answers if status == 429)
    assert refused["error"]["type"] == kind
    assert "budget of 10 requests" in refused["error"]["message"]
    assert origin.caller.refused is not None and origin.caller.refused.code == "budget"


async def test_sdks_are_told_not_to_try_again(authority: Authority) -> None:
    async with serve_tcp(authority.route(), await authority.origin(requests=0)) as url:
        async with aiohttp.ClientSession(headers={"x-api-key": KEY}) as client:
            async with client.post(url + "/v1/messages", json=ask()) as answer:
                assert (answer.status, answer.headers["x-should-retry"]) == (429, "false")


@pytest.mark.parametrize(
    ("limits", "body"),
    [
        ({"output_tokens": 100}, {"max_tokens": 101}),
        ({"output_tokens": 100}, {"max_tokens": 60, "n": 2}),
        ({"output_tokens": 100}, {"max_tokens": None}),
        ({"output_tokens": 100}, {"max_tokens": -5}),
        ({"input_tokens": 100}, {"system": "word " * 200}),
        ({"cost_microdollars": 100}, {"max_tokens": 11}),
        ({"cost_microdollars": 100}, {"max_tokens": 1, "system": "word " * 200}),
    ],
    ids=str,
)
async def test_a_call_that_may_use_more_than_is_left_is_not_made(
    authority: Authority, vendor: Vendor, limits: dict[str, int], body: dict[str, Any]
) -> None:
    vendor.answer = answering(said(1, 1))
    async with serve_tcp(authority.route(vendor), await authority.origin(**limits)) as url:
        status, refused = await call(url, **body)
        assert status == 429
        assert "left; this call may need" in refused["error"]["message"]
        assert vendor.seen == []
        assert (await call(url, max_tokens=1))[0] == 200  # the refused one took nothing


@pytest.mark.parametrize(
    ("limits", "used"), [({"input_tokens": 1000}, (990, 0)), ({"output_tokens": 1000}, (0, 995))], ids=str
)
async def test_what_the_vendor_reports_is_what_counts(
    authority: Authority, vendor: Vendor, limits: dict[str, int], used: tuple[int, int]
) -> None:
    vendor.answer = answering(said(*used))
    async with serve_tcp(authority.route(vendor), await authority.origin(**limits)) as url:
        assert (await call(url))[0] == 200
        assert (await call(url))[0] == 429


async def test_what_was_set_aside_and_not_used_is_free_again(authority: Authority, vendor: Vendor) -> None:
    vendor.answer = answering(said(10, 5))
    async with serve_tcp(authority.route(vendor), await authority.origin(output_tokens=1010)) as url:
        for _ in range(3):
            assert (await call(url, max_tokens=1000))[0] == 200
        assert (await call(url, max_tokens=1000))[0] == 429


async def test_prompts_from_a_cache_count_as_input(authority: Authority, vendor: Vendor) -> None:
    report = {"input_tokens": 1, "cache_read_input_tokens": 500, "cache_creation_input_tokens": 400, "output_tokens": 1}
    vendor.answer = answering({"usage": report})
    async with serve_tcp(authority.route(vendor), await authority.origin(input_tokens=920)) as url:
        assert (await call(url))[0] == 200
        assert (await call(url))[0] == 429


@pytest.mark.parametrize("status", [400, 429, 500, 529])
async def test_an_upstreams_error_uses_up_a_request_and_no_tokens(
    authority: Authority, vendor: Vendor, status: int
) -> None:
    vendor.answer = answering({"type": "error"}, status)
    async with serve_tcp(authority.route(vendor), await authority.origin(output_tokens=10, requests=2)) as url:
        assert (await call(url))[0] == status
        vendor.answer = answering(said(1, 1))
        assert (await call(url))[0] == 200
        assert (await call(url, max_tokens=1))[0] == 429


@pytest.mark.requirement("F94")
@pytest.mark.parametrize("leaver", ["caller", "vendor"])
async def test_a_stream_that_breaks_is_charged_what_was_set_aside(
    authority: Authority, vendor: Vendor, leaver: str
) -> None:
    hold = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(START)
        if leaver == "vendor":
            assert request.transport is not None
            request.transport.abort()
        await hold.wait()
        return response

    vendor.answer = answer
    route = authority.route(vendor)
    async with serve_tcp(route, await authority.origin(output_tokens=100)) as url:
        async with aiohttp.ClientSession(headers={"x-api-key": KEY}) as client:
            with contextlib.suppress(aiohttp.ClientError):
                async with client.post(url + "/v1/messages", json=ask(stream=True, max_tokens=60)) as said_:
                    await said_.content.readexactly(len(START))
                    if leaver == "vendor":
                        await said_.read()
        if leaver == "caller":
            await vendor.gone.wait()
        hold.set()
        vendor.answer = answering(said(1, 1))
        status, body = await call(url, max_tokens=41)
        assert status == 429, body
        assert "40 of 100 output tokens left; this call" in body["error"]["message"]
        assert (await call(url, max_tokens=40))[0] == 200


async def test_a_stream_is_settled_from_its_last_report(authority: Authority, vendor: Vendor) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for chunk in (START[:30], START[30:] + DELTA[:40], DELTA[40:] + event(type="message_stop")):
            await response.write(chunk)
        return response

    vendor.answer = answer
    async with serve_tcp(authority.route(vendor), await authority.origin(output_tokens=100)) as url:
        async with aiohttp.ClientSession(headers={"x-api-key": KEY}) as client:
            async with client.post(url + "/v1/messages", json=ask(stream=True, max_tokens=100)) as answered:
                await answered.read()
        assert (await call(url, max_tokens=61))[0] == 429
        _, body = await call(url, max_tokens=61)
        assert "60 of 100" in body["error"]["message"]


async def test_a_budget_is_the_turns_and_outlives_a_warrant(authority: Authority) -> None:
    origin = await authority.origin(requests=2)
    async with serve_tcp(authority.route(), origin) as url:
        assert (await call(url))[0] == 200
        await authority.renew(origin, requests=2)
        assert (await call(url))[0] == 200
        await authority.renew(origin, requests=2)
        assert (await call(url))[0] == 429
        origin.caller.turn = "turn-2"
        await authority.renew(origin, requests=2)
        assert (await call(url))[0] == 200


async def test_a_renewed_warrant_may_have_a_narrower_budget(authority: Authority) -> None:
    origin = await authority.origin()
    async with serve_tcp(authority.route(), origin) as url:
        assert (await call(url))[0] == 200
        await authority.renew(origin, requests=1)
        assert (await call(url))[0] == 429


async def test_counting_tokens_and_listing_models_is_free(authority: Authority) -> None:
    origin = await authority.origin(requests=0, cost_microdollars=0)
    async with serve_tcp(authority.route(), origin) as url:
        assert (await call(url, "/v1/messages/count_tokens"))[0] == 200
        async with aiohttp.ClientSession(headers={"x-api-key": KEY}) as client:
            assert (await client.get(url + "/v1/models")).status == 200


async def test_a_model_without_a_price_is_refused_only_where_cost_is_limited(authority: Authority) -> None:
    origin = await authority.origin(cost_microdollars=10**9)
    async with serve_tcp(authority.route(), origin) as url:
        status, body = await call(url, model="unheard-of")
        assert (status, body["error"]["type"]) == (403, "permission_error")
        assert "'unheard-of' has no price" in body["error"]["message"]
        assert origin.caller.refused is not None and origin.caller.refused.code == "denied"
        await authority.renew(origin)
        assert (await call(url, model="unheard-of"))[0] == 200


def test_accounts_of_turns_that_are_over_are_forgotten_and_others_are_not() -> None:
    pytest.importorskip("stockade_authority")
    from stockade_authority.verify import Budget

    budgets, running, other = Budgets(), Caller(turn="runs"), Caller()
    budgets.reserve("runs", running, Budget(requests=1), Amount(1)).settle(Amount(1))
    held = budgets.reserve("held", Caller(), Budget(), Amount(1))
    for number in range(2000):
        budgets.reserve(f"t{number}", other, Budget(), Amount(1)).settle(Amount(1))
    assert len(budgets._accounts) < 1000
    with pytest.raises(Refused):
        budgets.reserve("runs", running, Budget(requests=1), Amount(1))
    held.settle(Amount())
    assert "held" in budgets._accounts


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 80), st.booleans())))
def test_a_budget_is_never_over_committed_and_nothing_is_lost(calls: list[tuple[int, int, bool]]) -> None:
    pytest.importorskip("stockade_authority")
    from stockade_authority.verify import Budget

    budgets, open_ = Budgets(), []
    for wanted, used, at_once in calls:
        with contextlib.suppress(Refused):
            hold = budgets.reserve("t", Caller(turn="t"), Budget(output_tokens=100), Amount(1, 0, wanted))
            open_.append((hold, min(used, wanted)))
        account = budgets._accounts["t"]
        assert account.used.output_tokens + account.held.output_tokens <= 100
        if at_once and open_:
            hold, took = open_.pop()
            hold.settle(Amount(1, 0, took))
            hold.settle(Amount(1, 0, 100))
    for hold, took in open_:
        hold.settle(Amount(1, 0, took))
    assert all(account.held == Amount() for account in budgets._accounts.values())


# -- usage -------------------------------------------------------------------------------------------------------

CHAT = {"prompt_tokens": 30, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 10}}
RESPONSES = {
    "input_tokens": 30,
    "input_tokens_details": {"cached_tokens": 10, "cache_write_tokens": 5},
    "output_tokens": 7,
}
MESSAGES = {
    "input_tokens": 3,
    "cache_read_input_tokens": 20,
    "cache_creation_input_tokens": 10,
    "cache_creation": {"ephemeral_5m_input_tokens": 4, "ephemeral_1h_input_tokens": 6},
    "output_tokens": 7,
}


@pytest.mark.parametrize(
    ("chunks", "tokens"),
    [
        ([json.dumps({"usage": MESSAGES}).encode()], Tokens(3, 7, 20, 10, 6)),
        ([json.dumps({"usage": RESPONSES}).encode()], Tokens(15, 7, 10, 5)),
        ([json.dumps({"usage": CHAT}).encode()], Tokens(20, 7, 10)),
        ([START, event(type="message_delta", usage={"output_tokens": 9})], Tokens(100, 9)),
        ([b"\n", START, event(type="message_delta", usage={"output_tokens": 9, "input_tokens": 120})], Tokens(120, 9)),
        ([event(type="response.created", response={"usage": None})], None),
        ([event(type="response.completed", response={"usage": RESPONSES})], Tokens(15, 7, 10, 5)),
        ([event(type="response.incomplete", response={"usage": RESPONSES})], Tokens(15, 7, 10, 5)),
        (
            [b'data: {"choices": [], "usage": ' + json.dumps(CHAT).encode() + b"}\r\n\r\ndata: [DONE]"],
            Tokens(20, 7, 10),
        ),
        ([START], None),
        ([START, event(type="content_block_delta", delta={"text": '"usage": {"output_tokens": 0}'})], None),
        ([START, b'data: {"usage": \n\n', b"data: [1]\n\n", b'data: "usage"\n\n'], None),
        ([b"x" * (usage.MAX_REPORT + 1), b"\n\n", START, DELTA], Tokens(100, 40)),
        ([b'{"usage": {"output_tokens": 1}}' + b" " * usage.MAX_REPORT], None),
        ([b'{"usage": {"output_tokens": -1, "input_tokens": "many", "cache_read_input_tokens": true}}'], Tokens()),
        ([b'{"usage": 3}'], None),
        ([], None),
    ],
    ids=str,
)
def test_the_usage_is_read_from_every_dialect(chunks: list[bytes], tokens: Tokens | None) -> None:
    for pieces in (chunks, [b"".join(chunks)]):
        report = Report()
        for chunk in pieces:
            report.feed(chunk)
        assert report.tokens() == tokens


@given(st.lists(st.integers(1, 60)))
def test_wherever_a_stream_is_cut_into_chunks_the_usage_is_the_same(cuts: list[int]) -> None:
    data, report = START + event(type="content_block_delta", delta={"text": "ä"}) + DELTA, Report()
    for cut in [*cuts, len(data)]:
        report.feed(data[:cut])
        data = data[cut:]
    assert report.tokens() == Tokens(100, 40)


def test_an_image_is_not_taken_for_text() -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 400_000}}
    url = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 400_000}}
    for part in (picture, url):
        body = {"messages": [{"role": "user", "content": [part]}], "max_tokens": 5}
        expected = usage.expected(body, len(json.dumps(body)))
        assert usage.MEDIA <= expected.input < usage.MEDIA + 100
        assert expected.output == 5


# -- prices ------------------------------------------------------------------------------------------------------


def test_a_call_costs_each_kind_of_token_at_its_rate_rounded_up() -> None:
    price = prices.Price(
        input=3_000_000, output=15_000_000, cache_read=300_000, cache_write=3_750_000, cache_write_1h=6_000_000
    )
    assert price.cost(Tokens(100, 10, 1000, 50, 20)) == 300 + 150 + 300 + 113 + 120  # 112.5 of them
    assert prices.Price(input=1, output=1).cost(Tokens(1)) == 1
    assert prices.Price(input=1_000_000, output=0).cost(Tokens(0, 0, 5, 7, 3)) == 12


def test_a_long_prompt_has_rates_of_its_own() -> None:
    long = prices.Long(above=100, input=2_000_000, output=4_000_000)
    price = prices.Price(input=1_000_000, output=1_000_000, long=long)
    assert price.rates(100).cost(Tokens(100, 1)) == 101
    assert price.rates(101).cost(Tokens(101, 1)) == 206


def test_a_dated_name_has_the_price_of_the_model() -> None:
    shipped = prices.shipped()
    assert shipped.of("claude-sonnet-4-5-20250929") == shipped.of("claude-sonnet-4-5") is not None
    assert shipped.of("gpt-5.4-2026-03-05") == shipped.of("gpt-5.4") is not None
    assert shipped.of("claude-sonnet-4-5-turbo") is None


@pytest.mark.parametrize("model", prices.shipped().models)
def test_a_shipped_price_is_plausible(model: str) -> None:
    price = prices.shipped().models[model]
    assert 10_000 <= price.input < price.output <= 200_000_000  # of a mistaken unit at the latest
    assert price.cache_read is not None and price.cache_read <= price.input


def test_the_users_file_replaces_the_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text('[models."our-model"]\ninput = 5\noutput = 7\n')
    found = prices.read(tmp_path / "prices.toml")
    assert found.of("our-model") == prices.Price(input=5, output=7)
    assert found.of("claude-sonnet-4-5") is None


@pytest.mark.parametrize(
    "text",
    [
        None,
        "[models",
        "",
        "[models.m]\ninput = 1",
        "[models.m]\ninput = -1\noutput = 1",
        "[models.m]\ninput = 1.5\noutput = 1",
        "[models.m]\ninput = 1\noutput = 1\nfree = 1",
    ],
)
def test_a_wrong_file_of_prices_is_named(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "prices.toml").write_text(text)
    with pytest.raises(SettingsError, match=r"plugin\.gateway\.prices: .*prices\.toml"):
        prices.read(tmp_path / "prices.toml")

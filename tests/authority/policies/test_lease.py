"""No sandbox without a valid lease, and every way not to have one has a reason of its own."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stockade.errors import SettingsError
from stockade.model.authority import Verdict
from stockade.model.turn import Outcome
from stockade.testing import PolicyContract
from stockade.testing.capabilities import Capabilities
from stockade.testing.examples import Requests, example_request
from stockade.testing.fakes import FakeTurn
from stockade_authority import compact
from stockade_authority.keys import Keyring
from stockade_authority.policies.config import LeaseOptions, read_options
from stockade_authority.policies.lease import document, policy, source
from stockade_authority.policies.lease.grants import Grant, write_private
from stockade_authority.policies.lease.policy import LeasePolicy

from .conftest import Fleet, Opened

CANARY = "canary-9f2c71e0-lease-token"


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - a condition, and no sleep
            await asyncio.sleep(0.01)


async def hold(turn: FakeTurn) -> Outcome:
    await turn.cancelled.wait()
    return Outcome("cancelled", "cancelled")


@pytest.fixture(autouse=True)
def no_waiting_between_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "RETRY", 0.0)


class Client:
    """A policy and its state root; `review` looks at the source each time."""

    def __init__(self, home: Path, fleet: Fleet, **options: Any) -> None:
        self.policy = LeasePolicy(home, fleet.options(**{"refresh": 1e-9, **options}))

    async def review(self, **request: Any) -> Verdict:
        return await self.policy.review(example_request(**request))

    async def code(self, **request: Any) -> str:
        verdict = await self.review(**request)
        assert verdict.setting == "plugin.authority.lease"
        assert verdict.allowed is not bool(verdict.code)
        return verdict.code


def lease_file(fleet: Fleet, folder: Path, **changes: Any) -> Path:
    """A file with the lease ``fleet``, signed by the fleet's key."""
    now = int(time.time())
    lease = document.Lease("fleet", "id-1", now, now + 600)
    path = folder / "lease.jwt"
    write_private(path, document.seal(dataclasses.replace(lease, **changes), fleet.keyring.signer()))
    return path


class TestLeaseContract(PolicyContract):
    capabilities = Capabilities(denies=False)

    @pytest.fixture
    def policy(self, tmp_path: Path, fleet: Fleet) -> LeasePolicy:
        return Client(tmp_path / "home", fleet, file=lease_file(fleet, tmp_path)).policy

    @pytest.fixture
    def requests(self) -> Requests:
        return Requests(allowed=[example_request()])


class TestNoLeaseContract(PolicyContract):
    capabilities = Capabilities(allows=False)

    @pytest.fixture
    def policy(self, tmp_path: Path, fleet: Fleet) -> LeasePolicy:
        return Client(tmp_path / "home", fleet, file=tmp_path / "none.jwt").policy

    @pytest.fixture
    def requests(self) -> Requests:
        return Requests(denied=[example_request()])


async def test_a_lease_of_the_server_is_the_permit(tmp_path: Path, fleet: Fleet) -> None:
    fleet.grants.put(Grant("fleet", 60))
    async with fleet.serving() as url:
        verdict = await Client(tmp_path / "home", fleet, url=url).review()
    assert verdict.allowed
    assert verdict.reason.startswith("lease 'fleet' until 20")


async def test_a_server_on_this_machine_is_not_looked_for_behind_a_proxy(
    tmp_path: Path, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    fleet.grants.put(Grant("fleet", 60))
    async with fleet.serving() as url:
        assert await Client(tmp_path / "home", fleet, url=url).code() == ""


async def test_a_lease_in_a_file_is_the_permit(tmp_path: Path, fleet: Fleet) -> None:
    client = Client(tmp_path / "home", fleet, file=lease_file(fleet, tmp_path))
    assert await client.code() == ""
    (tmp_path / "lease.jwt").unlink()
    assert await client.code() == "lease_missing"


@pytest.mark.parametrize("source_", ["file", "url"])
async def test_a_missing_lease_is_missing(tmp_path: Path, fleet: Fleet, source_: str) -> None:
    async with fleet.serving() as url:
        option = {"url": url} if source_ == "url" else {"file": tmp_path / "none.jwt"}
        verdict = await Client(tmp_path / "home", fleet, **option).review()
    assert verdict.code == "lease_missing"


async def test_an_expired_lease_is_expired(tmp_path: Path, fleet: Fleet) -> None:
    now = int(time.time())
    path = lease_file(fleet, tmp_path, issued=now - 600, expires=now - 1)
    verdict = await Client(tmp_path / "home", fleet, file=path).review()
    assert verdict.code == "lease_expired"
    assert "expired at 20" in verdict.reason


async def test_a_revoked_lease_is_revoked(tmp_path: Path, fleet: Fleet) -> None:
    fleet.grants.put(Grant("fleet", 60))
    async with fleet.serving() as url:
        client = Client(tmp_path / "home", fleet, url=url)
        assert await client.code() == ""
        fleet.grants.revoke("fleet", at_once=False)
        assert await client.code() == "lease_revoked"
        fleet.grants.put(Grant("fleet", 60))
        assert await client.code() == ""


async def test_a_server_that_does_not_answer_is_unreachable(tmp_path: Path, fleet: Fleet) -> None:
    async with fleet.serving() as url:
        pass
    verdict = await Client(tmp_path / "home", fleet, url=url).review()
    assert (verdict.code, verdict.reason) == ("lease_unreachable", f"{url} does not answer: ConnectionRefusedError")


async def test_a_server_that_hangs_is_unreachable_within_the_time_for_an_answer(
    tmp_path: Path, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert source.TIME_LIMIT < 10
    monkeypatch.setattr(source, "TIME_LIMIT", 0.2)

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as silent:
        port = silent.sockets[0].getsockname()[1]
        assert await Client(tmp_path / "home", fleet, url=f"http://127.0.0.1:{port}").code() == "lease_unreachable"


async def test_a_lease_of_another_key_has_a_bad_signature(tmp_path: Path, fleet: Fleet) -> None:
    other = Keyring(tmp_path / "other")
    now = int(time.time())
    path = tmp_path / "lease.jwt"
    path.write_text(document.seal(document.Lease("fleet", "x", now, now + 60), other.signer()))
    assert await Client(tmp_path / "home", fleet, file=path).code() == "lease_bad_signature"


async def test_a_changed_lease_has_a_bad_signature(tmp_path: Path, fleet: Fleet) -> None:
    path = lease_file(fleet, tmp_path)
    head, payload, signature = path.read_text().split(".")
    longer = document.seal(document.Lease("fleet", "id-1", 1, 4_000_000_000), fleet.keyring.signer()).split(".")[1]
    path.write_text(f"{head}.{longer}.{signature}")
    assert payload != longer
    assert await Client(tmp_path / "home", fleet, file=path).code() == "lease_bad_signature"


@pytest.mark.parametrize(
    "changes",
    [{"name": "other"}, {"issued": 3_900_000_000, "expires": 4_000_000_000}, {"status": "so-so"}, {"max_ttl": -1}],
)
async def test_a_lease_that_is_none_is_invalid(tmp_path: Path, fleet: Fleet, changes: dict[str, Any]) -> None:
    path = lease_file(fleet, tmp_path, **changes)
    assert await Client(tmp_path / "home", fleet, file=path).code() == "lease_invalid"


async def test_a_token_of_another_type_is_no_lease(tmp_path: Path, fleet: Fleet) -> None:
    path = tmp_path / "lease.jwt"
    now = int(time.time())
    claims = {"sub": "fleet", "jti": "x", "iat": now, "exp": now + 60, "status": "active", "stop": "ttl", "max_ttl": 0}
    path.write_text(compact.seal(claims, fleet.keyring.signer(), "warrant+jwt"))
    assert await Client(tmp_path / "home", fleet, file=path).code() == "lease_invalid"


@pytest.mark.requirement("L46", "L47")
async def test_no_trusted_key_and_no_trust_root_are_two_reasons(tmp_path: Path, fleet: Fleet) -> None:
    client = Client(tmp_path / "home", fleet, file=lease_file(fleet, tmp_path))
    fleet.jwks.write_text('{"keys": []}')
    assert await client.code() == "keys_missing"
    fleet.jwks.unlink()
    assert await client.code() == "keys_unavailable"
    fleet.publish()
    assert await client.code() == ""


async def test_a_server_that_goes_away_changes_nothing_until_the_lease_expires(
    tmp_path: Path, fleet: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.grants.put(Grant("fleet", 60))
    async with fleet.serving() as url:
        client = Client(tmp_path / "home", fleet, url=url)
        assert await client.code() == ""
    for _ in range(3):
        verdict = await client.review()
        assert verdict.allowed
        assert "does not answer: ConnectionRefusedError" in verdict.reason
    said = [r.getMessage() for r in caplog.records if r.name == "stockade.lease"]
    assert len(said) == 1
    assert "going on with the lease until" in said[0]
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + 61)
    verdict = await client.review()
    assert verdict.code == "lease_expired"
    assert "does not answer" in verdict.reason


async def test_another_process_goes_on_with_the_cached_lease(tmp_path: Path, fleet: Fleet) -> None:
    fleet.grants.put(Grant("fleet", 60))
    async with fleet.serving() as url:
        assert await Client(tmp_path / "home", fleet, url=url).code() == ""
    [cache] = (tmp_path / "home" / "lease").iterdir()
    assert (cache.stat().st_mode & 0o777, cache.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert await Client(tmp_path / "home", fleet, url=url).code() == ""


async def test_a_cache_that_was_changed_is_worth_nothing(
    tmp_path: Path, fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.grants.put(Grant("fleet", 60))
    async with fleet.serving() as url:
        assert await Client(tmp_path / "home", fleet, url=url).code() == ""
    [cache] = (tmp_path / "home" / "lease").iterdir()
    cache.write_text(cache.read_text()[:-8] + "AAAAAAAA")
    assert await Client(tmp_path / "home", fleet, url=url).code() == "lease_unreachable"
    assert "is not used" in caplog.text


async def test_a_revocation_is_remembered_and_no_older_lease_comes_back(tmp_path: Path, fleet: Fleet) -> None:
    """Also not from whoever recorded one and answers in the server's place."""
    fleet.grants.put(Grant("fleet", 600))
    old = document.seal(
        document.Lease("fleet", "old", int(time.time()) - 5, int(time.time()) + 600), fleet.keyring.signer()
    )
    async with fleet.serving() as url:
        client = Client(tmp_path / "home", fleet, url=url)
        fleet.grants.revoke("fleet", at_once=False)
        assert await client.code() == "lease_revoked"
    assert await client.code() == "lease_revoked"

    async def replay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.0 200 OK\r\nContent-Length: {len(old)}\r\n\r\n{old}".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(replay, "127.0.0.1", int(url.split(":")[2].split("/")[0])):
        assert await client.code() == "lease_revoked"
        assert await Client(tmp_path / "home", fleet, url=url).code() == "lease_revoked"


async def test_a_lease_whose_key_is_trusted_no_more_is_none(tmp_path: Path, fleet: Fleet) -> None:
    fleet.grants.put(Grant("fleet", 600))
    async with fleet.serving() as url:
        client = Client(tmp_path / "home", fleet, url=url)
        assert await client.code() == ""
        old = fleet.keyring.signer().kid
        fleet.keyring.rotate()
        assert await client.code() == ""  # the server has a key that is not published: the old lease is good
        fleet.keyring.retire(old)
    fleet.publish()
    assert await client.code() == "lease_unreachable"
    async with fleet.serving(port=int(url.split(":")[2].split("/")[0])):
        assert await client.code() == ""


async def test_an_answer_that_is_no_lease_does_not_end_a_valid_one(tmp_path: Path, fleet: Fleet) -> None:
    path = lease_file(fleet, tmp_path)
    client = Client(tmp_path / "home", fleet, file=path)
    assert await client.code() == ""
    path.write_text("<html>who are you?</html>")
    verdict = await client.review()
    assert (verdict.allowed, "cannot be read" in verdict.reason) == (True, True)


async def test_a_longer_life_than_the_lease_allows_is_denied(tmp_path: Path, fleet: Fleet) -> None:
    client = Client(tmp_path / "home", fleet, file=lease_file(fleet, tmp_path, max_ttl=60))
    assert await client.code(ttl=60.0) == ""
    assert await client.code(ttl=61.0) == "lease_ttl"


async def test_a_hundred_asks_at_once_are_one_look(
    tmp_path: Path, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []
    read = source.read

    def counted(options: LeaseOptions) -> str:
        looks.append(options)
        return read(options)

    monkeypatch.setattr(source, "read", counted)
    client = Client(tmp_path / "home", fleet, file=lease_file(fleet, tmp_path), refresh=3600.0)
    monkeypatch.setattr(policy, "RETRY", 60.0)
    assert all(v.allowed for v in await asyncio.gather(*(client.review() for _ in range(100))))
    assert len(looks) == 1


# -- live sandboxes ----------------------------------------------------------------------------------------


@pytest.mark.requirement("L14")
async def test_a_revocation_with_stop_now_ends_what_runs(tmp_path: Path, fleet: Fleet, open_kernel: Opened) -> None:
    fleet.grants.put(Grant("fleet", 60, stop="now"))
    async with fleet.serving() as url:
        lease = fleet.options(url=url, refresh=0.05).model_dump(mode="json")
        async with open_kernel(hold, lease=lease) as kernel:
            turn = await kernel.turn("hi", sandbox="k")
            await until(lambda: turn.opened)
            fleet.grants.revoke("fleet", at_once=False)
            outcome = await turn.outcome()
            assert outcome.code == "revoked"
            assert "the lease 'fleet' was revoked" in outcome.message
            await until(lambda: not kernel.sandboxes())
            assert (await (await kernel.turn("hi", sandbox="k")).outcome()).code == "denied"
            fleet.grants.put(Grant("fleet", 60, stop="now"))
            again = await kernel.turn("hi", sandbox="k")
            await until(lambda: again.opened)
            fleet.grants.revoke("fleet", at_once=False)
            assert (await again.outcome()).code == "revoked"


@pytest.mark.requirement("L14")
async def test_a_lease_with_stop_now_ends_what_runs_when_it_expires(
    tmp_path: Path, fleet: Fleet, open_kernel: Opened
) -> None:
    now = int(time.time())
    path = lease_file(fleet, tmp_path, expires=now + 2, stop="now")
    async with open_kernel(hold, lease=fleet.options(file=path).model_dump(mode="json")) as kernel:
        turn = await kernel.turn("hi", sandbox="k")
        outcome = await turn.outcome()
        assert (outcome.code, "expired at" in outcome.message) == ("revoked", True)
        assert time.time() >= now + 2


@pytest.mark.requirement("L14")
async def test_otherwise_what_runs_goes_on_until_its_time_to_live(
    tmp_path: Path, fleet: Fleet, open_kernel: Opened
) -> None:
    fleet.grants.put(Grant("fleet", 60))
    async with fleet.serving() as url:
        lease = fleet.options(url=url, refresh=0.02).model_dump(mode="json")
        async with open_kernel(hold, lease=lease) as kernel:
            turn = await kernel.turn("hi", sandbox="k", ttl=2.0)
            await until(lambda: turn.opened)
            fleet.grants.revoke("fleet", at_once=False)
            await until(lambda: _denied(kernel, fleet))
            refused = await (await kernel.turn("hi", sandbox="other")).outcome()
            assert refused.code == "denied"
            assert (await turn.outcome()).code == "ttl"


def _denied(kernel: Any, fleet: Fleet) -> bool:
    [policy] = [answer.value for answer in kernel._boot.policies]
    lease = policy._permit.lease
    return lease is not None and lease.status == "revoked"


# -- secrets and settings ----------------------------------------------------------------------------------


async def test_the_token_is_needed_and_never_shown(
    tmp_path: Path, fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    fleet.grants.put(Grant("fleet", 60))
    wrong, right, broken = tmp_path / "wrong", tmp_path / "right", tmp_path / "broken"
    wrong.write_text(CANARY + "-wrong\n")
    right.write_text(CANARY + "\n")
    broken.write_text(CANARY + "\r\nX: y\n")
    async with fleet.serving(CANARY) as url:
        seen = []
        for path, code in (
            (None, "lease_unreachable"),
            (wrong, "lease_unreachable"),
            (broken, "lease_unreachable"),
            (right, ""),
        ):
            client = Client(tmp_path / f"home-{path and path.name}", fleet, url=url, token_file=path)
            verdict = await client.review()
            assert verdict.code == code
            seen.append(verdict.reason)
    assert "refuses us (status 401)" in seen[1]
    assert "does not hold one word" in seen[2]
    assert CANARY not in caplog.text + repr(seen)
    for path in (tmp_path / "home-right").rglob("*"):
        assert path.is_dir() or CANARY not in path.read_text()


@pytest.mark.parametrize(
    ("lease", "said"),
    [
        ({"name": "../x", "keys": "k", "file": "f"}, "plugin.authority.lease.name: a lease's name has"),
        ({"name": "x", "keys": "k"}, "give either url or file"),
        ({"name": "x", "keys": "k", "file": "f", "url": "http://127.0.0.1"}, "give either url or file"),
        ({"name": "x", "keys": "k", "url": f"http://me:{CANARY}@host/x"}, "without credentials"),
        ({"name": "x", "keys": "k", "url": f"http://host/x?t={CANARY}"}, "without credentials, query"),
        ({"name": "x", "keys": "k", "url": "http://host/x", "token_file": "t"}, "only for a url with https"),
        ({"name": "x", "keys": "k", "fil": "f"}, "plugin.authority.lease.fil: no such setting; did you mean file?"),
        ({"name": "x", "file": "f"}, "plugin.authority.lease.keys: Field required"),
    ],
)  # fmt: skip
@pytest.mark.requirement("L58")
def test_a_wrong_setting_is_named_and_no_value_is_shown(lease: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError) as error:
        read_options({"lease": lease})
    assert said in error.value.message
    assert CANARY not in str(error.value)

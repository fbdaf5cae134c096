"""Places are never given twice, and never lost: with tasks, processes, crashes and turns that end in any way."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from stockade.model.authority import TurnRequest, Verdict
from stockade.model.spec import SandboxSpec
from stockade.model.turn import Outcome
from stockade.runtime.owner import Owner
from stockade.runtime.registry import Registry
from stockade.testing import PolicyContract
from stockade.testing.capabilities import Capabilities
from stockade.testing.examples import Requests, example_request
from stockade.testing.fakes import FakeTurn
from stockade.testing.fakes.driver import complete
from stockade_authority.policies.config import QuotaOptions
from stockade_authority.policies.quota import QuotaPolicy

from . import asker
from .conftest import Opened, memory

ASKER = str(Path(asker.__file__))


class Bench:
    """A quota with a registry in which sandboxes can be entered, as a kernel does before it asks."""

    def __init__(self, root: Path, **limits: int) -> None:
        self.registry = Registry(root)
        self.owner = Owner(self.registry.home.owners)
        self.policy = QuotaPolicy(root, QuotaOptions(**limits))

    async def sandbox(self, user: str = "ann", id: str = "") -> tuple[str, Verdict]:
        id = id or asker.register(self.registry, self.owner.id)
        return id, await self.policy.review(example_request(sandbox=id, user=user))

    async def turn(self, id: str, user: str = "ann", key: str = "k") -> Verdict:
        return await self.policy.review_turn(self.turn_request(id, user, key))

    def turn_request(self, id: str, user: str = "ann", key: str = "k") -> TurnRequest:
        return TurnRequest(id, "s", example_request(user=user, key=key))

    def close(self) -> None:
        self.registry.close()
        self.owner.release()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(**limits: int) -> Bench:
        made.append(Bench(tmp_path / "home", **limits))
        return made[-1]

    yield make
    for one in made:
        await one.policy.aclose()
        await one.policy.aclose()
        one.close()


class TestAQuotaWithPlaces(PolicyContract):
    capabilities = Capabilities(denies=False)
    limit_of_sandboxes = 50

    @pytest.fixture
    async def policy(self, tmp_path: Path) -> AsyncIterator[QuotaPolicy]:
        policy = QuotaPolicy(tmp_path / "home", QuotaOptions(sandboxes=self.limit_of_sandboxes))
        yield policy
        await policy.aclose()

    @pytest.fixture
    def requests(self) -> Requests:
        return Requests(allowed=[example_request()])


class TestAQuotaWithoutPlaces(TestAQuotaWithPlaces):
    capabilities = Capabilities(allows=False)
    limit_of_sandboxes = 0

    @pytest.fixture
    def requests(self) -> Requests:
        return Requests(denied=[example_request()])


async def test_a_hundred_concurrent_asks_for_ten_places_give_ten(bench: Any) -> None:
    quota = bench(sandboxes=10, turns=10)
    verdicts = [v for _, v in await asyncio.gather(*(quota.sandbox() for _ in range(100)))]
    assert sum(v.allowed for v in verdicts) == 10
    denied = next(v for v in verdicts if not v.allowed)
    assert (denied.code, denied.setting) == ("quota_sandboxes", "plugin.authority.quota.sandboxes")
    assert denied.reason == "there are 10 of 10 sandboxes"
    turns = await asyncio.gather(*(quota.turn(f"t{n}") for n in range(100)))
    assert sum(v.allowed for v in turns) == 10


@pytest.mark.parametrize(("limit", "given"), [(10, 10), (100, 100)])
async def test_a_hundred_asks_of_four_processes_get_what_there_is(
    tmp_path: Path, bench: Any, limit: int, given: int
) -> None:
    """Never more, and never fewer because two asked at the same moment."""
    quota = bench(sandboxes=limit, turns=limit)
    options = json.dumps({"sandboxes": limit, "turns": limit})
    command = [sys.executable, ASKER, str(tmp_path / "home"), "25", options]
    askers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) for _ in range(4)]
    try:
        for asking in askers:
            assert asking.stdin and asking.stdout
            assert await asyncio.to_thread(asking.stdout.readline) == b"ready\n"
        for asking in askers:
            assert asking.stdin
            asking.stdin.write(b"go\n")
        got = [json.loads(await asyncio.to_thread(a.stdout.readline)) for a in askers if a.stdout]
        assert sum(g["uncounted"] for g in got) == 0
        assert sum(g["sandboxes"] for g in got) == given
        assert sum(g["turns"] for g in got) == given
        assert not (await quota.sandbox())[1].allowed
        assert not (await quota.turn("t")).allowed
    finally:
        for asking in askers:
            asking.kill()  # no goodbye: their places have to come back all the same
            await asyncio.to_thread(asking.communicate)
    assert (await quota.sandbox())[1].reason == f"there are 0 of {limit} sandboxes besides this"
    assert (await quota.turn("t")).reason == f"there are 0 of {limit} turns besides this"


async def test_a_user_and_a_sandbox_have_limits_of_their_own(bench: Any) -> None:
    quota = bench(sandboxes=3, sandboxes_per_user=1, turns_per_user=2, turns_per_key=1)
    assert (await quota.sandbox("ann"))[1].allowed
    assert (await quota.sandbox("ann"))[1].reason == "user 'ann' has 1 of 1 sandboxes"
    assert (await quota.sandbox("bob"))[1].allowed
    assert (await quota.turn("t1", key="a")).allowed
    assert (await quota.turn("t2", key="a")).code == "quota_turns_per_key"
    assert (await quota.turn("t3", key="b")).allowed
    denied = await quota.turn("t4", key="c")
    assert (denied.code, denied.reason) == ("quota_turns_per_user", "user 'ann' has 2 of 2 turns")
    assert (await quota.turn("t5", user="bob", key="c")).allowed


async def test_a_place_comes_back_when_the_sandbox_is_gone(bench: Any) -> None:
    quota = bench(sandboxes=1)
    id, _ = await quota.sandbox()
    assert not (await quota.sandbox())[1].allowed
    quota.registry.remove(id)
    assert (await quota.sandbox())[1].allowed


async def test_a_sandbox_that_is_asked_for_again_keeps_its_place_and_takes_no_other(bench: Any) -> None:
    quota = bench(sandboxes=1)
    id, _ = await quota.sandbox()
    assert (await quota.sandbox("bob", id))[1].allowed


async def test_what_is_denied_takes_no_place(bench: Any) -> None:
    quota = bench(sandboxes=2, sandboxes_per_user=1)
    await quota.sandbox("ann")
    for _ in range(5):
        await quota.sandbox("ann")
    assert (await quota.sandbox("bob"))[1].allowed


async def test_a_dry_run_takes_no_place(bench: Any) -> None:
    quota = bench(sandboxes=1, turns=1)
    id = asker.register(quota.registry, quota.owner.id)
    dry = example_request(sandbox=id, dry_run=True)
    assert (await quota.policy.review(dry)).allowed
    assert (await quota.policy.review_turn(TurnRequest("t", "s", dry))).allowed
    assert (await quota.sandbox())[1].allowed
    assert (await quota.turn("t2")).allowed
    assert not (await quota.policy.review(dry)).allowed


async def test_a_place_that_is_taken_after_the_turn_was_given_up_is_given_back(bench: Any, tmp_path: Path) -> None:
    """The kernel stops waiting while another process holds the database: what comes too late must not stay."""
    quota = bench(turns=1)
    await quota.turn("first")
    await quota.policy.turn_ended(quota.turn_request("first"))
    other = sqlite3.connect(tmp_path / "home" / "quota.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    asking = asyncio.create_task(quota.turn("late"))
    await asyncio.sleep(0)
    asking.cancel()
    ending = asyncio.create_task(quota.policy.turn_ended(quota.turn_request("late")))
    await asyncio.sleep(0)
    other.execute("COMMIT")
    other.close()
    await ending
    assert (await quota.turn("next")).allowed


async def test_places_that_cannot_be_counted_are_not_given(bench: Any, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home" / "quota.db").write_bytes(b"this is no database, and long enough to be seen as none" * 40)
    verdict = (await bench(sandboxes=1).sandbox())[1]
    assert (verdict.allowed, verdict.code) == (False, "quota_unavailable")


# -- with a kernel -----------------------------------------------------------------------------------------


async def hold(turn: FakeTurn) -> Outcome:
    await turn.cancelled.wait()
    return Outcome("cancelled", "cancelled")


async def test_turns_over_the_limit_are_denied_until_one_ends(open_kernel: Opened) -> None:
    async with open_kernel(hold, quota={"turns": 2}) as kernel:
        first, second, third = [await kernel.turn("hi", sandbox=f"k{n}", user="ann") for n in range(3)]
        outcome = await third.outcome()
        assert (outcome.code, outcome.hint.count("plugin.authority.quota.turns")) == ("denied", 1)
        await first.cancel()
        memory(kernel).behaviour = complete
        assert (await (await kernel.turn("hi", sandbox="k9")).outcome()).status == "completed"
        await second.cancel()


async def test_the_place_of_a_sandbox_that_could_not_be_made_comes_back(open_kernel: Opened) -> None:
    async with open_kernel(quota={"sandboxes": 1}) as kernel:

        async def fail(spec: SandboxSpec) -> None:
            raise OSError("no room")

        memory(kernel).before_create = fail
        assert (await (await kernel.turn("hi", sandbox="k")).outcome()).code == "create_failed"
        memory(kernel).before_create = None
        assert (await (await kernel.turn("hi", sandbox="k")).outcome()).status == "completed"
        assert (await (await kernel.turn("hi", sandbox="k2")).outcome()).code == "denied"
        await kernel.destroy("k")
        assert (await (await kernel.turn("hi", sandbox="k2")).outcome()).status == "completed"


async def test_fifty_turns_at_once_get_ten_sandboxes(open_kernel: Opened) -> None:
    async with open_kernel(quota={"sandboxes": 10}) as kernel:
        turns = await asyncio.gather(*(kernel.turn("hi", sandbox=f"k{n}") for n in range(50)))
        outcomes = await asyncio.gather(*(turn.outcome() for turn in turns))
        assert sorted(o.code for o in outcomes) == [""] * 10 + ["denied"] * 40
        assert len(kernel.sandboxes()) == 10

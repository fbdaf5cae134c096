"""Deny wins, no answer is a no, and every deny names its plugin."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from stockade.contracts.authority import AdmissionPolicy
from stockade.errors import Denied
from stockade.model.authority import SandboxRequest, Verdict
from stockade.plugins.answers import Answer
from stockade.plugins.selection import Selection
from stockade.runtime.admission import AdmissionDenied, Decision, Policies, ask_review, favourable
from tests.support.toys import Toys

REQUEST = SandboxRequest("s1", "key", "process", "claude", "", "", "read-only", Path("/work"), 60.0)


class Policy(AdmissionPolicy):
    def __init__(self, answer: Callable[[], Awaitable[Any]], name: str = "toy") -> None:
        self.answer, self.name = answer, name

    async def review(self, request: SandboxRequest) -> Verdict:
        assert request is REQUEST
        return await self.answer()  # type: ignore[no-any-return]


def says(value: object) -> Callable[[], Awaitable[object]]:
    async def answer() -> object:
        return value

    return answer


async def review(
    policies: Policies,
    request: SandboxRequest,
    required: Sequence[str],
    timeout: float,
    selection: Selection | None = None,
) -> list[Decision]:
    return favourable("sandbox", request.sandbox, await ask_review(policies, request, required, timeout, selection))


def of(plugin: str, answer: Callable[[], Awaitable[Any]], name: str = "toy") -> Answer[AdmissionPolicy]:
    return Answer(plugin, Policy(answer, name))


async def denied(
    *policies: Answer[AdmissionPolicy], limit: float = 5.0, required: tuple[str, ...] = ()
) -> AdmissionDenied:
    with pytest.raises(AdmissionDenied) as caught:
        await review(policies, REQUEST, required, limit)
    return caught.value


async def test_without_policies_everything_is_admitted() -> None:
    assert await review([], REQUEST, [], 1.0) == []


async def test_every_decision_names_its_policy_plugin_and_seconds() -> None:
    (decision,) = await review([of("corp", says(Verdict.allow("fine")), "hours")], REQUEST, ["corp"], 1.0)
    assert (decision.policy, decision.plugin, decision.verdict.reason) == ("hours", "corp", "fine")
    assert decision.seconds >= 0


async def test_one_deny_is_a_no_and_all_reasons_are_told() -> None:
    error = await denied(
        of("a", says(Verdict.allow())), of("b", says(Verdict.deny("too late"))), of("c", says(Verdict.deny("too big")))
    )
    assert isinstance(error, Denied)
    assert error.code == "denied"
    assert error.sandbox == "s1"
    assert "plugin 'b': too late" in error.message
    assert "plugin 'c': too big" in error.message
    assert "'a'" not in error.message
    assert len(error.decisions) == 3
    assert error.hint


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_the_order_of_policies_never_matters(order: tuple[int, int]) -> None:
    both = of("a", says(Verdict.allow())), of("b", says(Verdict.deny("no")))
    assert (await denied(*(both[index] for index in order))).message == "no sandbox: policy 'toy' of plugin 'b': no"


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(0), asyncio.CancelledError(), TimeoutError()])
async def test_an_exception_is_a_deny_that_names_the_plugin(error: BaseException) -> None:
    async def fails() -> None:
        raise error

    answer = await denied(of("corp", fails))
    assert "plugin 'corp'" in answer.message
    assert answer.decisions[0].verdict.code == "error"


@pytest.mark.parametrize("value", [None, True, 1, "allow", {"allowed": True}, Verdict(1), Verdict("no"), Verdict])  # type: ignore[arg-type]
async def test_an_answer_of_another_type_is_a_deny_that_names_the_plugin(value: object) -> None:
    answer = await denied(of("corp", says(value)))
    assert "plugin 'corp'" in answer.message
    assert answer.decisions[0].verdict.code == "wrong_type"


async def test_a_policy_that_is_not_async_is_a_deny() -> None:
    class Sync(AdmissionPolicy):
        name = "sync"

        def review(self, request: SandboxRequest) -> Verdict:  # type: ignore[override]
            return Verdict.allow()

    assert "TypeError" in (await denied(Answer("corp", Sync()))).message


async def test_a_timeout_is_a_deny_that_names_the_plugin() -> None:
    answer = await denied(of("slow", asyncio.Event().wait), of("fast", says(Verdict.allow())), limit=0.01)
    assert "plugin 'slow': gave no answer within 0.01 s" in answer.message
    assert answer.decisions[1].verdict.code == "timeout"


async def test_a_policy_that_refuses_to_be_cancelled_does_not_hang_the_creation() -> None:
    release = asyncio.Event()
    ended = asyncio.Event()

    async def stubborn() -> Verdict:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        ended.set()
        return Verdict.allow()

    assert "stubborn" in (await denied(of("stubborn", stubborn), limit=0.01)).message
    release.set()
    await ended.wait()


async def test_all_policies_are_asked_at_the_same_time() -> None:
    meeting = asyncio.Barrier(3)

    async def meets() -> Verdict:
        await meeting.wait()
        return Verdict.allow()

    assert len(await review([of(name, meets) for name in "abc"], REQUEST, [], 5.0)) == 3


async def test_cancelling_the_caller_cancels_the_policies_and_is_not_an_answer() -> None:
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    task = asyncio.create_task(review([of("corp", waits)], REQUEST, [], 60.0))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await cancelled.wait()


async def test_a_required_plugin_that_is_not_installed_means_no_sandbox(toys: Toys) -> None:
    answer = await denied(of("other", says(Verdict.allow())), required=("corp-policy",))
    assert "plugin 'corp-policy': is required (setting admission.required) and not installed" in answer.message


async def test_a_required_plugin_that_is_disabled_means_no_sandbox(toys: Toys) -> None:
    toys.hooks("corp", "")
    with pytest.raises(Denied, match="disabled by setting plugins_disabled"):
        await review([], REQUEST, ["corp"], 1.0, Selection(None, ["corp"]))


async def test_a_required_plugin_without_a_policy_means_no_sandbox(toys: Toys) -> None:
    toys.hooks("corp", "")
    assert "has no admission policy" in (await denied(required=("corp",))).message


async def test_a_policy_without_a_name_is_called_by_its_class() -> None:
    assert "policy 'Policy' of" in (await denied(of("corp", says(Verdict.deny("no")), name=""))).message

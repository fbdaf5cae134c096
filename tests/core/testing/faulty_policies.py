"""Policies with one fault each. They allow sandboxes that only read."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from stockade.contracts.authority import AdmissionPolicy
from stockade.model.authority import SandboxRequest, TurnRequest, Verdict
from stockade.model.isolation import Isolation
from tests.core.testing.faults import fails


class Good(AdmissionPolicy):
    name = "reading only"

    async def review(self, request: SandboxRequest) -> Verdict:
        verdict: Verdict = self.decide(request)
        return verdict

    def decide(self, request: SandboxRequest) -> Any:
        return Verdict.allow() if request.file_access == "read-only" else Verdict.deny("it could write", "writes")


@fails("test_it_has_a_name")
class Nameless(Good):
    name = "two\nlines"


@fails("test_review_is_a_coroutine")
class NotAsync(Good):
    def review(self, request: SandboxRequest) -> Any:
        return self.decide(request)


@fails("test_no_review_raises")
class Raises(Good):
    def decide(self, request: SandboxRequest) -> Any:
        if request.file_access == "full":
            raise PermissionError("it could write")
        return super().decide(request)


@fails("test_every_answer_is_a_verdict")
class Truthy(Good):
    def decide(self, request: SandboxRequest) -> Any:
        return request.file_access == "read-only"


@fails("test_every_answer_is_a_verdict")
class AnswersNone(Good):
    def decide(self, request: SandboxRequest) -> Any:
        return None if request.file_access == "read-only" else super().decide(request)


@fails("test_every_answer_is_a_verdict")
class AllowedIsAWord(Good):
    def decide(self, request: SandboxRequest) -> Any:
        return Verdict("no")  # type: ignore[arg-type]


@fails("test_what_it_allows_is_allowed")
class DeniesAll(Good):
    def decide(self, request: SandboxRequest) -> Any:
        return Verdict.deny("no")


@fails("test_what_it_denies_is_denied")
class AllowsAll(Good):
    def decide(self, request: SandboxRequest) -> Any:
        return Verdict.allow()


@fails("test_a_denial_says_why")
class SaysNoReason(Good):
    def decide(self, request: SandboxRequest) -> Any:
        verdict = super().decide(request)
        return verdict if verdict.allowed else Verdict(False)


@fails("test_the_same_request_gets_the_same_answer")
class ChangesItsMind(Good):
    def __init__(self) -> None:
        self.seen: set[str] = set()

    def decide(self, request: SandboxRequest) -> Any:
        if f"{request.sandbox} {request.file_access}" in self.seen:
            return Verdict.deny("not again")
        self.seen.add(f"{request.sandbox} {request.file_access}")
        return super().decide(request)


@fails("test_concurrent_reviews_do_not_mix")
class SharesTheRequest(Good):
    request: SandboxRequest

    async def review(self, request: SandboxRequest) -> Verdict:
        self.request = request
        await asyncio.sleep(0)
        return self.decide(self.request)  # type: ignore[no-any-return]


@fails("test_a_bare_command_gets_an_answer")
class NeedsAUser(Good):
    def decide(self, request: SandboxRequest) -> Any:
        if request.user[0] == "_":
            return Verdict.deny("a system's user")
        return super().decide(request)


@fails("test_the_request_stays_as_it_is")
class ChangesTheRequest(Good):
    def decide(self, request: SandboxRequest) -> Any:
        object.__setattr__(request, "ttl", 60.0)
        return super().decide(request)


@fails("test_the_loop_is_not_blocked")
class Blocks(Good):
    def __init__(self) -> None:
        self.calls = 0

    def decide(self, request: SandboxRequest) -> Any:
        self.calls += 1
        if self.calls <= 3:
            time.sleep(0.12)
        return super().decide(request)


@fails("test_a_dry_run_counts_for_nothing")
class CountsDryRuns(Good):
    def __init__(self) -> None:
        self.dry = 0

    def decide(self, request: SandboxRequest) -> Any:
        self.dry += request.dry_run
        return Verdict.deny("too many") if self.dry > 10 else super().decide(request)


@fails("test_every_question_gets_a_verdict")
class ConfirmsWithNone(Good):
    async def confirm(self, request: SandboxRequest, isolation: Isolation) -> Any:
        return None


@fails("test_turns_may_end")
class FirstInFirstOut(Good):
    def __init__(self) -> None:
        self.running: list[str] = []

    async def review_turn(self, request: TurnRequest) -> Verdict:
        self.running.append(request.turn)
        return Verdict.allow()

    async def turn_ended(self, request: TurnRequest) -> None:
        if self.running.pop(0) != request.turn:
            raise RuntimeError("it is not the turn's turn")


@fails("test_withdrawn_waits")
class WithdrawsAtOnce(Good):
    async def withdrawn(self) -> str:
        return ""


@fails("test_closing_is_idempotent")
class ClosesOnce(Good):
    closed = False

    async def aclose(self) -> None:
        if self.closed:
            raise RuntimeError("it is closed")
        self.closed = True


@fails("test_a_cancelled_review_ends")
class IgnoresCancellation(Good):
    async def review(self, request: SandboxRequest) -> Verdict:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            await asyncio.sleep(3600)
        return await super().review(request)

"""The contract kit of admission policies."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import dataclasses
import inspect
from collections.abc import Sequence

import pytest

from stockade.contracts.authority import AdmissionPolicy
from stockade.model.authority import SandboxRequest, TurnRequest, Verdict
from stockade.model.isolation import Isolation
from stockade.testing.bounds import BLOCKED, bounded, shortest_block
from stockade.testing.capabilities import Kit, requires
from stockade.testing.examples import Requests


class PolicyContract(Kit):
    """What every admission policy owes. Subclass it, and give two fixtures::

        from stockade.testing import PolicyContract
        from stockade.testing.examples import Requests, example_request

        class TestMyPolicy(PolicyContract):
            @pytest.fixture
            def policy(self):
                return MyPolicy()

            @pytest.fixture
            def requests(self):
                return Requests(allowed=[example_request()], denied=[example_request(file_access="full")])

    A fault is found by one test: the others look at sound answers only.
    """

    @pytest.fixture
    def policy(self) -> AdmissionPolicy:
        """The policy under test, new for each test. To be given."""
        raise NotImplementedError("give a fixture `policy` that returns the policy")

    @pytest.fixture
    def requests(self) -> Requests:
        """Examples of what it allows and what it denies. To be given."""
        raise NotImplementedError("give a fixture `requests` that returns stockade.testing.examples.Requests")

    def test_it_has_a_name(self, policy: AdmissionPolicy) -> None:
        """Denials and records name it, on one line."""
        assert isinstance(policy.name, str)
        assert policy.name.strip() and policy.name.isprintable()

    @bounded
    async def test_review_is_a_coroutine(self, policy: AdmissionPolicy, requests: Requests) -> None:
        """The kernel awaits it."""
        answer: object = policy.review(_all(requests)[0])
        assert inspect.isawaitable(answer), "write async def review"
        await asyncio.gather(answer, return_exceptions=True)

    @bounded
    async def test_no_review_raises(self, policy: AdmissionPolicy, requests: Requests) -> None:
        """An exception is a deny that blames the policy."""
        for request in _all(requests):
            answer = policy.review(request)
            if inspect.isawaitable(answer):
                await answer

    @bounded
    async def test_every_answer_is_a_verdict(self, policy: AdmissionPolicy, requests: Requests) -> None:
        """`Verdict.allow` or `Verdict.deny`: ``True``, ``None`` and all else are a deny that blames the policy."""
        for request in _all(requests):
            answer = await _answer(policy, request)
            if not isinstance(answer, Exception):
                assert isinstance(answer, Verdict), type(answer).__name__
                assert isinstance(answer.allowed, bool), repr(answer.allowed)

    @requires("allows")
    @bounded
    async def test_what_it_allows_is_allowed(self, policy: AdmissionPolicy, requests: Requests) -> None:
        """The examples in `Requests.allowed`."""
        assert requests.allowed, "give an example in Requests.allowed, or say Capabilities(allows=False)"
        for request in requests.allowed:
            verdict = await _verdict(policy, request)
            assert verdict is None or verdict.allowed, verdict

    @requires("denies")
    @bounded
    async def test_what_it_denies_is_denied(self, policy: AdmissionPolicy, requests: Requests) -> None:
        """The examples in `Requests.denied`."""
        assert requests.denied, "give an example in Requests.denied, or say Capabilities(denies=False)"
        for request in requests.denied:
            verdict = await _verdict(policy, request)
            assert verdict is None or not verdict.allowed, verdict

    @requires("denies")
    @bounded
    async def test_a_denial_says_why(self, policy: AdmissionPolicy, requests: Requests) -> None:
        """A reason for the caller, and a code for machines."""
        for request in requests.denied:
            verdict = await _verdict(policy, request)
            if verdict is not None and not verdict.allowed:
                assert verdict.reason.strip()
                assert verdict.code.strip()

    @requires("stateless")
    @bounded
    async def test_the_same_request_gets_the_same_answer(self, policy: AdmissionPolicy, requests: Requests) -> None:
        """Whatever was asked in between."""
        first = [await _verdict(policy, request) for request in _all(requests)]
        for _ in range(3):
            assert [await _verdict(policy, request) for request in _all(requests)] == first

    @bounded
    async def test_concurrent_reviews_do_not_mix(self, policy: AdmissionPolicy, requests: Requests) -> None:
        """Many sandboxes are wished for at once; each gets its own answer."""
        wanted = [(request, True) for request in requests.allowed] + [(request, False) for request in requests.denied]
        asked = [
            (dataclasses.replace(request, sandbox=f"{request.sandbox}-{number}"), allowed)
            for number in range(10)
            for request, allowed in wanted
        ]
        verdicts = await asyncio.gather(*(_verdict(policy, request) for request, _ in asked))
        alone = [await _verdict(policy, request) for request, _ in wanted]
        for number, verdict in enumerate(verdicts):
            expected = alone[number % len(wanted)]
            if verdict is not None and expected is not None:
                assert verdict.allowed == expected.allowed, asked[number][0]

    @bounded
    async def test_a_bare_command_gets_an_answer(self, policy: AdmissionPolicy, requests: Requests) -> None:
        """A request may have no engine, no user and no session."""
        bare = dataclasses.replace(_all(requests)[0], engine="", user="", session="")
        answer: object = policy.review(bare)
        if inspect.isawaitable(answer):
            await answer

    @bounded
    async def test_the_request_stays_as_it_is(self, policy: AdmissionPolicy, requests: Requests) -> None:
        """All policies get the same object."""
        for request in _all(requests):
            before = copy.deepcopy(request)
            await _verdict(policy, request)
            assert request == before

    @bounded
    async def test_the_loop_is_not_blocked(self, policy: AdmissionPolicy, requests: Requests) -> None:
        """All sandboxes of the kernel wait meanwhile."""
        for request in _all(requests)[:1]:
            blocked = await shortest_block(lambda request=request: _verdict(policy, request))  # type: ignore[misc]
            assert blocked < BLOCKED, f"{blocked:.2f} s"

    @bounded
    async def test_a_cancelled_review_ends(self, policy: AdmissionPolicy, requests: Requests) -> None:
        """When the caller gives up, or the time for an answer is over."""
        for request in _all(requests):
            task = asyncio.ensure_future(_verdict(policy, request))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task}, timeout=self.patience)
            assert task.done(), "it goes on after its cancellation"

    # -- what a policy may answer besides -------------------------------------------------------------------

    @bounded
    async def test_a_dry_run_counts_for_nothing(self, policy: AdmissionPolicy, requests: Requests) -> None:
        """Somebody only wants to know: what was allowed before is allowed after."""
        dry = [dataclasses.replace(request, sandbox="sb-dry", dry_run=True) for request in requests.allowed]
        before = [await _verdict(policy, request) for request in dry]
        for request in dry * 20:
            await _verdict(policy, request)
        for request, first in zip(requests.allowed, before, strict=True):
            verdict = await _verdict(policy, request)
            if verdict is not None and first is not None:
                assert verdict.allowed == first.allowed, verdict

    @bounded
    async def test_every_question_gets_a_verdict(self, policy: AdmissionPolicy, requests: Requests) -> None:
        """Also those about an attested sandbox and about a turn, whatever the answer is."""
        for request in _all(requests):
            for answer in (
                await policy.confirm(request, UNCONTAINED),
                await policy.review_turn(TurnRequest("turn-1", request.session, request)),
            ):
                assert isinstance(answer, Verdict), type(answer).__name__
                assert isinstance(answer.allowed, bool), repr(answer.allowed)

    @bounded
    async def test_turns_may_end(self, policy: AdmissionPolicy, requests: Requests) -> None:
        """Each once, whatever was answered, and in another order than they were asked for."""
        turns = [TurnRequest(f"turn-{n}", r.session, r) for n, r in enumerate([*_all(requests)] * 2)]
        for turn in turns:
            with contextlib.suppress(Exception):
                await policy.review_turn(turn)
        for turn in reversed(turns):
            await policy.turn_ended(turn)

    @bounded
    async def test_withdrawn_waits(self, policy: AdmissionPolicy) -> None:
        """It returns when everything has to end, and ends when the kernel does."""
        task = asyncio.ensure_future(policy.withdrawn())
        await asyncio.wait({task}, timeout=0.05)
        assert not task.done(), "it withdraws what was never admitted"
        task.cancel()
        await asyncio.wait({task}, timeout=self.patience)
        assert task.done(), "it goes on after its cancellation"

    @bounded
    async def test_closing_is_idempotent(self, policy: AdmissionPolicy, requests: Requests) -> None:
        """Used or not."""
        await _verdict(policy, _all(requests)[0])
        for _ in range(2):
            await policy.aclose()


UNCONTAINED = Isolation(0, "none", "none", "none", "none", "none", False)


def _all(requests: Requests) -> Sequence[SandboxRequest]:
    found = [*requests.allowed, *requests.denied]
    assert found, "give an example in Requests"
    return found


async def _answer(policy: AdmissionPolicy, request: SandboxRequest) -> object:
    """What `AdmissionPolicy.review` answers or raises."""
    try:
        answer: object = policy.review(request)
        return await answer if inspect.isawaitable(answer) else answer
    except Exception as error:
        return error


async def _verdict(policy: AdmissionPolicy, request: SandboxRequest) -> Verdict | None:
    """A sound answer, or None."""
    answer = await _answer(policy, request)
    return answer if isinstance(answer, Verdict) and isinstance(answer.allowed, bool) else None

"""Asks every policy. Deny wins; no answer is a no.

All are asked at once, each with the same time limit. A policy that refuses to be cancelled is left
behind: the limit holds for the caller.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from stockade.contracts.authority import AdmissionPolicy
from stockade.errors import Denied
from stockade.model.authority import SandboxRequest, TurnRequest, Verdict
from stockade.model.isolation import Isolation
from stockade.plugins.answers import Answer
from stockade.plugins.scan import of_kind
from stockade.plugins.selection import Selection

Policies = Sequence[Answer[AdmissionPolicy]]


@dataclass(frozen=True, slots=True)
class Decision:
    """What one policy said: its own name, its plugin's entry point name, and how many seconds it took."""

    policy: str
    plugin: str
    verdict: Verdict
    seconds: float = 0.0

    def __str__(self) -> str:
        policy = f"policy {self.policy!r} of " if self.policy else ""
        return f"{policy}plugin {self.plugin!r}: {self.verdict.reason or 'no reason given'}"


class AdmissionDenied(Denied):
    """At least one policy said no; ``decisions`` has all answers, also those in favour."""

    def __init__(self, what: str, sandbox: str, decisions: Sequence[Decision]) -> None:
        denials = [decision for decision in decisions if not decision.verdict.allowed]
        plugins = ", ".join(sorted({decision.plugin for decision in denials}))
        settings = sorted({decision.verdict.setting for decision in denials} - {""}) or ["admission", "plugin"]
        super().__init__(
            f"no {what}: " + "; ".join(map(str, denials)),
            sandbox=sandbox,
            hint=f"Ask whoever configures {plugins} on this host (settings {' and '.join(settings)}).",
        )
        self.decisions = tuple(decisions)


async def ask_review(
    policies: Policies,
    request: SandboxRequest,
    required: Sequence[str],
    timeout: float,
    selection: Selection | None = None,
) -> list[Decision]:
    """The decisions about a creation, sorted by plugin and policy.

    ``required`` are the hook modules that must have a policy, ``timeout`` is in seconds; ``selection``
    only serves to say why a required one is missing.
    """
    decisions = await _ask_all(policies, lambda policy: policy.review(request), timeout)
    return _sorted([*decisions, *_missing(policies, required, selection or Selection())])


async def ask_confirm(
    policies: Policies, request: SandboxRequest, isolation: Isolation, timeout: float
) -> list[Decision]:
    """The decisions about what a driver made, of the policies that look at it."""
    asked = answering(policies, "confirm")
    return _sorted(await _ask_all(asked, lambda policy: policy.confirm(request, isolation), timeout))


async def ask_turn(policies: Policies, request: TurnRequest, timeout: float) -> list[Decision]:
    """The decisions about a turn, of the policies that look at turns."""
    asked = answering(policies, "review_turn")
    return _sorted(await _ask_all(asked, lambda policy: policy.review_turn(request), timeout))


def favourable(what: str, sandbox: str, decisions: list[Decision]) -> list[Decision]:
    """``decisions`` if all are in favour; raises `AdmissionDenied` otherwise."""
    if not all(decision.verdict.allowed for decision in decisions):
        raise AdmissionDenied(what, sandbox, decisions)
    return decisions


def answering(policies: Policies, method: str) -> Policies:
    """Those that have this optional method themselves."""
    ours = getattr(AdmissionPolicy, method)
    return [answer for answer in policies if inspect.getattr_static(type(answer.value), method, None) is not ours]


async def _ask_all(
    policies: Policies, question: Callable[[AdmissionPolicy], Awaitable[object]], timeout: float
) -> list[Decision]:
    if not policies:
        return []
    tasks = {
        asyncio.create_task(_ask(answer, question), name=f"admission-{answer.plugin}"): answer for answer in policies
    }
    try:
        await asyncio.wait(tasks, timeout=timeout)
        return [_decision(task, answer, timeout) for task, answer in tasks.items()]
    finally:
        # Also when our caller is cancelled. Nobody waits for these: a policy could refuse to end.
        for task in tasks:
            if not task.done():
                task.add_done_callback(_forget)
                task.cancel()


async def _ask(answer: Answer[AdmissionPolicy], question: Callable[[AdmissionPolicy], Awaitable[object]]) -> Decision:
    clock = asyncio.get_running_loop().time
    started = clock()
    try:
        verdict = _checked(await question(answer.value))
    except (Exception, SystemExit) as error:
        verdict = Verdict.deny(f"failed with {type(error).__name__}: {error}", "error")
    return Decision(_name(answer.value), answer.plugin, verdict, clock() - started)


def _checked(value: object) -> Verdict:
    # Only True admits: 1, "no" and a Mock are true as well.
    if isinstance(value, Verdict) and isinstance(value.allowed, bool):
        return value
    found = f"Verdict with allowed={value.allowed!r}" if isinstance(value, Verdict) else type(value).__name__
    return Verdict.deny(f"answered with a {found}, not with Verdict.allow or Verdict.deny", "wrong_type")


def _decision(task: asyncio.Task[Decision], answer: Answer[AdmissionPolicy], timeout: float) -> Decision:
    if not task.done():
        verdict = Verdict.deny(f"gave no answer within {timeout:g} s", "timeout", setting="admission.timeout")
        return Decision(_name(answer.value), answer.plugin, verdict, timeout)
    if task.cancelled():
        return Decision(_name(answer.value), answer.plugin, Verdict.deny("cancelled itself", "error"))
    return task.result()


def _missing(policies: Policies, required: Sequence[str], selection: Selection) -> list[Decision]:
    present = {answer.plugin for answer in policies}
    return [
        Decision("", name, Verdict.deny(_why_missing(name, selection), "required", setting="admission.required"))
        for name in sorted(set(required) - present)
    ]


def _why_missing(name: str, selection: Selection) -> str:
    entries = [entry for entry in of_kind("hooks") if entry.name == name]
    if not entries:
        return "is required (setting admission.required) and not installed"
    settings = [selection.blocked_by(entry) for entry in entries]
    if all(settings):
        return f"is required (setting admission.required) and disabled by setting {settings[0]}"
    return "is required (setting admission.required) and has no admission policy"


def _sorted(decisions: list[Decision]) -> list[Decision]:
    return sorted(decisions, key=lambda decision: (decision.plugin, decision.policy))


def _name(policy: object) -> str:
    name = getattr(policy, "name", None)
    return name if isinstance(name, str) and name else type(policy).__name__


def _forget(task: asyncio.Task[Decision]) -> None:
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not report it as lost: the deny is already given

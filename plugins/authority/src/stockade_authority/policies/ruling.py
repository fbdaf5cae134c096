"""The policy ``rules``: what the file of rules says."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from stockade import AdmissionPolicy
from stockade.model.authority import SandboxRequest, TurnRequest, Verdict
from stockade.model.isolation import Isolation
from stockade_authority.policies.rulefile import SETTING, RuleFile
from stockade_authority.policies.rules import Answer, decide, facts


class RulesPolicy(AdmissionPolicy):
    """Asked before a creation, again with what the driver attests, and for each turn (times go by).

    What depends on tier or image is left open before the creation and decided by `confirm`. ``now`` is in
    seconds since the epoch.
    """

    name = "rules"

    def __init__(self, file: RuleFile, now: Callable[[], float] = time.time) -> None:
        self._file = file
        self._now = now

    async def review(self, request: SandboxRequest) -> Verdict:
        return self._verdict(request, None)

    async def confirm(self, request: SandboxRequest, isolation: Isolation) -> Verdict:
        return self._verdict(request, isolation)

    async def review_turn(self, request: TurnRequest) -> Verdict:
        return self._verdict(request.sandbox, None)

    def _verdict(self, request: SandboxRequest, isolation: Isolation | None) -> Verdict:
        moment = datetime.fromtimestamp(self._now(), self._file.zone)
        answer = decide(self._file.rules, facts(request, isolation, moment))
        rule = answer.because
        if answer.allowed:
            return Verdict.allow(_why_allowed(answer), setting=SETTING)
        if rule is None:
            return Verdict.deny(f"no allow rule of {self._file.path.name} matches", "rules_no_allow", setting=SETTING)
        return Verdict.deny(f"{rule.reason or 'not allowed'} [{rule}]", "rules_deny", setting=SETTING)


def _why_allowed(answer: Answer) -> str:
    why = str(answer.because) if answer.because else "no deny rule matches"
    if not answer.open:
        return why
    fields = " and ".join(sorted({name for rule in answer.open for name in rule.waits_for}))
    depends = f"it depends on the {fields} that the driver attests: {', '.join(map(str, answer.open))}"
    return depends if answer.because in answer.open else f"{why}; {depends}"

"""What a kernel asks its plugins about a request, at its moment; observers are told of every verdict."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from stockade.contracts.authority import AdmissionPolicy
from stockade.errors import Denied
from stockade.model.authority import SandboxRequest, TurnRequest
from stockade.model.isolation import Isolation
from stockade.model.turn import FILE_ACCESS
from stockade.plugins.answers import Answer
from stockade.runtime import admission
from stockade.runtime.admission import AdmissionDenied, Decision, favourable

if TYPE_CHECKING:
    from stockade.plugins.hooks import Hooks
    from stockade.runtime.creation import Workshop

log = logging.getLogger("stockade.admission")

Step = Literal["review", "confirm", "turn"]


def constrain(hooks: Hooks, request: SandboxRequest) -> SandboxRequest:
    """The request within the limits of all ``driver_constraints`` hooks."""
    limits = hooks.driver_constraints(request)
    if limits.max_ttl is not None and limits.max_ttl < request.ttl:
        request = dataclasses.replace(request, ttl=limits.max_ttl)
    wanted = FILE_ACCESS.index(request.file_access)
    if limits.file_access is not None and FILE_ACCESS.index(limits.file_access) < wanted:
        request = dataclasses.replace(request, file_access=limits.file_access)
    if limits.provider_keys is False and request.provider_keys:
        raise Denied(
            f"a plugin forbids provider keys inside the sandbox: {', '.join(request.provider_keys)}",
            sandbox=request.sandbox,
            hint="Leave out --env-pass; the model route needs no key inside.",
        )
    return request


async def admit(shop: Workshop, request: SandboxRequest) -> None:
    """Before a creation (L13). Raises `Denied`; either way observers are told."""
    rules = shop.settings.admission
    asking = admission.ask_review(shop.boot.policies, request, rules.required, rules.timeout, shop.settings.selection)
    _tell(shop, "review", request, await asking)


async def confirm(shop: Workshop, request: SandboxRequest, isolation: Isolation) -> None:
    """Once the driver has attested what it made, before its first use. Raises `Denied`."""
    least = shop.boot.hooks.driver_constraints(request).min_tier
    if least is not None and isolation.tier < least:
        raise Denied(
            f"a plugin asks for tier {least}, and driver {request.driver!r} attests tier {isolation.tier}",
            sandbox=request.sandbox,
            hint="Choose another driver, or take back the driver's settings that weaken its sandboxes.",
        )
    decisions = await admission.ask_confirm(shop.boot.policies, request, isolation, shop.settings.admission.timeout)
    if decisions:
        attested = {"tier": isolation.tier, "image": isolation.image}
        _tell(shop, "confirm", request, decisions, attested)


@contextlib.asynccontextmanager
async def turn(shop: Workshop, id: str, session: str, wish: SandboxRequest) -> AsyncIterator[None]:
    """For the whole of a turn: asks before it, raises `Denied`, and tells the policies that it is over."""
    policies, limit = shop.boot.policies, shop.settings.admission.timeout
    asked = admission.answering(policies, "review_turn")
    if not asked:
        yield
        return
    request = TurnRequest(id, session, constrain(shop.boot.hooks, wish))
    try:
        _tell(shop, "turn", request, await admission.ask_turn(asked, request, limit))
        yield
    finally:
        await asyncio.shield(asyncio.ensure_future(end_turn(asked, request, limit)))


async def end_turn(asked: admission.Policies, request: TurnRequest, limit: float) -> None:
    """Tell these policies that a turn is over, or does not happen. ``limit`` in seconds; raises nothing."""
    tasks = [asyncio.create_task(_ended(answer, request), name=f"plugin {answer.plugin!r}") for answer in asked]
    _, late = await asyncio.wait(tasks, timeout=limit) if tasks else (set(), set())
    for task in late:
        log.error("%s took more than %g s when turn %s ended", task.get_name(), limit, request.turn)
        task.cancel()


async def _ended(answer: Answer[AdmissionPolicy], request: TurnRequest) -> None:
    try:
        await answer.value.turn_ended(request)
    except Exception:
        log.exception("plugin %r failed when turn %s ended", answer.plugin, request.turn)


def _tell(
    shop: Workshop,
    step: Step,
    asked: SandboxRequest | TurnRequest,
    decisions: list[Decision],
    attested: Mapping[str, Any] | None = None,
) -> None:
    """Publish the verdicts, and raise `AdmissionDenied` unless all are in favour."""
    if isinstance(asked, TurnRequest):
        # Before a turn has its sandbox, the id in its wish for one is nobody's.
        about, request = {"session": asked.session, "turn": asked.turn}, asked.sandbox
    else:
        about, request = {"session": asked.session, "sandbox": asked.sandbox}, asked
    data: dict[str, Any] = {
        "step": step,
        **{name: getattr(request, name) for name in ("key", "driver", "engine", "user", "file_access", "pack")},
        "provider_keys": list(request.provider_keys),
        **(attested or {}),
        "decisions": [_plain(decision) for decision in decisions],
    }
    kind, failure = "admitted", None
    try:
        favourable("turn" if step == "turn" else "sandbox", about.get("sandbox", ""), decisions)
    except AdmissionDenied as error:
        kind, failure = "denied", error
        data["reason"] = error.message
    shop.hub.publish(kind, **about, data=data)
    if failure is not None:
        raise failure


def _plain(decision: Decision) -> dict[str, Any]:
    return {
        "policy": decision.policy,
        "plugin": decision.plugin,
        **dataclasses.asdict(decision.verdict),
        "seconds": round(decision.seconds, 6),
    }

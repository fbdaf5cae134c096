"""``stockade admit``: would this sandbox be admitted, and who says so. Makes nothing."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
from typing import TYPE_CHECKING, Any

from stockade.cli.arguments import seconds, variable
from stockade.cli.text import printable
from stockade.model.turn import FILE_ACCESS

if TYPE_CHECKING:
    from stockade.model.authority import SandboxRequest
    from stockade.runtime.admission import Decision

_REQUEST = ("key", "driver", "engine", "user", "file_access", "ttl", "provider_keys", "pack")
_COLUMNS = ("STEP", "POLICY", "PLUGIN", "VERDICT", "TIME", "SETTING", "REASON")


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of ``admit``: those of a request, and what a driver would attest."""
    parser.add_argument("--explain", action="store_true", help="every policy's verdict, time, setting and reason")
    parser.add_argument("--user", metavar="NAME", help="who asks")
    parser.add_argument("--engine", default="", metavar="NAME", help="the coding agent; without one: a bare command")
    parser.add_argument("--driver", metavar="NAME", help="what would make the sandbox (default: as for run)")
    parser.add_argument(
        "--file-access",
        choices=FILE_ACCESS,
        default="read-only",
        help="what the agent may write (default: %(default)s)",
    )
    parser.add_argument("--sandbox", metavar="KEY", help="key of the sandbox")
    parser.add_argument("--ttl", type=seconds, metavar="TIME", help="longest life of the sandbox, such as 90s or 1h")
    parser.add_argument(
        "--env-pass", type=variable, action="append", default=[], metavar="NAME",
        help="a variable of the host to be let in, such as a provider's key (repeatable)",
    )  # fmt: skip
    parser.add_argument("--pack", default="", metavar="DIGEST", help="the pack that the sandbox is for")
    parser.add_argument(
        "--tier", type=int, choices=(0, 1, 2), help="also ask what follows once the driver attests this tier"
    )
    parser.add_argument("--image", default="", metavar="DIGEST", help="with --tier: the image that the driver attests")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace) -> int:
    """0 when it would be admitted, 1 when not."""
    request, decisions, open = asyncio.run(_ask(args))
    admitted = all(decision.verdict.allowed for _, decision in decisions)
    rows = [_row(step, decision) for step, decision in decisions]
    if args.json:
        asked = {name: getattr(request, name) for name in _REQUEST}
        print(json.dumps({"admitted": admitted, "open": open, "request": asked, "decisions": rows}))
        return 0 if admitted else 1
    if args.explain and rows:
        _table(rows)
    print(
        "denied"
        if not admitted
        else "admitted, as far as can be said before the driver attests"
        if open
        else "admitted"
    )
    if admitted and open:
        print("  add --tier (and --image) to ask what follows then")
    if not rows:
        print("no policy is active: set plugin.authority.rules, quota or lease, or install a policy")
    for _, decision in [] if args.explain else decisions:
        if not decision.verdict.allowed:
            print(printable(f"  {decision}"))
    return 0 if admitted else 1


async def _ask(args: argparse.Namespace) -> tuple[SandboxRequest, list[tuple[str, Decision]], bool]:
    """What was asked, each decision with its step, and whether a policy will look again at what a driver attests."""
    from stockade.errors import UsageError
    from stockade.model.authority import TurnRequest
    from stockade.model.isolation import Isolation
    from stockade.plugins.hooks import boot
    from stockade.runtime import admission
    from stockade.runtime.admitting import constrain, end_turn
    from stockade.runtime.catalog import choose_driver
    from stockade.runtime.paths import Home
    from stockade.runtime.requests import new_id, sandbox_request
    from stockade.settings import Settings

    if args.image and args.tier is None:
        raise UsageError("--image without --tier", hint="The driver attests both: give --tier too.")
    settings = Settings.load()
    booted = boot(settings)
    try:
        request, _ = sandbox_request(
            settings,
            Home(settings.home),
            engine=args.engine,
            driver=args.driver,
            user=args.user,
            sandbox=args.sandbox,
            file_access=args.file_access,
            ttl=args.ttl,
            env_pass=args.env_pass,
        )
        request = dataclasses.replace(request, pack=args.pack, dry_run=True)
        request = dataclasses.replace(request, driver=choose_driver(settings, booted, request))
        request = constrain(booted.hooks, request)
        limit = settings.admission.timeout
        found: list[tuple[str, Decision]] = []
        if args.engine:
            turn = TurnRequest(new_id("turn"), new_id("session"), request)
            found += [("turn", decision) for decision in await admission.ask_turn(booted.policies, turn, limit)]
            await end_turn(admission.answering(booted.policies, "review_turn"), turn, limit)
        reviewed = await admission.ask_review(
            booted.policies, request, settings.admission.required, limit, settings.selection
        )
        found += [("review", decision) for decision in reviewed]
        if args.tier is not None and all(decision.verdict.allowed for decision in reviewed):
            attested = Isolation(
                args.tier, "-", "-", "-", "-", "-", False, provider_key=request.provider_keys, image=args.image
            )
            confirmed = await admission.ask_confirm(booted.policies, request, attested, limit)
            found += [("confirm", decision) for decision in confirmed]
        return request, found, args.tier is None and bool(admission.answering(booted.policies, "confirm"))
    finally:
        closing = [policy.value.aclose() for policy in booted.policies]
        closing += [route.value.aclose() for route in booted.routes.values()]
        await asyncio.gather(*closing, return_exceptions=True)


def _row(step: str, decision: Decision) -> dict[str, Any]:
    verdict = decision.verdict
    return {
        "step": step,
        "policy": decision.policy,
        "plugin": decision.plugin,
        "allowed": verdict.allowed,
        "code": verdict.code,
        "seconds": round(decision.seconds, 6),
        "setting": verdict.setting or f"plugin.{decision.plugin.replace('-', '_')}",
        "reason": verdict.reason,
    }


def _table(rows: list[dict[str, Any]]) -> None:
    table = [list(_COLUMNS)]
    for row in rows:
        said = "allow" if row["allowed"] else f"deny {row['code']}".strip()
        cells = (row["step"], row["policy"] or "-", row["plugin"], said, f"{row['seconds'] * 1000:.1f} ms")
        table.append([printable(str(cell)) for cell in (*cells, row["setting"], row["reason"] or "-")])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())

"""``stockade sandboxes``: what is registered, whichever process made it."""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING, Any

from stockade.cli.text import printable

if TYPE_CHECKING:
    from stockade.cli.interrupts import Interrupts
    from stockade.cli.run import Opener
    from stockade.runtime.registry import Registry, Row

_COLUMNS = ("key", "id", "driver", "engine", "state", "owner", "tier", "age", "left")


def configure(parser: argparse.ArgumentParser) -> None:
    """The verbs of ``sandboxes``."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="list|destroy|revoke|reap")
    listing = verbs.add_parser("list", help="all registered sandboxes")
    destroy = verbs.add_parser("destroy", help="end sandboxes, also those of other processes")
    destroy.add_argument("key", nargs="+", metavar="KEY|ID", help="what to end, as shown by list")
    revoke = verbs.add_parser("revoke", help="close a route of a sandbox for good, and revoke its tokens")
    revoke.add_argument("key", metavar="KEY|ID", help="whose, as shown by list")
    revoke.add_argument("route", metavar="ROUTE|all", help="which way out, for example model")
    reap = verbs.add_parser("reap", help="end what processes that died have left")
    for verb in (listing, destroy, revoke, reap):
        verb.add_argument("--json", action="store_true", help="one JSON array")


def run(args: argparse.Namespace, opener: Opener | None = None) -> int:
    """Do one of the verbs; 1 when something could not be ended."""
    if args.verb == "list":
        return _list(args)
    from stockade.cli.interrupts import run_interruptible

    work = {"destroy": _destroy, "revoke": _revoke, "reap": _reap}[args.verb]
    return run_interruptible(lambda interrupts: work(args, interrupts, opener))


def _list(args: argparse.Namespace) -> int:
    from stockade.runtime.registry import Registry
    from stockade.settings import Settings

    registry = Registry(Settings.load().home)
    try:
        entries = [_describe(registry, row, time.time()) for row in registry.rows()]
    finally:
        registry.close()
    if args.json:
        print(json.dumps(entries))
    elif not entries:
        print("no sandboxes")
    else:
        _table([_cells(entry) for entry in entries])
    return 0


async def _destroy(args: argparse.Namespace, interrupts: Interrupts, opener: Opener | None) -> int:
    async with _opener(opener)() as kernel:
        for key in args.key:
            await kernel.destroy(key)
            if not args.json:
                print(f"destroyed {printable(key)}")
    if args.json:
        print(json.dumps([{"key": key, "gone": True} for key in args.key]))
    return 0


async def _revoke(args: argparse.Namespace, interrupts: Interrupts, opener: Opener | None) -> int:
    async with _opener(opener)() as kernel:
        cut = await kernel.revoke(args.key, args.route)
    if args.json:
        print(json.dumps([{"key": args.key, "route": args.route, "cut": cut}]))
    else:
        print(f"revoked {printable(args.route)} of {printable(args.key)}: {cut} live connection(s) cut")
    return 0


async def _reap(args: argparse.Namespace, interrupts: Interrupts, opener: Opener | None) -> int:
    async with _opener(opener)() as kernel:
        reaped = await kernel.reap()
    if args.json:
        print(json.dumps([{"id": r.id, "gone": r.gone, "evidence": r.evidence} for r in reaped]))
    else:
        for r in reaped:
            print(f"{r.id}  {'gone' if r.gone else 'still there'}  {printable(r.evidence)}".rstrip())
        if not reaped:
            print("nothing to reap")
    return 0 if all(r.gone for r in reaped) else 1


def _opener(opener: Opener | None) -> Opener:
    if opener is not None:
        return opener
    from stockade.kernel import Kernel

    return Kernel.open


def _describe(registry: Registry, row: Row, now: float) -> dict[str, Any]:
    """One row as JSON: times are in seconds, ``owner`` is the PID of the process that owns it."""
    from stockade.runtime.owner import process_of

    pid = process_of(registry.home.owners, row.owner)
    orphan = registry.is_orphan(row)
    return {
        "key": row.key,
        "id": row.id,
        "driver": row.driver,
        "engine": row.engine,
        "state": "orphan" if orphan else row.state,
        "owner": int(pid) if pid.isdigit() and not orphan else None,
        "tier": row.tier,
        "created": row.created,
        "deadline": row.deadline,
        "age": round(now - row.created, 3),
        "left": round(row.deadline - now, 3),
        "user": row.user,
    }


def _cells(entry: dict[str, Any]) -> list[str]:
    shown = dict(entry, age=f"{entry['age']:.0f} s", left=f"{max(entry['left'], 0):.0f} s")
    return ["-" if shown[name] in (None, "") else printable(str(shown[name])) for name in _COLUMNS]


def _table(rows: list[list[str]]) -> None:
    rows = [[name.upper() for name in _COLUMNS], *rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

"""``stockade lease``: permits to run, for one's own fleet."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stockade.cli.arguments import seconds
from stockade.cli.text import printable
from stockade.errors import UsageError

if TYPE_CHECKING:
    from stockade.settings import Settings
    from stockade_authority.policies.lease.grants import Grant

PORT = 8750
"""Where the server listens by default."""


def configure(parser: argparse.ArgumentParser) -> None:
    """The verbs of ``lease``."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="issue|show|revoke|serve")
    issue = verbs.add_parser("issue", help="grant leases to a name, and show the first one")
    issue.add_argument("name", metavar="NAME", help="who may run: a fleet, a host, a team")
    issue.add_argument(
        "--valid", type=seconds, default=3600.0, metavar="TIME", help="how long each lease is good (default: 1h)"
    )
    issue.add_argument(
        "--until", type=seconds, metavar="TIME", help="no leases after this time from now (default: none)"
    )
    issue.add_argument(
        "--stop", choices=("ttl", "now"), default="ttl",
        help="live sandboxes, when a lease is over: end at their time to live, or now (default: %(default)s)",
    )  # fmt: skip
    issue.add_argument("--max-ttl", type=seconds, metavar="TIME", help="longest time to live of a sandbox")
    show = verbs.add_parser("show", help="the lease in force here, and the grants made here; 1 when it is not valid")
    show.add_argument("--json", action="store_true", help="one JSON object")
    revoke = verbs.add_parser("revoke", help="take a grant back, and show the signed revocation")
    revoke.add_argument("name", metavar="NAME", help="as given to issue")
    revoke.add_argument("--now", action="store_true", help="end live sandboxes too, whatever the lease said")
    for verb in (issue, revoke):
        verb.add_argument("--out", type=Path, metavar="FILE", help="write it there, in one step, instead of showing it")
    serve = verbs.add_parser("serve", help="give each grant's lease to whoever asks: GET /leases/NAME")
    serve.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="default: %(default)s")
    serve.add_argument("--port", type=int, default=PORT, help="default: %(default)s; 0: any")
    serve.add_argument(
        "--token-file", type=Path, metavar="FILE", help="holds what clients must present as bearer token"
    )


def run(args: argparse.Namespace) -> int:
    """Do one of the verbs."""
    from stockade.settings import Settings

    settings = Settings.load()
    if args.verb == "issue":
        return _issue(settings, args)
    if args.verb == "show":
        return _show(settings, args.json)
    if args.verb == "revoke":
        from stockade_authority.policies.lease.grants import Grants

        return _sign(settings, Grants(settings.home).revoke(args.name, at_once=args.now), args.out)
    return _serve(settings, args)


def _issue(settings: Settings, args: argparse.Namespace) -> int:
    from stockade_authority.policies.lease.grants import Grant, Grants

    for name in ("valid", "until", "max_ttl"):
        if (value := getattr(args, name)) is not None and value < 1:
            raise UsageError(f"--{name.replace('_', '-')} must be at least a second", hint="Write 90s, 15m or 2h.")
    until = 0 if args.until is None else int(time.time() + args.until)
    grant = Grant(args.name, int(args.valid), until, args.stop, int(args.max_ttl or 0))
    return _sign(settings, Grants(settings.home).put(grant), args.out)


def _sign(settings: Settings, grant: Grant, out: Path | None) -> int:
    from stockade_authority.keys import Keyring
    from stockade_authority.policies.lease.document import seal
    from stockade_authority.policies.lease.grants import write_private

    text = seal(grant.lease(time.time()), Keyring(settings.home / "keys").signer())
    if out is None:
        print(text)
    else:
        write_private(out, text + "\n")
        print(f"wrote {printable(str(out))}")
    return 0


def _show(settings: Settings, as_json: bool) -> int:
    from stockade_authority.policies.lease.grants import Grants

    here = _here(settings)
    grants = [_described(grant) for grant in Grants(settings.home).all()]
    if as_json:
        print(json.dumps({"lease": here, "grants": grants}))
    else:
        for found in ([here] if here else []) + grants:
            print(printable("  ".join(f"{name}={value}" for name, value in found.items() if value not in ("", 0))))
        if not here and not grants:
            print("no lease is needed here (setting plugin.authority.lease), and none was granted here")
    return 1 if here and here["state"] != "valid" else 0


def _here(settings: Settings) -> dict[str, Any] | None:
    """The lease that this host's settings need, looked at anew."""
    from stockade.errors import StockadeError
    from stockade_authority.policies.config import read_options
    from stockade_authority.policies.lease.permit import Permit, clock

    options = read_options(settings.options("authority")).lease
    if options is None:
        return None
    permit = Permit(settings.home, options)
    permit.look()
    shown: dict[str, Any] = {"lease": options.name, "state": "valid", "reason": "", "from": permit.where}
    try:
        permit.check(time.time())
    except StockadeError as error:
        shown |= {"state": error.code, "reason": error.message}
    else:
        shown["reason"] = permit.trouble.message if permit.trouble else ""
    if permit.lease is not None:
        lease = permit.lease
        shown |= {"id": lease.id, "issued": clock(lease.issued), "expires": clock(lease.expires)}
        shown |= {"stop": lease.stop, "max_ttl": lease.max_ttl}
    return shown


def _described(grant: Grant) -> dict[str, Any]:
    from stockade_authority.policies.lease.permit import clock

    return {
        "grant": grant.name,
        "valid": grant.valid,
        "until": clock(grant.until) if grant.until else "",
        "stop": grant.stop,
        "max_ttl": grant.max_ttl,
        "made": clock(grant.made),
        "revoked": clock(grant.revoked) if grant.revoked else "",
    }


def _serve(settings: Settings, args: argparse.Namespace) -> int:
    import asyncio

    from stockade.cli.interrupts import Interrupts, run_interruptible
    from stockade.cli.logs import show_logs
    from stockade_authority.policies.lease.server import LeaseServer
    from stockade_authority.policies.lease.source import is_local, read_token

    if args.token_file is None and not is_local(f"http://{args.host if ':' not in args.host else f'[{args.host}]'}"):
        raise UsageError(
            f"{args.host} can be reached by others, and everybody who asks would get a lease",
            hint="Give --token-file FILE, and put TLS in front of it; or serve on 127.0.0.1.",
        )
    server = LeaseServer(settings.home, read_token(args.token_file) if args.token_file else "")
    show_logs(lambda text: print(text, file=sys.stderr, flush=True))

    async def until_stopped(interrupts: Interrupts) -> int:
        async with server.listening(args.host, args.port) as url:
            print(f"serving {url}/leases/NAME", flush=True)
            await asyncio.Event().wait()
        return 0

    return run_interruptible(until_stopped)

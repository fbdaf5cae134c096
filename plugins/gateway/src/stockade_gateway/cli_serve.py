"""``stockade gateway serve``: the gateway on its own."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys

from stockade.cli.arguments import seconds
from stockade.errors import StockadeError, UsageError

PORT = 8751
"""Where it listens by default."""

_ABOUT = """\
Forwards model calls to the configured vendors for whoever presents a warrant, as bearer token or in x-api-key.
Where calls go, prices and budgets are the settings [plugin.gateway], as for `stockade run`.

It speaks plain HTTP and by default listens on this machine only. Elsewhere, put something before it that ends
TLS, since a warrant is a credential. If that also knows which sandbox a call comes from, have it say so in a
header (and remove that header from what comes in), and name it with --origin-header.

SIGTERM and SIGINT stop it: no further call is taken, running ones get --grace; a second one ends it at once.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The verbs of ``gateway``."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="serve")
    serve = verbs.add_parser(
        "serve",
        help="forward model calls for whoever presents a warrant",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    serve.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="default: %(default)s")
    serve.add_argument("--port", type=int, default=PORT, help="default: %(default)s; 0: any, which is shown")
    serve.add_argument(
        "--jwks",
        metavar="FILE|URL",
        help="the keys that warrants are checked with (https, or http on this machine; read again as they change); "
        "default: the setting plugin.gateway.jwks, else the keys of this STOCKADE_HOME",
    )
    serve.add_argument(
        "--origin-header", default="", metavar="NAME", help="the header in which the front end says the sandbox's id"
    )
    serve.add_argument(
        "--grace", type=seconds, default=30.0, metavar="TIME", help="for running calls, on stopping (default: 30s)"
    )


def run(args: argparse.Namespace) -> int:
    """Serve until a signal; 0 after an orderly stop."""
    from stockade.cli.logs import show_logs

    if not 0 <= args.port <= 65535:
        raise UsageError(f"--port {args.port} is no port", hint="Give a number from 0 to 65535.")
    show_logs(lambda line: print(line, file=sys.stderr, flush=True))
    return asyncio.run(_serve(args))


async def _serve(args: argparse.Namespace) -> int:
    from stockade.settings import Settings
    from stockade_gateway.route import ModelRoute
    from stockade_gateway.serve import Gateway

    settings = Settings.load(plugin={"gateway": {"jwks": args.jwks}} if args.jwks else None)
    route = ModelRoute.from_settings(settings)
    gateway = Gateway(route, origin_header=args.origin_header)
    stop = asyncio.Event()

    def asked(signum: int) -> None:
        if stop.is_set():
            os._exit(128 + signum)
        stop.set()

    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, asked, signum)
    try:
        url = await gateway.start(args.host, args.port)
    except OSError as error:
        raise CannotListen(
            f"cannot listen on {args.host} port {args.port}: {error.strerror}", hint="Give another --host or --port."
        ) from error
    try:
        print(f"listening on {url}", flush=True)
        await stop.wait()
    finally:
        await gateway.stop(args.grace)
    return 0


class CannotListen(StockadeError):
    """The address is in use, or is none of this machine's."""

    code = "cannot_listen"

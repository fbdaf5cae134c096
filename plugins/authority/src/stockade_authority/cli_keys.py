"""``stockade keys``: the keys that sign warrants."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from stockade.cli.text import printable

if TYPE_CHECKING:
    from stockade_authority.keys import Keyring


def configure(parser: argparse.ArgumentParser) -> None:
    """The verbs of ``keys``."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="generate|list|rotate|retire|jwks")
    generate = verbs.add_parser("generate", help="add a key that verifies; the first one also signs")
    generate.add_argument("--kid", default="", metavar="NAME", help="its name (default: its RFC 7638 thumbprint)")
    listing = verbs.add_parser("list", help="all keys, oldest first")
    listing.add_argument("--json", action="store_true", help="one JSON array")
    rotate = verbs.add_parser("rotate", help="sign with another key from now on; the others still verify")
    rotate.add_argument("kid", nargs="?", default="", metavar="KID", help="the key (default: a new one)")
    retire = verbs.add_parser("retire", help="delete a key: what it signed is worth nothing from now on")
    retire.add_argument("kid", metavar="KID", help="the key, as shown by list")
    jwks = verbs.add_parser("jwks", help="the public keys as a JWK set, for verifiers elsewhere")
    jwks.add_argument("--out", metavar="FILE", help="write it there, in one step, instead of showing it")


def run(args: argparse.Namespace) -> int:
    """Do one of the verbs."""
    from stockade.settings import Settings
    from stockade_authority.keys import Keyring

    keyring = Keyring(Settings.load().home / "keys")
    if args.verb == "generate":
        kid = keyring.generate(args.kid)
        print(f"{kid}  {_state(keyring, kid)}")
    elif args.verb == "list":
        _list(keyring, args.json)
    elif args.verb == "rotate":
        print(f"{keyring.rotate(args.kid)}  signing")
    elif args.verb == "retire":
        keyring.retire(args.kid)
        print(f"{args.kid}  deleted")
    else:
        _jwks(keyring, args.out)
    return 0


def _list(keyring: Keyring, as_json: bool) -> None:
    files = keyring.files()
    if as_json:
        print(json.dumps([{"kid": f.kid, "made": f.made, "private": f.private, "signing": f.signing} for f in files]))
    for file in () if as_json else files:
        made = time.strftime("%Y-%m-%d %H:%M", time.localtime(file.made))
        print(printable(f"{file.kid}  {made}  {_state(keyring, file.kid)}"))
    if not files and not as_json:
        print("no keys; the first turn makes one, or: stockade keys generate")


def _state(keyring: Keyring, kid: str) -> str:
    [file] = [f for f in keyring.files() if f.kid == kid]
    return "signing" if file.signing else "verifying" if file.private else "verifying (public key only)"


def _jwks(keyring: Keyring, out: str | None) -> None:
    text = json.dumps(keyring.jwks(), indent=2) + "\n"
    if out is None:
        sys.stdout.write(text)
        return
    path = Path(out)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(new, "x") as file:
            file.write(text)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
    print(f"wrote {printable(out)}")

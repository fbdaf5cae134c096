"""Run all benchmarks, or those that are named; ``--check`` exits 1 when a bound is missed."""

from __future__ import annotations

import argparse
import importlib
import sys

NAMES = ("startup", "create", "wire", "turns", "files", "revoke", "gateway")


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)} (default: all)")
    parser.add_argument("--litellm", action="store_true", help="gateway: compare with LiteLLM's proxy too")
    parser.add_argument(
        "--install", action="store_true", help="gateway: install nginx (apt, as root) and LiteLLM (a venv, for the run)"
    )
    parser.add_argument("--check", action="store_true", help="exit 1 when a bound is missed")
    args = parser.parse_args()
    if unknown := set(args.names) - set(NAMES):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}")
    bounds = []
    for name in args.names or NAMES:
        print(f"{name}:", flush=True)
        options = {"install": args.install, "with_litellm": args.litellm} if name == "gateway" else {}
        bounds += importlib.import_module(f"benchmarks.{name}").main(**options)
    print()
    for bound in bounds:
        print(bound)
    return 1 if args.check and not all(bound.met for bound in bounds) else 0


if __name__ == "__main__":
    sys.exit(main())

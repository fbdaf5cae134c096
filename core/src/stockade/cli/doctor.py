"""``stockade doctor``: what this host can do, and how to fix what it cannot."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys

from stockade.cli.text import printable

_COLOURS = {"ok": "32", "warn": "33", "fail": "31"}


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of ``doctor``."""
    parser.add_argument("--json", action="store_true", help="one JSON array")


def run(args: argparse.Namespace) -> int:
    """Print the findings; 1 when something fails without which nothing works."""
    from stockade.cli.checks import examine

    findings = examine()
    if args.json:
        print(json.dumps([dataclasses.asdict(finding) for finding in findings]))
    else:
        styled = sys.stdout.isatty()
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            word = f"{finding.status:<4}"
            sign = f"\x1b[{_COLOURS[finding.status]}m{word}\x1b[0m" if styled else word
            print(f"{sign}  {finding.name:<{width}}  {printable(finding.detail)}")
            for line in printable(finding.fix).splitlines():
                print(f"      {'':<{width}}  fix: {line}")
    return 1 if any(finding.status == "fail" for finding in findings) else 0

"""``stockade plugins list``, ``stockade plugins check`` and ``stockade plugins new``."""

from __future__ import annotations

import argparse

from stockade.cli.text import printable

_API = (
    "The column API is the range of kernel versions that the distribution asks for ('-' when it asks for none). "
    "The version of the contract is inside the plugin: 'plugins check' imports it and shows it."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the three commands."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="list|check|new")
    listing = commands.add_parser("list", help="what is installed; imports nothing", description=_API)
    listing.add_argument("--json", action="store_true", help="one JSON array")
    check = commands.add_parser(
        "check",
        help="import plugins and compare them with their contract",
        description="Imports every enabled plugin, or those called NAME, and says what is wrong. Exit 1 for any fault.",
    )
    check.add_argument("name", nargs="?", default="", metavar="NAME", help="only plugins of this name")
    check.add_argument("--json", action="store_true", help="one JSON array")
    new = commands.add_parser(
        "new",
        help="write a package that passes its contract kit",
        description="Writes the folder stockade-NAME: a small working plugin with its tests, to be changed.",
    )
    new.add_argument("kind", choices=("driver", "engine", "policy", "minter", "route"), help="what it is to be")
    new.add_argument("name", metavar="NAME", help="lower-case words with dashes")
    new.add_argument("--into", default=".", metavar="DIR", help="where to write the folder (default: here)")


def run(args: argparse.Namespace) -> int:
    """Run the chosen command; return its exit status."""
    if args.action == "new":
        from stockade.cli import new

        return new.run(args)
    return _list(args) if args.action == "list" else _check(args)


def _list(args: argparse.Namespace) -> int:
    from stockade.plugins.listing import rows
    from stockade.plugins.selection import read_selection

    found = rows(read_selection())
    if args.json:
        import json

        print(json.dumps(found, indent=2))
    elif not found:
        print("No plugin is installed. For example: pip install 'stockade[process,claude]'")
    else:
        table = [["KIND", "NAME", "DIST", "VERSION", "API", "ENABLED"]]
        for row in found:
            state = "yes" if row["enabled"] else f"no ({row['disabled_by']})"
            table.append([*(str(row[column]) for column in ("kind", "name", "dist", "version", "api")), state])
        _print_table(table)
    return 0


def _check(args: argparse.Namespace) -> int:
    from stockade.plugins.checking import check
    from stockade.plugins.scan import scan
    from stockade.plugins.selection import read_selection

    selection = read_selection()
    findings = check(args.name, selection)
    if args.json:
        import json

        print(
            json.dumps(
                [
                    {
                        "kind": finding.entry.kind,
                        "name": finding.entry.name,
                        "dist": finding.entry.dist,
                        "version": finding.entry.version,
                        "api": finding.api,
                        "disabled_by": finding.disabled_by,
                        "code": finding.error.code if finding.error else "plugin_broken" if finding.faults else "",
                        "faults": finding.faults,
                        "remarks": finding.remarks,
                    }
                    for finding in findings
                ],
                indent=2,
            )
        )
    else:
        for finding in findings:
            state = f"disabled by {finding.disabled_by}" if finding.disabled_by else "ok" if finding.sound else "FAULT"
            api = f"  [{finding.api}]" if finding.api else ""
            print(printable(f"{state:<5}  {finding.entry.kind} {finding.entry}{api}"))
            for label, texts in (("fault", finding.faults), ("remark", finding.remarks)):
                for text in texts:
                    print(printable(f"       {label}: {text}".replace("\n", "\n       ")))
        if not args.name:
            for name in selection.unmatched(scan()):
                print(printable(f"note   the lists of plugins name {name!r}, which nothing installed answers to"))
    return 0 if all(finding.sound for finding in findings) else 1


def _print_table(table: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        print(printable("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()))

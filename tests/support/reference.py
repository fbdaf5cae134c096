"""The parts of ``docs/reference`` that the code dictates. A test says what is missing, ready to paste."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import pkgutil
import typing
from collections.abc import Iterator
from types import ModuleType

import stockade
from stockade import hookspecs
from stockade.cli.app import COMMANDS
from stockade.cli.arguments import Parser
from stockade.errors import ENDINGS, StockadeError
from stockade.model import events
from stockade.settings import Admission, Settings


def errors_table() -> str:
    """Every error of the kernel by code."""
    for module in pkgutil.walk_packages(stockade.__path__, "stockade."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    rows = ["| code | class | meaning | exit |", "| --- | --- | --- | --- |"]
    # Those of errors.py as they stand there, then the others by module: not in the order of imports.
    found = sorted(
        _subclasses(StockadeError),
        key=lambda c: (c.__module__, c.__name__) if c.__module__ != StockadeError.__module__ else ("", ""),
    )
    for cls in found:
        name = f"`{cls.__name__}`" if ENDINGS.get(cls.code) is not cls else f"`{cls.__name__}`, ends a turn"
        rows.append(f"| `{cls.code}` | {name} | {_first_line(cls)} | {cls.exit_code} |")
    return "\n".join(rows)


def events_table() -> str:
    """Every event by kind, with its fields."""
    rows = ["| kind | fields | meaning |", "| --- | --- | --- |"]
    for cls in typing.get_args(events.Event):
        fields = ", ".join(f"`{f.name}`" for f in dataclasses.fields(cls) if f.name != "kind")
        rows.append(f"| `{cls.kind}` | {fields} | {_first_line(cls)} |")
    return "\n".join(rows)


def settings_names() -> Iterator[str]:
    """Every setting, dotted."""
    for name in Settings.model_fields:
        if name == "admission":
            yield from (f"admission.{field}" for field in Admission.model_fields)
        else:
            yield name


def hooks_table() -> str:
    """Every hook with its first sentence."""
    rows = ["| hook | of | meaning |", "| --- | --- | --- |"]
    for group in hookspecs.ALL:
        for name, function in vars(group).items():
            if not name.startswith("_"):
                arguments = ", ".join(p for p in inspect.signature(function).parameters if p != "self")
                rows.append(f"| `{name}({arguments})` | `{group.__name__}` | {_first_line(function)} |")
    return "\n".join(rows)


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").splitlines()[0].replace("``", "`").replace("|", "\\|")


def _subclasses(cls: type[StockadeError]) -> Iterator[type[StockadeError]]:
    for child in cls.__subclasses__():
        if child.__module__.startswith("stockade."):
            yield child
            yield from _subclasses(child)


def contract_classes(package: ModuleType) -> Iterator[type]:
    """The abstract classes that a plugin author implements."""
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        for cls in vars(importlib.import_module(module.name)).values():
            if inspect.isabstract(cls) and cls.__module__ == module.name and cls.__name__ != "Stream":
                yield cls


def options(command: str) -> set[str]:
    """The long options of a command, of its subcommands too."""
    parser = Parser(prog=command)
    importlib.import_module(COMMANDS[command][0]).configure(parser)
    found: set[str] = set()
    parsers: list[argparse.ArgumentParser] = [parser]
    while parsers:
        for action in parsers.pop()._actions:
            if isinstance(action, argparse._SubParsersAction):
                parsers += action.choices.values()
            found.update(option for option in action.option_strings if option.startswith("--"))
    return found - {"--help"}

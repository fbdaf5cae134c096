from __future__ import annotations

import argparse

import pytest

from stockade.cli.group import CommandGroup


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--loud", action="store_true")


def run(args: argparse.Namespace) -> int:
    return 3 if args.loud else 0


def test_a_command_is_kept_under_its_name() -> None:
    group = CommandGroup()
    group.add("greet", "Say hello", configure, run)
    assert group.commands["greet"].help == "Say hello"


@pytest.mark.parametrize("name", ["", "Run", "a b", "-x", "../x"])
def test_a_name_that_is_no_word_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="lower-case"):
        CommandGroup().add(name, "", configure, run)


def test_a_command_of_the_kernel_cannot_be_replaced() -> None:
    with pytest.raises(ValueError, match="kernel's own"):
        CommandGroup(frozenset({"run"})).add("run", "", configure, run)


def test_two_plugins_cannot_share_a_name() -> None:
    group = CommandGroup()
    group.add("greet", "", configure, run)
    with pytest.raises(ValueError, match="twice"):
        group.add("greet", "", configure, run)

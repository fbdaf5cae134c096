from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from stockade.cli.arguments import Parser, directory, seconds, variable
from stockade.errors import UsageError


@pytest.fixture
def parser() -> Parser:
    parser = Parser(prog="stockade run")
    parser.add_argument("message", nargs="?")
    parser.add_argument("--engine")
    parser.add_argument("--ttl", type=seconds)
    return parser


@pytest.mark.parametrize(
    ("text", "value"), [("90", 90), ("0.5", 0.5), ("90s", 90), ("15m", 900), ("2h", 7200), ("1d", 86400)]
)
def test_a_time_is_read_in_its_unit(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "inf", "1w", "1e9", "9" * 400, "ten"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        seconds(text)


def test_a_wrong_option_names_the_one_that_was_meant(parser: Parser) -> None:
    with pytest.raises(UsageError) as error:
        parser.parse_args(["--engin", "x", "hi"])
    assert "--engin" in error.value.message
    assert "Did you mean --engine?" in error.value.hint


def test_an_option_is_never_guessed_from_its_beginning(parser: Parser) -> None:
    with pytest.raises(UsageError):
        parser.parse_args(["--eng", "claude"])


def test_a_second_word_tells_about_quotes(parser: Parser) -> None:
    with pytest.raises(UsageError) as error:
        parser.parse_args(["Create", "hello.txt"])
    assert "quotes" in error.value.hint


def test_a_wrong_value_is_a_usage_error_with_the_usage(parser: Parser) -> None:
    with pytest.raises(UsageError) as error:
        parser.parse_args(["--ttl", "soon"])
    assert "write 90s" in error.value.message
    assert "usage: stockade run" in error.value.hint
    assert error.value.exit_code == 2


@pytest.mark.requirement("F34")
def test_a_value_of_a_variable_is_refused_and_not_repeated() -> None:
    with pytest.raises(argparse.ArgumentTypeError) as error:
        variable("API_KEY=sk-secret")
    assert "sk-secret" not in str(error.value)
    assert "API_KEY" in str(error.value)


def test_a_variable_is_a_name() -> None:
    assert variable("GIT_TOKEN") == "GIT_TOKEN"
    with pytest.raises(argparse.ArgumentTypeError):
        variable("not a name")


def test_a_directory_must_exist(tmp_path: Path) -> None:
    assert directory(str(tmp_path)) == tmp_path
    with pytest.raises(argparse.ArgumentTypeError):
        directory(str(tmp_path / "missing"))

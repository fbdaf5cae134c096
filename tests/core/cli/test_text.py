from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stockade.cli.text import one_line, printable


def test_an_escape_sequence_is_shown_and_not_obeyed() -> None:
    assert printable("\x1b]0;title\x07\x1b[2J") == "␛]0;title␇␛[2J"


def test_newlines_and_tabs_stay_and_a_carriage_return_goes() -> None:
    assert printable("a\tb\r\nc\rd") == "a\tb\ncd"


def test_c1_controls_and_bidirectional_marks_are_replaced() -> None:
    assert printable("\x9b31m\u202eevil\u2066") == "\ufffd31m\ufffdevil\ufffd"


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    left = printable(text)
    assert not [c for c in left if c not in "\n\t" and (c < " " or "\x7f" <= c <= "\x9f")]


def test_one_line_is_short_and_flat() -> None:
    assert one_line("a\n  b\x1b[0m", 20) == "a b␛[0m"
    assert one_line("x" * 1000, 10) == "x" * 9 + "…"

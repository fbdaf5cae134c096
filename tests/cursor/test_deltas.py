"""Snapshots and deltas, told apart."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stockade_cursor.deltas import Deltas

PIECES = st.lists(st.text("ab 1\n", min_size=1, max_size=3), min_size=1, max_size=8)


@given(PIECES)
@pytest.mark.requirement("L60")
def test_any_snapshots_become_their_final_text(pieces: list[str]) -> None:
    whole = "".join(pieces)
    deltas = Deltas()
    told = [deltas.add("".join(pieces[: n + 1])) for n in range(len(pieces))]
    assert "".join(told) + deltas.end(whole) == whole


@given(PIECES)
@pytest.mark.requirement("L60")
def test_deltas_stay_what_they_are(pieces: list[str]) -> None:
    # Three pieces that each begin with all of the one before are taken for snapshots: no text of a model does that.
    assume(len(pieces) < 3 or not (pieces[1].startswith(pieces[0]) and pieces[2].startswith(pieces[1])))
    deltas = Deltas()
    told = [deltas.add(piece) for piece in pieces]
    assert "".join(told) + deltas.end("".join(pieces)) == "".join(pieces)


def test_what_is_held_back_is_told_at_the_end_of_a_part() -> None:
    deltas = Deltas()
    assert (deltas.add("1"), deltas.add("10"), deltas.end()) == ("1", "", "10")

"""The table of what each engine does, made from the tests that show it.

A row's tests are those of the contract kit that are named here, and an engine's own tests with the marker
``behaviour(row, says="what a person reads in the cell")``. ``--engines`` prints the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

ENGINES = ("claude", "codex", "cursor")
FILE = Path(__file__).parents[2] / "docs" / "reference" / "engines.md"
BEGIN, END = "<!-- from the tests: ./dev test --engines -->", "<!-- end -->"

ROWS: dict[str, tuple[str, ...]] = {
    "streaming": ("test_text_arrives_in_pieces",),
    "thinking": ("test_thinking_is_told_apart",),
    "tool events by id": ("test_a_tool_call_has_a_start_and_an_end", "test_parallel_tool_calls_keep_their_ids"),
    "usage": ("test_usage_is_reported", "test_usage_is_that_of_one_turn"),
    "resume": ("test_a_new_engine_resumes_a_stored_session", "test_an_unknown_session_is_resume_failed"),
    "cancel": ("test_an_interrupt_ends_a_model_call", "test_no_process_is_left_after_an_interrupt"),
    "read-only": ("test_read_only_writes_nothing", "test_read_only_refuses_aloud"),
    "workspace-write": ("test_workspace_write_writes_in_the_workspace",),
    "full": (),
    "MCP": ("test_mcp_servers_are_offered",),
    "root": (),
    "tier 0": (),
    "tier 2": (),
    "what is written where": ("test_it_writes_only_where_it_may",),
    "what is sent to whom": (),
}


def check(items: Iterable[pytest.Item]) -> None:
    """Refuse a test that shows a behaviour which the table does not have."""
    for item in items:
        for marker in item.iter_markers("behaviour"):
            if marker.args[0] not in ROWS:
                raise pytest.UsageError(f"{item.nodeid}: the table of engines has no row {marker.args[0]!r}")


def table(items: Iterable[pytest.Item]) -> str:
    """The table in Markdown. A cell without a test says so."""
    cells: dict[tuple[str, str], dict[str, None]] = {}
    for item in items:
        engine = next((name for name in ENGINES if name in item.path.parts), "")
        if not engine or item.path.parent.parent.name != "tests":
            continue
        for row, says in _shows(item):
            cells.setdefault((row, engine), {}).setdefault(says)
    lines = ["| behaviour | " + " | ".join(ENGINES) + " |", "| --- " * (len(ENGINES) + 1) + "|"]
    for row in ROWS:
        found = [cells.get((row, engine), {"not shown": None}) for engine in ENGINES]
        lines.append(f"| {row} | " + " | ".join(_cell(texts) for texts in found) + " |")
    return "\n".join(lines)


def _shows(item: pytest.Item) -> Iterable[tuple[str, str]]:
    name = item.name.partition("[")[0]
    for row, tests in ROWS.items():
        if name in tests and item.parent is not None:
            function = getattr(item, "function", None)
            claims = getattr(getattr(item, "cls", None), "capabilities", None)
            missing = [f for f in getattr(function, "__stockade_requires__", ()) if not getattr(claims, f)]
            yield row, f"not claimed ({', '.join(missing)})" if missing else "yes"
    for marker in item.iter_markers("behaviour"):
        yield marker.args[0], marker.kwargs.get("says", "yes")


def _cell(texts: dict[str, None]) -> str:
    said = [text for text in texts if text != "yes"]
    return "; ".join(said) if said else "yes"

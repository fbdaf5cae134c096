"""The reference has every error of the distribution, and every member of a warrant."""

from __future__ import annotations

import inspect

from stockade_authority import errors, warrants
from tests.support import docs

PAGE = (docs.ROOT / "docs" / "reference" / "warrants.md").read_text()


def test_every_error_is_in_the_reference() -> None:
    for cls in vars(errors).values():
        if inspect.isclass(cls) and cls.__module__ == errors.__name__:
            row = f"| `{cls.code}` | `{cls.__name__}` | {(inspect.getdoc(cls) or '').splitlines()[0]} |"
            assert row in PAGE, f"docs/reference/warrants.md should have: {row}"


def test_every_claim_is_in_the_reference(members: dict[str, object]) -> None:
    table = PAGE[PAGE.index("| claim |") : PAGE.index("## What is checked")]
    for name in (*members, *warrants.BUDGETS, "pack"):
        assert f"`{name}`" in table


def test_the_codes_are_distinct() -> None:
    codes = [c.code for c in vars(errors).values() if inspect.isclass(c) and c.__module__ == errors.__name__]
    assert len(codes) == len(set(codes))

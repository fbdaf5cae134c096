"""Text of unknown origin, made safe for a terminal."""

from __future__ import annotations

_BIDI = (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)

_VISIBLE: dict[int, str | None] = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n\r"},
    ord("\r"): None,
    0x7F: "\u2421",
    **dict.fromkeys((*range(128, 160), *_BIDI, 8232, 8233), "�"),
}
"""Controls become their pictures (ESC is shown, not obeyed). A lone CR would let an agent overwrite
its line, and bidirectional marks let it show another text than it wrote."""


def printable(text: str) -> str:
    """``text`` without anything that a terminal obeys, besides newline and tab."""
    return text.translate(_VISIBLE)


def one_line(text: str, width: int) -> str:
    """The printable form of ``text`` on one line of at most ``width`` characters."""
    flat = " ".join(printable(text[: width * 4]).split())
    return flat if len(flat) <= width else flat[: max(width - 1, 0)] + "…"

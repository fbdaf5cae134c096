"""The pages, and the examples in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Block:
    """One fenced example; ``line`` is where it begins."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Every page a person reads."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("core/*.md"), *_plugin_pages()])


def _plugin_pages() -> list[Path]:
    return [*ROOT.glob("plugins/*/*.md"), *ROOT.glob("plugins/*/*/*.md")]


def blocks(language: str) -> list[Block]:
    """The examples in a language, of all pages."""
    found = []
    for page in pages():
        text = page.read_text()
        for match in re.finditer(r"^```(\w+)\n(.*?)^```", text, re.M | re.S):
            if match[1] == language:
                found.append(Block(page, text[: match.start()].count("\n") + 1, language, match[2]))
    return found


def commands(block: Block) -> list[tuple[str, list[str]]]:
    """Of a console example: each command with the lines that it shows; ``…`` stands for anything."""
    found: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found:
            found[-1][1].append(line)
    return found


def shows(expected: list[str], output: str) -> str:
    """The first expected line that the output lacks (in this order); empty when it has them all."""
    rest = output.splitlines()
    for line in expected:
        pattern = re.compile(".*".join(map(re.escape, line.split("…"))))
        while rest and not pattern.fullmatch(rest[0]):
            rest.pop(0)
        if not rest:
            return line
        rest.pop(0)
    return ""

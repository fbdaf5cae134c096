"""Times of the week, as rules write them: ``mon-fri 08:00-18:00``, ``sat,sun``, ``22:00-06:00``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WINDOW = re.compile(r"(?P<days>[a-z]{3}[a-z,-]*)?\s*(?:(?P<start>\d{2}:\d{2})-(?P<end>\d{2}:\d{2}))?")
_DAY = 24 * 60


@dataclass(frozen=True, slots=True)
class Window:
    """Minutes of some weekdays. One that ends before it begins goes on into the next day."""

    days: frozenset[int]
    start: int
    end: int

    def contains(self, moment: datetime) -> bool:
        """Whether ``moment``, in the zone that the window is meant in, lies within; the end does not."""
        minute, today = moment.hour * 60 + moment.minute, moment.weekday()
        if self.start < self.end:
            return today in self.days and self.start <= minute < self.end
        yesterday = (today - 1) % 7
        return (today in self.days and minute >= self.start) or (yesterday in self.days and minute < self.end)


def parse(text: str) -> Window:
    """The window that ``text`` describes. Raises `ValueError` with what to write instead."""
    match = _WINDOW.fullmatch(text.strip())
    if match is None or not (match["days"] or match["start"]):
        raise ValueError(f"{text!r} is no time; write mon-fri 08:00-18:00, sat,sun or 22:00-06:00")
    days = _days(match["days"], text) if match["days"] else frozenset(range(7))
    if not match["start"]:
        return Window(days, 0, _DAY)
    start, end = _minute(match["start"], text), _minute(match["end"], text)
    if start == end:
        raise ValueError(f"{text!r} begins and ends at the same minute; leave the hours out for the whole day")
    return Window(days, start, end)


def _days(text: str, whole: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if first not in DAYS or (dash and last not in DAYS):
            raise ValueError(f"{part!r} in {whole!r} is no weekday; they are {', '.join(DAYS)}")
        begin = DAYS.index(first)
        length = (DAYS.index(last) - begin) % 7 if dash else 0
        found.update((begin + offset) % 7 for offset in range(length + 1))
    return frozenset(found)


def _minute(text: str, whole: str) -> int:
    hours, minutes = map(int, text.split(":"))
    if minutes > 59 or hours * 60 + minutes > _DAY:
        raise ValueError(f"{text!r} in {whole!r} is no time of day; they are 00:00 to 24:00")
    return hours * 60 + minutes

"""Formatting of counts, ranges and long texts in messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def counted(number: int, noun: str) -> str:
    """Return ``1 message``, ``2 messages``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def first_of(names: Sequence[object], most: int, noun: str = "") -> str:
    """Return the first ``most`` names, and how many more there are: ``a, b and 2 more``, or with their
    ``noun``.
    """
    left = len(names) - most
    more = counted(left, f"more {noun}") if noun else f"{left} more"
    return ", ".join(map(str, names[:most])) + (f" and {more}" if left > 0 else "")


def ranges(numbers: Iterable[int]) -> str:
    """Return ``0-2, 5`` for 0, 1, 2 and 5."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


MESSAGE_CHARS = 1_000
"""The length to which an error's text is cut: it may repeat a whole request."""


def shorten(text: str) -> str:
    """Return the text, cut to MESSAGE_CHARS."""
    return text if len(text) <= MESSAGE_CHARS else text[: MESSAGE_CHARS - 1] + "…"


def is_unicode(text: str) -> bool:
    """Return False for text with half a surrogate pair: Python keeps bytes that are not UTF-8 as such."""
    return text.encode("utf-8", "ignore").decode("utf-8") == text

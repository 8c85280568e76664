"""Words for people."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """``1 message``, ``2 messages``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


MESSAGE_CHARS = 1_000
"""More of an error is not told: it may repeat all that somebody sent."""


def shortened(text: str) -> str:
    """The text, or what it begins with where it is longer than anybody reads."""
    return text if len(text) <= MESSAGE_CHARS else text[: MESSAGE_CHARS - 1] + "…"

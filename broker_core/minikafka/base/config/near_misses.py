"""Names that nobody knows, and which one was probably meant: one form for options and properties everywhere.

A module of its own, as command line, brokers, clients and the Spark source all tell of slips.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

LIKENESS = 0.8
"""``difflib``'s ratio of a slip of the pen, unless a caller has another one."""


def nearest(name: str, known: Iterable[str], least: float = LIKENESS) -> str | None:
    """That of ``known`` which was probably meant; None where none is like it."""
    found = difflib.get_close_matches(name, sorted(known), 1, least)
    return found[0] if found else None


def did_you_mean(meant: str | None) -> str:
    """A hint that follows a sentence about an unknown name: ``; did you mean NAME?``, or nothing."""
    return "" if meant is None else f"; did you mean {meant}?"


def with_hints(names: Iterable[str], known: Collection[str]) -> str:
    """``names``, none of which is known, each with what was probably meant behind it."""
    return ", ".join(hinted(name, nearest(name, known)) for name in names)


def hinted(name: str, meant: str | None) -> str:
    """``name (did you mean NAME?)``, or the name alone."""
    return name if meant is None else f"{name} (did you mean {meant}?)"

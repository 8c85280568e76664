"""A mistake that is planted in the product, which a simulation must find by some seed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest


@dataclass(frozen=True, slots=True)
class Mistake:
    """Replacements of the product's own attributes: (owner, name, replacement)."""

    patches: Sequence[tuple[object, str, object]]
    focus: tuple[str, ...] = ()
    """The faults or operations that show it best; empty: each seed's own."""
    seeds: tuple[int, ...] = ()
    """Seeds that found the mistake last, which are tried first; other changes may make some miss it."""
    rare: bool = False
    """True if fewer than about one seed of ten finds it: only scripts/soak tries it."""
    more: bool = False
    """True if it needs the events beside the faults."""

    def must_be_found(
        self, monkeypatch: pytest.MonkeyPatch, simulate: Callable[[int], None], within: int
    ) -> None:
        """Plant the mistake, and ``simulate`` its own seeds and those up to ``within`` until one finds it."""
        for owner, name, wrong in self.patches:
            monkeypatch.setattr(owner, name, wrong)
        for seed in (*self.seeds, *range(1, within + 1)):
            try:
                simulate(seed)
            except AssertionError as found:
                if isinstance(found.__cause__, (AttributeError, NameError)):
                    raise  # the mistake uses a stale name of the product
                sys.stdout.write(f"found with seed {seed}: {str(found).splitlines()[0]}\n")
                return
        pytest.fail(f"not found with {within} seeds")


def nothing(*_arguments: object, **_more: object) -> None:
    """Do nothing."""


def no(*_arguments: object, **_more: object) -> bool:
    return False


def yes(*_arguments: object, **_more: object) -> bool:
    return True

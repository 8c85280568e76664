"""Clocks."""

from __future__ import annotations

import pytest

from minikafka.base.clock import ManualClock, SystemClock


def test_a_manual_clock_moves_only_by_hand_and_only_forward() -> None:
    clock = ManualClock(1000)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1000, 0)
    clock.advance(5)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1005, 5)
    with pytest.raises(ValueError, match="cannot go back by 1 ms"):
        clock.advance(-1)


def test_the_machines_clock_gives_milliseconds() -> None:
    clock = SystemClock()
    assert clock.now_ms() > 1_600_000_000_000
    first = clock.monotonic_ms()
    assert 0 <= clock.monotonic_ms() - first < 10_000

"""The cleaner's thread: how long it waits between passes."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from minikafka.server.housekeeper import Housekeeper
from tests.support.simulation import Simulation

BACKOFF = "log.cleaner.backoff.ms"
NEVER = str((1 << 63) - 1)


class Stopping:
    """The event that ends the thread; after the first wait it calls ``then``."""

    def __init__(self, then: Callable[[], object], waits: int) -> None:
        self.seconds: list[float] = []
        self._then = then
        self._waits = waits

    def wait(self, seconds: float) -> bool:
        if not self.seconds:
            self._then()
        self.seconds.append(seconds)
        return len(self.seconds) == self._waits


def waits_of(
    monkeypatch: pytest.MonkeyPatch, simulation: Simulation, then: Callable[[], object], waits: int
) -> list[float]:
    """Run the thread's function; return its waits in seconds."""
    running = simulation.machine.running
    assert running is not None
    housekeeper, stopping = running.housekeeper, Stopping(then, waits)
    monkeypatch.setattr(housekeeper, "_stopping", stopping)
    Housekeeper._keep_clean(housekeeper)
    return stopping.seconds


def test_a_backoff_for_ever_is_waited_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation.serving("t", properties={BACKOFF: NEVER})
    waits = waits_of(monkeypatch, simulation, lambda: None, 5)
    assert max(waits) <= threading.TIMEOUT_MAX


def test_a_shorter_backoff_ends_the_wait_for_a_longer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation.serving("t", properties={BACKOFF: NEVER})
    properties = simulation.machine.broker.dynamic_properties
    waits = waits_of(monkeypatch, simulation, lambda: properties.replace({}, {BACKOFF: "0"}), 3)
    assert waits == [10, 0, 0]

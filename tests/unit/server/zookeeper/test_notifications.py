"""How long notifications in ZooKeeper stay."""

from __future__ import annotations

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import CoordinationError
from minikafka.registry.memory import MemoryZooKeeper
from minikafka.registry.znodes import Kind
from minikafka.server.zookeeper.notifications import CROWDED_MS, EXPIRATION_MS, KEPT_MAX, Notifications

DIRECTORY = "/news"
NEWS = Kind(f"{DIRECTORY}/n_N", "news", "", lambda data, path: path, str.encode, "")


def left_after(count: int, age_ms: int) -> tuple[int, str]:
    """Return the number of ``count`` notifications that are left at that age, and the first one."""
    clock = ManualClock()
    zookeeper = MemoryZooKeeper(clock)
    store = zookeeper.connect()
    store.create(DIRECTORY)
    notifications, seen = Notifications(store, clock, DIRECTORY, "n_", NEWS, "news"), []
    for number in range(count):
        store.create(f"{DIRECTORY}/n_{number:010d}", b"")
    notifications.follow(seen.append)
    clock.advance(age_ms)
    notifications.follow(seen.append)
    assert len(seen) == count
    names = sorted(store.children(DIRECTORY))
    return len(names), names[0] if names else ""


def test_they_stay_for_a_quarter_of_an_hour() -> None:
    assert left_after(5, EXPIRATION_MS) == (5, "n_0000000000")
    assert left_after(5, EXPIRATION_MS + 1) == (0, "")


def test_of_very_many_the_oldest_go_after_a_minute() -> None:
    assert left_after(KEPT_MAX + 5, CROWDED_MS) == (KEPT_MAX + 5, "n_0000000000")
    assert left_after(KEPT_MAX + 5, CROWDED_MS + 1) == (KEPT_MAX, "n_0000000005")


def test_an_invalid_one_is_forgotten_when_another_broker_removes_it(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(data: bytes, path: str) -> str:
        raise CoordinationError(path)

    clock = ManualClock()
    store = MemoryZooKeeper(clock).connect()
    path = f"{DIRECTORY}/n_0"
    store.create(path, make_parents=True)
    kind = Kind(f"{DIRECTORY}/n_N", "news", "", refuse, str.encode, "")
    notifications = Notifications(store, clock, DIRECTORY, "n_", kind, "news")
    for _ in range(2):
        notifications.follow(lambda value: None)
    assert len(caplog.records) == 1
    store.delete(path)
    notifications.follow(lambda value: None)
    store.create(path)
    notifications.follow(lambda value: None)
    assert len(caplog.records) == 2

"""Timers of the event loop."""

from __future__ import annotations

from dataclasses import dataclass

from minikafka.base.clock import NEVER_MS
from minikafka.net.event_loop import Timers


@dataclass(eq=False)
class Item:
    timer_ms: int = NEVER_MS


def test_timer_is_due_once_at_its_time() -> None:
    alarms, item = Timers[Item](), Item()
    alarms.set(item, 10)
    assert (list(alarms.due(9)), alarms.next_ms()) == ([], 10)
    assert list(alarms.due(10)) == [item]
    assert (list(alarms.due(99)), alarms.next_ms()) == ([], None)


def test_earlier_of_two_timers_of_an_item_counts() -> None:
    alarms, item = Timers[Item](), Item()
    for at_ms in (30, 10, 20):
        alarms.set(item, at_ms)
    assert list(alarms.due(10)) == [item]
    assert list(alarms.due(40)) == []


def test_timers_are_due_in_the_order_of_their_times() -> None:
    alarms, items = Timers[Item](), [Item() for _ in range(3)]
    for item, at_ms in zip(items, (3, 1, 2), strict=True):
        alarms.set(item, at_ms)
    assert list(alarms.due(3)) == [items[1], items[2], items[0]]


def test_cleared_timer_is_not_due_and_can_be_set_again() -> None:
    alarms, item = Timers[Item](), Item()
    alarms.set(item, 10)
    alarms.clear(item)
    assert list(alarms.due(10)) == []
    alarms.set(item, 20)
    assert list(alarms.due(20)) == [item]


def test_stale_items_are_not_kept_until_their_time() -> None:
    alarms = Timers[Item]()
    for _ in range(10_000):
        item = Item()
        alarms.set(item, 1_000_000)
        alarms.clear(item)
    assert len(alarms._heap) < 100

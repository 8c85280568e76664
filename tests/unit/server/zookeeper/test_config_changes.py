"""Notifications of changed configs, and the log line with the changes."""

from __future__ import annotations

import logging

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import CoordinationError, CoordinationLost
from minikafka.registry.memory import MemoryZooKeeper
from minikafka.server.zookeeper.config_changes import ConfigChanges
from minikafka.server.zookeeper.entity_settings import log_changes
from minikafka.server.zookeeper.notifications import EXPIRATION_MS

CHANGES = "/config/changes"


class World:
    """The notifications in a ZooKeeper, and the topics that were told."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_000_000)
        self.zookeeper = MemoryZooKeeper(self.clock)
        self.store = self.zookeeper.connect()
        self.store.create(CHANGES, make_parents=True)
        self.changes = ConfigChanges(self.store, self.clock)
        self.told: list[str] = []

    def notify(self, text: str, name: str = "config_change_") -> str:
        return self.store.create(f"{CHANGES}/{name}", text.encode(), sequential=name.endswith("_"))

    def notify_of(self, topic: str) -> str:
        return self.notify(f'{{"version":2,"entity_path":"topics/{topic}"}}')

    def follow(self) -> list[str]:
        """The topics that are told now."""
        self.told.clear()
        self.changes.follow({"topics": self.told.append})
        return self.told


def test_each_notification_is_told_once_and_in_order() -> None:
    world = World()
    world.notify_of("b")
    world.notify('{"version":1,"entity_type":"topics","entity_name":"a"}')
    world.notify_of("b")
    assert world.follow() == ["b", "a", "b"]
    world.notify_of("c")
    assert world.follow() == ["c"]
    assert world.follow() == []


def test_settings_of_others_than_topics_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    with caplog.at_level(logging.INFO):
        world.notify('{"version":2,"entity_path":"users/alice/clients/<default>"}')
        assert world.follow() == []
    assert caplog.messages == [
        "ignored changed configs of users/alice/clients/<default>: this version does not support them"
    ]


def test_nonsense_is_told_once_and_the_others_are_acted_on(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    path = world.notify("nonsense")
    world.notify_of("t")
    assert world.follow() == ["t"]
    assert world.follow() == []
    (line,) = caplog.messages
    assert f"{path}: invalid JSON" in line


def test_a_notification_on_which_could_not_be_acted_is_acted_on_the_next_time() -> None:
    world = World()
    for topic in ("a", "b", "c"):
        world.notify_of(topic)

    def lose_the_connection_at_b(topic: str) -> None:
        if topic == "b":
            raise CoordinationLost("gone")
        world.told.append(topic)

    with pytest.raises(CoordinationLost):
        world.changes.follow({"topics": lose_the_connection_at_b})
    assert world.told == ["a"]
    assert world.follow() == ["b", "c"]


def test_settings_that_zookeeper_refuses_to_give_do_not_stop_others(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.notify_of("secret")
    world.notify_of("t")

    def refuse_secrets(topic: str) -> None:
        if topic == "secret":
            raise CoordinationError("not authorised")
        world.told.append(topic)

    world.changes.follow({"topics": refuse_secrets})
    assert world.told == ["t"]
    assert world.follow() == []
    assert caplog.messages == ["ignored a notification of changed configs: not authorised"]


def test_notifications_are_removed_15_minutes_after_they_were_acted_on() -> None:
    world = World()
    world.notify_of("a")
    world.notify("nonsense")
    assert world.follow() == ["a"]
    world.clock.advance(EXPIRATION_MS)
    assert world.follow() == []
    assert world.store.children(CHANGES) == ["config_change_0000000000", "config_change_0000000001"]
    world.clock.advance(1)
    world.notify_of("b")
    assert world.follow() == ["b"]
    assert world.store.children(CHANGES) == ["config_change_0000000002"]


@pytest.mark.parametrize("wrong_ms", [3_600_000, 31_536_000_000, -31_536_000_000])
def test_a_broker_whose_clock_is_wrong_removes_notifications_in_time(wrong_ms: int) -> None:
    world = World()
    world.notify_of("a")
    world.clock.adjust_wall_clock(wrong_ms)
    assert world.follow() == ["a"]
    assert world.follow() == []
    assert world.store.children(CHANGES) == ["config_change_0000000000"]
    world.clock.adjust_wall_clock(-2 * wrong_ms)
    world.clock.advance(EXPIRATION_MS + 1)
    assert world.follow() == []
    assert world.store.children(CHANGES) == []


def test_what_kafka_did_not_put_there_stays() -> None:
    world = World()
    world.notify("for the night shift", name="readme")
    assert world.follow() == []
    world.clock.advance(EXPIRATION_MS + 1)
    assert world.follow() == []
    assert world.store.children(CHANGES) == ["readme"]


def test_a_notification_that_another_broker_removes_meanwhile_is_passed_over() -> None:
    world = World()
    world.notify_of("a")
    path = world.notify_of("b")
    world.notify_of("c")
    told: list[str] = []

    def told_while_another_removes(topic: str) -> None:
        if topic == "a":
            world.store.delete(path)
        told.append(topic)

    world.changes.follow({"topics": told_while_another_removes})
    assert told == ["a", "c"]


def test_notifications_below_a_parent_that_was_made_anew_are_new_ones() -> None:
    world = World()
    world.notify_of("a")
    world.follow()
    world.store.delete(CHANGES, recursive=True)
    assert world.follow() == []
    world.store.create(CHANGES)
    assert world.notify_of("b").endswith("_0000000000")
    assert world.follow() == ["b"]


def test_one_line_tells_what_was_added_changed_and_taken_away(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        log_changes(
            "t",
            {"flush.ms": "5", "max.message.bytes": "60", "segment.bytes": "100"},
            {"segment.bytes": "200", "flush.ms": "5", "flush.messages": "1"},
        )
    (line,) = caplog.messages
    assert line == (
        "configs of topic t changed: flush.messages default -> 1, max.message.bytes 60 -> default, "
        "segment.bytes 100 -> 200"
    )


def test_nothing_is_told_of_settings_that_are_the_same(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        log_changes("t", {"compression.type": "gzip"}, {"compression.type": "gzip"})
    assert caplog.messages == []


def test_a_secret_among_the_changes_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        log_changes("t", {"x.password": "tiger"}, {"x.password": "lion", "retention.ms": "5"})
    assert caplog.messages == ["configs of topic t changed: retention.ms default -> 5, x.password *** -> ***"]

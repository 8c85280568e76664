"""Notifications of changed configs, and the log line with the changes."""

from __future__ import annotations

import logging

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import CoordinationError, CoordinationLost
from minikafka.registry.entity_configs import ConfigChange
from minikafka.registry.memory import MemoryZooKeeper
from minikafka.server.zookeeper.entity_settings import log_changes
from minikafka.server.zookeeper.notifications import EXPIRATION_MS, config_changes

CHANGES = "/config/changes"


class NotificationsHarness:
    """Config change notifications in a ZooKeeper, and the topics that were handled."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_000_000)
        self.zookeeper = MemoryZooKeeper(self.clock)
        self.store = self.zookeeper.connect()
        self.store.create(CHANGES, make_parents=True)
        self.changes = config_changes(self.store, self.clock)
        self.handled: list[str] = []

    def notify(self, text: str, name: str = "config_change_") -> str:
        return self.store.create(f"{CHANGES}/{name}", text.encode(), sequential=name.endswith("_"))

    def notify_of(self, topic: str) -> str:
        return self.notify(f'{{"version":2,"entity_path":"topics/{topic}"}}')

    def follow(self) -> list[str]:
        """Follow the notifications and return the topics that were handled."""
        self.handled.clear()
        self.changes.follow(lambda change: self.handled.append(change.entity_name))
        return self.handled


def test_each_notification_is_told_once_and_in_order() -> None:
    harness = NotificationsHarness()
    harness.notify_of("b")
    harness.notify('{"version":1,"entity_type":"topics","entity_name":"a"}')
    harness.notify_of("b")
    assert harness.follow() == ["b", "a", "b"]
    harness.notify_of("c")
    assert harness.follow() == ["c"]
    assert harness.follow() == []


def test_a_user_and_a_client_of_a_user_are_named_as_in_their_paths() -> None:
    harness = NotificationsHarness()
    harness.notify('{"version":2,"entity_path":"users/alice"}')
    harness.notify('{"version":2,"entity_path":"users/alice/clients/<default>"}')
    assert harness.follow() == ["alice", "alice/clients/<default>"]


@pytest.mark.parametrize("path", ["users/", "users/alice/clients", "users/alice/app", "users/a/clients/b/c"])
def test_a_path_below_users_that_names_nobody_is_ignored(path: str, caplog: pytest.LogCaptureFixture) -> None:
    harness = NotificationsHarness()
    harness.notify(f'{{"version":2,"entity_path":"{path}"}}')
    assert harness.follow() == []
    (line,) = caplog.messages
    assert path in line


def test_invalid_notification_is_logged_once_and_others_handled(caplog: pytest.LogCaptureFixture) -> None:
    harness = NotificationsHarness()
    path = harness.notify("nonsense")
    harness.notify_of("t")
    assert harness.follow() == ["t"]
    assert harness.follow() == []
    (line,) = caplog.messages
    assert f"{path}: invalid JSON" in line


def test_failed_notification_is_handled_again_the_next_time() -> None:
    harness = NotificationsHarness()
    for topic in ("a", "b", "c"):
        harness.notify_of(topic)

    def lose_the_connection_at_b(change: ConfigChange) -> None:
        if change.entity_name == "b":
            raise CoordinationLost("gone")
        harness.handled.append(change.entity_name)

    with pytest.raises(CoordinationLost):
        harness.changes.follow(lose_the_connection_at_b)
    assert harness.handled == ["a"]
    assert harness.follow() == ["b", "c"]


def test_settings_that_zookeeper_refuses_to_give_do_not_stop_others(caplog: pytest.LogCaptureFixture) -> None:
    harness = NotificationsHarness()
    harness.notify_of("secret")
    harness.notify_of("t")

    def refuse_secrets(change: ConfigChange) -> None:
        if change.entity_name == "secret":
            raise CoordinationError("not authorised")
        harness.handled.append(change.entity_name)

    harness.changes.follow(refuse_secrets)
    assert harness.handled == ["t"]
    assert harness.follow() == []
    assert caplog.messages == ["ignored a notification of changed configs: not authorised"]


def test_notifications_are_removed_15_minutes_after_they_were_acted_on() -> None:
    harness = NotificationsHarness()
    harness.notify_of("a")
    harness.notify("nonsense")
    assert harness.follow() == ["a"]
    harness.clock.advance(EXPIRATION_MS)
    assert harness.follow() == []
    assert harness.store.children(CHANGES) == ["config_change_0000000000", "config_change_0000000001"]
    harness.clock.advance(1)
    harness.notify_of("b")
    assert harness.follow() == ["b"]
    assert harness.store.children(CHANGES) == ["config_change_0000000002"]


@pytest.mark.parametrize("wrong_ms", [3_600_000, 31_536_000_000, -31_536_000_000])
def test_a_broker_whose_clock_is_wrong_removes_notifications_in_time(wrong_ms: int) -> None:
    harness = NotificationsHarness()
    harness.notify_of("a")
    harness.clock.adjust_wall_clock(wrong_ms)
    assert harness.follow() == ["a"]
    assert harness.follow() == []
    assert harness.store.children(CHANGES) == ["config_change_0000000000"]
    harness.clock.adjust_wall_clock(-2 * wrong_ms)
    harness.clock.advance(EXPIRATION_MS + 1)
    assert harness.follow() == []
    assert harness.store.children(CHANGES) == []


def test_what_kafka_did_not_put_there_stays() -> None:
    harness = NotificationsHarness()
    harness.notify("for the night shift", name="readme")
    assert harness.follow() == []
    harness.clock.advance(EXPIRATION_MS + 1)
    assert harness.follow() == []
    assert harness.store.children(CHANGES) == ["readme"]


def test_notification_removed_by_another_broker_is_skipped() -> None:
    harness = NotificationsHarness()
    harness.notify_of("a")
    path = harness.notify_of("b")
    harness.notify_of("c")
    handled: list[str] = []

    def handled_while_another_removes(change: ConfigChange) -> None:
        if change.entity_name == "a":
            harness.store.delete(path)
        handled.append(change.entity_name)

    harness.changes.follow(handled_while_another_removes)
    assert handled == ["a", "c"]


def test_notifications_under_a_recreated_parent_are_new() -> None:
    harness = NotificationsHarness()
    harness.notify_of("a")
    harness.follow()
    harness.store.delete(CHANGES, recursive=True)
    assert harness.follow() == []
    harness.store.create(CHANGES)
    assert harness.notify_of("b").endswith("_0000000000")
    assert harness.follow() == ["b"]


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

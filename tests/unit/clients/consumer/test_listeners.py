"""``clients/consumer/listeners``, over ZooKeeper in memory."""

from __future__ import annotations

from collections.abc import Sequence

from minikafka.clients.consumer.listeners import ZookeeperTopicEventWatcher
from minikafka.registry.memory import MemoryStore, MemoryZooKeeper


class RecordingTopicEventHandler:
    """A handler that records its events."""

    def __init__(self) -> None:
        self.events: list[list[str]] = []

    def handle_topic_event(self, all_topics: Sequence[str]) -> None:
        self.events.append(list(all_topics))


def watched() -> tuple[MemoryZooKeeper, MemoryStore, RecordingTopicEventHandler, ZookeeperTopicEventWatcher]:
    server = MemoryZooKeeper()
    store, handler = server.connect(), RecordingTopicEventHandler()
    watcher = ZookeeperTopicEventWatcher(store, handler)
    server.deliver()
    return server, store, handler, watcher


def test_handler_gets_the_topics_and_every_change() -> None:
    server, store, handler, _ = watched()
    store.create("/brokers/topics/b", make_parents=True)
    server.deliver()
    store.create("/brokers/topics/a")
    server.deliver()
    store.delete("/brokers/topics/b")
    server.deliver()
    assert handler.events == [[], ["b"], ["a", "b"], ["a"]]


def test_change_inside_a_topic_is_no_event() -> None:
    server, store, handler, _ = watched()
    store.create("/brokers/topics/a", make_parents=True)
    server.deliver()
    store.write("/brokers/topics/a", b"{}")
    store.create("/brokers/topics/a/partitions")
    server.deliver()
    assert handler.events == [[], ["a"]]


def test_handler_gets_changes_after_the_session_expired() -> None:
    server, store, handler, _ = watched()
    server.expire(store)
    server.deliver()
    server.connect().create("/brokers/topics/a", make_parents=True)
    server.deliver()
    assert handler.events[-1] == ["a"]


def test_handler_gets_no_event_after_shutdown() -> None:
    server, store, handler, watcher = watched()
    store.create("/brokers/topics/a", make_parents=True)
    watcher.shutdown()
    watcher.shutdown()
    server.deliver()
    assert handler.events == [[]]

"""``clients/consumer/listeners``, over ZooKeeper in memory."""

from __future__ import annotations

from collections.abc import Sequence

from minikafka.clients.consumer.listeners import ZookeeperTopicEventWatcher
from minikafka.registry.memory import MemoryStore, MemoryZooKeeper


class Heard:
    """A handler that remembers."""

    def __init__(self) -> None:
        self.events: list[list[str]] = []

    def handle_topic_event(self, all_topics: Sequence[str]) -> None:
        self.events.append(list(all_topics))


def watched() -> tuple[MemoryZooKeeper, MemoryStore, Heard, ZookeeperTopicEventWatcher]:
    server = MemoryZooKeeper()
    store, heard = server.connect(), Heard()
    watcher = ZookeeperTopicEventWatcher(store, heard)
    server.deliver()
    return server, store, heard, watcher


def test_the_handler_hears_of_what_is_there_and_of_every_change() -> None:
    server, store, heard, _ = watched()
    store.create("/brokers/topics/b", make_parents=True)
    server.deliver()
    store.create("/brokers/topics/a")
    server.deliver()
    store.delete("/brokers/topics/b")
    server.deliver()
    assert heard.events == [[], ["b"], ["a", "b"], ["a"]]


def test_a_change_of_a_topic_is_no_event() -> None:
    server, store, heard, _ = watched()
    store.create("/brokers/topics/a", make_parents=True)
    server.deliver()
    store.write("/brokers/topics/a", b"{}")
    store.create("/brokers/topics/a/partitions")
    server.deliver()
    assert heard.events == [[], ["a"]]


def test_after_the_session_expired_changes_are_heard_of_again() -> None:
    server, store, heard, _ = watched()
    server.expire(store)
    server.deliver()
    server.connect().create("/brokers/topics/a", make_parents=True)
    server.deliver()
    assert heard.events[-1] == ["a"]


def test_after_the_shutdown_nothing_is_heard_also_not_what_was_due() -> None:
    server, store, heard, watcher = watched()
    store.create("/brokers/topics/a", make_parents=True)
    watcher.shutdown()
    watcher.shutdown()
    server.deliver()
    assert heard.events == [[]]

"""How often topics were made or removed, as a broker sees it in ZooKeeper."""

from __future__ import annotations

from typing import Any

from minikafka.registry import paths
from minikafka.registry.memory import MemoryStore, MemoryZooKeeper
from minikafka.registry.store import Stat
from minikafka.server.zookeeper.counters import observe_topics


class Seen:
    """In place of ``TopicCreations``."""

    def __init__(self) -> None:
        self.looks: list[Any] = []

    def update_children(self, children: Any) -> None:
        self.looks.append((children.changes, children.made_at is not None))


class Behind(MemoryStore):
    """A session with a server that is behind the others until it is asked to catch up."""

    old: Stat | None = None

    def exists(self, path: str) -> Stat | None:
        return self.old or super().exists(path)

    def sync(self) -> None:
        super().sync()
        self.old = None


def test_a_server_that_is_behind_catches_up_before_the_look() -> None:
    store = Behind(MemoryZooKeeper(), "")
    store.create(paths.BROKER_TOPICS, make_parents=True)
    store.old = store.exists(paths.BROKER_TOPICS)
    store.create(f"{paths.BROKER_TOPICS}/t")
    seen: Any = Seen()
    observe_topics(store, seen)
    assert seen.looks == [(1, True)]


def test_missing_topics_znode_is_not_observed() -> None:
    seen: Any = Seen()
    observe_topics(MemoryZooKeeper().connect(), seen)
    assert seen.looks == []

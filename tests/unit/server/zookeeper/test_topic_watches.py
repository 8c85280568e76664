"""Topics whose assignments are rewritten without the controller."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from minikafka.base.errors import CoordinationLost
from minikafka.registry import paths
from minikafka.registry.memory import MemoryZooKeeper
from minikafka.registry.store import Stat
from minikafka.server.zookeeper.topic_watches import TopicWatches


class Harness:
    """Topics in ZooKeeper, watched, and what was found written."""

    def __init__(self) -> None:
        self.zookeeper = MemoryZooKeeper()
        self.store = self.zookeeper.connect()
        self.calls = 0
        self.watches = TopicWatches(self.store, self.called)
        self.stats = {topic: self.make(topic) for topic in ("t", "u")}

    def called(self) -> None:
        self.calls += 1

    def make(self, topic: str) -> Stat:
        path = paths.topic_path(topic)
        self.store.create(path, b"1", make_parents=True)
        return self.store.read(path)[1]

    def write(self, topic: str) -> Stat:
        return self.store.write(paths.topic_path(topic), b"2")

    def found(self) -> list[str]:
        self.zookeeper.deliver()
        written: list[str] = []
        self.watches.look(written.extend)
        return written


def test_topics_that_are_as_they_were_read_are_no_news() -> None:
    harness = Harness()
    harness.watches.keep(harness.stats)
    assert harness.found() == []
    assert harness.calls == 0


def test_a_topic_that_was_written_since_it_was_read_is_news_at_once() -> None:
    harness = Harness()
    harness.write("u")
    harness.watches.keep(harness.stats)
    assert harness.found() == ["u"]


def test_each_later_write_is_news_once() -> None:
    harness = Harness()
    harness.watches.keep(harness.stats)
    assert harness.found() == []
    harness.write("t")
    assert harness.found() == ["t"]
    assert harness.found() == []
    harness.write("t")
    assert harness.found() == ["t"]


def test_what_could_not_be_looked_at_is_looked_at_again() -> None:
    harness = Harness()
    harness.watches.keep(harness.stats)
    assert harness.found() == []
    harness.write("t")
    harness.zookeeper.deliver()

    def fail(topics: Collection[str]) -> None:
        raise CoordinationLost(f"no connection, and {sorted(topics)} not read")

    with pytest.raises(CoordinationLost):
        harness.watches.look(fail)
    assert harness.found() == ["t"]


def test_a_topic_that_is_not_watched_any_more_is_no_news() -> None:
    harness = Harness()
    harness.watches.keep(harness.stats)
    harness.watches.keep({"u": harness.stats["u"]})
    harness.write("t")
    assert harness.found() == []
    harness.watches.keep({})
    harness.write("u")
    assert harness.found() == []

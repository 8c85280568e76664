"""The znodes of topics: their ids, and which partitions exist."""

from __future__ import annotations

import random

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.registry import paths
from minikafka.registry.memory import MemoryZooKeeper
from minikafka.registry.store import Store
from minikafka.registry.topics import TopicAssignment
from minikafka.server.zookeeper.topic_znodes import TopicZnodes

ASSIGNMENT = {0: (1,)}


class Topics:
    """A ZooKeeper with the topic ``t`` that has no id, and the znodes as a broker writes them."""

    def __init__(self, *, ids: bool = True) -> None:
        self.zookeeper = MemoryZooKeeper()
        self.store: Store = self.zookeeper.connect()
        self.znodes = TopicZnodes(self.store, random.Random(1).randbytes if ids else None)
        self.store.create(paths.TOPIC_CONFIGS, b"", make_parents=True)
        self.write("t", TopicAssignment(ASSIGNMENT))

    def write(self, topic: str, assignment: TopicAssignment) -> None:
        path = paths.topic_path(topic)
        if self.store.exists(path) is None:
            self.store.create(path, assignment.to_json(), make_parents=True)
        else:
            self.store.write(path, assignment.to_json())

    def read(self, topic: str) -> TopicAssignment:
        path = paths.topic_path(topic)
        return TopicAssignment.from_json(self.store.read(path)[0], path)


@pytest.fixture
def topics() -> Topics:
    return Topics()


def test_new_topics_have_ids_of_their_own(topics: Topics) -> None:
    topics.znodes.create({"a": (ASSIGNMENT, {}), "b": (ASSIGNMENT, {})})
    made = {topics.read("a").topic_id, topics.read("b").topic_id}
    assert len(made - {None}) == 2


def test_topics_beside_earlier_releases_have_no_ids() -> None:
    topics = Topics(ids=False)
    topics.znodes.create({"a": (ASSIGNMENT, {})})
    assert topics.znodes.give_ids({"a": None, "t": None}) == {}
    assert topics.read("a") == topics.read("t") == TopicAssignment(ASSIGNMENT)


def test_id_stays_when_partitions_are_added(topics: Topics) -> None:
    topics.write("t", TopicAssignment(ASSIGNMENT, b"1" * 16))
    topics.znodes.add_partitions("t", {1: (2,)})
    assert topics.read("t") == TopicAssignment({0: (1,), 1: (2,)}, b"1" * 16)


def test_topic_without_an_id_gets_one_once(topics: Topics) -> None:
    given = topics.znodes.give_ids({"t": None, "gone": None})
    assert given == topics.znodes.give_ids({"t": None}) == {"t": topics.read("t").topic_id}


def test_topic_gets_back_the_id_that_it_had(topics: Topics) -> None:
    assert topics.znodes.give_ids({"t": b"1" * 16}) == {"t": b"1" * 16}
    assert topics.read("t") == TopicAssignment(ASSIGNMENT, b"1" * 16)


def test_id_that_another_controller_gives_meanwhile_stays(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_all = topics.store.write_all

    def late(nodes: dict[str, tuple[bytes, int]]) -> frozenset[str]:
        monkeypatch.undo()
        topics.write("t", TopicAssignment(ASSIGNMENT, b"2" * 16))
        return write_all(nodes)

    monkeypatch.setattr(topics.store, "write_all", late)
    assert topics.znodes.give_ids({"t": None}) == {"t": b"2" * 16}


def test_partitions_are_missing_from_their_topic_or_with_it(topics: Topics) -> None:
    topics.store.create(paths.topic_path("invalid"), b"{")
    named = [TopicPartition(*key) for key in (("t", 0), ("t", 1), ("u", 0), ("invalid", 0))]
    assert topics.znodes.missing(named) == {TopicPartition("t", 1), TopicPartition("u", 0)}

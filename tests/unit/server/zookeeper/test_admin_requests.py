"""What operators ask the controller for, and what the controller writes of it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import pytest

from minikafka.controller.assignment import Assignment
from minikafka.registry import paths
from minikafka.registry.memory import MemoryStore, MemoryZooKeeper
from minikafka.registry.store import Stat
from minikafka.registry.topics import TopicAssignment
from minikafka.server.zookeeper.admin_requests import AdminRequests


class CountingStore(MemoryStore):
    """Counts the questions that wait for an answer, many of them under way at once being one."""

    questions = 0
    meanwhile: tuple[str, bytes] | None = None
    """A store in which another process writes once, after the next read."""

    def read(self, path: str) -> tuple[bytes, Stat]:
        self.questions += 1
        return super().read(path)

    def write(self, path: str, data: bytes, version: int = -1) -> Stat:
        self.questions += 1
        return super().write(path, data, version)

    def read_all(self, paths: Iterable[str]) -> dict[str, tuple[bytes, Stat]]:
        self.questions += 1
        found = {path: MemoryStore.read(self, path) for path in paths if self.exists(path) is not None}
        other, self.meanwhile = self.meanwhile, None
        if other is not None:
            MemoryStore.write(self, *other)
        return found

    def write_all(self, nodes: Mapping[str, tuple[bytes, int]]) -> frozenset[str]:
        asked = self.questions + 1
        refused = super().write_all(nodes)
        self.questions = asked
        return refused


class Harness:
    """Topics in ZooKeeper, and the requests under test."""

    def __init__(self, *topics: str) -> None:
        self.store = CountingStore(MemoryZooKeeper(), "")
        self.requests = AdminRequests(self.store)
        for topic in topics:
            self.store.create(paths.topic_path(topic), json_of({0: (1, 2), 1: (2, 1)}), make_parents=True)
        self.store.questions = 0

    def held(self, topic: str) -> Assignment:
        path = paths.topic_path(topic)
        return TopicAssignment.from_json(MemoryStore.read(self.store, path)[0], path).partitions


def json_of(assignment: Assignment) -> bytes:
    return TopicAssignment(assignment).to_json()


def test_many_topics_are_assigned_in_one_round() -> None:
    topics = tuple(f"t{number}" for number in range(1_000))
    harness = Harness(*topics)
    written = harness.requests.write_assignments({topic: {0: (3, 1)} for topic in topics}, {})
    assert written == {topic: {0: (3, 1), 1: (2, 1)} for topic in topics}
    assert all(harness.held(topic) == written[topic] for topic in topics)
    assert harness.store.questions == 2


def test_concurrently_written_assignment_is_merged() -> None:
    harness = Harness("t", "u")
    harness.store.meanwhile = paths.topic_path("t"), json_of({0: (1, 2), 1: (2, 1), 2: (2,)})
    written = harness.requests.write_assignments({"t": {0: (3,)}, "u": {0: (3,)}}, {})
    assert written == {"t": {0: (3,), 1: (2, 1), 2: (2,)}, "u": {0: (3,), 1: (2, 1)}}
    assert {topic: harness.held(topic) for topic in written} == written


@pytest.mark.parametrize("data", [b"nonsense", b'{"version":1,"partitions":{"0":[]}}'])
def test_unreadable_topic_does_not_block_other_assignments(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    harness = Harness("bad", "t")
    harness.store.write(paths.topic_path("bad"), data)
    with caplog.at_level(logging.WARNING):
        written = harness.requests.write_assignments(
            {"bad": {0: (3,)}, "gone": {0: (3,)}, "t": {0: (3,)}}, {}
        )
    assert written == {"t": {0: (3,), 1: (2, 1)}}
    assert harness.held("t") == written["t"]
    assert "/brokers/topics/bad: " in caplog.text


def test_oversized_assignment_does_not_block_other_assignments() -> None:
    harness = Harness("t", "wide")
    wide = {number: tuple(range(20)) for number in range(20_000)}
    assert harness.requests.write_assignments({"t": {0: (3,)}, "wide": wide}, {}).keys() == {"t"}
    assert harness.held("wide") == {0: (1, 2), 1: (2, 1)}

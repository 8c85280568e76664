"""What a follower names in the requests of a fetch session."""

from __future__ import annotations

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.server.config.properties import BrokerConfig
from minikafka.server.config.replication import ReplicationConfig
from minikafka.server.replication.replica_requests import FetchSessionHandler
from minikafka.wire.apis.fetch import FetchPartition, FetchResponse

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def config() -> ReplicationConfig:
    given = {"broker.id": "0", "log.dirs": "d", "zookeeper.connect": "z"}
    return BrokerConfig.from_properties(given).replication


def named(session: FetchSessionHandler, config: ReplicationConfig, **offsets: int) -> list[int]:
    """The partitions that the next request names, from these offsets on."""
    parts = {
        name: FetchPartition(name.partition, 3, offset, 0, 100)
        for name, offset in ((A, offsets["a"]), (B, offsets["b"]))
    }
    request = session.request(1, parts, config)
    assert session.answered(FetchResponse(0, 0, 7, ()))
    return [part.index for topic in request.topics for part in topic.partitions]


def test_a_partition_is_named_once_and_again_when_its_offset_changes(config: ReplicationConfig) -> None:
    session = FetchSessionHandler()
    assert named(session, config, a=0, b=0) == [0, 1]
    assert named(session, config, a=0, b=0) == []
    assert named(session, config, a=0, b=5) == [1]


def test_a_partition_that_is_followed_anew_is_named_again_once(config: ReplicationConfig) -> None:
    session = FetchSessionHandler()
    named(session, config, a=0, b=0)
    session.follow_anew(A)
    assert named(session, config, a=0, b=0) == [0]
    assert named(session, config, a=0, b=0) == []

"""Commits of offsets that are given as arguments."""

from __future__ import annotations

import pytest

from minikafka.base.errors import CommitFailed, CoordinationLost, SessionExpired
from minikafka.base.ids import TopicPartition
from tests.support.connector_harness import ZooKeeperGroupHarness, cut_off

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def harness() -> ZooKeeperGroupHarness:
    return ZooKeeperGroupHarness(t=4)


def test_given_offsets_are_committed(harness: ZooKeeperGroupHarness) -> None:
    consumer = harness.consumer("a").joins(t=1)
    consumer.connector.commit_offsets({T0: 7, T1: 9})
    assert (harness.offset(0), harness.offset(1)) == (b"7", b"9")
    assert consumer.connector.fetch_offsets([T0, T1]) == {T0: 7, T1: 9}
    consumer.connector.commit_offsets({T0: 8})
    assert consumer.connector.fetch_offsets([T0, T1]) == {T0: 8, T1: 9}


def test_pair_of_topic_and_number_is_a_partition(harness: ZooKeeperGroupHarness) -> None:
    consumer = harness.consumer("a").joins(t=1)
    consumer.connector.commit_offsets({("t", 0): 7, ("t", 1): 9})
    assert (harness.offset(0), harness.offset(1)) == (b"7", b"9")
    assert consumer.connector.fetch_offsets([("t", 1)]) == {T1: 9}  # type: ignore[list-item]


def test_connector_without_streams_commits_any_partition(harness: ZooKeeperGroupHarness) -> None:
    harness.consumer("a").joins(t=1)
    harness.consumer("admin").connector.commit_offsets({T0: 7})
    assert harness.offset(0) == b"7"


def test_commit_fails_for_foreign_partitions_and_commits_the_others() -> None:
    harness = ZooKeeperGroupHarness(t=2)
    a, b = harness.consumer("a").reads(t=1), harness.consumer("b").reads(t=1)
    harness.go()
    assert harness.owners() == ["g_a-0", "g_b-0"]
    b.connector.commit_offsets({T1: 9})
    with pytest.raises(CommitFailed, match="g_a does not own t-1"):
        a.connector.commit_offsets({T0: 5, T1: 3})
    assert (harness.offset(0), harness.offset(1)) == (b"5", b"9")


@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
def test_commit_after_expiry_does_not_overwrite_the_new_owners_offset(storage: str) -> None:
    harness = ZooKeeperGroupHarness(t=1)
    a = harness.consumer("a", offsets_storage=storage).joins(t=1)
    a.connector.commit_offsets({T0: 3})
    cut_off(harness, a)
    b = harness.consumer("b", offsets_storage=storage).reads(t=1)
    b.connector.step()
    harness.go()
    b.connector.commit_offsets({T0: 9})
    harness.zookeeper.resume(a.store)
    with pytest.raises((SessionExpired, CoordinationLost)):
        a.connector.commit_offsets({T0: 5})
    assert harness.offset() == b"9"
    assert harness.brokers.committed("g").get(T0, 9) == 9

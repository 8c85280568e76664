"""Offsets that are given to a consumer in ZooKeeper: what may be committed, and by whom."""

from __future__ import annotations

import pytest

from minikafka.base.errors import CommitFailed, CoordinationLost, SessionExpired
from minikafka.base.ids import TopicPartition
from tests.unit.clients.consumer.connectors import World, cut_off

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def world() -> World:
    return World(t=4)


def test_offsets_may_be_given(world: World) -> None:
    one = world.one("a").reads(t=1)
    world.go()
    one.connector.commit_offsets({T0: 7, T1: 9})
    assert (world.offset(0), world.offset(1)) == (b"7", b"9")
    assert one.connector.fetch_offset_from_zookeeper(T0) == 7
    one.connector.commit_offset_to_zookeeper(T0, 8)
    assert one.connector.fetch_offsets([T0, T1]) == {T0: 8, T1: 9}
    assert one.connector.checkpointed_zk_offsets == {T0: 8, T1: 9}


def test_a_pair_is_a_partition(world: World) -> None:
    one = world.one("a").reads(t=1)
    world.go()
    one.connector.commit_offsets({("t", 0): 7})
    one.connector.commit_offset_to_zookeeper(("t", 1), 9)  # type: ignore[arg-type]
    assert (world.offset(0), world.offset(1)) == (b"7", b"9")
    assert one.connector.fetch_offset_from_zookeeper(("t", 0)) == 7  # type: ignore[arg-type]
    assert one.connector.fetch_offsets([("t", 1)]) == {T1: 9}  # type: ignore[list-item]


def test_without_streams_offsets_are_written_whoever_owns_the_partitions(world: World) -> None:
    world.one("a").reads(t=1)
    world.go()
    world.one("admin").connector.commit_offsets({T0: 7})
    assert world.offset(0) == b"7"


def test_an_offset_of_a_partition_that_another_owns_is_refused_and_the_others_are_committed() -> None:
    world = World(t=2)
    a, b = world.one("a").reads(t=1), world.one("b").reads(t=1)
    world.go()
    assert world.owners() == ["g_a-0", "g_b-0"]
    b.connector.commit_offsets({T1: 9})
    with pytest.raises(CommitFailed, match="g_a does not own t-1"):
        a.connector.commit_offsets({T0: 5, T1: 3})
    with pytest.raises(CommitFailed):
        a.connector.commit_offset_to_zookeeper(T1, 3)
    assert (world.offset(0), world.offset(1)) == (b"5", b"9")


@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
def test_an_offset_that_is_given_after_the_session_has_expired_does_not_go_behind_the_new_owners(
    storage: str,
) -> None:
    world = World(t=1)
    a = world.one("a", offsets_storage=storage).reads(t=1)
    world.go()
    a.connector.commit_offsets({T0: 3})
    cut_off(world, a)
    b = world.one("b", offsets_storage=storage).reads(t=1)
    b.connector.step()
    world.go()
    b.connector.commit_offsets({T0: 9})
    world.zookeeper.resume(a.store)
    for commit in (
        lambda: a.connector.commit_offsets({T0: 5}),
        lambda: a.connector.commit_offset_to_zookeeper(T0, 5),
    ):
        with pytest.raises((SessionExpired, CoordinationLost)):
            commit()
    assert world.offset() == b"9"
    assert world.coordinator.offsets.get(T0, 9) == 9

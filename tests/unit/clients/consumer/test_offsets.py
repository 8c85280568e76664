"""Offsets of a group in ZooKeeper, at its coordinator, or both."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from minikafka.base.errors import BrokerError, CoordinationLost, ErrorCode, NetworkError, SessionExpired
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.offsets import ConsumerOffsets, GroupOffsetsChannel, merge_offsets
from minikafka.clients.consumer.runtime import Wait
from minikafka.net.memory import Fault
from minikafka.registry.consumer_offsets import ZookeeperOffsets
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import OFFSETS, SERVED, Answer, BrokerHarness, commit_error
from tests.support.raising import raising

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def yes(partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
    return partitions


def no(_: Collection[TopicPartition]) -> Collection[TopicPartition]:
    return ()


MOVED = commit_error(ErrorCode.NOT_COORDINATOR_FOR_GROUP)


def cut(*_: object) -> Fault:
    return Fault.CUT_REQUEST


class OffsetsHarness:
    """A broker, with the sessions of two consumers at its ZooKeeper; it coordinates their group."""

    def __init__(self) -> None:
        self.brokers = BrokerHarness(1, {"t": 2, "u": 1, OFFSETS.topic: 1})
        self.zookeeper = self.brokers.zookeeper
        self.store = self.zookeeper.connect()
        self.mine = ZookeeperOffsets(self.store, "g")
        self.others = ZookeeperOffsets(self.zookeeper.connect(), "g")
        self.channel = GroupOffsetsChannel(self.brokers.client, "g", 10_000)

    @property
    def kafka(self) -> dict[TopicPartition, int]:
        return self.brokers.committed("g")

    @property
    def attempts(self) -> int:
        return len(self.brokers.asked(ApiKey.OFFSET_COMMIT))

    def fail(self, *answers: Answer) -> None:
        self.brokers.script(ApiKey.OFFSET_COMMIT, *answers)

    def offsets(
        self, *, in_zookeeper: bool = True, in_kafka: bool = True, named: str = "kafka"
    ) -> ConsumerOffsets:
        return ConsumerOffsets(
            self.mine,
            self.channel if in_kafka else None,
            in_zookeeper=in_zookeeper,
            zookeeper_first=named == "zookeeper",
            still_owned=yes,
            max_retries=2,
            backoff_ms=50,
        )

    def znode(self, tp: TopicPartition = T0) -> tuple[bytes, int]:
        data, stat = self.store.read(f"/consumers/g/offsets/{tp.topic}/{tp.partition}")
        return data, stat.version


@pytest.fixture
def harness() -> OffsetsHarness:
    return OffsetsHarness()


def run(
    offsets: ConsumerOffsets,
    wanted: dict[TopicPartition, int],
    *,
    with_retries: bool = True,
    check: Callable[[], None] | None = lambda: None,
) -> list[Wait | None]:
    return list(offsets.commit(wanted, with_retries=with_retries, check=check))


@pytest.mark.parametrize(
    ("zookeeper", "kafka", "merged"),
    [
        ({}, {}, {}),
        ({T0: 5}, {}, {T0: 5}),
        ({}, {T0: 5}, {T0: 5}),
        ({T0: 5, T1: 7}, {T0: 6, T1: 6}, {T0: 6, T1: 7}),
        ({T0: 0}, {U0: 0}, {T0: 0, U0: 0}),
    ],
)
def test_merge_takes_the_larger_offset(
    zookeeper: dict[TopicPartition, int], kafka: dict[TopicPartition, int], merged: dict[TopicPartition, int]
) -> None:
    assert merge_offsets(zookeeper, kafka) == merged


def test_ownership_lost_during_coordinator_lookup_commits_nothing(harness: OffsetsHarness) -> None:
    lost: list[bool] = []
    harness.brokers.script(ApiKey.FIND_COORDINATOR, lambda *_: lost.append(True) or SERVED)

    def check() -> None:
        if lost:
            raise SessionExpired("expired")

    with pytest.raises(SessionExpired):
        run(harness.offsets(), {T0: 5}, check=check)
    assert harness.kafka == {}
    assert harness.mine.fetch([T0]) == {}


def test_unchanged_offset_is_not_written_again(harness: OffsetsHarness) -> None:
    harness.mine.commit({T0: 5, T1: 0}, yes)
    harness.mine.commit({T0: 5, T1: 1}, yes)
    assert (harness.znode(T0), harness.znode(T1)) == ((b"5", 0), (b"1", 1))
    assert harness.mine.checkpointed_zk_offsets == {T0: 5, T1: 1}


def test_fetched_offsets_are_checkpointed(harness: OffsetsHarness) -> None:
    harness.others.commit({T0: 5}, yes)
    assert harness.mine.fetch([T0, T1]) == {T0: 5}
    harness.mine.commit({T0: 5}, yes)
    assert harness.znode() == (b"5", 0)


def test_late_write_of_a_former_owner_fails(harness: OffsetsHarness) -> None:
    harness.mine.commit({T0: 5}, yes)
    harness.others.fetch([T0])
    harness.others.commit({T0: 9}, yes)
    assert harness.mine.commit({T0: 7}, no) == {T0}
    assert harness.znode() == (b"9", 1)


def test_new_owner_during_a_commit_is_not_overwritten(harness: OffsetsHarness) -> None:
    """The version is read before the owner: a later owner writes a later version."""
    harness.mine.commit({T0: 5}, yes)
    harness.mine.forget()

    def owned_until_now(partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        harness.others.fetch(partitions)
        harness.others.commit(dict.fromkeys(partitions, 9), yes)
        return answers.pop(0)

    answers: list[Collection[TopicPartition]] = [(T0,), ()]
    assert harness.mine.commit({T0: 7}, owned_until_now) == {T0}
    assert harness.znode()[0] == b"9"


def test_foreign_partition_does_not_block_other_commits(harness: OffsetsHarness) -> None:
    assert harness.mine.commit({T0: 5, T1: 6, U0: 7}, lambda partitions: {T0, U0} & set(partitions)) == {T1}
    assert harness.mine.fetch([T0, T1, U0]) == {T0: 5, U0: 7}


def test_owner_overwrites_the_offsets_of_others(harness: OffsetsHarness) -> None:
    harness.mine.commit({T0: 5}, yes)
    harness.others.fetch([T0])
    harness.others.commit({T0: 9}, yes)
    harness.mine.commit({T0: 7}, yes)
    assert harness.znode() == (b"7", 2)
    harness.mine.commit({T0: 8}, no)
    assert harness.znode() == (b"8", 3)


def test_offset_is_written_again_after_a_lost_response(harness: OffsetsHarness) -> None:
    harness.mine.commit({T0: 5}, yes)
    harness.zookeeper.lose_next_answer(harness.store)
    with pytest.raises(CoordinationLost):
        harness.mine.commit({T0: 6}, yes)
    assert harness.mine.checkpointed_zk_offsets == {}
    harness.mine.commit({T0: 6}, yes)
    assert harness.znode()[0] == b"6"


def test_invalid_offset_counts_as_none_and_is_replaced_by_a_commit(harness: OffsetsHarness) -> None:
    harness.store.create("/consumers/g/offsets/t/0", b"five", make_parents=True)
    assert harness.mine.fetch([T0]) == {}
    assert harness.mine.commit({T0: 5}, yes) == frozenset()
    assert harness.znode()[0] == b"5"


def test_dual_commit_writes_both_and_reads_the_larger(harness: OffsetsHarness) -> None:
    both = harness.offsets()
    assert run(both, {T0: 5, T1: 3}) == []
    assert (harness.znode()[0], harness.kafka) == (b"5", {T0: 5, T1: 3})
    harness.brokers.commit("g", {T0: 9, T1: 1})
    assert both.fetch_offsets([T0, T1, U0]) == {T0: 9, T1: 3}


def test_only_the_named_storage_is_used_without_dual_commit(harness: OffsetsHarness) -> None:
    run(harness.offsets(in_kafka=False), {T0: 5})
    assert (harness.znode()[0], harness.kafka) == (b"5", {})
    kafka = harness.offsets(in_zookeeper=False)
    run(kafka, {T0: 7})
    assert (harness.znode()[0], harness.kafka) == (b"5", {T0: 7})
    assert kafka.fetch_offsets([T0]) == {T0: 7}


def test_unknown_offset_is_not_committed(harness: OffsetsHarness) -> None:
    run(harness.offsets(), {T0: -1})
    assert (harness.kafka, harness.mine.checkpointed_zk_offsets) == ({}, {})


def test_failed_commit_is_retried_up_to_its_limit(harness: OffsetsHarness) -> None:
    harness.fail(MOVED, cut)
    assert run(harness.offsets(), {T0: 5}) == [Wait(50), Wait(50)]
    assert (harness.attempts, harness.kafka) == (3, {T0: 5})
    harness.fail(MOVED, MOVED, MOVED)
    with pytest.raises(BrokerError, match="NOT_COORDINATOR"):
        run(harness.offsets(), {T0: 6})
    assert harness.attempts == 6


def test_auto_commit_makes_one_attempt(harness: OffsetsHarness) -> None:
    harness.fail(cut)
    with pytest.raises(NetworkError):
        run(harness.offsets(), {T0: 5}, with_retries=False)
    assert harness.attempts == 1


def test_coordinator_is_written_first_if_configured(harness: OffsetsHarness) -> None:
    harness.fail(cut)
    with pytest.raises(NetworkError):
        run(harness.offsets(), {T0: 5}, with_retries=False)
    assert (harness.kafka, harness.store.exists("/consumers/g/offsets/t/0")) == ({}, None)


def test_zookeeper_is_written_first_if_configured(harness: OffsetsHarness) -> None:
    both = harness.offsets(named="zookeeper")
    harness.zookeeper.suspend(harness.store)
    with pytest.raises(CoordinationLost):
        run(both, {T0: 5}, with_retries=False)
    assert (harness.attempts, harness.kafka) == (0, {})
    harness.zookeeper.resume(harness.store)
    harness.fail(cut)
    with pytest.raises(NetworkError):
        run(both, {T0: 5}, with_retries=False)
    assert (harness.znode()[0], harness.kafka) == (b"5", {})


def test_commit_writes_nothing_if_others_may_own_it(harness: OffsetsHarness) -> None:
    with pytest.raises(SessionExpired):
        run(harness.offsets(), {T0: 5}, check=raising(SessionExpired("expired")))
    assert (harness.attempts, harness.mine.checkpointed_zk_offsets) == (0, {})

"""Truncations of a follower's log that would remove committed messages: the comparison and its result."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import InconsistentClusterId
from minikafka.base.files import FileSlice
from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.reading import LogRead
from minikafka.server.replication import replica_requests
from minikafka.server.replication.follower_partition import Stage
from minikafka.server.replication.replica_fetcher import ReplicaFetcher
from minikafka.server.workers.worker import InlineWorker

NAME = TopicPartition("t", 0)


class FakeLog:
    """Epoch 0 from ``start`` to 5, epoch 2 from there to 20."""

    def __init__(self, start: int) -> None:
        self.start_offset, self.end_offset = start, 20
        self.config = SimpleNamespace(unclean_election=False, compacted=False)
        self.epochs = SimpleNamespace(latest=2, entries=[(0, 0), (2, 5)])

    def read(self, offset: int, max_bytes: int) -> LogRead:
        file = MemoryFiles().open("entry", create=True)
        file.write_at(0, b"entry %d" % offset)
        return LogRead(FileSlice(file, 0, file.size()), offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return (2, self.end_offset) if epoch == 2 else (0, 5)


class FollowerHarness:
    """A fetcher of one partition with a recorded log. ``leader_end`` is the response to ListOffsets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, start: int = 0) -> None:
        self.cuts: list[tuple[int, bool]] = []
        self.set_aside: list[TopicPartition] = []
        self.agreed: list[TopicPartition] = []
        self.leader_end = 15
        self.log = FakeLog(start)
        self.worker = InlineWorker()
        monkeypatch.setattr(replica_requests, "offset_in", lambda response: self.leader_end)
        config = SimpleNamespace(
            beside_0_10=False, replication=SimpleNamespace(socket_timeout_ms=1_000, fetch_backoff_ms=1_000)
        )
        known = SimpleNamespace(replicas=(1, 2), leader=1, leader_epoch=5)
        broker: Any = SimpleNamespace(
            broker_id=2,
            clock=ManualClock(),
            config=config,
            worker=self.worker,
            logs=SimpleNamespace(truncate=self.truncate),
            run=lambda step: step(),
            zk_client=SimpleNamespace(states=SimpleNamespace(read=self.refuse)),
        )
        partition: Any = SimpleNamespace(
            topic_partition=NAME,
            log=self.log,
            high_watermark=18,
            complete_truncation=lambda: None,
            leadership=known,
        )
        connector: Any = None
        owner: Any = SimpleNamespace(start_over=self.start_over, agreed=self.agreed.append)
        self.fetcher = ReplicaFetcher(broker, BrokerAddress(1, "h", 9092), connector, owner)
        self.fetcher.add(partition, 5)
        self.follower = self.fetcher._followed[NAME]

    def refuse(self, replicas: object) -> None:
        raise InconsistentClusterId("another cluster's")

    def truncate(self, name: TopicPartition, offset: int, *, restart: bool) -> None:
        self.cuts.append((offset, restart))
        self.log.end_offset = offset

    def start_over(self, name: TopicPartition, leader: BrokerAddress) -> None:
        self.set_aside.append(name)

    def receive_last_entry(self, records: bytes, error_code: int = 0) -> None:
        """Receive the last entry of the leader, or of the range that both logs have."""
        part = SimpleNamespace(error_code=error_code, records=records, high_watermark=0)
        response: Any = SimpleNamespace(topics=[SimpleNamespace(partitions=[part])])
        assert self.follower.leader_end is not None
        self.fetcher._on_last_entry(self.follower, self.follower.leader_end - 1, response)
        self.worker.run_until_idle()

    def receive_epoch_end(self, epoch: int, end: int) -> None:
        found: Any = SimpleNamespace(error_code=0, leader_epoch=epoch, end_offset=end)
        self.fetcher._on_epoch_end(self.follower, found)
        self.worker.run_until_idle()

    def receive_leader_end(self) -> None:
        self.fetcher._on_leader_end(self.follower, None)
        self.worker.run_until_idle()

    def find_divergence(self, epoch: int, offset: int, leader_end: int) -> None:
        """Receive the end of an epoch, then that of the leader's log."""
        self.leader_end = leader_end
        self.receive_epoch_end(epoch, offset)
        self.receive_leader_end()


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> FollowerHarness:
    return FollowerHarness(monkeypatch)


def test_a_follower_asks_again_after_a_cut_that_is_not_the_last(harness: FollowerHarness) -> None:
    harness.receive_epoch_end(1, 15)  # the leader: epoch 0 to 3, epoch 1 to 15
    assert harness.follower.stage is Stage.COMPARE
    harness.receive_leader_end()
    assert (harness.cuts, harness.follower.stage) == ([(5, False)], Stage.ASK)
    assert harness.follower.asked_epoch == 0
    harness.receive_epoch_end(0, 3)
    harness.receive_leader_end()
    assert (harness.cuts, harness.follower.stage) == ([(5, False), (3, False)], Stage.FETCH)


def test_follower_takes_over_only_after_finding_the_divergence(harness: FollowerHarness) -> None:
    harness.find_divergence(1, 4, leader_end=4)
    assert (harness.cuts, harness.follower.stage) == ([(4, False)], Stage.ASK)


def test_log_beyond_the_leaders_end_starts_anew_if_the_leader_grew(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = FollowerHarness(monkeypatch, start=10)
    harness.follower.stage = Stage.LOST
    harness.leader_end = 8
    harness.fetcher._on_offset(harness.follower, None)
    harness.worker.run_until_idle()
    assert harness.follower.stage is Stage.COMPARE
    harness.leader_end = 9
    harness.receive_leader_end()
    assert (harness.cuts, harness.follower.stage) == ([(8, True)], Stage.FETCH)


def test_a_take_over_that_is_refused_is_tried_again(harness: FollowerHarness) -> None:
    harness.find_divergence(2, 7, leader_end=7)
    harness.receive_last_entry(b"entry 6")
    assert (harness.cuts, harness.follower.stage) == ([], Stage.ASK)
    assert harness.follower.not_before_ms > 0


def test_leader_that_writes_during_the_comparison_is_compared_again(harness: FollowerHarness) -> None:
    harness.find_divergence(2, 7, leader_end=7)
    harness.receive_last_entry(b"")  # its high watermark is not there yet
    assert harness.follower.leader_end is None  # so it is asked for again
    harness.leader_end = 9
    harness.receive_leader_end()
    assert (harness.cuts, harness.follower.stage) == ([(7, False)], Stage.FETCH)


def test_leader_with_another_last_message_keeps_leadership(harness: FollowerHarness) -> None:
    harness.find_divergence(2, 7, leader_end=7)
    harness.receive_last_entry(b"other 6")
    assert (harness.cuts, harness.follower.stage) == ([(7, False)], Stage.FETCH)


def test_log_ahead_of_zookeeper_is_set_aside_instead_of_truncated(harness: FollowerHarness) -> None:
    harness.follower.is_ahead = True
    harness.find_divergence(2, 7, leader_end=9)
    harness.receive_last_entry(b"entry 6")
    assert (harness.cuts, harness.set_aside) == ([], [NAME])


@pytest.mark.parametrize(("last", "set_aside"), [(b"entry 19", []), (b"other 19", [NAME])])
def test_log_ahead_of_zookeeper_is_kept_only_if_equal_to_the_leader(
    harness: FollowerHarness, last: bytes, set_aside: list[TopicPartition]
) -> None:
    harness.follower.is_ahead = True
    harness.find_divergence(2, 20, leader_end=20)
    harness.receive_last_entry(last)
    assert (harness.cuts, harness.set_aside) == ([], set_aside)
    assert harness.agreed == ([] if set_aside else [NAME])

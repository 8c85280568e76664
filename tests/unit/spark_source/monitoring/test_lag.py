"""The present lag of a query: the ends of its logs and the ages of the first records that it has not read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

import pyspark_minikafka
from minikafka.base.errors import BrokerError, ConfigErrors, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.isolation_level import IsolationLevel
from pyspark_minikafka.monitoring import lag
from pyspark_minikafka.monitoring.query_progress import PartitionProgress, QueryProgress, SourceProgress
from pyspark_minikafka.planning.transaction_waits import TransactionWait, Waits
from tests.support.broker_harness import BrokerHarness
from tests.support.transactions import write_in_transaction

NOW_MS = 1_000_000
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


class FakeLogs:
    """Logs with ends, and timestamps of the records at positions."""

    def __init__(self, ends: dict[TopicPartition, int], timestamps: dict[TopicPartition, int]) -> None:
        self._ends = ends
        self._timestamps = timestamps
        self.positions: list[Mapping[TopicPartition, int]] = []
        self.waits: dict[TopicPartition, TransactionWait] = {}

    def ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: self._ends[tp] for tp in partitions if tp in self._ends}

    def first_timestamps(self, positions: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        self.positions.append(positions)
        return {tp: self._timestamps[tp] for tp in positions if tp in self._timestamps}

    def open_transactions(self, partitions: Iterable[TopicPartition]) -> Waits:
        return {tp: self.waits[tp] for tp in partitions if tp in self.waits}


def source(*ends: int) -> SourceProgress:
    """A source that has read partitions of the topic ``a`` to these offsets, which were their ends."""
    partitions = (PartitionProgress("a", number, 0, end, end) for number, end in enumerate(ends))
    return SourceProgress(10, 5.0, 2.5, tuple(partitions))


@pytest.mark.parametrize(("level", "lag_now"), [("read_uncommitted", 5), ("read_committed", 2)])
def test_the_lag_ends_where_the_isolation_level_does(level: str, lag_now: int) -> None:
    brokers = BrokerHarness(1, {"a": 1})
    brokers.fill(A0, b"x", b"y", magic=2)
    write_in_transaction(brokers.simulation.machine_of(brokers.leader(A0)).broker.partition(A0).log, 7, 2)
    brokers.fill(A0, b"z", magic=2)
    with brokers.client(creates_topics=False) as cluster:
        isolation = IsolationLevel[level.upper()]
        found = lag.present(source(0), lag.ClusterLogs(cluster, isolation, cluster.deadline(1_000)), None)
    assert [partition.lag for partition in found.partitions] == [lag_now]


def test_the_present_ends_take_the_place_of_the_reported_ones() -> None:
    found = lag.present(source(10, 20), FakeLogs({A0: 15, A1: 20}, {A0: NOW_MS - 3_000}), NOW_MS)
    assert [(p.latest, p.lag, p.behind_ms) for p in found.partitions] == [(15, 5, 3_000), (20, 0, 0)]


def test_ages_are_looked_up_only_where_records_wait() -> None:
    logs = FakeLogs({A0: 15, A1: 20}, {})
    lag.present(source(10, 20), logs, NOW_MS)
    assert logs.positions == [{A0: 10}]


def test_ages_are_not_looked_up_without_a_time() -> None:
    logs = FakeLogs({A0: 15}, {A0: 1})
    found = lag.present(source(10), logs, None)
    assert (logs.positions, found.partitions[0].behind_ms, found.partitions[0].lag) == ([], None, 5)


def test_an_age_that_cannot_be_found_is_unknown() -> None:
    found = lag.present(source(10), FakeLogs({A0: 15}, {}), NOW_MS)
    assert (found.partitions[0].lag, found.partitions[0].behind_ms) == (5, None)


def test_a_record_of_the_future_is_not_behind() -> None:
    found = lag.present(source(10), FakeLogs({A0: 15}, {A0: NOW_MS + 9}), NOW_MS)
    assert found.partitions[0].behind_ms == 0


def test_a_partition_read_to_an_open_transaction_waits_for_it() -> None:
    logs = FakeLogs({A0: 10, A1: 25}, {})
    logs.waits = dict.fromkeys((A0, A1), TransactionWait(10, 7, "copier", 4_200))
    found = lag.present(source(10, 20), logs, NOW_MS)
    assert [p.waits for p in found.partitions] == [logs.waits[A0], None]
    progress = QueryProgress("id-1", "orders", 3, "T", (found,))
    assert str(progress).splitlines()[-1] == (
        "a-0 waits for the transaction of producer 7 (transactional id 'copier') at offset 10, for 4.2 s"
    )


def test_a_deleted_partition_has_no_lag() -> None:
    found = lag.present(source(10), FakeLogs({}, {}), NOW_MS)
    assert (found.partitions[0].lag, found.partitions[0].behind_ms) == (None, None)


def test_a_topic_that_was_made_again_has_no_known_lag() -> None:
    logs = FakeLogs({A0: 4, A1: 20}, {})
    found = lag.present(source(10, 20), logs, NOW_MS)
    assert [(p.latest, p.lag, p.behind_ms) for p in found.partitions] == [(4, None, None), (20, 0, 0)]
    assert logs.positions == [{}]


def test_what_is_no_query_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"^expected a StreamingQuery, as start\(\) returns it, not NoneType$"
    ):
        pyspark_minikafka.progress(None)  # type: ignore[arg-type]


def test_options_are_of_one_reader_or_of_each() -> None:
    found = QueryProgress("id", "q", 1, "T", (source(1), source(2), source(3)))
    options = {"kafka.bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(ValueError, match="each of the 3 minikafka sources in order, got 2"):
        lag.with_present_ends(found, (options, options))


def test_nobody_is_asked_about_a_query_without_minikafka() -> None:
    found = QueryProgress("id", "q", 1, "T")
    assert lag.with_present_ends(found, ({"kafka.bootstrap.servers": "127.0.0.1:1"},)) is found


def test_an_invalid_option_is_refused_by_its_name() -> None:
    found = QueryProgress("id", "q", 1, "T", (source(1),))
    with pytest.raises(ConfigErrors, match=r"kafka\.request\.timeout\.ms"):
        lag.with_present_ends(found, ({"kafka.request.timeout.ms": "soon"},))


def test_no_cluster_is_started_to_look_up_lag(tmp_path: Path) -> None:
    found = QueryProgress("id", "q", 1, "T", (source(1),))
    with pytest.raises(BrokerError, match="no cluster runs in") as caught:
        lag.with_present_ends(found, ({"minikafka.data.dir": str(tmp_path / "d")},))
    assert caught.value.code is ErrorCode.BROKER_NOT_AVAILABLE
    assert not (tmp_path / "d").exists()

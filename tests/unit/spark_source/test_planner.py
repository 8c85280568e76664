"""What a query reads, decided against a cluster of dicts."""

from __future__ import annotations

import json

import pytest

from minikafka.base.errors import BrokerError, ConfigError, ErrorCode
from minikafka.base.ids import TopicPartition
from pyspark_minikafka.offsets import StreamOffset
from pyspark_minikafka.options import Mode
from pyspark_minikafka.ranges import DataLoss, OffsetRange
from tests.unit.spark_source.cluster_double import FakeCluster, Planning

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def batch(cluster: FakeCluster, **given: str) -> tuple[OffsetRange, ...]:
    return Planning(cluster, Mode.BATCH, **given).planner.batch()


def test_a_batch_reads_everything_that_is_there_by_default() -> None:
    cluster = FakeCluster(t=[(0, 5), (3, 4), (7, 7)], other=[(0, 9)])
    assert batch(cluster) == (OffsetRange(T0, 0, 5), OffsetRange(T1, 3, 4))


def test_only_assigned_partitions_are_read() -> None:
    assert batch(FakeCluster(t=[(0, 5), (0, 6)]), assign='{"t":[1]}') == (OffsetRange(T1, 0, 6),)


def test_a_pattern_reads_the_topics_that_match_and_no_internal_one() -> None:
    cluster = FakeCluster(a1=[(0, 1)], a2=[(0, 2)], b=[(0, 3)], __consumer_offsets=[(0, 4)])
    ranges = batch(cluster, subscribePattern="a.|.*offsets")
    assert [str(r.topic_partition) for r in ranges] == ["a1-0", "a2-0"]


def test_a_pattern_that_matches_nothing_reads_nothing() -> None:
    assert batch(FakeCluster(t=[(0, 5)]), subscribePattern="x") == ()


@pytest.mark.parametrize(
    ("given", "said"),
    [({"subscribe": "t,nix"}, "nix"), ({"assign": '{"t":[0,7],"nix":[0]}'}, "nix-0, t-7")],
)
def test_what_the_cluster_does_not_have_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(BrokerError, match=said) as problem:
        batch(FakeCluster(t=[(0, 5)]), **given)
    assert problem.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_a_starting_broker_does_not_know_yet_is_asked_for_again() -> None:
    cluster = FakeCluster(t=[(0, 5)])
    cluster.hidden = [{"t"}, {"t"}]
    planning = Planning(cluster, Mode.BATCH, fetchOffset__retryIntervalMs="7")
    assert planning.planner.batch() == (OffsetRange(T0, 0, 5),)
    assert planning.waited_ms == [7, 7]


def test_offsets_may_be_named_for_each_partition() -> None:
    cluster = FakeCluster(t=[(2, 9), (0, 9)])
    ranges = batch(cluster, startingOffsets='{"t":{"0":-2,"1":4}}', endingOffsets='{"t":{"0":8,"1":-1}}')
    assert ranges == (OffsetRange(T0, 2, 8), OffsetRange(T1, 4, 9))


def test_named_offsets_must_cover_all_partitions() -> None:
    with pytest.raises(ConfigError, match="missing t-1"):
        batch(FakeCluster(t=[(0, 9), (0, 9)]), startingOffsets='{"t":{"0":4}}')


def test_a_start_beyond_an_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="offset 6 of t-0 is beyond its end, 5"):
        batch(FakeCluster(t=[(5, 9)]), endingOffsets='{"t":{"0":5}}', startingOffsets='{"t":{"0":6}}')


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingOffsets": '{"t":{"0":1}}'}, "startingOffsets asks for offset 1 of t-0, which has 4 to 9"),
        ({"endingOffsets": '{"t":{"0":12}}'}, "endingOffsets asks for offset 12 of t-0, which has 4 to 9"),
    ],
)
def test_offsets_outside_the_log_are_lost_data(given: dict[str, str], said: str) -> None:
    cluster = FakeCluster(t=[(4, 9)])
    with pytest.raises(DataLoss, match=said):
        batch(cluster, **given)
    planning = Planning(cluster, Mode.BATCH, failOnDataLoss="false", **given)
    assert planning.planner.batch() == (OffsetRange(T0, 4, 9),)
    assert said in planning.warnings[0]


def test_a_stream_starts_at_latest_and_says_so_in_its_first_offset() -> None:
    planning = Planning(FakeCluster(t=[(0, 5), (0, 6)]), Mode.STREAM)
    assert planning.planner.initial() == StreamOffset({T0: 5, T1: 6}, initial=True)


def stream(
    cluster: FakeCluster, start: StreamOffset, end: StreamOffset, **given: str
) -> tuple[OffsetRange, ...]:
    return Planning(cluster, Mode.STREAM, **given).planner.stream(start, end)


def test_the_first_batch_is_planned_from_what_its_end_carries() -> None:
    cluster = FakeCluster(t=[(0, 90)])
    end = StreamOffset({T0: 60}, batch_start={T0: 50})
    assert stream(cluster, StreamOffset({T0: 90}, initial=True), end) == (OffsetRange(T0, 50, 60),)


def test_a_partition_that_appears_while_the_query_runs_is_read_from_its_first_offset() -> None:
    cluster = FakeCluster(t=[(0, 5), (0, 3)])
    ranges = stream(cluster, StreamOffset({T0: 5}), StreamOffset({T0: 5, T1: 3}))
    assert ranges == (OffsetRange(T1, 0, 3),)


def test_lost_partitions_end_the_query_or_are_warned_of() -> None:
    cluster = FakeCluster(t=[(0, 5)])
    start, end = StreamOffset({T0: 4, T1: 9}), StreamOffset({T0: 5})
    with pytest.raises(DataLoss, match="partitions t-1 are gone"):
        stream(cluster, start, end)
    planning = Planning(cluster, Mode.STREAM, failOnDataLoss="false")
    assert planning.planner.stream(start, end) == (OffsetRange(T0, 4, 5),)
    assert "t-1 are gone" in planning.warnings[0]


def test_a_first_batch_of_the_peer_that_never_finished_is_not_guessed_at() -> None:
    cluster = FakeCluster(t=[(0, 90)])
    start, end = StreamOffset({T0: 90}, initial=True), StreamOffset({T0: 60})
    with pytest.raises(DataLoss, match="planned by another source"):
        stream(cluster, start, end)
    # An earliest start is where it was.
    start = StreamOffset({T0: 0}, initial=True)
    assert stream(cluster, start, end, startingOffsets="earliest") == (OffsetRange(T0, 0, 60),)


def test_a_known_partition_counts_as_gone_only_after_several_looks() -> None:
    cluster = FakeCluster(t=[(0, 5)])
    cluster.hidden = [{"t"}]
    planning = Planning(cluster, Mode.STREAM)
    assert planning.planner.available({T0: 1}) == {T0: 5}
    assert planning.waited_ms == [1000]
    planning = Planning(cluster, Mode.STREAM, fetchOffset__numRetries="2")
    assert planning.planner.available({T0: 1, T1: 1}) == {T0: 5}
    assert len(planning.waited_ms) == 2


def test_waiting_for_records_asks_the_cluster_twice_a_look() -> None:
    cluster = FakeCluster(t=[(0, 5)])
    planner = Planning(cluster, Mode.STREAM).planner
    planner.available({T0: 5})
    assert cluster.questions == 2


def test_a_limit_counts_new_partitions_from_their_first_offset() -> None:
    cluster = FakeCluster(t=[(0, 100), (0, 100)])
    planner = Planning(cluster, Mode.STREAM).planner
    assert planner.limited(10, {T0: 50}, {T0: 100, T1: 100}) == {T0: 53, T1: 6}


def test_offsets_that_planning_makes_are_plain_json() -> None:
    planning = Planning(FakeCluster(t=[(0, 5)]), Mode.STREAM)
    assert json.dumps(planning.planner.initial().to_json()) == '{"t": {"0": 5}, "minikafka:initial": true}'

"""Topics that were deleted and created again while a query runs, known by their ids."""

from __future__ import annotations

import pytest

from minikafka.base.ids import TopicPartition
from pyspark_minikafka.offsets import EARLIEST, StreamOffset
from pyspark_minikafka.options.options import Mode
from pyspark_minikafka.planning.planner import Planner, TargetLost
from pyspark_minikafka.planning.ranges import DataLoss, OffsetRange
from pyspark_minikafka.planning.recreated import RecreatedTopics
from tests.support.spark_cluster import FakeCluster, Planning

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
OLD, NEW, NEWEST = (bytes([number]) * 16 for number in (1, 2, 3))


def test_another_id_gives_the_positions_in_the_topic_before() -> None:
    topics = RecreatedTopics()
    known = {T0: 5, T1: 7, U0: 1}
    topics.observe({"t": OLD, "u": OLD}, known)
    topics.observe({"u": OLD}, known)  # of a broker that does not know t
    assert topics.partitions == frozenset()
    topics.observe({"t": NEW, "u": OLD}, known)
    assert topics.partitions == topics.taken_back(known) == {T0, T1}


def test_a_broker_that_is_behind_does_not_bring_a_former_id_back() -> None:
    topics = RecreatedTopics()
    topics.observe({"t": OLD}, {})
    for topic_id in (NEW, OLD, NEW):
        topics.observe({"t": topic_id}, {T0: 5})
    assert topics.taken_back({T0: 5}) == {T0}
    topics.forget_taken_back()
    topics.observe({"t": OLD}, {T0: 6})
    assert topics.partitions == frozenset()
    topics.observe({"t": NEWEST}, {T0: 6})
    assert topics.taken_back({T0: 6}) == {T0}


def test_partitions_are_taken_back_once_by_the_batch_that_starts_there() -> None:
    topics = RecreatedTopics()
    topics.observe({"t": OLD}, {})
    topics.observe({"t": NEW}, {T0: 5})
    topics.forget_taken_back()
    assert topics.taken_back({T0: 4}) == frozenset()
    assert topics.partitions == topics.taken_back({T0: 5}) == topics.taken_back({T0: 5}) == {T0}
    topics.forget_taken_back()
    assert topics.partitions == topics.taken_back({T0: 5}) == frozenset()


def observed(cluster: FakeCluster, **given: str) -> Planning:
    """A query that has read t-0 to offset 5 when the topic is created again."""
    cluster.ids["t"] = OLD
    planning = Planning(cluster, Mode.STREAM, **given)
    assert planning.planner.available({T0: 5}) == {T0: 5}
    cluster.ids["t"] = NEW
    return planning


def ranges_of(planner: Planner, start: int, end: int) -> list[tuple[int, int]]:
    planned = planner.stream(StreamOffset({T0: start}), StreamOffset({T0: end}))
    return [(found.start, found.end) for found in planned]


@pytest.mark.parametrize("end", [3, 5, 9])
def test_topic_created_again_is_lost_data_whatever_it_has(end: int) -> None:
    cluster = FakeCluster(t=[(0, 5)])
    planner = observed(cluster).planner
    cluster.logs[T0] = (0, end)
    assert planner.available({T0: 5}) == {T0: 0}
    for _ in range(2):
        with pytest.raises(DataLoss) as problem:
            ranges_of(planner, 5, 0)
        assert str(problem.value).startswith(
            "topic 't' was deleted and created again after the query had read t-0 to offset 5; reading from "
            "its first offset, 0. Some data may have been lost"
        )


@pytest.mark.parametrize("end", [3, 5, 9])
def test_query_that_may_lose_data_reads_all_of_the_new_topic(end: int) -> None:
    cluster = FakeCluster(t=[(0, 5)])
    planning = observed(cluster, failOnDataLoss="false")
    planner = planning.planner
    cluster.logs[T0] = (0, end)
    assert planner.available({T0: 5}) == {T0: 0}
    assert ranges_of(planner, 5, 0) == ranges_of(planner, 5, 0) == []
    assert planning.waited_ms == []
    assert planning.warnings[0].startswith("topic 't' was deleted and created again after the query had read")
    assert planner.available({T0: 0}) == {T0: end}
    assert ranges_of(planner, 0, end) == [(0, end)]


def test_query_that_is_started_again_is_told_by_the_batch_that_goes_back() -> None:
    cluster = FakeCluster(t=[(0, 9)])
    with pytest.raises(DataLoss, match="the end of t-0 moved back from offset 5 to 0"):
        ranges_of(Planning(cluster, Mode.STREAM).planner, 5, 0)
    assert ranges_of(Planning(cluster, Mode.STREAM, failOnDataLoss="false").planner, 5, 0) == []


def test_query_goes_back_though_spark_asks_again_before_it_plans() -> None:
    planner = observed(FakeCluster(t=[(0, 5)]), failOnDataLoss="false").planner
    assert planner.available({T0: 5}) == planner.available({T0: 5}) == {T0: 0}


def test_query_that_is_at_the_first_offset_reads_on() -> None:
    cluster = FakeCluster(t=[(0, 5)])
    planner = observed(cluster).planner
    cluster.logs[T0] = (5, 9)
    assert planner.available({T0: 5}) == planner.available({T0: 5}) == {T0: 9}
    assert ranges_of(planner, 5, 9) == [(5, 9)]


def test_new_topic_may_begin_later_than_the_query_had_read() -> None:
    cluster = FakeCluster(t=[(0, 5)])
    planner = observed(cluster, failOnDataLoss="false").planner
    cluster.logs[T0] = (7, 9)
    assert planner.available({T0: 5}) == {T0: 7}
    assert ranges_of(planner, 5, 7) == []
    assert planner.available({T0: 7}) == {T0: 9}


def test_new_topic_that_is_deleted_while_it_is_looked_up_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster(t=[(0, 5)])
    planner = observed(cluster, failOnDataLoss="false").planner
    cluster.logs[T0] = (0, 3)
    with monkeypatch.context() as patch:
        offsets = cluster.offsets
        patch.setattr(
            cluster, "offsets", lambda wanted: {} if EARLIEST in wanted.values() else offsets(wanted)
        )
        assert planner.available({T0: 5}) == {}
    assert planner.stream(StreamOffset({T0: 5}), StreamOffset({})) == ()
    assert planner.available({}) == {T0: 3}
    assert planner.stream(StreamOffset({}), StreamOffset({T0: 3})) == (OffsetRange(T0, 0, 3),)


def test_available_now_cannot_reach_its_end_in_another_topic() -> None:
    cluster = FakeCluster(t=[(0, 5)])
    planner = observed(cluster, failOnDataLoss="false").planner
    cluster.logs[T0] = (0, 100)
    with pytest.raises(TargetLost, match="started no longer exist: topic 't' was deleted and created again"):
        planner.check_target({T0: 5})


def test_brokers_without_ids_tell_only_of_an_end_that_moved_back() -> None:
    cluster = FakeCluster(t=[(0, 5)])
    planner = Planning(cluster, Mode.STREAM).planner
    assert planner.available({T0: 5}) == {T0: 5}
    cluster.logs[T0] = (0, 9)
    assert planner.available({T0: 5}) == {T0: 9}
    assert planner.stream(StreamOffset({T0: 5}), StreamOffset({T0: 9})) == (OffsetRange(T0, 5, 9),)

"""The plans of queries, against a cluster of dicts."""

from __future__ import annotations

import json

import pytest

from minikafka.base.errors import BrokerError, ConfigError, ErrorCode
from minikafka.base.ids import TopicPartition
from pyspark_minikafka.checkpoint.spark_checkpoint import UnknownStart
from pyspark_minikafka.offsets import StreamOffset
from pyspark_minikafka.options.options import Mode
from pyspark_minikafka.planning.planner import NoRecordAtTime
from pyspark_minikafka.planning.ranges import DataLoss, OffsetRange
from tests.support.spark_cluster import FakeCluster, Planning

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def batch(cluster: FakeCluster, **given: str) -> tuple[OffsetRange, ...]:
    return Planning(cluster, Mode.BATCH, **given).planner.batch()


def whole(tp: TopicPartition, start: int, end: int) -> OffsetRange:
    """Return the range from the earliest to the latest offset, at present these."""
    return OffsetRange(tp, start, end, from_earliest=True, to_latest=True)


def test_a_batch_reads_everything_that_is_there_by_default() -> None:
    cluster = FakeCluster(t=[(0, 5), (3, 4), (7, 7)], other=[(0, 9)])
    assert batch(cluster) == (whole(T0, 0, 5), whole(T1, 3, 4), whole(T2, 7, 7))


def test_only_assigned_partitions_are_read() -> None:
    assert batch(FakeCluster(t=[(0, 5), (0, 6)]), assign='{"t":[1]}') == (whole(T1, 0, 6),)


def test_a_pattern_reads_the_topics_that_match_and_no_internal_one() -> None:
    internal = {
        "__consumer_offsets": [(0, 4)],
        "__minikafka-staging-s": [(0, 5)],
        "__minikafka-token-s": [(0, 1)],
    }
    cluster = FakeCluster(a1=[(0, 1)], a2=[(0, 2)], b=[(0, 3)], **internal)
    ranges = batch(cluster, subscribePattern="a.|.*offsets|__.*")
    assert [str(r.topic_partition) for r in ranges] == ["a1-0", "a2-0"]


def test_a_pattern_that_matches_nothing_reads_nothing() -> None:
    assert batch(FakeCluster(t=[(0, 5)]), subscribePattern="x") == ()


@pytest.mark.parametrize(
    ("given", "said"), [({"subscribe": "t,nix"}, "nix"), ({"assign": '{"t":[0,7],"nix":[0]}'}, "nix-0, t-7")]
)
def test_what_the_cluster_does_not_have_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(BrokerError, match=said) as problem:
        batch(FakeCluster(t=[(0, 5)]), **given)
    assert problem.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topic_unknown_to_a_starting_broker_is_looked_up_again() -> None:
    cluster = FakeCluster(t=[(0, 5)])
    cluster.hidden = [{"t"}, {"t"}]
    planning = Planning(cluster, Mode.BATCH, fetchOffset__retryIntervalMs="7")
    assert planning.planner.batch() == (whole(T0, 0, 5),)
    assert planning.waited_ms == [7, 7]


def test_offsets_may_be_named_for_each_partition() -> None:
    cluster = FakeCluster(t=[(2, 9), (0, 9)])
    ranges = batch(cluster, startingOffsets='{"t":{"0":-2,"1":4}}', endingOffsets='{"t":{"0":8,"1":-1}}')
    first, second = OffsetRange(T0, 2, 8, from_earliest=True), OffsetRange(T1, 4, 9, to_latest=True)
    assert ranges == (first, second)


def test_named_offsets_must_cover_all_partitions() -> None:
    with pytest.raises(ConfigError, match="missing t-1"):
        batch(FakeCluster(t=[(0, 9), (0, 9)]), startingOffsets='{"t":{"0":4}}')


def test_a_start_beyond_an_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="offset 6 of t-0 is beyond its end, 5"):
        batch(FakeCluster(t=[(5, 9)]), endingOffsets='{"t":{"0":5}}', startingOffsets='{"t":{"0":6}}')


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"startingOffsets": '{"t":{"0":1}}'},
            "startingOffsets asks for offset 1 of t-0, but its log has 4 to 9",
        ),
        (
            {"endingOffsets": '{"t":{"0":12}}'},
            "endingOffsets asks for offset 12 of t-0, but its log has 4 to 9",
        ),
    ],
)
def test_offsets_outside_the_log_are_lost_data(given: dict[str, str], said: str) -> None:
    cluster = FakeCluster(t=[(4, 9)])
    with pytest.raises(DataLoss, match=said):
        batch(cluster, **given)
    planning = Planning(cluster, Mode.BATCH, failOnDataLoss="false", **given)
    (found,) = planning.planner.batch()
    assert (found.start, found.end) == (4, 9)
    assert said in planning.warnings[0]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_start_behind_a_high_watermark_that_lags_is_not_lost_data(fail: str) -> None:
    cluster = FakeCluster(t=[(0, 6)])
    cluster.unconfirmed = {T0: 9}
    given = {"startingOffsets": '{"t":{"0":8}}', "failOnDataLoss": fail}
    initial = Planning(cluster, Mode.STREAM, **given)
    assert initial.planner.initial() == StreamOffset({T0: 8}, initial=True)
    planning = Planning(cluster, Mode.BATCH, fetchOffset__retryIntervalMs="7", **given)
    assert planning.planner.batch() == (OffsetRange(T0, 8, 8, to_latest=True),)
    assert planning.waited_ms == [7, 7, 7]
    assert initial.warnings + planning.warnings == []


def test_a_batch_waits_for_the_high_watermark_to_pass_its_start() -> None:
    cluster = FakeCluster(t=[(0, 6), (0, 4)])
    cluster.unconfirmed = {T0: 9}
    given = {"startingOffsets": '{"t":{"0":8,"1":0}}', "fetchOffset.retryIntervalMs": "7"}
    planning = Planning(cluster, Mode.BATCH, **given)

    def catch_up(milliseconds: int) -> None:
        cluster.logs[T0] = (0, 9)

    planning.planner._pause = catch_up
    assert planning.planner.batch() == (
        OffsetRange(T0, 8, 9, to_latest=True),
        OffsetRange(T1, 0, 4, to_latest=True),
    )


def test_an_end_behind_a_high_watermark_that_lags_is_not_lost_data() -> None:
    cluster = FakeCluster(t=[(0, 6)])
    cluster.unconfirmed = {T0: 9}
    assert batch(cluster, endingOffsets='{"t":{"0":9}}') == (OffsetRange(T0, 0, 9, from_earliest=True),)


def test_a_time_is_the_first_record_that_is_not_before_it() -> None:
    cluster = FakeCluster(t=[(0, 9), (5, 9)])
    ranges = batch(cluster, startingTimestamp="3", endingOffsetsByTimestamp='{"t":{"0":8,"1":50}}')
    assert ranges == (OffsetRange(T0, 3, 8), OffsetRange(T1, 5, 9, to_latest=True))


def test_a_start_later_than_all_records_is_an_error_or_the_end() -> None:
    cluster = FakeCluster(t=[(0, 9), (0, 3)])
    with pytest.raises(NoRecordAtTime, match=r"t-1 \(time 7 ms\).*startingOffsetsByTimestampStrategy"):
        batch(cluster, startingTimestamp="7")
    given = {"startingTimestamp": "7", "startingOffsetsByTimestampStrategy": "latest"}
    assert [(r.start, r.end) for r in batch(cluster, **given)] == [(7, 9), (3, 3)]
    initial = Planning(cluster, Mode.STREAM, **given).planner.initial()
    assert initial == StreamOffset({T0: 7, T1: 3}, initial=True)


def test_a_start_that_turns_out_to_lie_behind_its_end_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"6.*beyond the end of t-0, which is 4"):
        batch(FakeCluster(t=[(0, 9)]), startingOffsets='{"t":{"0":6}}', endingTimestamp="4")


def test_the_last_records_are_shared_out_by_size() -> None:
    cluster = FakeCluster(t=[(0, 100), (50, 80), (0, 0)])
    ranges = batch(cluster, minikafka__last__records="13")
    assert ranges == (
        OffsetRange(T0, 90, 100),
        OffsetRange(T1, 77, 80),
    )  # no more, however late they are read
    initial = Planning(cluster, Mode.STREAM, minikafka__last__records="500").planner.initial()
    assert initial.positions == {T0: 0, T1: 50, T2: 0}


def test_the_last_minutes_begin_at_the_first_record_that_came_in_them() -> None:
    cluster = FakeCluster(t=[(0, 995), (0, 900)])
    ranges = batch(cluster, minikafka__last__duration="50ms")
    assert [(r.start, r.end) for r in ranges] == [(950, 995), (900, 900)]


@pytest.mark.parametrize("given", [{"minikafka__last__records": "13"}, {"minikafka__last__duration": "50ms"}])
def test_the_newest_records_take_one_question_for_each_end(given: dict[str, str]) -> None:
    cluster = FakeCluster(t=[(0, 995)])
    assert len(batch(cluster, **given)) == 1
    assert cluster.questions == 3  # and one for the partitions


def test_ranges_are_split_as_asked() -> None:
    cluster = FakeCluster(t=[(0, 10)])
    ranges = batch(cluster, maxRecordsPerPartition="4")
    assert ranges == (
        OffsetRange(T0, 0, 3, from_earliest=True),
        OffsetRange(T0, 3, 6),
        OffsetRange(T0, 6, 10, to_latest=True),
    )
    assert len(stream(cluster, StreamOffset({T0: 0}), StreamOffset({T0: 10}), minPartitions="5")) == 5


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


def test_partition_added_during_query_is_read_from_first_offset() -> None:
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


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"startingOffsets": "earliest"},
        {"startingOffsets": '{"t":{"0":0}}'},
        {"startingTimestamp": "0"},
        {"minikafka.last.records": "60"},
    ],
)
def test_a_first_batch_of_another_source_is_not_guessed_at(given: dict[str, str]) -> None:
    planning = Planning(FakeCluster(t=[(0, 90)]), Mode.STREAM, **given)
    with pytest.raises(UnknownStart, match=r"planned by another source.*minikafka\.resume\.from"):
        planning.planner.stream(planning.planner.initial(), StreamOffset({T0: 60}))


def test_where_loss_is_allowed_such_a_batch_begins_where_the_options_say() -> None:
    planning = Planning(
        FakeCluster(t=[(0, 90)]), Mode.STREAM, startingOffsets="earliest", failOnDataLoss="false"
    )
    start = planning.planner.initial()
    assert planning.planner.stream(start, StreamOffset({T0: 60})) == (OffsetRange(T0, 0, 60),)
    assert "planned by another source" in planning.warnings[0]


def test_a_known_partition_counts_as_gone_only_after_several_looks() -> None:
    cluster = FakeCluster(t=[(0, 5)])
    cluster.hidden = [{"t"}]
    planning = Planning(cluster, Mode.STREAM)
    assert planning.planner.available({T0: 1}) == {T0: 5}
    assert planning.waited_ms == [1000]
    planning = Planning(cluster, Mode.STREAM, fetchOffset__numRetries="2")
    assert planning.planner.available({T0: 1, T1: 1}) == {T0: 5}
    assert len(planning.waited_ms) == 2


def test_an_end_that_went_back_is_looked_at_again_before_it_counts() -> None:
    planning = Planning(FakeCluster(t=[(0, 5)]), Mode.STREAM, fetchOffset__numRetries="2")
    assert planning.planner.available({T0: 6}) == {T0: 5}
    assert len(planning.waited_ms) == 2


def test_an_end_that_lags_behind_what_was_read_has_not_gone_back() -> None:
    cluster = FakeCluster(t=[(0, 9_999_995), (0, 5)])
    cluster.unconfirmed[T0] = 10_000_000
    planning = Planning(cluster, Mode.STREAM, failOnDataLoss="false")
    start = {T0: 10_000_000, T1: 5}
    assert planning.planner.available(start) == start
    assert (planning.waited_ms, planning.warnings) == ([], [])


def test_an_end_that_lags_says_nothing_of_one_that_went_back() -> None:
    cluster = FakeCluster(t=[(0, 95), (0, 5)])
    cluster.unconfirmed[T0] = 100
    planning = Planning(cluster, Mode.STREAM, fetchOffset__numRetries="1")
    assert planning.planner.available({T0: 100, T1: 6}) == {T0: 100, T1: 5}
    assert len(planning.waited_ms) == 1


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
    assert json.dumps(planning.planner.initial().to_json()) == '{"t": {"0": 5}, "minikafka:initial": {}}'


def of_group(**offsets: int) -> FakeCluster:
    """Three partitions, and a group ``g`` with offsets by their numbers (``p0=7``)."""
    cluster = FakeCluster(t=[(0, 9), (3, 9), (2, 2)])
    cluster.groups["g"] = {TopicPartition("t", int(name[1:])): offset for name, offset in offsets.items()}
    return cluster


@pytest.mark.parametrize("mode", [Mode.BATCH, Mode.STREAM])
def test_a_query_starts_where_a_group_has_committed(mode: Mode) -> None:
    planning = Planning(of_group(p0=7, p1=3, p2=2), mode, startingOffsets="group:g")
    if mode is Mode.STREAM:
        assert planning.planner.initial().positions == {T0: 7, T1: 3, T2: 2}
    else:
        starts = {task.topic_partition: task.start for task in planning.planner.batch()}
        assert starts == {T0: 7, T1: 3, T2: 2}
    assert planning.warnings == []


@pytest.mark.parametrize("mode", [Mode.BATCH, Mode.STREAM])
def test_partitions_without_commits_start_at_first_record(mode: Mode) -> None:
    planning = Planning(of_group(p0=7), mode, startingOffsets="group:g")
    if mode is Mode.STREAM:
        assert planning.planner.initial().positions == {T0: 7, T1: 3, T2: 2}
    else:
        assert planning.planner.batch()[1] == whole(T1, 3, 9)
    assert len(planning.warnings) == 1
    assert "'g' has no committed offset for 2 partitions (t-1, t-2)" in planning.warnings[0]


@pytest.mark.parametrize("offset", [1, 12])
def test_a_groups_offset_out_of_the_log_is_lost_data(offset: int) -> None:
    given = {"startingOffsets": "group:g", "assign": '{"t":[1]}'}
    with pytest.raises(DataLoss, match=f"'g' has committed offset {offset} of t-1, but its log has 3 to 9"):
        batch(of_group(p1=offset), **given)
    planning = Planning(of_group(p1=offset), Mode.STREAM, failOnDataLoss="false", **given)
    assert planning.planner.initial().positions == {T1: 3 if offset == 1 else 9}
    assert len(planning.warnings) == 1


def test_a_group_that_nobody_knows_is_an_error_that_names_it() -> None:
    with pytest.raises(BrokerError, match="'nobody'"):
        batch(FakeCluster(t=[(0, 9)]), startingOffsets="group:nobody")


def test_group_start_replays_first_batch_though_group_moved() -> None:
    cluster = of_group(p0=7)
    planning = Planning(cluster, Mode.STREAM, startingOffsets="group:g", assign='{"t":[0]}')
    start = planning.planner.initial()
    end = StreamOffset({T0: 9}, batch_start=start.positions)
    cluster.groups["g"][T0] = 9
    again = planning.planner.stream(planning.planner.initial(), end)
    assert [(task.start, task.end) for task in again] == [(7, 9)]

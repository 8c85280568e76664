"""The offsets that a streaming query sees, call by call as Spark makes them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import ConfigError
from minikafka.base.ids import TopicPartition
from pyspark_minikafka import report
from pyspark_minikafka.location import Target
from pyspark_minikafka.options.options import Mode
from pyspark_minikafka.planning.planner import TargetLost
from pyspark_minikafka.planning.ranges import DataLoss, OffsetRange
from pyspark_minikafka.planning.tasks import ReadTask
from pyspark_minikafka.reading import stream
from pyspark_minikafka.reading.stream import StreamReader, UnlimitedReader
from pyspark_minikafka.schema import SOURCE_SCHEMA
from tests.support.spark_cluster import FakeCluster, Planning

needs_limits = pytest.mark.skipif(not stream.HAS_LIMITS, reason="Spark before 4.2 has no read limits")
SERVERS = Target("localhost:9092")


SHIM = "shim"
EVERYTHING = "everything"


class ShimReader(UnlimitedReader):
    """The reader of Spark 4.0 and 4.1 behind the Scala shim, which behaves as that of 4.2."""

    def latestOffset(self, start: Any, limit: object) -> Any:  # type: ignore[override]  # noqa: N802
        return self._asked({"what": "next", "start": through_json(start), "everything": limit == EVERYTHING})

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        assert self._asked({"what": "prepare"}) is None

    def reportLatestOffset(self) -> Any:  # noqa: N802
        return self._asked({"what": "newest"})

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        trigger = self.options.trigger
        return EVERYTHING if trigger.min_offsets is trigger.max_offsets is None else None

    def _asked(self, question: dict[str, Any]) -> Any:
        self.commit(through_json({"minikafka:ask": question}))
        return super().latestOffset()


class Spark:
    """The calls of one run of a query: a new reader, as the runner process makes one."""

    def __init__(self, cluster: FakeCluster, *, limits: bool | str, **given: str) -> None:
        planning = Planning(cluster, Mode.STREAM, **given)
        self.limits = limits
        kind = ShimReader if limits == SHIM else stream.LimitedReader if limits else UnlimitedReader
        self.clock = ManualClock()
        self.reader: Any = kind(planning.options, (planning.planner, SERVERS), self.clock)

    def resume(self, last: dict[str, Any]) -> None:
        """Before 4.2 Spark tells a reader the newest offset in the checkpoint."""
        if self.limits in (False, SHIM):
            assert self.reader.partitions(through_json(last), through_json(last)) == []

    def latest(self, start: dict[str, Any] | None) -> dict[str, Any]:
        if not self.limits:
            return through_json(self.reader.latestOffset())
        start = through_json(self.reader.initialOffset()) if start is None else start
        return through_json(self.reader.latestOffset(start, self.reader.getDefaultReadLimit()))

    def ranges(self, start: dict[str, Any] | None, end: dict[str, Any]) -> list[tuple[int, int, int]]:
        start = through_json(self.reader.initialOffset()) if start is None else start
        tasks = self.reader.partitions(start, through_json(end))
        assert all(isinstance(task, ReadTask) and task.target == SERVERS for task in tasks)
        ranges = [part for task in tasks for part in task.ranges]
        return [(part.topic_partition.partition, part.start, part.end) for part in ranges]


def through_json(offset: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


both = pytest.mark.parametrize("limits", [False, SHIM, pytest.param(True, marks=needs_limits)])
limited = pytest.mark.parametrize("limits", [SHIM, pytest.param(True, marks=needs_limits)])


@both
def test_a_new_query_reads_what_comes_after_its_start(limits: bool | str) -> None:
    cluster = FakeCluster(t=[(0, 5)])
    spark = Spark(cluster, limits=limits)
    first = spark.latest(None)
    assert spark.ranges(None, first) == []
    cluster.grow("t", 0, 3)
    second = spark.latest(first)
    assert second == {"t": {"0": 8}}
    assert spark.ranges(first, second) == [(0, 5, 8)]


@limited
def test_each_planned_batch_is_logged_with_what_is_left(
    limits: bool | str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = FakeCluster(t=[(0, 50)])
    given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "40", "minikafka.log.tasks": "true"}
    spark = Spark(cluster, limits=limits, **given)
    spark.ranges(None, spark.latest(None))
    said = capsys.readouterr().err
    assert (
        "minikafka: planned 40 offsets, about 40,000 bytes, as tasks: 1, ranges: 1 (t-0 from 0 to 40)" in said
    )
    assert said.endswith("; lag after this batch 10\n")


@limited
def test_a_batch_that_was_planned_before_a_restart_is_logged_without_a_lag(
    limits: bool | str, capsys: pytest.CaptureFixture[str]
) -> None:
    spark = Spark(FakeCluster(t=[(0, 50)]), limits=limits, **{"minikafka.log.tasks": "true"})
    spark.ranges({"t": {"0": 0}}, {"t": {"0": 40}})
    said = capsys.readouterr().err
    assert "planned 40 offsets" in said
    assert "lag" not in said


@both
def test_the_start_of_a_new_query_is_asked_for_twice_and_stays(limits: bool | str) -> None:
    cluster = FakeCluster(t=[(0, 5)])
    spark = Spark(cluster, limits=limits)
    start = spark.reader.initialOffset()
    cluster.grow("t", 0, 3)
    assert spark.reader.initialOffset() == start


@both
def test_while_nothing_is_new_the_very_same_offset_comes_back(limits: bool | str) -> None:
    cluster = FakeCluster(t=[(0, 5)])
    spark = Spark(cluster, limits=limits)
    first = spark.latest(None)
    spark.ranges(None, first)
    assert json.dumps(spark.latest(first)) == json.dumps(first)
    cluster.grow("t", 0, 1)
    second = spark.latest(first)
    spark.ranges(first, second)
    assert json.dumps(spark.latest(second)) == json.dumps(second)


@both
def test_failed_first_batch_is_replayed_though_latest_moved(limits: bool | str) -> None:
    cluster = FakeCluster(t=[(0, 5), (0, 0)])
    spark = Spark(cluster, limits=limits)
    spark.reader.initialOffset()
    cluster.grow("t", 0, 10)
    planned = spark.latest(None)
    before = spark.ranges(None, planned)
    assert before == [(0, 5, 15)]
    cluster.grow("t", 0, 100)
    restarted = Spark(cluster, limits=limits)
    restarted.resume(planned)
    assert restarted.ranges(None, planned) == before
    assert restarted.latest(planned) == {"t": {"0": 115, "1": 0}}


@both
def test_only_the_first_batch_carries_more_than_the_peer_would_write(limits: bool | str) -> None:
    cluster = FakeCluster(t=[(0, 5)])
    spark = Spark(cluster, limits=limits)
    first = spark.latest(None)
    assert first == {"t": {"0": 5}, "minikafka:start=t:0:5": {}}
    spark.ranges(None, first)
    for _ in range(2):
        cluster.grow("t", 0, 1)
        following = spark.latest(first)
        assert set(following) == {"t"}
        spark.ranges(first, following)
        first = following


@both
def test_a_query_resumes_from_a_checkpoint_of_the_peer(limits: bool | str) -> None:
    cluster = FakeCluster(t=[(0, 50)])
    peer = json.loads('{"t":{"0":20}}')
    spark = Spark(cluster, limits=limits)
    spark.resume(peer)
    end = spark.latest(peer)
    assert end == {"t": {"0": 50}}
    assert spark.ranges(peer, end) == [(0, 20, 50)]


@both
def test_a_batch_after_the_first_is_replayed_from_its_own_start(limits: bool | str) -> None:
    cluster = FakeCluster(t=[(0, 50)])
    spark = Spark(cluster, limits=limits)
    spark.resume({"t": {"0": 30}})
    assert spark.ranges({"t": {"0": 20}}, {"t": {"0": 30}}) == [(0, 20, 30)]
    assert spark.latest({"t": {"0": 30}}) == {"t": {"0": 50}}


@both
def test_a_new_partition_is_read_from_its_start(limits: bool | str) -> None:
    cluster = FakeCluster(t=[(0, 5)])
    spark = Spark(cluster, limits=limits)
    first = spark.latest(None)
    spark.ranges(None, first)
    cluster.grow("t", 1, 4)
    second = spark.latest(first)
    assert spark.ranges(first, second) == [(1, 0, 4)]


@both
def test_that_no_partition_is_left_is_not_taken_for_nothing_new(limits: bool | str) -> None:
    cluster = FakeCluster(t=[(0, 5)])
    spark = Spark(cluster, limits=limits)
    first = spark.latest(None)
    spark.ranges(None, first)
    cluster.logs.clear()
    gone = spark.latest(first)
    assert gone == {}
    with pytest.raises(DataLoss):
        spark.ranges(first, gone)


@both
def test_a_reader_travels_to_the_executors(limits: bool | str) -> None:
    options = Planning(FakeCluster(), Mode.STREAM).options
    kind = ShimReader if limits == SHIM else stream.LimitedReader if limits else UnlimitedReader
    assert pickle.loads(pickle.dumps(kind(options))).options == options


def test_a_task_is_small() -> None:
    task = ReadTask([OffsetRange(TopicPartition("t", n), 10, 20) for n in range(200)], SERVERS, 1_000)
    again = pickle.loads(pickle.dumps(task))
    assert (again.ranges, again.target, again.offset_bytes) == (task.ranges, SERVERS, 1_000)
    assert len(pickle.dumps(task)) < 10_000


@limited
def test_a_limit_shares_a_batch_out_by_backlog(limits: bool | str) -> None:
    cluster = FakeCluster(t=[(0, 300), (0, 100)])
    spark = Spark(cluster, limits=limits, maxOffsetsPerTrigger="40", startingOffsets="earliest")
    first = spark.latest(None)
    assert spark.ranges(None, first) == [(0, 0, 30), (1, 0, 10)]
    second = spark.latest(first)
    assert spark.ranges(first, second) == [(0, 30, 60), (1, 10, 20)]


@limited
def test_reading_all_that_is_available_overrides_the_limit(limits: bool | str) -> None:
    everything: Any = EVERYTHING
    if limits != SHIM:
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        everything = ReadAllAvailable()
    cluster = FakeCluster(t=[(0, 300)])
    spark = Spark(cluster, limits=limits, maxOffsetsPerTrigger="40")
    assert spark.reader.latestOffset({"t": {"0": 7}}, everything) == {"t": {"0": 300}}


@limited
def test_available_now_ends_where_the_log_ended_at_the_start(limits: bool | str) -> None:
    cluster = FakeCluster(t=[(0, 100)])
    spark = Spark(cluster, limits=limits, maxOffsetsPerTrigger="60", startingOffsets="earliest")
    spark.reader.prepareForTriggerAvailableNow()
    cluster.grow("t", 0, 50)
    first = spark.latest(None)
    second = spark.latest(first)
    assert spark.ranges(None, first) + spark.ranges(first, second) == [(0, 0, 60), (0, 60, 100)]
    assert spark.latest(second) == second


@limited
@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_available_now_fails_when_what_was_there_is_gone(fail_on_data_loss: str, limits: bool | str) -> None:
    cluster = FakeCluster(t=[(0, 100), (0, 100)])
    options = {"maxOffsetsPerTrigger": "60", "startingOffsets": "earliest", "fetchOffset__numRetries": "0"}
    spark = Spark(cluster, limits=limits, failOnDataLoss=fail_on_data_loss, **options)
    spark.reader.prepareForTriggerAvailableNow()
    first = spark.latest(None)
    spark.ranges(None, first)
    cluster.logs[TopicPartition("t", 1)] = (0, 70)
    second = spark.latest(first)
    with pytest.raises(TargetLost, match="t-1 now ends at 70, before 100"):
        spark.ranges(first, second)
    del cluster.logs[TopicPartition("t", 1)]
    with pytest.raises(TargetLost, match="t-1 is gone"):
        spark.ranges(first, second)


@limited
def test_available_now_takes_a_planned_batch_though_partitions_were_added(limits: bool | str) -> None:
    cluster = FakeCluster(t=[(0, 100)])
    planned = Spark(cluster, limits=limits, startingOffsets="earliest").latest(None)
    cluster.grow("t", 1, 5)
    spark = Spark(cluster, limits=limits)
    spark.reader.prepareForTriggerAvailableNow()
    assert spark.ranges(None, planned) == [(0, 0, 100)]
    assert spark.ranges(planned, spark.latest(planned)) == [(1, 0, 5)]


@limited
def test_available_now_on_a_new_query_at_latest_does_not_go_back(limits: bool | str) -> None:
    cluster = FakeCluster(t=[(0, 100)])
    spark = Spark(cluster, limits=limits)
    spark.reader.prepareForTriggerAvailableNow()
    cluster.grow("t", 0, 50)
    first = spark.latest(None)
    assert spark.ranges(None, first) == []
    assert first["t"] == {"0": 150}


@limited
def test_available_now_waits_for_nothing_that_was_overlooked_at_its_start(limits: bool | str) -> None:
    cluster = FakeCluster(t=[(0, 100)])
    cluster.hidden = [{"t"}]
    spark = Spark(cluster, limits=limits, fetchOffset__numRetries="0")
    spark.reader.prepareForTriggerAvailableNow()
    assert spark.latest({"t": {"0": 40}}) == {"t": {"0": 40}}


@limited
@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_available_now_keeps_position_when_new_leader_lagged(
    fail_on_data_loss: str, limits: bool | str
) -> None:
    cluster = FakeCluster(t=[(0, 90)])
    spark = Spark(cluster, limits=limits, failOnDataLoss=fail_on_data_loss)
    spark.reader.prepareForTriggerAvailableNow()
    cluster.grow("t", 0, 30)
    assert spark.latest({"t": {"0": 100}}) == {"t": {"0": 100}}


@limited
def test_available_now_sees_that_a_log_has_gone_back(limits: bool | str) -> None:
    cluster = FakeCluster(t=[(0, 90)])
    spark = Spark(cluster, limits=limits, fetchOffset__numRetries="0")
    spark.reader.prepareForTriggerAvailableNow()
    ends = spark.latest({"t": {"0": 100}})
    with pytest.raises(DataLoss, match="t-0 moved back from offset 100 to 90"):
        spark.ranges({"t": {"0": 100}}, ends)


@limited
def test_the_newest_offset_seen_is_reported(limits: bool | str) -> None:
    cluster = FakeCluster(t=[(0, 300)])
    spark = Spark(cluster, limits=limits, maxOffsetsPerTrigger="1")
    assert spark.reader.reportLatestOffset() is None
    spark.latest({"t": {"0": 7}})
    assert spark.reader.reportLatestOffset() == {"t": {"0": 300}}


def test_spark_before_4_2_says_once_that_a_limit_has_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    spark = Spark(FakeCluster(t=[(0, 9)]), limits=False, maxOffsetsPerTrigger="2", startingOffsets="earliest")
    assert spark.latest(None)["t"] == {"0": 9}
    spark.latest(None)
    assert sum(message.count("maxOffsetsPerTrigger") for message in said(caplog)) == 1


def test_the_reader_of_the_running_spark_is_chosen() -> None:
    from pyspark_minikafka.schema import SOURCE_SCHEMA

    chosen: StreamReader = stream.reader({"subscribe": "t"}, SOURCE_SCHEMA)
    assert isinstance(chosen, stream.LimitedReader if stream.HAS_LIMITS else UnlimitedReader)


@both
def test_a_small_batch_waits_for_more_or_for_its_time_but_not_the_first(limits: bool | str) -> None:
    cluster = FakeCluster(t=[(0, 2)])
    given = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "5", "maxTriggerDelay": "10s"}
    spark = Spark(cluster, limits=limits, **given)
    first = spark.latest(None)
    assert spark.ranges(None, first) == [(0, 0, 2)]
    cluster.grow("t", 0, 4)
    assert spark.latest(first) == first
    cluster.grow("t", 0, 1)
    second = spark.latest(first)
    assert spark.ranges(first, second) == [(0, 2, 7)]
    cluster.grow("t", 0, 1)
    spark.clock.advance(9_999)
    assert spark.latest(second) == second
    spark.clock.advance(1)
    assert spark.ranges(second, spark.latest(second)) == [(0, 7, 8)]


@limited
def test_a_batch_may_have_a_smallest_and_a_largest_size(limits: bool | str) -> None:
    cluster = FakeCluster(t=[(0, 50)])
    given = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "20"}
    spark = Spark(cluster, limits=limits, **given)
    first = spark.latest(None)
    second = spark.latest(first)
    third = spark.latest(second)
    assert [end["t"]["0"] for end in (first, second, third)] == [20, 40, 50]
    cluster.grow("t", 0, 4)
    assert spark.latest(third) == third


@limited
def test_available_now_does_not_wait_for_what_will_not_come(limits: bool | str) -> None:
    cluster = FakeCluster(t=[(0, 50)])
    given = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "15", "maxOffsetsPerTrigger": "20"}
    spark = Spark(cluster, limits=limits, **given)
    spark.reader.prepareForTriggerAvailableNow()
    ends = [spark.latest(None)]
    for _ in range(3):
        ends.append(spark.latest(ends[-1]))
    assert [end["t"]["0"] for end in ends] == [20, 40, 50, 50]


def test_refused_query_raises_from_every_method_and_can_stop() -> None:
    reader = stream.reader({"subscribe": "t", "endingOffsets": "latest"}, SOURCE_SCHEMA)
    questions = (reader.initialOffset, reader.latestOffset, lambda: reader.partitions({}, {}))
    for question in (*questions, lambda: reader.read(None)):  # type: ignore[arg-type,return-value]
        with pytest.raises(ConfigError, match="endingOffsets='latest': is for batch queries only"):
            question()  # type: ignore[call-arg]
    reader.stop()


# What Spark before 4.2 leaves out without the shim.


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_WARNED", set())


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_spark_before_4_2_says_once_which_results_available_now_leaves_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    spark = Spark(FakeCluster(t=[(0, 9)]), limits=False)
    first = spark.latest(None)
    spark.ranges(None, first)
    spark.latest(first)
    (warning,) = said(caplog)
    for words in (
        "watermark",
        "missing",
        "4.2",
        "shim",
        "triggerAvailableNowWrapper",
        "minikafka.single.batch",
    ):
        assert words in warning


@limited
def test_nothing_is_left_out_and_nothing_said_where_batches_have_limits(
    limits: bool | str, caplog: pytest.LogCaptureFixture
) -> None:
    spark = Spark(FakeCluster(t=[(0, 9)]), limits=limits, maxOffsetsPerTrigger="2")
    spark.latest(None)
    assert said(caplog) == []


def test_the_warning_of_single_batches_can_be_turned_off(caplog: pytest.LogCaptureFixture) -> None:
    spark = Spark(FakeCluster(t=[(0, 9)]), limits=False, **{"minikafka.single.batch": "allow"})
    spark.latest(None)
    assert said(caplog) == []


def checkpoint(directory: Path, watermark_ms: int) -> dict[str, str]:
    (directory / "commits").mkdir(parents=True)
    for number, left_ms in enumerate((0, watermark_ms)):
        (directory / "commits" / str(number)).write_text(f'v1\n{{"nextBatchWatermarkMs":{left_ms}}}')
    return {"checkpointLocation": str(directory)}


def test_a_query_whose_checkpoint_shows_a_watermark_is_refused(tmp_path: Path) -> None:
    spark = Spark(FakeCluster(t=[(0, 9)]), limits=False, **checkpoint(tmp_path, 1_700_000_000_000))
    spark.resume({"t": {"0": 7}})
    with pytest.raises(stream.SingleBatchRefused, match=r"minikafka\.single\.batch"):
        spark.latest({"t": {"0": 7}})


def test_a_query_with_a_watermark_goes_on_where_the_option_allows_it(tmp_path: Path) -> None:
    given = {**checkpoint(tmp_path, 1_700_000_000_000), "minikafka.single.batch": "allow"}
    spark = Spark(FakeCluster(t=[(0, 9)]), limits=False, **given)
    spark.resume({"t": {"0": 7}})
    assert spark.latest({"t": {"0": 7}}) == {"t": {"0": 9}}


def test_a_query_without_a_watermark_is_only_warned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spark = Spark(FakeCluster(t=[(0, 9)]), limits=False, **checkpoint(tmp_path, 0))
    spark.resume({"t": {"0": 7}})
    assert spark.latest({"t": {"0": 7}}) == {"t": {"0": 9}}
    assert len(said(caplog)) == 1


def test_sparks_wrapper_for_available_now_is_neither_refused_nor_warned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It asks where the log ends before it tells where the query is."""
    spark = Spark(FakeCluster(t=[(0, 9)]), limits=False, **checkpoint(tmp_path, 1_700_000_000_000))
    assert spark.latest(None)["t"] == {"0": 9}
    spark.resume({"t": {"0": 7}})
    assert spark.latest(None)["t"] == {"0": 9}
    assert said(caplog) == []


def test_a_stream_without_options_is_refused_by_its_reader_too() -> None:
    reader = stream.reader({}, SOURCE_SCHEMA)
    with pytest.raises(ConfigError, match="options: none are set"):
        reader.initialOffset()

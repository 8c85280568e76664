"""A task's read: what comes out of message sets, and what is done about offsets that are not there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition

from minikafka.base.errors import (
    BrokerError,
    ErrorCode,
    LogTruncated,
    MinikafkaError,
    NetworkError,
    OffsetOutOfRange,
)
from minikafka.base.ids import TopicPartition
from minikafka.clients.network.cluster import ClusterClient
from minikafka.records.format.message_set import Record, build_message_set
from pyspark_minikafka.formats.bad_values import BadValue, BadValues
from pyspark_minikafka.formats.query_formats import QueryFormats
from pyspark_minikafka.formats.string_format import StringFormat
from pyspark_minikafka.formats.value_format import Decoded, arrow_schema
from pyspark_minikafka.location import Target
from pyspark_minikafka.options.options import Mode, SinkOptions, SourceOptions, source_options
from pyspark_minikafka.planning.ranges import DataLoss, OffsetRange
from pyspark_minikafka.planning.tasks import ReadTask
from pyspark_minikafka.reading import dead_letters, range_reader, task_reader
from pyspark_minikafka.reading.task_reader import read
from pyspark_minikafka.schema import SOURCE_SCHEMA, source_schema

SERVERS = Target("localhost:1")


def options(**given: str) -> SourceOptions:
    return source_options({"subscribe": "t", **given}, Mode.BATCH)


def task(start: int, end: int, *, partition: int = 0, **late: bool) -> ReadTask:
    return ReadTask([OffsetRange(TopicPartition("t", partition), start, end, **late)], SERVERS, 100)


class Log:
    """Stands for the fetcher of a log with the offsets ``first`` to ``end``, in sets of ``step`` messages."""

    def __init__(self, first: int, end: int, step: int = 4) -> None:
        self.first, self.end, self.step = first, end, step
        self.fetchers: list[tuple[int, int]] = []
        self.failure: MinikafkaError | None = None
        self.truncated: LogTruncated | None = None
        """The error of the fetch that reaches its offset, once."""
        self.damaged: set[int] = set()
        self.unconfirmed = end
        """Where the log ends, where its high watermark is behind that."""

    def reaches(self, cluster: object, tp: object, offset: int) -> bool:
        return self.first <= offset <= self.unconfirmed

    def fetcher(self, cluster: object, tp: object, start: int, end: int, **_: object) -> Fetcher:
        self.fetchers.append((start, end))
        return Fetcher(self, start, end)


class Fetcher:
    def __init__(self, log: Log, start: int, end: int) -> None:
        self.log, self.start, self.wanted = log, start, end
        self.high_watermark: int | None = None
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True

    def __iter__(self) -> Iterator[memoryview]:
        log, at = self.log, self.start
        while at < self.wanted:
            if log.failure is not None:
                raise log.failure
            if log.truncated is not None and at >= log.truncated.offset:
                error, log.truncated = log.truncated, None
                raise error
            if not log.first <= at <= log.end:
                raise OffsetOutOfRange(at, log.first, log.end)
            self.high_watermark = log.end
            if at == log.end:
                raise NetworkError("nothing came")
            begin = at - at % log.step
            records = [Record(None, str(n).encode(), 5) for n in range(begin, min(begin + log.step, log.end))]
            data = bytearray(build_message_set(records, base_offset=begin))
            for bad in log.damaged & set(range(begin, begin + len(records))):
                data[len(data) // len(records) * (bad - begin + 1) - 1] ^= 1
            yield memoryview(data)
            at = begin + len(records)


Of = Callable[[Log], Log]


@pytest.fixture
def of(monkeypatch: pytest.MonkeyPatch) -> Of:
    def use(log: Log) -> Log:
        monkeypatch.setattr(range_reader, "RangeFetcher", log.fetcher)
        monkeypatch.setattr(range_reader, "log_reaches", log.reaches)
        return log

    return use


def values(task: InputPartition, given: SourceOptions) -> list[int]:
    return [int(value) for batch in read(task, given) for value in batch.column("value").to_pylist()]


def test_just_the_range_is_read_though_sets_are_larger(of: Of) -> None:
    of(Log(0, 40))
    assert values(task(6, 21), options()) == list(range(6, 21))


def test_batches_have_sparks_columns_to_the_letter(of: Of) -> None:
    of(Log(0, 4))
    (batch,) = read(task(0, 4, partition=3), options())
    assert batch.schema.equals(arrow_schema(SOURCE_SCHEMA))
    assert batch.column("topic").to_pylist() == ["t"] * 4
    assert batch.column("partition").to_pylist() == [3] * 4
    assert batch.column("offset").to_pylist() == [0, 1, 2, 3]


def test_values_of_a_format_are_decoded(of: Of) -> None:
    of(Log(0, 4))
    given = source_options({"subscribe": "t", "minikafka.value.format": "string"}, Mode.BATCH)
    (batch,) = read(task(1, 3), given)
    assert batch.schema.equals(arrow_schema(source_schema(given.columns, given.formats)))
    assert batch.column("value").to_pylist() == ["1", "2"]
    assert batch.column("key").to_pylist() == [None, None]


def test_batches_have_only_the_columns_selected(of: Of) -> None:
    of(Log(0, 4))
    given = source_options({"subscribe": "t", "minikafka.columns": "offset,value"}, Mode.BATCH)
    (batch,) = read(task(1, 3), given)
    assert batch.schema.equals(arrow_schema(source_schema(given.columns, given.formats)))
    assert batch.to_pydict() == {"offset": [1, 2], "value": [b"1", b"2"]}


@pytest.mark.parametrize("columns", ["offset", "key", "headers", "timestamp", "topic,partition"])
def test_a_read_without_values_has_every_row(of: Of, columns: str) -> None:
    of(Log(0, 40))
    given = source_options({"subscribe": "t", "minikafka.columns": columns}, Mode.BATCH)
    batches = list(read(task(3, 37), given))
    assert sum(batch.num_rows for batch in batches) == 34
    assert {",".join(batch.schema.names) for batch in batches} == {columns}


class _OddOnly(StringFormat):
    """Takes only odd numbers."""

    def decode(self, values: pa.BinaryArray, topic: str) -> Decoded:
        numbers = [int(value) for value in values.to_pylist()]
        bad = np.array([row for row, number in enumerate(numbers) if number % 2 == 0])
        column = pa.array([None if number % 2 == 0 else str(number) for number in numbers])
        return Decoded(column, bad, (f"even in {topic}",) * len(bad))


def test_a_bad_value_ends_the_task_and_names_its_offset(of: Of) -> None:
    of(Log(0, 8))
    given = replace(options(), formats=QueryFormats(value=_OddOnly()))
    with pytest.raises(BadValue, match=r"the value of t-2 at offset 6 is .*: even in t; its 1 bytes are '6'"):
        list(read(task(5, 8, partition=2), given))


def test_permissive_reads_a_bad_value_as_null_with_the_reason(of: Of) -> None:
    of(Log(0, 8))
    formats = QueryFormats(None, _OddOnly(), BadValues.PERMISSIVE)
    given = replace(options(), formats=formats, columns=("value", "value_error"))
    (batch,) = read(task(5, 7), given)
    assert batch.column("value").to_pylist() == ["5", None]
    assert batch.column("value_error").to_pylist() == [None, {"bytes": b"6", "reason": "even in t"}]


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = []

    def send(batches: Iterator[pa.RecordBatch], given: SinkOptions, target: Target, _: object) -> None:
        assert (given.topic, target) == ("dead", SERVERS)
        found.extend(batches)

    monkeypatch.setattr(dead_letters, "send", send)
    return found


def test_a_bad_value_is_a_dead_letter_and_its_row_left_out(of: Of, letters: list[pa.RecordBatch]) -> None:
    of(Log(0, 8))
    formats = QueryFormats(None, _OddOnly(), BadValues.DEAD_LETTER, "dead")
    given = replace(options(), formats=formats, columns=("value", "offset"))
    batches = list(read(task(5, 8, partition=2), given))
    assert [row for batch in batches for row in batch.to_pylist()] == [
        {"value": "5", "offset": 5},
        {"value": "7", "offset": 7},
    ]
    (letter,) = [row for batch in letters for row in batch.to_pylist()]
    assert (letter["key"], letter["value"], letter["timestamp"]) == (None, b"6", 5)
    assert [
        (header["key"].removeprefix("__connect.errors."), header["value"]) for header in letter["headers"]
    ] == [
        ("topic", b"t"),
        ("partition", b"2"),
        ("offset", b"6"),
        ("stage", b"VALUE_CONVERTER"),
        ("exception.message", b"even in t"),
    ]


def test_a_record_with_two_faults_is_one_dead_letter(of: Of, letters: list[pa.RecordBatch]) -> None:
    of(Log(0, 4))

    class Nothing(StringFormat):
        def decode(self, values: pa.BinaryArray, topic: str) -> Decoded:
            return Decoded(pa.nulls(len(values), pa.string()), np.arange(len(values)), ("no",) * len(values))

    formats = QueryFormats(Nothing(), _OddOnly(), BadValues.DEAD_LETTER, "dead")
    assert [batch.num_rows for batch in read(task(0, 4), replace(options(), formats=formats))] in ([], [0])
    assert [row["value"] for batch in letters for row in batch.to_pylist()] == [b"0", b"1", b"2", b"3"]


def test_a_value_that_is_not_selected_is_no_dead_letter(of: Of, letters: list[pa.RecordBatch]) -> None:
    of(Log(0, 4))
    formats = QueryFormats(None, _OddOnly(), BadValues.DEAD_LETTER, "dead")
    (batch,) = read(task(0, 4), replace(options(), formats=formats, columns=("offset",)))
    assert batch.column("offset").to_pylist() == [0, 1, 2, 3]
    assert letters == []


def test_dead_letters_that_fail_end_the_task(of: Of, monkeypatch: pytest.MonkeyPatch) -> None:
    def send(*_: object) -> None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic dead")

    monkeypatch.setattr(dead_letters, "send", send)
    of(Log(0, 8))
    formats = QueryFormats(None, _OddOnly(), BadValues.DEAD_LETTER, "dead")
    given = replace(options(failOnDataLoss="false"), formats=formats)
    with pytest.raises(
        dead_letters.DeadLetterFailed, match="cannot write dead letters of t-0 to the topic dead"
    ):
        list(read(task(5, 8), given))


def test_many_small_rows_are_handed_over_in_pieces(of: Of, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_reader, "ROWS_MAX", 3)
    monkeypatch.setattr(task_reader, "JOINED_ROWS", 3)
    of(Log(0, 8, step=8))
    assert [b.num_rows for b in read(task(0, 8), options())] == [3, 3, 2]


def test_the_stand_in_of_a_query_without_partitions_gives_nothing() -> None:
    assert list(read(InputPartition(None), options())) == []


def test_offsets_that_retention_took_end_the_task(of: Of) -> None:
    of(Log(10, 40))
    with pytest.raises(DataLoss, match=r"cannot read 8 offsets of t-0 from offset 2: the log has 10 to 40"):
        values(task(2, 20), options())


def test_or_are_skipped_with_a_warning_that_counts(of: Of, caplog: pytest.LogCaptureFixture) -> None:
    log = of(Log(10, 40))
    found = values(task(2, 20), options(failOnDataLoss="false"))
    assert found == list(range(10, 20))
    assert log.fetchers == [(2, 20), (10, 20)]
    assert "8 offsets of t-0 from offset 2" in caplog.records[0].getMessage()


def test_a_range_that_is_wholly_gone_is_skipped(of: Of) -> None:
    of(Log(30, 40))
    assert values(task(2, 20), options(failOnDataLoss="false")) == []


def test_an_end_that_the_log_has_lost_is_lost_data(of: Of) -> None:
    of(Log(0, 6))
    one = task(2, 20)
    with pytest.raises(DataLoss, match=r"cannot read 14 offsets of t-0 from offset 6: the log ends at 6"):
        values(one, options())
    assert values(one, options(failOnDataLoss="false")) == [2, 3, 4, 5]


@pytest.fixture
def latest(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def ends_at(offset: int) -> None:
        def ends(cluster: object, wanted: dict[TopicPartition, int], *_: object) -> dict[TopicPartition, int]:
            return dict.fromkeys(wanted, offset)

        monkeypatch.setattr(range_reader, "list_offsets", ends)

    return ends_at


def test_the_latest_record_is_the_one_at_the_time_of_reading(of: Of, latest: Callable[[int], None]) -> None:
    of(Log(0, 9))
    latest(9)
    assert values(task(2, 5, to_latest=True), options()) == list(range(2, 9))
    assert values(task(2, 5), options()) == [2, 3, 4]


def test_a_log_that_was_made_anew_with_less_is_lost_data(of: Of, latest: Callable[[int], None]) -> None:
    of(Log(0, 3))
    latest(3)
    with pytest.raises(DataLoss, match="cannot read 4 offsets of t-0 from offset 7: the log ends at 3"):
        values(task(7, 9, to_latest=True), options())
    assert values(task(7, 9, to_latest=True), options(failOnDataLoss="false")) == []


def test_a_latest_record_that_is_not_confirmed_any_more_is_waited_for(
    of: Of, latest: Callable[[int], None]
) -> None:
    log = of(Log(0, 9))
    latest(5)
    assert values(task(2, 9, to_latest=True), options()) == list(range(2, 9))
    assert values(task(7, 7, to_latest=True), options()) == []
    assert log.fetchers[-1][1] <= 9


@pytest.mark.parametrize("fail", ["true", "false"])
def test_records_that_nobody_confirms_in_time_are_not_lost_data(of: Of, fail: str) -> None:
    log = of(Log(0, 6))
    log.unconfirmed = 20
    with pytest.raises(NetworkError, match="nothing came"):
        values(task(2, 20), options(failOnDataLoss=fail))


def test_what_is_deleted_before_the_earliest_record_is_read_is_no_loss(of: Of) -> None:
    of(Log(6, 40))
    assert values(task(2, 9, from_earliest=True), options()) == [6, 7, 8]
    with pytest.raises(DataLoss):
        values(task(2, 9), options())


def test_damage_is_told_with_its_place_or_passed_over_and_counted(
    of: Of, caplog: pytest.LogCaptureFixture
) -> None:
    log = of(Log(0, 40))
    log.damaged = {9}
    with pytest.raises(DataLoss, match=r"cannot read 1 offset of t-0 from offset 9: .* corrupt"):
        values(task(2, 20), options())
    assert values(task(2, 20), options(failOnDataLoss="false")) == [*range(2, 9), *range(10, 20)]
    assert "cannot read 1 offset of t-0 from offset 9" in caplog.text


def test_each_task_tells_what_it_read_where_that_is_asked_for(
    of: Of, capfd: pytest.CaptureFixture[str]
) -> None:
    of(Log(0, 40))
    values(task(2, 9), options())
    assert capfd.readouterr().err == ""
    values(task(2, 9), options(**{"minikafka.log.tasks": "true"}))
    assert "read 7 rows of t-0 from 2 to 9: " in capfd.readouterr().err


@pytest.mark.parametrize("fail", ["true", "false"])
def test_brokers_that_are_away_are_no_loss_of_data(of: Of, fail: str) -> None:
    of(Log(0, 40)).failure = NetworkError("no broker answers")
    with pytest.raises(NetworkError, match="no broker answers"):
        values(task(2, 20), options(failOnDataLoss=fail))


def test_a_deleted_topic_is_lost_data_and_other_errors_are_not(of: Of) -> None:
    log = of(Log(0, 40))
    one = task(2, 20)
    log.failure = BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert values(one, options(failOnDataLoss="false")) == []
    log.failure = BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        values(one, options(failOnDataLoss="false"))


def test_a_reader_that_is_left_early_stops_its_fetcher(of: Of) -> None:
    log = of(Log(0, 40_000, step=4_000))
    made: list[Fetcher] = []
    keep = log.fetcher
    range_reader.RangeFetcher = lambda *a, **k: made.append(keep(*a, **k)) or made[-1]  # type: ignore[assignment, misc]
    batches = read(task(0, 40_000), options())
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert made[0].stopped


def test_stop_while_skipping_lost_offsets_stops_next_fetcher(of: Of, monkeypatch: pytest.MonkeyPatch) -> None:
    log = of(Log(10, 20))
    made: list[Fetcher] = []

    def kept(*args: Any, **options: Any) -> Fetcher:
        made.append(log.fetcher(*args, **options))
        return made[-1]

    monkeypatch.setattr(range_reader, "RangeFetcher", kept)
    given = options(failOnDataLoss="false")
    rows = range_reader.RowBuilder(given, SERVERS)
    reader = range_reader.RangeReader(ClusterClient("localhost:1"), task(0, 20).ranges[0], given, rows)
    monkeypatch.setattr(range_reader.report, "warn", lambda sentences: reader.stop())
    list(reader)
    assert [fetcher.stopped for fetcher in made] == [True, True]


def test_log_truncated_below_the_position_is_data_loss(of: Of) -> None:
    of(Log(0, 40)).truncated = LogTruncated("t", 0, 8, 1, 6)
    with pytest.raises(
        DataLoss, match="t-0 was read to offset 8, of leader epoch 1, but an unclean election"
    ):
        values(task(0, 12), options())


def test_log_truncated_below_the_position_is_read_again_from_its_end(
    of: Of, caplog: pytest.LogCaptureFixture
) -> None:
    of(Log(0, 40)).truncated = LogTruncated("t", 0, 8, 1, 6)
    assert values(task(0, 12), options(failOnDataLoss="false")) == [*range(8), *range(6, 12)]
    (warning,) = caplog.messages
    assert warning.endswith(
        "that epoch ends at 6. Reading what the log has from 6 on (failOnDataLoss is false)"
    )


def test_log_truncated_before_the_range_is_read_again_from_its_start(
    of: Of, caplog: pytest.LogCaptureFixture
) -> None:
    of(Log(0, 40)).truncated = LogTruncated("t", 0, 8, 1, 3)
    assert values(task(5, 12), options(failOnDataLoss="false")) == [*range(5, 8), *range(5, 12)]
    (warning,) = caplog.messages
    assert warning.endswith(
        "that epoch ends at 3, before the range from 5 to 12. Reading what the log has from 5 on "
        "(failOnDataLoss is false)"
    )

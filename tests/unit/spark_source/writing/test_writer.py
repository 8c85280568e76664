"""Rows, times and columns on their way into message sets."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from minikafka.base.errors import BrokerError, ConfigError, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.produce import BatchingConfig
from minikafka.records.columns import HEADERS_TYPE
from pyspark_minikafka.formats.query_formats import QueryFormats
from pyspark_minikafka.formats.string_format import StringFormat
from pyspark_minikafka.location import Target
from pyspark_minikafka.options import kafka_options
from pyspark_minikafka.options.options import sink_options
from pyspark_minikafka.schema import BadColumn, SinkColumns, sink_columns
from pyspark_minikafka.writing import task_writer, writer
from pyspark_minikafka.writing.batch_writer import Written
from pyspark_minikafka.writing.task_writer import as_binary, timestamps_ms


def test_timestamps_are_cut_to_milliseconds_and_null_means_now() -> None:
    moments = pa.array([1_999, None, 0], pa.timestamp("us", "UTC"))
    assert timestamps_ms(moments, 77, is_ms=False).tolist() == [1, 77, 0]
    assert timestamps_ms(pa.array([5, None]), 77, is_ms=True).tolist() == [5, 77]


@pytest.mark.parametrize(
    "column", [pa.array([3, -1], pa.timestamp("us", "UTC")), pa.array([3, -1_000_000], pa.timestamp("us"))]
)
def test_a_time_before_1970_is_refused(column: pa.Array) -> None:
    with pytest.raises(BadColumn, match="before 1970"):
        timestamps_ms(column, 0, is_ms=False)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_text_and_bytes_of_every_layout_become_binary(kind: pa.DataType) -> None:
    column = pa.array(["é", None, ""], pa.string()).cast(kind)
    assert as_binary(column).type == pa.binary()
    assert as_binary(column).to_pylist() == ["é".encode(), None, b""]


def test_producer_settings_are_those_of_the_options() -> None:
    given = {"topic": "t", "kafka.compression.type": "gzip", "kafka.linger.ms": "3", "kafka.retries": "2"}
    config = sink_options({**given, "kafka.request.timeout.ms": "9"}).producer
    assert (config.acks, config.compression.name, config.linger_ms) == (-1, "GZIP", 3)
    assert (config.retries, config.request_timeout_ms) == (2, 9)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"kafka.max.in.flight.requests.per.connection": "0"},
            r"^kafka\.max\.in\.flight\.requests\.per\.connection='0': must be",
        ),
        (
            {"kafka.enable.idempotence": "true", "kafka.retries": "0"},
            r"^kafka\.retries=0: must be 1 or more with",
        ),
    ],
)
def test_setting_that_the_producer_refuses_has_the_name_of_the_option(
    given: dict[str, str], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        sink_options({"topic": "t", **given})


def test_brokers_that_nobody_can_reach_are_waited_for_as_long_as_by_a_read() -> None:
    given = {"topic": "t", "kafka.bootstrap.servers": "127.0.0.1:1", "kafka.request.timeout.ms": "200"}
    options, columns = sink_options(given), sink_columns(StructType().add("value", "binary"), "t")
    rows = pa.record_batch([pa.array([b"x"])], names=["value"])
    with pytest.raises(NetworkError, match="could be reached for 200 ms: bootstrap server "):
        task_writer.send(iter([rows]), options, Target("127.0.0.1:1"), columns)


def test_a_writer_travels_to_the_executors() -> None:
    schema = StructType().add("value", "string")
    options = sink_options({"topic": "t", "kafka.bootstrap.servers": "h:1"})
    made = writer.batch_writer({"topic": "t", "kafka.bootstrap.servers": "h:1"}, schema, overwrite=False)
    again = pickle.loads(pickle.dumps(made))
    assert again.sink == writer.Sink(options, Target("h:1"), sink_columns(schema, "t"))


class BrokersOfKafka010:
    """A cluster and its producer: one topic of two partitions, no headers."""

    config = BatchingConfig()

    def __init__(self) -> None:
        self.sent: list[list[tuple[int, int]]] = []
        self.partitions: tuple[int, ...] = (0, 1)

    def known_topic(self, name: str) -> object:
        return self

    def topic(self, name: str, timeout_ms: int) -> SimpleNamespace:
        return SimpleNamespace(partitions=self.partitions, available=self.partitions)

    def magic(self, tp: TopicPartition) -> int:
        return 1

    def send_encoded_sets(
        self, sets: list[tuple[TopicPartition, memoryview, int]], *, sealed: bool
    ) -> list[SimpleNamespace]:
        self.sent.append([(tp.partition, count) for tp, _, count in sets])
        return [SimpleNamespace(done=True, result=lambda: None) for _ in sets]


def task_of(brokers: BrokersOfKafka010, columns: SinkColumns, **options: str) -> task_writer._TaskWriter:
    return task_writer._TaskWriter(brokers, brokers, sink_options(options), columns)  # type: ignore[arg-type]


def test_rows_with_headers_are_refused_for_older_brokers() -> None:
    header = {"key": "h", "value": b"1"}
    batch = pa.RecordBatch.from_pydict(
        {
            "value": pa.array([b"a", b"b", b"c"]),
            "partition": pa.array([0, 1, 0], pa.int32()),
            "headers": pa.array([None, [header], []], HEADERS_TYPE),
        }
    )
    brokers = BrokersOfKafka010()
    columns = SinkColumns(0, None, None, 1, None, False, headers=2)
    task = task_of(brokers, columns, topic="t")
    with pytest.raises(BrokerError, match="rows for t-1 have headers"):
        task.add(batch)
    assert brokers.sent == []


def test_rows_without_a_key_reach_the_producer_together_in_even_blocks() -> None:
    brokers = BrokersOfKafka010()
    task = task_of(brokers, SinkColumns(0, None, None, None, None, False), topic="t")
    task.add(pa.RecordBatch.from_pydict({"value": pa.array([b"%d" % n for n in range(10)])}))
    ((first, second),) = brokers.sent
    assert sorted([first, second]) == [(0, 5), (1, 5)]


def test_rows_without_a_key_are_divided_topic_by_topic() -> None:
    brokers = BrokersOfKafka010()
    rows = {"value": pa.array([b"v"] * 6), "topic": pa.array(["a", "b", "a", "a", "b", "a"])}
    task = task_of(brokers, SinkColumns(0, None, 1, None, None, False))
    task.add(pa.RecordBatch.from_pydict(rows))
    (sent,) = brokers.sent
    assert sorted(sent[:2]) == [(0, 2), (1, 2)]
    assert sorted(sent[2:]) == [(0, 1), (1, 1)]


def test_sets_beyond_one_request_are_handed_over_before_more_are_encoded() -> None:
    brokers = BrokersOfKafka010()
    brokers.config = BatchingConfig(max_request_bytes=1_000, batch_bytes=1_000)
    task = task_of(brokers, SinkColumns(0, None, None, None, None, False), topic="t")
    task.add(pa.RecordBatch.from_pydict({"value": pa.array([b"x" * 600] * 4)}))
    assert [count for sets in brokers.sent for _, count in sets] == [1, 1, 1, 1]
    assert len(brokers.sent) == 4


class GrownTopic(BrokersOfKafka010):
    """A topic that has ``partitions`` since it was asked for last, when it had two."""

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self.partitions = partitions
        self.known = 2

    def known_topic(self, name: str) -> object:
        return self

    def topic(self, name: str, timeout_ms: int) -> SimpleNamespace:
        numbers = tuple(range(self.known))
        return SimpleNamespace(partitions=numbers, available=numbers)

    def invalidate(self, name: str) -> None:
        self.known = self.partitions


def write_to_partition(number: int, brokers: GrownTopic) -> None:
    rows = {"value": pa.array([b"a", b"b"]), "partition": pa.array([0, number], pa.int32())}
    columns = SinkColumns(0, None, None, 1, None, False)
    task = task_of(brokers, columns, topic="t")
    task.add(pa.RecordBatch.from_pydict(rows))


def test_a_row_for_a_partition_that_was_added_to_a_known_topic_is_written() -> None:
    brokers = GrownTopic(4)
    write_to_partition(3, brokers)
    assert brokers.sent == [[(0, 1), (3, 1)]]


def test_a_row_for_a_partition_that_was_not_is_refused() -> None:
    with pytest.raises(BadColumn, match="holds 4, but topic t has only 0 to 3"):
        write_to_partition(4, GrownTopic(4))


class _WithTopic(StringFormat):
    """Writes each text behind the name of its topic."""

    def encode(self, column: pa.Array, topic: str) -> pa.BinaryArray:
        return pa.array([None if text is None else f"{topic}:{text}".encode() for text in column.to_pylist()])


@pytest.mark.parametrize(
    ("topics", "wanted"),
    [
        (["a", "b", "a", "b"], [b"a:1", b"b:2", None, b"b:4"]),
        (["b", "b", "b", "b"], [b"b:1", b"b:2", None, b"b:4"]),
    ],
)
def test_values_are_encoded_for_the_topic_of_each_row(
    topics: list[str], wanted: list[bytes | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[pa.Array] = []
    monkeypatch.setattr(
        task_writer._TaskWriter, "_queue", lambda self, tp, keys, values, *_: found.append((keys, values))
    )
    options = replace(sink_options({}), formats=QueryFormats(value=_WithTopic()))
    columns = SinkColumns(value=1, key=None, topic=0, partition=None, timestamp=None, timestamp_is_ms=False)
    task = task_writer._TaskWriter(BrokersOfKafka010(), BrokersOfKafka010(), options, columns)  # type: ignore[arg-type]
    task.add(pa.RecordBatch.from_pydict({"topic": topics, "value": ["1", "2", None, "4"]}))
    assert all(keys is None and values.to_pylist() == wanted for keys, values in found)
    assert found


def test_a_topic_cannot_be_overwritten() -> None:
    with pytest.raises(ConfigError, match="append"):
        writer.batch_writer({"topic": "t"}, StructType().add("value", "string"), overwrite=True)


def test_each_task_tells_what_it_wrote() -> None:
    assert repr(pickle.loads(pickle.dumps(Written(3, 120)))) == "Written(rows=3, sent_bytes=120)"


@pytest.mark.process
def test_a_worker_that_commits_imports_little() -> None:
    """Each import delays the first write of a session."""
    options = {"topic": "t", "kafka.bootstrap.servers": "h:1"}
    made = writer.batch_writer(options, StructType().add("value", "string"), overwrite=False)
    commit = """if True:
        import pickle, sys
        writer, *messages = pickle.loads(bytes.fromhex(sys.argv[1]))
        writer.commit(messages)
        print(*sorted(name for name in sys.modules if name.startswith(("minikafka", "pyarrow"))))
    """
    pickled = pickle.dumps((made, Written(3, 120))).hex()
    done = subprocess.run(
        [sys.executable, "-c", commit, pickled], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr + done.stdout


def test_a_set_is_at_most_what_a_broker_takes_by_default() -> None:
    assert np.iinfo(np.int32).max > 1_000_012 > kafka_options.BATCH_BYTES


def rows_of(*sizes: int) -> Iterator[pa.RecordBatch]:
    """Record batches of so many rows of 100 bytes, numbered from 0."""
    numbers = iter(range(sum(sizes)))
    for size in sizes:
        yield pa.RecordBatch.from_pydict({"value": [b"%0100d" % next(numbers) for _ in range(size)]})


def test_record_batches_are_merged_until_large_enough() -> None:
    found = list(task_writer.merged(rows_of(10, 10, 10, 10, 3), lambda: 1_900))
    assert [batch.num_rows for batch in found] == [20, 20, 3]
    assert [int(value.as_py()) for batch in found for value in batch.column(0)] == list(range(43))


def test_a_record_batch_that_holds_enough_is_passed_on_as_it_is() -> None:
    batches = list(rows_of(10, 0, 10))
    assert [id(found) for found in task_writer.merged(iter(batches), lambda: 0)] == [
        id(batches[0]),
        id(batches[2]),
    ]


def test_more_is_merged_for_more_partitions_within_the_producers_buffer() -> None:
    cluster = BrokersOfKafka010()
    options = sink_options({"topic": "t"})
    columns = sink_columns(StructType().add("value", "binary"), "t")
    task = task_writer._TaskWriter(cluster, cluster, options, columns)  # type: ignore[arg-type]
    for partitions, wanted in (
        (2, 2 * task_writer.PARTITION_BYTES),
        (10_000, cluster.config.buffer_bytes // 2),
    ):
        cluster.partitions = tuple(range(partitions))
        for batch in rows_of(1):
            task.add(batch)
        assert task.wanted_bytes() == wanted

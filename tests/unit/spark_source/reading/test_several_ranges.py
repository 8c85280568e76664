"""A task with several ranges: shared fetches, joined record batches, and trouble with one of the ranges."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.wire.api import ApiKey
from pyspark_minikafka import cache
from pyspark_minikafka.location import Target
from pyspark_minikafka.options.options import Mode, source_options
from pyspark_minikafka.planning.ranges import DataLoss, OffsetRange
from pyspark_minikafka.planning.tasks import ReadTask
from pyspark_minikafka.reading import task_reader
from pyspark_minikafka.reading.task_reader import joined, read
from tests.support.broker_harness import BrokerHarness, fetch_error

PARTITIONS = 40
COUNT = 10
SERVERS = Target("localhost:1")


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> BrokerHarness:
    harness = BrokerHarness(2, {"t": PARTITIONS})
    for number in range(PARTITIONS):
        values = [b"%d-%d" % (number, offset) for offset in range(COUNT)]
        harness.fill(TopicPartition("t", number), *values, magic=2)
    client = harness.client(creates_topics=False, one_connection=True)
    monkeypatch.setattr(cache, "reading", lambda *_: client)
    return harness


def part(number: int, start: int = 0, end: int = COUNT, **late: bool) -> OffsetRange:
    return OffsetRange(TopicPartition("t", number), start, end, **late)


def batches(*ranges: OffsetRange, **given: str) -> list[pa.RecordBatch]:
    given = {name.replace("__", "."): value for name, value in given.items()}
    return list(read(ReadTask(ranges, SERVERS, 100), source_options({"subscribe": "t", **given}, Mode.BATCH)))


def rows(found: list[pa.RecordBatch]) -> dict[int, list[int]]:
    """The offsets of each partition, in order; each value has to be that of its offset."""
    offsets: dict[int, list[int]] = {}
    for batch in found:
        for row in batch.to_pylist():
            offsets.setdefault(row["partition"], []).append(row["offset"])
            assert row["value"] == b"%d-%d" % (row["partition"], row["offset"])
    return offsets


def asked(brokers: BrokerHarness) -> Counter[ApiKey]:
    return Counter(key for _, key, _, _ in brokers.requests if key is not ApiKey.API_VERSIONS)


def test_many_ranges_are_one_fetch_of_each_leader_and_one_batch(brokers: BrokerHarness) -> None:
    brokers.requests.clear()
    found = batches(*map(part, range(PARTITIONS)))
    assert [batch.num_rows for batch in found] == [PARTITIONS * COUNT]
    assert rows(found) == {number: list(range(COUNT)) for number in range(PARTITIONS)}
    assert asked(brokers) == {ApiKey.METADATA: 1, ApiKey.FETCH: 2}


def test_each_range_has_just_its_offsets(brokers: BrokerHarness) -> None:
    ranges = [part(number, number % 4, COUNT - number % 3) for number in range(PARTITIONS)]
    expected = {r.topic_partition.partition: list(range(r.start, r.end)) for r in ranges}
    assert rows(batches(*ranges)) == expected


def test_parts_of_one_partition_stay_in_order(brokers: BrokerHarness) -> None:
    found = rows(batches(part(0, 0, 4), part(0, 4, 7), part(0, 7), part(1), part(3)))
    assert found == {number: list(range(COUNT)) for number in (0, 1, 3)}


def test_ends_of_all_logs_are_looked_up_together(brokers: BrokerHarness) -> None:
    for number in range(PARTITIONS):
        brokers.fill(TopicPartition("t", number), b"%d-%d" % (number, COUNT), magic=2)
    brokers.requests.clear()
    found = batches(*(part(number, to_latest=True) for number in range(PARTITIONS)))
    assert rows(found) == {number: list(range(COUNT + 1)) for number in range(PARTITIONS)}
    assert asked(brokers) == {ApiKey.METADATA: 1, ApiKey.LIST_OFFSETS: 2, ApiKey.FETCH: 2}


def test_ranges_that_are_empty_by_now_are_not_fetched(brokers: BrokerHarness) -> None:
    brokers.requests.clear()
    assert batches(*(part(number, COUNT, COUNT, to_latest=True) for number in range(PARTITIONS))) == []
    assert ApiKey.FETCH not in asked(brokers)


def test_a_longer_range_goes_on_alone(brokers: BrokerHarness) -> None:
    values = [b"0-%d" % offset for offset in range(COUNT, 3_000)]
    for at in range(0, len(values), 10):
        brokers.fill(TopicPartition("t", 0), *values[at : at + 10], magic=2)
    found = rows(batches(part(0, 0, 3_000), part(1), part(2)))
    assert found == {0: list(range(3_000)), 1: list(range(COUNT)), 2: list(range(COUNT))}


def test_one_lost_range_ends_the_task_with_its_name(brokers: BrokerHarness) -> None:
    with pytest.raises(DataLoss, match=r"cannot read 5 offsets of t-3 from offset 20: the log has 0 to 10"):
        batches(part(1), part(3, 20, 25), part(5))


def test_or_is_skipped_and_the_others_are_read(
    brokers: BrokerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    found = batches(part(1), part(3, 20, 25), part(5), failOnDataLoss="false")
    assert rows(found) == {1: list(range(COUNT)), 5: list(range(COUNT))}
    assert "cannot read 5 offsets of t-3 from offset 20" in caplog.text


def test_a_partition_that_is_gone_is_the_loss_of_its_range_alone(brokers: BrokerHarness) -> None:
    ranges = [part(number, to_latest=True) for number in (1, PARTITIONS + 7, 5)]
    assert rows(batches(*ranges, failOnDataLoss="false")) == {1: list(range(COUNT)), 5: list(range(COUNT))}
    with pytest.raises(DataLoss, match=r"t-47 from offset 0: the topic or partition no longer exists"):
        batches(*ranges)


def test_damage_in_one_range_is_named_and_the_others_are_read(
    brokers: BrokerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    tp = TopicPartition("t", 2)
    brokers.fill(tp, b"2-10", magic=2)
    brokers.fill(tp, b"2-11", magic=2)
    brokers.damage(COUNT, lambda entry: entry[:-1] + bytes([entry[-1] ^ 1]))
    found = rows(batches(part(1), part(2, 0, COUNT + 2), part(5), failOnDataLoss="false"))
    assert found == {1: list(range(COUNT)), 2: [*range(COUNT), COUNT + 1], 5: list(range(COUNT))}
    assert "cannot read 1 offset of t-2 from offset 10" in caplog.text


def test_a_new_leader_is_found_by_the_ranges_themselves(brokers: BrokerHarness) -> None:
    brokers.script(ApiKey.FETCH, *[fetch_error(ErrorCode.NOT_LEADER_FOR_PARTITION)] * 2)
    assert rows(batches(*map(part, range(6)))) == {number: list(range(COUNT)) for number in range(6)}


def test_a_partition_without_a_leader_is_waited_for_once(brokers: BrokerHarness) -> None:
    brokers.lose_leader(TopicPartition("t", 3))
    began_ms = brokers.clock.monotonic_ms()
    with pytest.raises(BrokerError, match="no leader for t-3"):
        batches(
            *(part(number, to_latest=True) for number in (3, 1, 5)), kafkaConsumer__pollTimeoutMs="120000"
        )
    assert brokers.clock.monotonic_ms() - began_ms < 155_000


def test_a_missing_permission_ends_the_task(brokers: BrokerHarness) -> None:
    brokers.always(ApiKey.FETCH, fetch_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        batches(part(1), part(2))


def test_each_range_has_a_line_in_the_log(brokers: BrokerHarness, capfd: pytest.CaptureFixture[str]) -> None:
    batches(part(1), part(2, 3, 7), minikafka__log__tasks="true")
    said = capfd.readouterr().err
    assert "read 10 rows of t-1 from 0 to 10: " in said
    assert "read 4 rows of t-2 from 3 to 7: " in said


def numbered(*counts: int) -> list[pa.RecordBatch]:
    start, found = 0, []
    for count in counts:
        found.append(pa.record_batch({"n": pa.array(range(start, start + count))}))
        start += count
    return found


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([3, 4, 5], [12]),
        ([3, 0, 5], [8]),
        ([], []),
        ([0, 0], []),
        ([30], [30]),
        ([3, 30, 4], [3, 30, 4]),
        ([9] * 12, [99, 9]),
        ([250], [84, 84, 82]),
    ],
)
def test_small_batches_are_joined_in_order(
    monkeypatch: pytest.MonkeyPatch, counts: list[int], expected: list[int]
) -> None:
    monkeypatch.setattr(task_reader, "ROWS_MAX", 100)
    monkeypatch.setattr(task_reader, "JOINED_ROWS", 10)
    found = list(joined(iter(numbered(*counts))))
    assert [batch.num_rows for batch in found] == expected
    assert [n for batch in found for n in batch["n"].to_pylist()] == list(range(sum(counts)))


def test_large_batches_are_divided_by_their_bytes() -> None:
    wide = pa.record_batch({"v": pa.array([b"x" * 1_000] * 5_000)})
    assert [batch.num_rows for batch in joined(iter([wide]))] == [1_000] * 5
    widest = pa.record_batch({"v": pa.array([b"x" * (3 << 20)])})
    assert [batch.num_rows for batch in joined(iter([widest]))] == [1]


def test_batches_of_many_bytes_are_not_joined() -> None:
    wide = pa.record_batch({"v": pa.array([b"x" * task_reader.JOINED_BYTES])})
    narrow = pa.record_batch({"v": pa.array([b"x" * 600_000])})
    assert [batch.num_rows for batch in joined(iter([narrow, wide, wide, narrow, narrow, narrow]))] == [
        1,
        1,
        1,
        2,
        1,
    ]

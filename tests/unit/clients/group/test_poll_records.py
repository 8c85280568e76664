"""``clients/group/consumer``: records as objects, tables and iterators, and their commits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.clients.group.config import Reset
from minikafka.clients.group.consumer import GroupConsumer
from minikafka.clients.group.fetched_records import ConsumerRecord
from minikafka.clients.group.offsets import Committed
from minikafka.records.format.batch import ControlType, build_batch, build_control_batch
from minikafka.records.format.message_set import Codec, Record, build_message_set
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.fetch import FetchRequest, FetchResponse
from tests.support.group_consumer_harness import T0, T1, T2, T3, GroupHarness, everything

FIELDS = ["topic", "partition", "offset", "timestamp", "key", "value"]


def records(consumer: GroupConsumer, rounds: int = 30, most: int | None = None) -> list[ConsumerRecord]:
    return [record for _ in range(rounds) for record in consumer.poll_records(50, most)]


def table(consumer: GroupConsumer, rounds: int = 30, **wanted: object) -> pa.Table:
    return pa.concat_tables([consumer.poll_table(50, **wanted) for _ in range(rounds)])  # type: ignore[arg-type]


def alone(harness: GroupHarness, **settings: object) -> GroupConsumer:
    """A consumer of one partition."""
    consumer = harness.bare(**settings)
    consumer.assign([T0])
    return consumer


# As objects.


def test_records_come_with_all_that_is_known_of_them(harness: GroupHarness) -> None:
    found = sorted(records(harness.consumer()))
    assert {record.value for record in found} == everything()
    assert found[2] == ConsumerRecord("t", 0, 2, 1_002, b"k", b"t-0-2", ())
    assert found[2].topic_partition == T0


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (ErrorCode.OFFSET_OUT_OF_RANGE, "offset 0 of t-0 is not in the log, and auto.offset.reset is none"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "fetching t-0 from offset 0"),
    ],
)
def test_error_of_one_partition_does_not_starve_others(
    harness: GroupHarness, code: ErrorCode, text: str
) -> None:
    def refuse_t0(broker_id: int, request: FetchRequest) -> FetchResponse:
        (topic,) = harness.brokers.serve(broker_id, request).topics
        rows = [
            replace(row, error_code=int(code), records=b"") if row.index == 0 else row
            for row in topic.partitions
        ]
        return FetchResponse(0, 0, 0, (replace(topic, partitions=tuple(rows)),))

    harness.brokers.always(ApiKey.FETCH, refuse_t0)
    consumer = harness.bare(auto_offset_reset=Reset.NONE)
    consumer.assign([T0, T2])
    consumer.seek(T0, 0)
    consumer.seek(T2, 0)
    found, errors = [], []
    for _ in range(10):
        try:
            found += records(consumer, 1)
        except BrokerError as error:
            errors.append(str(error))
    assert [record.value for record in found] == [b"t-2-%d" % number for number in range(5)]
    assert len(errors) > 1
    assert all(error.startswith(f"{code.name}: {text}") for error in errors)


def test_nulls_and_headers_come_as_they_are(harness: GroupHarness) -> None:
    rows = [
        Record(None, b"v", 1, (("a", b"1"), ("b", None))),
        Record(b"k", None, 2),
        Record(b"", b"", 3, (("a", b""),)),
    ]
    harness.brokers.logs[T0].append(build_batch(rows))
    consumer = alone(harness)
    found = records(consumer)[5:]
    assert [(record.key, record.value, record.headers) for record in found] == [
        (None, b"v", (("a", b"1"), ("b", None))),
        (b"k", None, ()),
        (b"", b"", (("a", b""),)),
    ]
    consumer.seek(T0, 6)
    assert [record.headers for record in records(consumer, most=1)] == [(), (("a", b""),)]


def test_at_most_so_many_come_and_only_those_count_as_read(harness: GroupHarness) -> None:
    consumer = alone(harness)
    sizes = []
    while (position := consumer.position(T0)) is None or position < 5:
        found = consumer.poll_records(50, 2)
        sizes.append(len(found))
        if found:
            assert consumer.position(T0) == found[-1].offset + 1
            consumer.commit_sync()
            assert harness.committed() == {T0: found[-1].offset + 1}
    assert [size for size in sizes if size] == [2, 2, 1]


def test_max_poll_records_is_the_default(harness: GroupHarness) -> None:
    consumer = harness.consumer(max_poll_records=3)
    sizes = [len(consumer.poll_records(50)) for _ in range(30)]
    assert (max(sizes), sum(sizes)) == (3, 20)


def test_what_waits_to_be_given_out_is_not_fetched_again(harness: GroupHarness) -> None:
    consumer = alone(harness)
    while not consumer.poll_records(50, 1):
        pass
    asked = harness.asked(ApiKey.FETCH)
    assert [record.offset for record in consumer.poll_records(50, 3)] == [1, 2, 3]
    assert [record.offset for record in consumer.poll_records(50, 3)] == [4]
    assert harness.asked(ApiKey.FETCH) == asked


@pytest.mark.parametrize(
    ("magic", "codec"), [(0, Codec.NONE), (1, Codec.NONE), (1, Codec.GZIP), (2, Codec.NONE), (2, Codec.LZ4)]
)
def test_parts_of_sets_of_every_format_follow_each_other(
    harness: GroupHarness, magic: int, codec: Codec
) -> None:
    values = [b"%d" % number for number in range(9)]
    harness.brokers.fill(T0, *values, codec=codec, magic=magic)
    consumer = alone(harness)
    found = records(consumer, most=4)
    assert [(record.offset, record.value) for record in found][5:] == list(enumerate(values, 5))
    assert {record.timestamp for record in found[5:]} == ({-1} if magic == 0 else {*range(1_000, 1_009)})


# What ends the wait of records.


@pytest.fixture
def begun(harness: GroupHarness) -> GroupConsumer:
    """A consumer that has returned the first of five records of a fetched set."""
    consumer = alone(harness)
    found: list[ConsumerRecord] = []
    while not found:
        found = consumer.poll_records(50, 1)
    assert consumer.position(T0) == 1
    return consumer


def test_a_seek_counts_at_once(begun: GroupConsumer) -> None:
    begun.seek(T0, 4)
    assert [record.offset for record in records(begun)] == [4]
    begun.seek(T0, 0)
    assert [record.offset for record in begun.poll_records(500, 1)] == [0]
    begun.seek_to_beginning()
    assert [record.offset for record in records(begun)] == [0, 1, 2, 3, 4]


def test_a_paused_partition_goes_on_where_it_was(begun: GroupConsumer) -> None:
    begun.pause(T0)
    assert records(begun, rounds=3) == []
    assert begun.position(T0) == 1
    begun.resume(T0)
    assert [record.offset for record in records(begun)] == [1, 2, 3, 4]


def test_sets_of_bytes_and_tables_go_on_where_records_have_ended(begun: GroupConsumer) -> None:
    assert begun.poll_table(50, max_records=1).column("offset").to_pylist() == [1]
    (fetched,) = begun.poll(50)
    assert [record.offset for record in fetched.records()] == [2, 3, 4]
    assert begun.position(T0) == 5


def test_headers_can_be_asked_for_in_the_middle_of_a_set(begun: GroupConsumer) -> None:
    assert begun.poll_table(50, max_records=1).column_names == FIELDS
    found = begun.poll_table(50, headers=True)
    assert found.column_names == [*FIELDS, "headers"]
    assert found.column("offset").to_pylist() == [2, 3, 4]


def test_what_was_not_given_out_goes_to_the_next_owner(harness: GroupHarness) -> None:
    one = harness.consumer(auto_commit=True)
    first: list[ConsumerRecord] = []
    while not first:
        first = one.poll_records(50, 1)
    other = harness.consumer(auto_commit=True)
    found = [*first]
    for _ in range(60):
        found += one.poll_records(50, 3) + other.poll_records(50, 3)
    assert sorted(record.value for record in found if record.value) == sorted(everything())


# One by one.


def test_iteration_gives_one_record_after_the_other_and_counts_it(harness: GroupHarness) -> None:
    consumer = alone(harness)
    positions = []
    for record in consumer:
        positions.append((record.offset, consumer.position(T0)))
        if record.offset == 4:
            break
    assert positions == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]


def test_iteration_that_is_left_goes_on_in_a_poll(harness: GroupHarness) -> None:
    consumer = alone(harness)
    assert next(iter(consumer)).offset == 0
    assert [record.offset for record in consumer.poll_records(50, 2)] == [1, 2]
    assert next(iter(consumer)).offset == 3


def test_a_seek_in_an_iteration_counts_for_the_next_record(harness: GroupHarness) -> None:
    consumer = alone(harness)
    offsets = []
    for record in consumer:
        offsets.append(record.offset)
        if record.offset == 1:
            consumer.seek(T0, 4)
        if record.offset == 4:
            break
    assert offsets == [0, 1, 4]


def test_partitions_assigned_in_an_iteration_change_what_comes_next(harness: GroupHarness) -> None:
    consumer = alone(harness)
    found = []
    for record in consumer:
        found.append((record.partition, record.offset))
        if found == [(0, 0), (0, 1)]:
            consumer.assign([T0, T1])
        if found[-1] == (0, 3):
            assert consumer.position(T0) == 4
            consumer.assign([T1])
        if found[-1] == (1, 1):
            break
    assert found == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]


def test_an_iteration_commits_in_time_what_it_is_done_with(harness: GroupHarness) -> None:
    consumer = alone(harness, auto_commit=True, auto_commit_interval_ms=0, max_poll_records=2)
    committed = [
        (record.offset, harness.committed().get(T0, 0)) for _, record in zip(range(5), consumer, strict=False)
    ]
    assert all(before <= offset for offset, before in committed)
    assert committed[-1] == (4, 4)


def test_iteration_commits_at_the_interval_within_one_fetched_set(harness: GroupHarness) -> None:
    consumer = alone(harness, auto_commit=True, auto_commit_interval_ms=200)
    committed = []
    for record in consumer:
        committed.append((record.offset, harness.committed().get(T0, 0)))
        if record.offset == 4:
            break
        harness.brokers.clock.advance(500)
    assert committed == [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)]


def test_fast_iteration_does_not_commit_before_the_interval(harness: GroupHarness) -> None:
    consumer = alone(harness, auto_commit=True, auto_commit_interval_ms=60_000)
    next(record for record in consumer if record.offset == 4)
    assert harness.committed() == {}


# What was in hand when a `with` block raised.

TAKES = {
    "poll": lambda consumer: consumer.poll(50),
    "poll_records": lambda consumer: consumer.poll_records(50, 2),
    "poll_table": lambda consumer: consumer.poll_table(50, max_records=2),
}


def interrupted(consumer: GroupConsumer, work: Callable[[], None]) -> None:
    def works() -> None:
        with consumer:
            work()
            raise OSError("no work")

    with pytest.raises(OSError, match="no work"):
        works()


@pytest.mark.parametrize("member", [True, False])
def test_record_whose_processing_raises_is_not_committed(harness: GroupHarness, member: bool) -> None:
    consumer = harness.consumer(auto_commit=True) if member else alone(harness, auto_commit=True)

    def work() -> None:
        next(record for record in consumer if record.offset == 3)

    interrupted(consumer, work)
    assert 3 in harness.committed().values()
    assert 4 not in harness.committed().values()


@pytest.mark.parametrize("take", TAKES)
def test_last_poll_is_not_committed_if_the_block_raises(harness: GroupHarness, take: str) -> None:
    consumer = alone(harness, auto_commit=True)

    def work() -> None:
        while not consumer.poll_records(50, 1):
            pass
        assert len(TAKES[take](consumer))
        assert consumer.position(T0) in (3, 5)

    interrupted(consumer, work)
    assert harness.committed() == {T0: 1}


def test_a_poll_that_came_back_empty_counts_what_came_before(harness: GroupHarness) -> None:
    consumer = alone(harness, auto_commit=True)
    interrupted(consumer, lambda: [consumer.poll_records(50) for _ in range(20)] and None)
    assert harness.committed() == {T0: 5}


def test_what_the_block_itself_has_committed_stays_so(harness: GroupHarness) -> None:
    consumer = alone(harness, auto_commit=True)

    def work() -> None:
        while not consumer.poll_records(50):
            pass
        consumer.commit_sync({T0: Committed(3)})

    interrupted(consumer, work)
    assert harness.committed() == {T0: 3}


def test_seek_in_a_raising_block_sets_the_next_start(harness: GroupHarness) -> None:
    consumer = alone(harness, auto_commit=True)

    def work() -> None:
        while not consumer.poll_records(50):
            pass
        consumer.seek(T0, 2)

    interrupted(consumer, work)
    assert harness.committed() == {T0: 2}


def test_current_record_is_committed_if_the_block_ends_normally(harness: GroupHarness) -> None:
    with alone(harness, auto_commit=True) as consumer:
        next(record for record in consumer if record.offset == 3)
    assert harness.committed() == {T0: 4}


# As a table.


def test_a_table_has_a_column_for_each_field(harness: GroupHarness) -> None:
    found = (
        table(harness.consumer())
        .combine_chunks()
        .sort_by([("partition", "ascending"), ("offset", "ascending")])
    )
    assert found.column_names == FIELDS
    assert found.num_rows == 20
    row = found.slice(7, 1).to_pylist()[0]
    assert (row["topic"], row["partition"], row["offset"]) == ("t", 1, 2)
    assert (row["key"], row["value"]) == (b"k", b"t-1-2")
    assert row["timestamp"].timestamp() == 1.002
    assert found.schema.field("timestamp").type == pa.timestamp("ms", tz="UTC")


def test_a_table_without_rows_has_its_columns_all_the_same(harness: GroupHarness) -> None:
    consumer = harness.member()
    assert consumer.poll_table(50).schema.names == FIELDS
    assert consumer.poll_table(50, headers=True).schema.names == [*FIELDS, "headers"]


def test_a_table_holds_at_most_so_many_rows_and_the_rest_comes_later(harness: GroupHarness) -> None:
    consumer = harness.consumer()
    sizes = [consumer.poll_table(50, max_records=7).num_rows for _ in range(30)]
    assert (max(sizes), sum(sizes)) == (7, 20)


def test_parts_of_a_set_in_tables_share_the_memory_of_their_values(harness: GroupHarness) -> None:
    consumer = alone(harness)
    first = consumer.poll_table(50, max_records=2)
    while not first.num_rows:
        first = consumer.poll_table(50, max_records=2)
    second = consumer.poll_table(50, max_records=2)
    values = [batch.column("value").chunk(0).buffers()[2].address for batch in (first, second)]
    assert values[0] == values[1]


def test_a_record_without_a_timestamp_has_none_in_a_table(harness: GroupHarness) -> None:
    harness.brokers.fill(T0, b"old", magic=0)
    consumer = alone(harness)
    consumer.seek(T0, 4)
    found = table(consumer)
    assert [time and time.timestamp() for time in found.column("timestamp").to_pylist()] == [1.004, None]
    assert found.column("timestamp").null_count == 1


def test_a_table_has_headers_where_they_are_asked_for(harness: GroupHarness) -> None:
    harness.brokers.logs[T0].append(build_batch([Record(None, b"v", 1, (("a", b"1"),)), Record(None, b"w")]))
    consumer = alone(harness)
    consumer.seek(T0, 5)
    found = table(consumer, headers=True).column("headers").to_pylist()
    assert found == [[{"key": "a", "value": b"1"}], None]


# Sets without rows, and damage.


def test_marks_of_transactions_are_passed(harness: GroupHarness) -> None:
    log = harness.brokers.logs[T0]
    about = {"producer_id": 7, "producer_epoch": 0}
    log.append(build_batch([Record(None, b"inside")], **about, transactional=True))
    log.append(build_control_batch(ControlType.COMMIT, coordinator_epoch=0, timestamp_ms=0, **about))
    consumer = alone(harness)
    assert [record.value for record in records(consumer)][5:] == [b"inside"]
    assert consumer.position(T0) == 7


def test_records_before_damage_come_before_an_error_with_a_hint(harness: GroupHarness) -> None:
    harness.brokers.damage(2, lambda entry: entry[:-1] + b"!")
    consumer = alone(harness)
    found: list[ConsumerRecord] = []
    pattern = r"CORRUPT_MESSAGE: t-0 at offset 2: .*seek to 3 to skip it"
    while len(found) < 2:
        found += consumer.poll_records(50)
    with pytest.raises(BrokerError, match=pattern) as raised:
        consumer.poll_records(50)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    assert ([record.offset for record in found], consumer.position(T0)) == ([0, 1], 2)
    with pytest.raises(BrokerError, match=pattern):
        consumer.poll_table(50)
    consumer.seek(T0, 3)
    assert table(consumer).column("offset").to_pylist() == [3, 4]


def test_sets_of_several_partitions_come_in_their_order(harness: GroupHarness) -> None:
    found = table(harness.consumer())
    for place in (T0, T1, T2, T3):
        mask = pa.compute.equal(found.column("partition"), place.partition)
        assert found.filter(mask).column("offset").to_pylist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("most", [0, -1])
def test_fewer_than_one_record_cannot_be_asked_for(harness: GroupHarness, most: int) -> None:
    consumer = alone(harness)
    with pytest.raises(ValueError, match="expected max_records of 1 or more"):
        consumer.poll_records(50, most)
    with pytest.raises(ValueError, match="expected max_records of 1 or more"):
        consumer.poll_table(50, max_records=most)


def test_a_large_set_is_given_out_piece_by_piece(harness: GroupHarness) -> None:
    rows = [Record(None, b"%06d" % number) for number in range(3_000)]
    harness.brokers.logs[T0].append(build_message_set(rows))
    consumer = alone(harness)
    offsets = [record.offset for record in records(consumer, rounds=50, most=100)]
    assert offsets == list(range(3_005))

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.records import columns as columns_module
from minikafka.records.arrow import decoded as decoded_module
from minikafka.records.columns import (
    SCHEMA,
    SCHEMA_WITH_HEADERS,
    ColumnDecoder,
    DamagedEntry,
    decode,
    decode_pieces,
    schema_of,
)
from minikafka.records.format.batch import ControlType, build_batch, build_control_batch
from minikafka.records.format.message_set import (
    Codec,
    Record,
    TimestampType,
    build_message_set,
    iterate,
    wrap,
)
from tests.oracles import messages as oracle
from tests.support.records import CODECS, MAGICS, row_of, rows_of, segment, some_records

EVER = 1 << 40


def test_the_batch_has_sparks_columns_to_the_letter() -> None:
    batch = decode(build_message_set([Record(b"k", b"v", 1_500)], base_offset=7), 0, EVER).record_batch(
        "t", 3
    )
    assert batch.schema == pa.schema(
        {
            "key": pa.binary(),
            "value": pa.binary(),
            "topic": pa.string(),
            "partition": pa.int32(),
            "offset": pa.int64(),
            "timestamp": pa.timestamp("us", tz="UTC"),
            "timestampType": pa.int32(),
        }
    )
    batch.validate(full=True)
    row = batch.to_pylist()[0]
    assert row["timestamp"].timestamp() == 1.5
    del row["timestamp"]
    assert row == {"key": b"k", "value": b"v", "topic": "t", "partition": 3, "offset": 7, "timestampType": 0}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("max_rows", [3, 100])
def test_columns_that_are_not_requested_are_left_out(magic: int, codec: Codec, max_rows: int) -> None:
    data = build_message_set(some_records(10), magic=magic, codec=codec)
    whole = decode(data, 2, 9).record_batch("t", 0)
    for keys, values in ((True, False), (False, True), (False, False)):
        names = [name for name in SCHEMA.names if {"key": keys, "value": values}.get(name, True)]
        decoder = ColumnDecoder(2, 9, keys=keys, values=values, max_rows=max_rows)
        pieces = [piece.record_batch("t", 0, schema_of(names)) for piece in decoder.pieces(data)]
        assert pa.Table.from_batches(pieces).to_pydict() == whole.select(names).to_pydict()


def test_a_column_that_was_not_decoded_is_an_error() -> None:
    columns = decode_pieces(build_message_set(some_records(3)), 0, EVER, keys=False)
    with pytest.raises(ValueError, match="no column 'key': it was not decoded"):
        next(columns).record_batch("t", 0)


def test_damage_behind_rows_without_values_keeps_these_rows() -> None:
    data = bytearray(build_batch(some_records(4)) + build_batch(some_records(4), base_offset=4))
    data[-1] ^= 1
    pieces = decode_pieces(data, 0, EVER, keys=False, values=False)
    assert [next(pieces).offsets.tolist()] == [[0, 1, 2, 3]]
    with pytest.raises(DamagedEntry):
        next(pieces)


def test_range_of_markers_alone_gives_no_rows() -> None:
    mark = build_control_batch(
        ControlType.ABORT, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp_ms=0, base_offset=5
    )
    columns = decode(mark, 5, EVER, headers=True)
    batch = columns.record_batch("t", 0, SCHEMA_WITH_HEADERS)
    batch.validate(full=True)
    assert (batch.num_rows, batch.schema) == (0, SCHEMA_WITH_HEADERS)
    assert (columns.next_offset, columns.valid_bytes, columns.complete) == (6, len(mark), True)


@pytest.mark.parametrize("data", [b"", b"\0\0\0", build_message_set(some_records(1))[:-1]])
def test_no_rows_make_a_batch_with_no_rows(data: bytes) -> None:
    columns = decode(data, 5, EVER)
    batch = columns.record_batch("t", 0)
    batch.validate(full=True)
    assert (batch.num_rows, batch.schema) == (0, SCHEMA)
    assert (columns.next_offset, columns.valid_bytes, columns.complete) == (5, 0, True)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", MAGICS)
def test_null_and_empty_keys_and_values_stay_apart(magic: int, codec: Codec) -> None:
    pairs = ((None, None), (b"", b""), (None, b"v"), (b"k", None))
    records = [Record(key, value, 4) for key, value in pairs] * 5
    columns = decode(build_message_set(records, magic=magic, codec=codec), 0, EVER)
    batch = columns.record_batch("t", 0)
    batch.validate(full=True)
    assert batch["key"].to_pylist() == [record.key for record in records]
    assert batch["value"].to_pylist() == [record.value for record in records]
    assert (batch["key"].null_count, batch["value"].null_count) == (10, 10)


def test_a_column_without_nulls_has_no_bitmap() -> None:
    batch = decode(build_message_set(some_records(5)), 0, EVER).record_batch("t", 0)
    assert batch["key"].buffers()[0] is None
    assert batch["value"].null_count == 0


def test_magic_0_has_sparks_timestamp_of_minus_one_millisecond() -> None:
    batch = decode(build_message_set(some_records(1), magic=0), 0, EVER).record_batch("t", 0)
    assert batch["timestamp"].cast(pa.int64()).to_pylist() == [-1000]
    assert batch["timestampType"].to_pylist() == [-1]


def test_the_topic_is_repeated_in_every_row() -> None:
    batch = decode(build_message_set(some_records(300)), 0, EVER).record_batch("a.topic-ü", 0)
    assert batch["topic"].to_pylist() == ["a.topic-ü"] * 300


def test_columns_can_be_chosen_by_a_schema() -> None:
    schema = pa.schema([SCHEMA.field("offset"), SCHEMA.field("value")])
    batch = decode(build_message_set([Record(None, b"v")]), 0, EVER).record_batch("t", 0, schema)
    assert batch.schema == schema
    with pytest.raises(ValueError, match="no column 'other'"):
        decode(b"", 0, 1).record_batch("t", 0, pa.schema([("other", pa.int32())]))


@pytest.mark.parametrize("timestamp", [2**63 - 1, -(2**63), 2**63 // 1000 + 1])
def test_a_timestamp_beyond_microseconds_names_the_record(timestamp: int) -> None:
    data = build_message_set([Record(None, b"", 1), Record(None, b"", timestamp)], base_offset=40)
    columns = decode(data, 0, EVER)
    assert columns.timestamps.tolist() == [1, timestamp]
    said = f"the record of t-0 at offset 41, {timestamp} ms"
    with pytest.raises(BrokerError, match=said) as raised:
        columns.record_batch("t", 0)
    assert raised.value.code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("start", "end"), [(0, 5), (100, 107), (103, 105), (109, 200), (110, 200), (105, 105)]
)
def test_only_offsets_from_start_to_before_end_are_decoded(start: int, end: int, codec: Codec) -> None:
    data = b"".join(build_message_set(some_records(5), codec=codec, base_offset=base) for base in (100, 105))
    columns = decode(data, start, end)
    assert columns.offsets.tolist() == [offset for offset in range(100, 110) if start <= offset < end]
    assert columns.complete


@pytest.mark.parametrize("codec", CODECS)
def test_next_offset_is_after_the_decoded_entries(codec: Codec) -> None:
    data = build_message_set(some_records(5), codec=codec, base_offset=100)
    assert decode(data, 0, EVER).next_offset == 105
    assert decode(data, 102, EVER).next_offset == 105
    assert decode(data, 102, 104).next_offset == 104
    assert decode(data, 300, EVER).next_offset == 300
    assert decode(data, 0, 50).next_offset == 50
    assert decode(data[:-1], 0, EVER).next_offset == (0 if codec else 104)


def test_bytes_that_were_used_end_before_a_cut_off_message() -> None:
    data = build_message_set(some_records(3))
    assert decode(data + data[:20], 0, EVER).valid_bytes == len(data)
    assert decode(data, 0, 0).valid_bytes == 0


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("max_rows", [1, 3, 7])
def test_decoded_piece_by_piece_it_is_the_same(codec: Codec, max_rows: int) -> None:
    data = b"".join(build_message_set(some_records(5), codec=codec, base_offset=base) for base in (0, 5, 10))
    rows, position, offset = [], 0, 0
    while True:
        columns = decode(data[position:], offset, EVER, max_rows=max_rows)
        assert columns.count <= max_rows
        rows += rows_of(columns)
        position += columns.valid_bytes
        offset = columns.next_offset
        if columns.complete:
            break
    assert rows == rows_of(decode(data, 0, EVER))
    assert len(rows) == 15


def test_several_pieces_make_one_batch() -> None:
    decoder = ColumnDecoder(3, 30)
    pieces = [
        build_message_set(some_records(10, 500), codec=Codec.GZIP),
        build_message_set(some_records(10), base_offset=10),
        build_message_set(some_records(20), magic=0, codec=Codec.LZ4, base_offset=20),
    ]
    assert [decoder.add(piece) for piece in pieces[:2]] == [len(pieces[0]), len(pieces[1])]
    assert not decoder.finished
    decoder.add(pieces[2])
    assert decoder.finished
    assert decoder.add(pieces[2]) == 0
    columns = decoder.columns()
    columns.record_batch("t", 0).validate(full=True)
    assert columns.offsets.tolist() == list(range(3, 30))
    assert columns.next_offset == 30
    assert columns.timestamp_types.tolist() == [0] * 17 + [-1] * 10


def test_a_column_that_would_grow_too_large_ends_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_module, "MAX_COLUMN_BYTES", 1000)
    records = [Record(bytes(10), bytes(300), 1)] * 8
    for codec in CODECS:
        data = build_message_set(records, codec=codec)
        first = decode(data, 0, EVER)
        assert (first.count, first.next_offset, first.complete) == (3, 3, False)
        second = decode(data[first.valid_bytes :], first.next_offset, EVER)
        assert second.offsets.tolist() == [3, 4, 5]
    with_large_keys = build_message_set([Record(bytes(300), b"", 1)] * 8)
    assert decode(with_large_keys, 0, EVER).count == 3


def test_too_many_rows_of_a_long_topic_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoded_module, "MAX_COLUMN_BYTES", 1000)
    with pytest.raises(ValueError, match="5 rows with a topic name of 249 bytes"):
        decode(build_message_set(some_records(5)), 0, EVER).record_batch("t" * 249, 0)


@pytest.mark.parametrize("damaged_at", [-1, -20])
def test_damage_is_an_error_and_the_rows_before_are_kept(damaged_at: int) -> None:
    good = build_message_set(some_records(4))
    data = bytearray(build_message_set(some_records(5)))
    data[damaged_at] ^= 1
    decoder = ColumnDecoder(0, EVER)
    with pytest.raises(BrokerError, match=f"CORRUPT_MESSAGE.*checksum.*position {len(good)}"):
        decoder.add(data)
    assert decoder.columns().offsets.tolist() == [0, 1, 2, 3]


def test_without_checksums_wrong_ones_pass() -> None:
    data = bytearray(build_message_set([Record(None, b"abc", 1)]))
    data[-1] ^= 1
    assert decode(data, 0, EVER, check_crc=False).value_array().to_pylist() == [b"abb"]


def test_damage_outside_of_the_wanted_offsets_is_not_looked_at() -> None:
    data = bytearray(build_message_set(some_records(5)))
    data[40] ^= 1
    data[-1] ^= 1
    assert decode(data, 1, 4).offsets.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "holds no message"),
        (build_message_set(some_records(2))[:-1], "not complete"),
        (build_message_set(some_records(2), magic=0), "different magic"),
        (build_message_set(some_records(1), codec=Codec.GZIP), "compressed itself"),
        (oracle.entry(0, magic=1, value=b"x")[:-1] + b"y", "checksum"),
    ],
)
def test_a_wrapper_with_wrong_content_is_an_error(content: bytes, text: str) -> None:
    data = wrap(content, offset=1, magic=1, codec=Codec.SNAPPY, timestamp_ms=1)
    with pytest.raises(BrokerError, match=f"CORRUPT_MESSAGE.*{text}.*position 0"):
        decode(data, 0, EVER)


def test_a_decoder_goes_on_well_after_damage_inside_of_a_wrapper() -> None:
    decoder = ColumnDecoder(0, EVER)
    content = build_message_set(some_records(1), magic=0)
    with pytest.raises(BrokerError):
        decoder.add(wrap(content, offset=1, magic=1, codec=Codec.GZIP, timestamp_ms=1))
    decoder.add(build_message_set(some_records(2), base_offset=2))
    assert decoder.columns().offsets.tolist() == [2, 3]


def test_append_time_of_a_wrapper_applies_to_every_row() -> None:
    data = wrap(
        build_message_set(some_records(3)),
        offset=2,
        magic=1,
        codec=Codec.GZIP,
        timestamp_ms=99,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
    )
    columns = decode(data, 0, EVER)
    assert columns.timestamps.tolist() == [99] * 3
    assert columns.timestamp_types.tolist() == [1] * 3
    assert columns.timestamp_types.dtype == np.int8


def test_the_timestamp_type_inside_of_a_wrapper_means_nothing() -> None:
    content = oracle.entry(0, magic=1, attributes=8, timestamp=5, value=b"x")
    data = wrap(content, offset=0, magic=1, codec=Codec.GZIP, timestamp_ms=5)
    assert rows_of(decode(data, 0, EVER)) == [(0, 5, 0, None, b"x")]
    assert [row_of(record) for record in iterate(data)] == [(0, 5, 0, None, b"x")]


def test_every_kind_of_buffer_is_taken() -> None:
    data = segment("magic1-snappy")
    wanted = rows_of(decode(data, 0, EVER))
    for buffer in (bytearray(data), memoryview(data), memoryview(b"xy" + data)[2:]):
        assert rows_of(decode(buffer, 0, EVER)) == wanted


def test_many_rows_with_and_without_keys_survive_every_growth() -> None:
    records = [Record(b"key" * (i % 50), b"v" * (i % 7), i) for i in range(20_000)]
    data = build_message_set(records)
    columns = decode(data, 0, EVER)
    columns.record_batch("t", 0).validate(full=True)
    assert columns.key_array().to_pylist() == [record.key for record in records]
    assert columns.value_array().to_pylist() == [record.value for record in records]


def test_rows_are_those_of_the_iterator() -> None:
    for name in ("magic0-lz4", "magic1-gzip-logappendtime"):
        data = segment(name)
        assert rows_of(decode(data, 0, EVER)) == [row_of(record) for record in iterate(data)]


def read_on(data: bytes, start: int, end: int) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the offsets that can be read, and the ranges that were skipped as damaged."""
    offsets: list[int] = []
    passed = []
    while True:
        try:
            for piece in decode_pieces(data, start, end):
                offsets += piece.offsets.tolist()
            return offsets, passed
        except DamagedEntry as problem:
            passed.append((problem.offset, problem.after_offset))
            start = problem.after_offset
            data = data[first_entry_with(data, start) :]


def first_entry_with(data: bytes, offset: int) -> int:
    """Return the position from which a broker sends: the entry with ``offset``, or the next one."""
    position = 0
    while position < len(data):
        last = int.from_bytes(data[position : position + 8], "big")
        if data[position + 16] == 2:
            last += int.from_bytes(data[position + 23 : position + 27], "big")
        if last >= offset:
            break
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return position


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_reading_continues_after_a_damaged_entry(magic: int, codec: Codec) -> None:
    if magic < 2 and codec is Codec.ZSTD:
        pytest.skip("zstd came with magic 2")
    sets = [entries(magic, codec, 4 * number) for number in range(3)]
    sets[1][-1] ^= 1
    found, passed = read_on(b"".join(sets), 1, 11)
    ((first, after),) = passed
    assert (first, after) == ((7, 8) if magic < 2 and codec is Codec.NONE else (4, 8))
    assert found == [*range(1, first), *range(after, 11)]


def entries(magic: int, codec: Codec, base_offset: int) -> bytearray:
    if magic == 2:
        return bytearray(build_batch(some_records(4), codec=codec, base_offset=base_offset))
    return bytearray(build_message_set(some_records(4), magic=magic, codec=codec, base_offset=base_offset))


def test_damaged_header_continues_one_offset_further() -> None:
    data = entries(2, Codec.NONE, 0)
    data[23] = 0x80
    with pytest.raises(DamagedEntry) as damage:
        list(decode_pieces(data, 0, 4))
    assert (damage.value.offset, damage.value.after_offset) == (0, 1)

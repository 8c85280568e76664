"""The bulk paths of magic 2: every recorded segment, and the validation in a broker."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.records.append.conversion import down_convert
from minikafka.records.append.produced import Limits
from minikafka.records.append.validation import assign, validate
from minikafka.records.columns import SCHEMA_WITH_HEADERS, decode, encode
from minikafka.records.format.batch import ControlType, build_batch, build_control_batch, read_header
from minikafka.records.format.compression import Codec
from minikafka.records.format.headers import HEADERS_TYPE, raw_headers
from minikafka.records.format.message_set import Record, TimestampType, build_message_set, iterate
from minikafka.records.scan.scan import find_position, first_at_or_after, scan
from tests.oracles import batches as oracle
from tests.support.records import (
    BATCH_CASES,
    expected,
    expected_headers,
    row_of,
    rows_of,
    segment,
    some_records,
)

every_case = pytest.mark.parametrize("name", BATCH_CASES)
every_codec = pytest.mark.parametrize("codec", list(Codec))
EVER = 1 << 40
NEWEST = Limits(max_magic=2)


@every_case
def test_the_columns_hold_what_kafka_read(name: str) -> None:
    columns = decode(segment(name), 0, EVER, headers=True)
    batch = columns.record_batch("t", 0, SCHEMA_WITH_HEADERS)
    batch.validate(full=True)
    assert rows_of(columns) == expected(name)
    wanted = [[{"key": k, "value": v} for k, v in row] or None for row in expected_headers(name)]
    assert batch["headers"].to_pylist() == wanted


@every_case
def test_a_part_of_its_offsets_can_be_decoded_in_small_steps(name: str) -> None:
    data, rows, start = segment(name), [], 37
    while True:
        columns = decode(data, start, 121, max_rows=7)
        rows += rows_of(columns)
        data, start = data[columns.valid_bytes :], columns.next_offset
        if columns.complete:
            break
    assert rows == [row for row in expected(name) if 37 <= row[0] < 121]


@every_case
def test_a_recovery_that_knows_the_format_finds_every_byte_good(name: str) -> None:
    data = segment(name)
    result = scan(data, base_offset=0, max_magic=2)
    end = 205 if name == "magic2-transactions" else 200
    assert (result.valid_bytes, result.next_offset, result.problem) == (len(data), end, None)


def test_a_recovery_that_does_not_know_the_format_stops() -> None:
    result = scan(segment("magic2-none"), base_offset=0, max_magic=1)
    assert result.valid_bytes == 0
    assert "magic byte" in str(result.problem)


def test_index_entries_are_those_of_kafka() -> None:
    """Recorded: the index that 3.9.1 wrote for this segment (interval 1024)."""
    recorded = bytes.fromhex("00000034000006610000005700001013000000b600006846000000c700006f91")
    entries = scan(
        segment("magic2-none"), base_offset=0, index_interval_bytes=1024, max_magic=2
    ).index_entries
    assert entries.astype(">i4").tobytes() == recorded


@every_case
def test_every_offset_and_time_is_found(name: str) -> None:
    data, rows = segment(name), expected(name)
    for row in rows[::9]:
        position = find_position(data, row[0])
        assert position is not None
        assert rows_of(decode(data[position:], row[0], row[0] + 1)) == [row]
        found = first_at_or_after(data, row[1])
        assert found is not None
        assert found[0] <= row[0]


@pytest.mark.parametrize("magic", [0, 1])
@every_case
def test_made_older_it_keeps_all_that_the_format_can_hold(name: str, magic: int) -> None:
    if name == "magic2-zstd":
        with pytest.raises(BrokerError, match="zstd") as raised:
            down_convert(segment(name), magic)
        assert raised.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        return
    converted = list(iterate(down_convert(segment(name), magic)))
    older = [(row[0], *(row[1:3] if magic else (-1, -1)), *row[3:]) for row in expected(name)]
    assert [row_of(record) for record in converted] == older
    assert {record.magic for record in converted} == {magic}
    sent = {record.codec for record in iterate(segment(name))}
    assert {record.codec for record in converted} == sent


@every_codec
def test_batch_is_stored_with_new_offsets_and_leader_epoch(codec: Codec) -> None:
    data = build_batch(some_records(5), codec=codec, producer_id=4, producer_epoch=1, base_sequence=8)
    valid = validate(data, NEWEST, 0)
    assigned = assign(valid, 100, leader_epoch=3)
    header = read_header(assigned.data, 0)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (100, 104, 3)
    assert bytes(assigned.data[16:]) == data[16:]
    assert (valid.count, valid.magic, valid.codec, valid.max_timestamp_ms) == (5, 2, codec, 1004)
    (sent,) = valid.batches
    assert (sent.producer_id, sent.base_sequence, sent.count) == (4, 8, 5)


@every_codec
def test_append_time_is_written_into_the_batch(codec: Codec) -> None:
    limits = Limits(timestamp_type=TimestampType.LOG_APPEND_TIME, max_magic=2)
    valid = validate(build_batch(some_records(3), codec=codec), limits, 77)
    found = {(record.timestamp_ms, record.timestamp_type) for record in iterate(assign(valid, 0).data)}
    assert found == {(77, TimestampType.LOG_APPEND_TIME)}


def test_a_wrong_largest_timestamp_is_mended() -> None:
    data = oracle.raw_batch(0, 0, 50, 999, 1, oracle.record(0, 0, None, b"v"))
    valid = validate(data, NEWEST, 0)
    assert valid.max_timestamp_ms == read_header(valid.data, 0).max_timestamp_ms == 50


def test_a_server_that_does_not_take_the_format_refuses_it() -> None:
    with pytest.raises(BrokerError, match=r"CORRUPT_MESSAGE.*magic byte"):
        validate(build_batch(some_records(1)), Limits(), 0)


MARK = build_control_batch(
    ControlType.ABORT, coordinator_epoch=0, producer_id=1, producer_epoch=0, timestamp_ms=0
)
ONE = oracle.record(0, 0, b"k", b"v")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (MARK, "control records"),
        (oracle.raw_batch(0, 0, 0, 0, 0, b""), "has no records"),
        (oracle.raw_batch(0, 5, 0, 0, 1, ONE), "number the records"),
        (oracle.raw_batch(0, 0, 0, 0, 1, oracle.record(0, 3, None, b"")), "number the records"),
        (oracle.raw_batch(0, 0, 0, 0, 1, ONE, oracle.Batch(producer_id=4)), "no sequence"),
        (oracle.raw_batch(0, 0, 0, 0, 1, ONE, oracle.Batch(append_time=True)), "LogAppendTime"),
        (oracle.raw_batch(0, 0, 0, 0, 1, ONE + b"x"), "the number of records"),
        (
            oracle.raw_batch(0, 0, 9000, 9000, 1, ONE),
            "timestamp 9000 ms, broker time 0 ms, allowed difference 1000 ms",
        ),
        (oracle.raw_batch(0, 0, 0, 0, 1, oracle.record(0, 0, None, b"v")), "must have a key"),
        (build_batch([Record(b"k", bytes(3000), 0)]), "larger than max.message.bytes"),
        (build_batch([Record(b"k", bytes(200_000), 0)], codec=Codec.ZSTD), "exceed the limit of 65536"),
        (build_batch([Record(b"k", b"", 0)]) + build_message_set([Record(b"k", b"", 0)]), "the set mixes"),
    ],
)
def test_batches_that_producers_must_not_send_are_refused(data: bytes, text: str) -> None:
    limits = Limits(
        max_message_bytes=2000,
        max_timestamp_difference_ms=1000,
        compacted=True,
        max_content_bytes=1 << 16,
        max_magic=2,
    )
    with pytest.raises(BrokerError, match=text):
        validate(data, limits, 0)


@every_codec
def test_encoded_columns_equal_a_built_set(codec: Codec) -> None:
    headers = raw_headers(pa.array([[("a", b"1"), ("", None)], None, []], HEADERS_TYPE))
    keys, values = pa.array([None, b"", b"k"]), pa.array([b"v", None, b"w" * 3000])
    times = np.array([10, 30, -1], dtype=np.int64)
    rows = np.array([2, 0, 1], dtype=np.int64)
    (encoded,) = encode(keys, values, times, rows, magic=2, codec=codec, max_bytes=1 << 20, headers=headers)
    sent = [
        Record(b"k", b"w" * 3000, -1),
        Record(None, b"v", 10, (("a", b"1"), ("", None))),
        Record(b"", None, 30),
    ]
    assert bytes(encoded.data) == build_batch(sent, codec=codec)
    assert (encoded.count, encoded.max_timestamp_ms) == (3, 30)


def test_headers_are_refused_where_the_format_has_none() -> None:
    headers = raw_headers(pa.array([[("a", b"1")]], HEADERS_TYPE))
    one = np.zeros(1, dtype=np.int64)
    with pytest.raises(ValueError, match="magic 1 does not support headers"):
        list(encode(None, None, one, one, max_bytes=100, headers=headers))


@pytest.mark.parametrize("bad", [None, (None, b"1")])
def test_a_header_without_a_key_is_refused(bad: tuple[str | None, bytes] | None) -> None:
    with pytest.raises(ValueError, match="a header, or its key, is null"):
        raw_headers(pa.array([[("a", b"1")], [bad]], HEADERS_TYPE))


def test_a_name_that_is_not_utf8_is_shown_with_replacements() -> None:
    record = oracle.record(0, 0, None, b"v", [("ab", b"1")]).replace(b"ab", b"a\xff")
    data = oracle.raw_batch(0, 0, 0, 0, 1, record)
    batch = decode(data, 0, EVER, headers=True).record_batch("t", 0, SCHEMA_WITH_HEADERS)
    assert batch["headers"].to_pylist() == [[{"key": "a\ufffd", "value": b"1"}]]


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_a_bomb_is_refused_by_decoding_and_conversion(codec: Codec) -> None:
    data = build_batch([Record(None, bytes(1 << 20))], codec=codec)
    with pytest.raises(BrokerError, match="exceed the limit of 65536"):
        decode(data, 0, EVER, max_content_bytes=1 << 16)
    if codec is not Codec.ZSTD:
        with pytest.raises(BrokerError, match="exceed the limit of 65536"):
            down_convert(data, 1, max_content_bytes=1 << 16)


def test_a_damaged_batch_leaves_no_rows_and_those_before_stay() -> None:
    wrong = oracle.raw_batch(3, 1, 0, 0, 2, ONE + oracle.record(0, 0, None, b"again"))
    with pytest.raises(BrokerError, match=r"does not rise.*batch at position"):
        decode(build_batch(some_records(3)) + wrong, 0, EVER)

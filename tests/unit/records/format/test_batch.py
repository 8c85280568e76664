from __future__ import annotations

import random

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.records.format.batch import (
    ControlType,
    build_batch,
    build_control_batch,
    control_type,
    read_header,
    set_max_timestamp,
    set_producer,
)
from minikafka.records.format.checksums import crc32c
from minikafka.records.format.compression import Codec
from minikafka.records.format.message_set import (
    Record,
    StoredRecord,
    TimestampType,
    build_message_set,
    iterate,
)
from minikafka.records.format.record import Headers
from tests.oracles import batches as oracle
from tests.oracles import messages
from tests.support.records import (
    BATCH_CASES,
    expected,
    expected_headers,
    expected_read_committed,
    row_of,
    segment,
    some_records,
)

every_case = pytest.mark.parametrize("name", BATCH_CASES)
every_codec = pytest.mark.parametrize("codec", list(Codec))

HEADERS: Headers = (("trace", b"1"), ("", None), ("trace", b""), ("ключ", b"\xff\x00"))


def test_crc32c_has_its_known_answers_also_in_pieces() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0
    assert crc32c(bytes(32)) == 0x8A9136AA
    noise = random.Random(1).randbytes(200)
    for at in range(0, 200, 7):
        assert crc32c(noise[at:], crc32c(noise[:at])) == crc32c(noise) == oracle.crc32c(noise)


@every_case
def test_the_iterator_reads_what_kafka_read(name: str) -> None:
    found = [record for record in iterate(segment(name)) if not record.control]
    assert [row_of(record) for record in found] == expected(name)
    assert [record.headers for record in found] == expected_headers(name)
    assert {record.magic for record in found} == {2}


@every_case
def test_the_oracle_reads_what_kafka_read(name: str) -> None:
    found = [m for m in messages.decode(segment(name)) if not m.control]
    assert [(m.offset, m.timestamp, m.timestamp_type, m.key, m.value) for m in found] == expected(name)
    assert [m.headers for m in found] == expected_headers(name)


@pytest.mark.parametrize("name", ["magic2-none", "magic2-transactions"])
def test_built_set_is_byte_for_byte_that_of_kafka(name: str) -> None:
    data = segment(name)
    built = bytearray()
    position = 0
    while position < len(data):
        header = read_header(data, position)
        stored = list(iterate(data[position : position + header.size_bytes]))
        built += build_batch(
            [Record(r.key, r.value, r.timestamp_ms, r.headers) for r in stored],
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.transactional,
            control=header.control,
        )
        position += header.size_bytes
    assert bytes(built) == data


def test_the_recorded_transactions_end_as_the_dump_of_kafka_says() -> None:
    marks = [record for record in iterate(segment("magic2-transactions")) if record.control]
    found = [(mark.offset, mark.producer_id, control_type(mark)) for mark in marks]
    commit, abort = ControlType.COMMIT, ControlType.ABORT
    assert found == [(30, 1, commit), (61, 1, abort), (82, 2, commit), (83, 3, abort), (204, 1, commit)]


def test_markers_and_producers_give_the_committed_records() -> None:
    records = list(iterate(segment("magic2-transactions")))
    open_since: dict[int, list[StoredRecord]] = {}
    aborted: list[StoredRecord] = []
    for record in records:
        if record.control:
            ended = open_since.pop(record.producer_id, [])
            aborted += ended if control_type(record) is ControlType.ABORT else []
        elif record.transactional:
            open_since.setdefault(record.producer_id, []).append(record)
    kept = [row_of(r) for r in records if not r.control and r not in aborted]
    assert kept == expected_read_committed()


def test_an_idempotent_producers_records_have_rising_sequences() -> None:
    records = list(iterate(segment("magic2-idempotent-lz4")))
    assert [record.sequence for record in records] == list(range(200))
    assert len({(record.producer_id, record.producer_epoch) for record in records}) == 1
    assert not any(record.transactional for record in records)


@every_codec
def test_built_batch_is_read_by_us_and_by_the_oracle(codec: Codec) -> None:
    sent = [Record(None, b"", 5, HEADERS), Record(b"", None, -1), Record(b"k", b"v" * 100_000, 2**63 - 1)]
    data = build_message_set(sent, magic=2, codec=codec, base_offset=40)
    assert list(iterate(data)) == [
        StoredRecord(40 + i, r.timestamp_ms, TimestampType.CREATE_TIME, r.key, r.value, 2, codec, r.headers)
        for i, r in enumerate(sent)
    ]
    assert messages.decode(data) == [
        messages.Message(40 + i, r.timestamp_ms, 0, r.key, r.value, r.headers) for i, r in enumerate(sent)
    ]


def test_no_records_make_no_bytes() -> None:
    assert build_batch([], codec=Codec.ZSTD) == b""


def test_a_batch_can_be_given_as_it_is() -> None:
    data = build_batch(some_records(3), base_offset=10, producer_id=7, producer_epoch=1, base_sequence=90)
    (found,) = iterate(data, deep=False)
    assert (found.offset, found.timestamp_ms, found.key, found.value) == (12, 1002, None, data[61:])
    assert (found.producer_id, found.producer_epoch, found.sequence) == (7, 1, 90)


def test_sequences_go_on_at_zero_after_the_largest() -> None:
    data = build_batch(some_records(3), producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert [record.sequence for record in iterate(data)] == [2**31 - 2, 2**31 - 1, 0]


def test_append_time_of_batch_applies_to_every_record() -> None:
    data = build_batch(some_records(3), timestamp_type=TimestampType.LOG_APPEND_TIME)
    found = {(record.timestamp_ms, record.timestamp_type) for record in iterate(data)}
    assert found == {(1002, TimestampType.LOG_APPEND_TIME)}


@pytest.mark.parametrize("kind", list(ControlType))
def test_a_control_batch_says_how_a_transaction_ended(kind: ControlType) -> None:
    data = build_control_batch(
        kind, coordinator_epoch=3, producer_id=9, producer_epoch=2, timestamp_ms=5, base_offset=77
    )
    (mark,) = iterate(data)
    assert (mark.offset, mark.producer_id, mark.producer_epoch, mark.timestamp_ms) == (77, 9, 2, 5)
    assert (mark.control, mark.transactional, control_type(mark)) == (True, True, kind)
    assert mark.value == bytes((0, 0, 0, 0, 0, 3))


def test_only_a_known_mark_has_a_control_type() -> None:
    unknown = build_batch([Record(b"\0\0\0\7", b"")], control=True)
    short = build_batch([Record(b"\0", b"")], control=True)
    plain = build_batch([Record(b"\0\0\0\1", b"")])
    assert [control_type(next(iterate(data))) for data in (unknown, short, plain)] == [None] * 3


def test_producer_and_largest_timestamp_can_be_written_later() -> None:
    data = bytearray(build_batch(some_records(2)))
    set_producer(data, 5, 6, 7, transactional=True)
    set_max_timestamp(data, 0, len(data), 123)
    header = read_header(data, 0)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, 7)
    assert (header.transactional, header.max_timestamp_ms) == (True, 123)
    assert len(list(iterate(data))) == 2


def test_gaps_that_compaction_left_in_a_batch_are_kept() -> None:
    kept = [messages.Message(offset, 1, 0, b"k", b"v") for offset in (100, 103, 109)]
    data = oracle.batch(kept, oracle.Batch(more_offsets=4))
    assert [record.offset for record in iterate(data)] == [100, 103, 109]
    assert read_header(data, 0).last_offset == 113


def test_a_batch_that_compaction_emptied_has_no_records() -> None:
    data = oracle.raw_batch(5, 9, -1, -1, 0, b"")
    assert list(iterate(data)) == []
    assert read_header(data, 0).last_offset == 14


def test_formats_may_follow_each_other() -> None:
    parts = [build_message_set(some_records(2), magic=m, base_offset=2 * m) for m in (0, 1, 2)]
    found = list(iterate(b"".join(parts[::-1] + parts)))
    assert [(record.magic, record.offset) for record in found[6:]] == [
        (0, 0),
        (0, 1),
        (1, 2),
        (1, 3),
        (2, 4),
        (2, 5),
    ]


def test_a_cut_off_last_batch_ends_the_iteration() -> None:
    whole, more = build_batch(some_records(2)), build_batch(some_records(3), base_offset=2)
    for cut in (1, 12, 17, 61, len(more) - 1):
        assert len(list(iterate(whole + more[:cut]))) == 2


def one(content: bytes, *, last_delta: int = 0, count: int = 1, codec: int = 0) -> bytes:
    return oracle.raw_batch(0, last_delta, 0, 0, count, content, oracle.Batch(codec=codec))


GOOD = oracle.record(0, 0, b"k", b"v", [("h", b"1")])


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (one(GOOD)[:8] + b"\0\0\0\x30" + one(GOOD)[12:], "size field"),
        (one(GOOD)[:-1] + b"\0", "checksum"),
        (one(GOOD, codec=5), "codec"),
        (one(GOOD, last_delta=-1), "delta"),
        (one(GOOD, count=-1), "the number of records"),
        (one(GOOD, count=2, last_delta=1), "a varint of the record"),
        (one(GOOD + GOOD, last_delta=1), "the number of records"),
        (one(GOOD + GOOD, count=2, last_delta=1), "does not rise"),
        (one(oracle.record(0, 1, None, None)), "does not rise|last"),
        (one(b"\x7f" + GOOD[1:]), "record's length"),
        (one(b"\0"), "record's length"),
        (one(b"\x01"), "record's length"),
        (one(b"\x02\0"), "a varint of the record"),
        (one(oracle.zigzag(5) + b"\0\0\0\x01\x01"), "a varint of the record"),
        (one(oracle.zigzag(7) + b"\0\0\0\x08k\x01\0"), "key's length"),
        (one(oracle.zigzag(6) + b"\0\0\0\x03\x01\0"), "key's length"),
        (one(oracle.zigzag(6) + b"\0\0\0\x01\x7f\0"), "value's length"),
        (one(oracle.zigzag(6) + b"\0\0\0\x01\x01\x01"), "headers"),
        (one(oracle.zigzag(6) + b"\0\0\0\x01\x01\x02"), "headers"),
        (one(oracle.zigzag(8) + b"\0\0\0\x01\x01\x02\x01\x01"), "headers"),
        (one(oracle.zigzag(8) + b"\0\0\0\x01\x01\x02\0\x04"), "headers"),
        (one(oracle.zigzag(7) + b"\0\0\0\x01\x01\0\0"), "record's length"),
        (one(oracle.zigzag(20) + b"\0" + b"\xff" * 9 + b"\x02" + bytes(9)), "a varint of the record"),
        (one(oracle.zigzag(20) + b"\0\0" + b"\xff" * 4 + b"\x10" + bytes(13)), "a varint of the record"),
        (one(b"\x80" * 5 + GOOD), "a varint of the record"),
        (one(GOOD, codec=2)[:-8], "codec|size"),
    ],
)
def test_damage_is_reported_with_the_batchs_position(data: bytes, text: str) -> None:
    if text == "codec|size":
        data = messages.repaired(data[:8] + (len(data) - 12).to_bytes(4, "big") + data[12:])
        text = "snappy content"
    first = build_batch(some_records(1))
    found = iterate(first + data)
    assert next(found).offset == 0
    with pytest.raises(BrokerError, match=f"{text}.*position {len(first)}") as raised:
        next(found)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(messages.DamagedError):
        messages.decode(data)


@pytest.mark.parametrize("codec", list(Codec)[1:])
@pytest.mark.parametrize("magic", [1, 2])
def test_content_over_the_callers_bound_is_refused(codec: Codec, magic: int) -> None:
    if magic < 2 and codec is Codec.ZSTD:
        return
    data = build_message_set([Record(None, bytes(100_000))], magic=magic, codec=codec)
    with pytest.raises(BrokerError, match=r"CORRUPT_MESSAGE.*exceed the limit of 65536.*position 0"):
        list(iterate(data, max_content_bytes=1 << 16))

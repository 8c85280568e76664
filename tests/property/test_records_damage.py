"""Bytes that are no message set, or not quite: no crash, no record that the oracle would not return."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.files import Buffer
from minikafka.records.append.batch_fast_path import PlainBatch, survey
from minikafka.records.append.conversion import down_convert
from minikafka.records.append.produced import Limits, LogAppendInfo, ValidatedRecords
from minikafka.records.append.validation import assign, validate
from minikafka.records.append.wrappers import NO_WRAPPERS
from minikafka.records.columns import ColumnDecoder, Columns
from minikafka.records.format.batch import set_max_timestamp, set_producer
from minikafka.records.format.compression import Codec, decompress
from minikafka.records.format.headers import to_arrow
from minikafka.records.format.message_set import (
    Record,
    StoredRecord,
    TimestampType,
    build_message_set,
    iterate,
)
from minikafka.records.format.record import Headers
from minikafka.records.scan.scan import find_position, first_at_or_after, scan
from tests.oracles import batches
from tests.oracles import codecs as oracle_codecs
from tests.oracles import messages as oracle
from tests.support.records import rows_of as rows_of_columns

EVER = (1 << 63) - 1
HEADERS: tuple[Headers, ...] = ((), (("name", b"1"),), (("", None), ("x", b"")))
ODD_INTEGERS = (0, 1, -1, -2, 13, 14, 22, 26, 255, 0x7FFFFFFF, -0x80000000)
REFUSALS = {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.MESSAGE_TOO_LARGE,
}


def base(source: random.Random) -> bytes:
    data, offset = b"", 0
    for _ in range(source.randrange(1, 4)):
        count, magic = source.randrange(1, 5), source.randrange(3)
        codec = source.randrange(5 if magic == 2 else 4)
        part = [
            oracle.Message(
                offset + i,
                source.choice((-1, 0, 1_000)),
                0,
                source.choice((None, b"", b"key")),
                source.choice((None, b"", source.randbytes(source.randrange(90)))),
            )
            for i in range(count)
        ]
        if magic == 2:
            part = [replace(m, headers=source.choice(HEADERS)) for m in part]
            data += batches.batch(part, batches.Batch(codec, control=source.random() < 0.1))
        else:
            data += oracle.message_set(part, magic=magic, codec=codec)
        offset += count
    return data


def mutated(source: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(source.randrange(1, 5)):
        kind = source.randrange(5)
        at = source.randrange(len(out) + 1)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << source.randrange(8)
        elif kind == 1 and at + 4 <= len(out):
            out[at : at + 4] = source.choice(ODD_INTEGERS).to_bytes(4, "big", signed=True)
        elif kind == 2:
            del out[at : at + source.randrange(1, 40)]
        elif kind == 3:
            out[at:at] = source.randbytes(source.randrange(1, 40))
        else:
            del out[at:]
    return bytes(out)


def damaged_records(source: random.Random) -> bytes:
    """A batch of magic 2 whose header and checksum are right, and whose records are not quite."""
    count = source.randrange(1, 4)
    part = [
        batches.record(i, i, b"k", source.randbytes(source.randrange(70)), HEADERS[i % 3])
        for i in range(count)
    ]
    content = mutated(source, b"".join(part)) if source.random() < 0.9 else b"".join(part)
    about = batches.Batch(source.randrange(5), source.random() < 0.3, source.random() < 0.1)
    wrong = source.choice((0, 0, 0, 1, -1, -count, 2**31 - 1 - count))
    return batches.raw_batch(
        7, count - 1 + source.choice((0, 0, 5, -1)), 100, 900, count + wrong, content, about
    )


@st.composite
def damaged_sets(draw: st.DrawFn) -> bytes:
    """Mutated sets, half of them with their checksums made right again, some also inside of a wrapper."""
    source = random.Random(draw(st.integers(0, 2**32 - 1)))
    if source.random() < 0.1:
        return source.randbytes(source.randrange(200))
    data = mutated(source, base(source))
    if source.random() < 0.7:
        data = oracle.repaired(data)
    if source.random() < 0.3:
        return damaged_records(source)
    if source.random() < 0.4:
        magic, codec = source.randrange(2), source.randrange(1, 4)
        content = oracle_codecs.compress(codec, data, magic)
        data = oracle.entry(
            source.randrange(50),
            magic=magic,
            attributes=codec | source.choice((0, 8)),
            timestamp=3,
            value=content,
        )
    return data


@st.composite
def sent_batches(draw: st.DrawFn) -> bytes:
    """Batches as producers send them, now and then with a bit turned over."""
    source = random.Random(draw(st.integers(0, 2**32 - 1)))
    records = [
        Record(source.choice((None, b"k")), source.randbytes(source.randrange(60)), source.randrange(900))
        for _ in range(source.randrange(1, 4))
    ]
    data = bytearray(build_message_set(records, magic=2))
    if source.random() < 0.6:
        set_producer(data, source.randrange(-1, 3), source.randrange(3), source.randrange(-1, 9))
    if source.random() < 0.2:
        set_max_timestamp(data, 0, len(data), 7_000)
    if source.random() < 0.2:
        data[source.randrange(len(data))] ^= 1 << source.randrange(8)
    return bytes(data)


def outcome(
    data: bytes, limits: Limits, surveyed: PlainBatch | None
) -> tuple[ValidatedRecords, list[list[int]]] | str:
    """Return the result of ``validate`` for a copy of ``data`` and the rows of its wrappers, or its error."""
    try:
        valid = validate(bytearray(data), limits, 600, surveyed)
        return replace(valid, wrappers=NO_WRAPPERS), valid.wrappers.rows.tolist()
    except BrokerError as error:
        return str(error)


def rows_of(data: bytes) -> tuple[list[oracle.Message], bool]:
    """The oracle's messages, and whether damage ended them."""
    found, _ = oracle.decode_until_damage(data)
    messages = [item for item in found if isinstance(item, oracle.Message)]
    return messages, len(messages) < len(found)


def refusal(call: Callable[[], object]) -> ErrorCode | None:
    """The code of the BrokerError that ``call`` raises, None for none."""
    try:
        call()
    except BrokerError as error:
        return error.code
    return None


CORRUPT = ErrorCode.CORRUPT_MESSAGE


def shown_headers(columns: Columns) -> list[Headers]:
    assert columns.headers is not None
    column = to_arrow(columns.headers)
    column.validate(full=True)
    return [tuple((h["key"], h["value"]) for h in row or ()) for row in column.to_pylist()]


@given(damaged_sets())
def test_iterator_gives_the_oracles_messages_then_its_error(data: bytes) -> None:
    wanted, damaged = rows_of(data)
    found: list[StoredRecord] = []
    assert refusal(lambda: found.extend(iterate(data))) is (CORRUPT if damaged else None)
    assert [
        oracle.Message(r.offset, r.timestamp_ms, int(r.timestamp_type), r.key, r.value, r.headers, r.control)
        for r in found
    ] == wanted


@given(damaged_sets())
def test_columns_hold_the_oracles_messages_then_its_error(data: bytes) -> None:
    wanted, damaged = rows_of(data)
    decoder = ColumnDecoder(-(1 << 63), EVER, headers=True)
    code = refusal(lambda: decoder.add(data))
    columns = decoder.columns()
    headers = shown_headers(columns)
    found = [(*row, shown) for row, shown in zip(rows_of_columns(columns), headers, strict=True)]
    whole = [
        (m.offset, m.timestamp, m.timestamp_type, m.key, m.value, m.headers) for m in wanted if not m.control
    ]
    if decoder.finished:
        assert found == whole[: len(found)]
        assert all(row[0] >= EVER for row in whole[len(found) : len(found) + 1])
    else:
        assert found == whole
        assert code is (CORRUPT if damaged else None)


@given(damaged_sets())
def test_a_broker_stores_only_what_the_oracle_reads(data: bytes) -> None:
    wanted, damaged = rows_of(data)
    stored: list[LogAppendInfo] = []
    limits = Limits(max_magic=2)
    code = refusal(lambda: stored.append(assign(validate(data, limits, 0), 7)))
    # What a log may hold and a producer must not send: magics mixed, control batches, gaps.
    assert code in REFUSALS if damaged else code is not CORRUPT or b"\x02" in data[16:]
    if stored:
        found = oracle.decode(bytes(stored[0].data))
        assert [(m.key, m.value) for m in found] == [(m.key, m.value) for m in wanted]
        assert [m.offset for m in found] == list(range(7, 7 + len(wanted)))


LIMITS = st.builds(
    Limits,
    max_message_bytes=st.sampled_from((1_000_012, 120)),
    timestamp_type=st.sampled_from((TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)),
    max_timestamp_difference_ms=st.sampled_from((None, 500)),
    compacted=st.booleans(),
    max_magic=st.just(2),
    magic=st.sampled_from((None, 0, 1, 2)),
    codec=st.sampled_from((None, Codec.NONE, Codec.LZ4)),
)


@given(
    st.lists(sent_batches(), min_size=1, max_size=4) | st.lists(damaged_sets() | sent_batches(), max_size=4),
    st.just(Limits(max_magic=2)) | LIMITS,
)
def test_survey_of_several_sets_does_not_change_results(sets: list[bytes], limits: Limits) -> None:
    surveyed = survey([memoryview(data) for data in sets])
    for data, batch in zip(sets, surveyed, strict=True):
        assert outcome(data, limits, batch) == outcome(data, limits, None)


@given(damaged_sets())
def test_scan_stops_at_first_wrong_checksum_size_or_magic(data: bytes) -> None:
    result = scan(data, base_offset=None, max_magic=2)
    position = 0
    offset = -1
    while True:
        rest = data[position:]
        size = int.from_bytes(rest[8:12], "big", signed=True)
        if len(rest) < 12 or size < 14 or len(rest) < 12 + size or rest[16] > 2:
            break
        own = last = int.from_bytes(rest[:8], "big", signed=True)
        if rest[16] == 2 and size < 49:
            break
        if rest[16] == 2:
            last = own + int.from_bytes(rest[23:27], "big", signed=True)
        if oracle.repaired(rest[: 12 + size]) != rest[: 12 + size] or own <= offset or not own <= last < EVER:
            break
        offset = last
        position += 12 + size
    assert result.valid_bytes == position
    assert (result.problem is None) == (position == len(data))


@given(damaged_sets(), st.sampled_from((0, 1)))
def test_a_conversion_gives_the_oracles_messages_or_an_error(data: bytes, magic: int) -> None:
    wanted, damaged = rows_of(data)
    converted: list[bytes] = []
    code = refusal(lambda: converted.append(down_convert(data, magic)))
    assert code in {None, CORRUPT, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
    if damaged:
        # What is not above the magic passes as it is, whatever lies inside of it.
        assert code or converted
    elif code is not ErrorCode.UNSUPPORTED_COMPRESSION_TYPE:
        assert code is None
        assert oracle.decode(converted[0]) == [
            oracle.Message(
                m.offset, *((m.timestamp, m.timestamp_type) if magic else (-1, -1)), m.key, m.value
            )
            for m in wanted
            if not m.control
        ]


@given(damaged_sets(), st.integers(-5, 60))
def test_searches_end_in_an_answer_or_an_error(data: bytes, target: int) -> None:
    calls: list[Callable[[Buffer, int], object]] = [find_position, first_at_or_after]
    for call in calls:
        assert refusal(partial(call, data, target)) in {None, CORRUPT}


@pytest.mark.parametrize("codec", list(Codec)[1:])
@given(seed=st.integers(0, 2**32 - 1))
def test_damaged_compressed_bytes_never_exceed_the_limit(codec: Codec, seed: int) -> None:
    source = random.Random(seed)
    content = source.randbytes(source.randrange(300)) + b"a" * source.randrange(300)
    packed = mutated(source, oracle_codecs.compress(int(codec), content, 2))
    opened: list[memoryview] = []
    assert refusal(lambda: opened.append(decompress(codec, packed, 1 << 16))) in {None, CORRUPT}
    assert all(len(found) <= 1 << 16 for found in opened)

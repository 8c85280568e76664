"""Message sets against the oracle, both ways, through the object and the column path."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.errors import BrokerError
from minikafka.records.append.conversion import down_convert
from minikafka.records.append.produced import Limits
from minikafka.records.append.validation import assign, validate
from minikafka.records.columns import SCHEMA_WITH_HEADERS, ColumnDecoder, decode, encode
from minikafka.records.format.headers import HEADERS_TYPE, raw_headers
from minikafka.records.format.message_set import (
    CLASSIC_CODECS,
    Codec,
    Record,
    TimestampType,
    build_message_set,
    iterate,
)
from minikafka.records.scan.scan import find_position, first_at_or_after, scan
from tests.oracles import batches
from tests.oracles import messages as oracle
from tests.support.records import rows_of

EVER = (1 << 63) - 1
NOW_MS = 1_700_000_000_000

magics = st.sampled_from((0, 1, 2))
formats = st.tuples(magics, st.sampled_from(Codec)).filter(lambda f: f[0] == 2 or f[1] in CLASSIC_CODECS)
names = st.text(max_size=5)
headers = st.one_of(
    st.just(()),
    st.lists(st.tuples(names, st.one_of(st.none(), st.binary(max_size=9))), max_size=3).map(tuple),
)
fields = st.one_of(st.none(), st.binary(max_size=60), st.binary(max_size=8).map(lambda part: part * 200))
timestamps = st.one_of(
    st.integers(-1, 5), st.integers(NOW_MS, NOW_MS + 10), st.integers(-(2**63) // 1000 + 1, 2**63 // 1000 - 1)
)
records = st.lists(st.builds(Record, fields, fields, timestamps, headers), max_size=12)
base_offsets = st.one_of(st.integers(0, 5), st.integers(2**31 - 3, 2**31 + 3), st.integers(0, 2**62))
seeds = st.integers(0, 2**32 - 1)


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, list[oracle.Message]]:
    """Logs of a partition, by the oracle: sets of any format with gaps between and inside them."""
    offset = draw(base_offsets)
    data, messages = b"", []
    for group in draw(st.lists(records.filter(len), max_size=4)):
        magic, codec = draw(formats)
        append_time = magic > 0 and draw(st.booleans())
        control = magic == 2 and draw(st.integers(0, 5)) == 0
        kind = -1 if magic == 0 else int(append_time)
        times = [record.timestamp_ms for record in group]
        part = []
        for record, own in zip(group, times, strict=True):
            offset += draw(st.integers(0, 2))
            shown = -1 if magic == 0 else max(times) if append_time and (codec or magic == 2) else own
            sent_headers = record.headers if magic == 2 else ()
            part.append(oracle.Message(offset, shown, kind, record.key, record.value, sent_headers, control))
            offset += 1
        if magic == 2:
            more = draw(st.integers(0, 2))
            data += batches.batch(part, batches.Batch(int(codec), append_time, control, more_offsets=more))
            offset += more
        else:
            data += oracle.message_set(part, magic=magic, codec=int(codec))
        messages += part
    return data, messages


def as_messages(data: bytes | memoryview) -> list[oracle.Message]:
    return [
        oracle.Message(r.offset, r.timestamp_ms, int(r.timestamp_type), r.key, r.value, r.headers, r.control)
        for r in iterate(data)
    ]


def column_messages(decoder: ColumnDecoder) -> list[oracle.Message]:
    columns = decoder.columns()
    batch = columns.record_batch("t", 0, SCHEMA_WITH_HEADERS)
    batch.validate(full=True)
    shown = [
        tuple((header["key"], header["value"]) for header in row or ())
        for row in batch["headers"].to_pylist()
    ]
    return [oracle.Message(*row, headers) for row, headers in zip(rows_of(columns), shown, strict=True)]


@given(logs())
def test_the_oracle_reads_its_own(log: tuple[bytes, list[oracle.Message]]) -> None:
    data, messages = log
    assert oracle.decode(data) == messages


@given(logs())
def test_the_iterator_reads_what_the_oracle_wrote(log: tuple[bytes, list[oracle.Message]]) -> None:
    data, messages = log
    assert as_messages(data) == messages


@given(logs(), st.data())
def test_the_columns_hold_what_the_oracle_wrote(
    log: tuple[bytes, list[oracle.Message]], data: st.DataObject
) -> None:
    stored, messages = log
    bounds = [0, EVER, *(m.offset for m in messages), *(m.offset + 1 for m in messages)]
    start, end = data.draw(st.sampled_from(bounds)), data.draw(st.sampled_from(bounds))
    decoder = ColumnDecoder(start, end, headers=True)
    position = 0
    while position < len(stored) and not decoder.finished:
        # Pieces as a fetch gives them: ended anywhere.
        size = data.draw(st.integers(1, len(stored)), label="piece")
        used = decoder.add(stored[position : position + size])
        position += used
        if not used and not decoder.finished:
            decoder.add(stored[position:])
            break
    assert column_messages(decoder) == [m for m in messages if start <= m.offset < end and not m.control]


@given(logs(), st.integers(1, 7))
def test_decoding_few_rows_at_a_time_loses_nothing(
    log: tuple[bytes, list[oracle.Message]], max_rows: int
) -> None:
    stored, messages = log
    offsets, position, start = [], 0, 0
    while True:
        columns = decode(stored[position:], start, EVER, max_rows=max_rows)
        offsets += columns.offsets.tolist()
        position, start = position + columns.valid_bytes, columns.next_offset
        if columns.complete:
            break
    assert offsets == [m.offset for m in messages if not m.control]


@given(records, formats, st.integers(0, 2**40))
def test_the_oracle_reads_what_we_build(
    group: list[Record], form: tuple[int, Codec], base_offset: int
) -> None:
    magic, codec = form
    data = build_message_set(group, magic=magic, codec=codec, base_offset=base_offset)
    found = [(m.offset, m.key, m.value, m.headers) for m in oracle.decode(data)]
    assert found == [
        (base_offset + i, record.key, record.value, record.headers if magic == 2 else ())
        for i, record in enumerate(group)
    ]


@given(records, formats, st.integers(0, 3000), seeds)
def test_the_oracle_reads_what_is_encoded_from_columns(
    group: list[Record], form: tuple[int, Codec], max_bytes: int, seed: int
) -> None:
    magic, codec = form
    rows = np.random.default_rng(seed).permutation(len(group))[: seed % (len(group) + 1)].astype(np.int64)
    sets = encode(
        pa.array([record.key for record in group], pa.binary()),
        pa.array([record.value for record in group], pa.binary()),
        np.array([record.timestamp_ms for record in group], dtype=np.int64),
        rows,
        magic=magic,
        codec=codec,
        max_bytes=max_bytes,
        headers=raw_headers(pa.array([list(r.headers) for r in group], HEADERS_TYPE)) if magic == 2 else None,
    )
    found = []
    for encoded in sets:
        messages = oracle.decode(bytes(encoded.data))
        assert [m.offset for m in messages] == list(range(encoded.count))
        assert len(encoded.data) <= max_bytes or encoded.count == 1
        found += [(m.timestamp, m.key, m.value, m.headers) for m in messages]
    chosen = [group[row] for row in rows]
    assert found == [
        (r.timestamp_ms if magic else -1, r.key, r.value, r.headers if magic == 2 else ()) for r in chosen
    ]


@given(st.lists(st.tuples(records, formats), max_size=4), base_offsets, st.booleans(), st.booleans())
def test_stored_records_are_those_sent_with_new_offsets(
    sets: list[tuple[list[Record], tuple[int, Codec]]], base_offset: int, append_time: bool, newer: bool
) -> None:
    groups = [(group, *form) for group, form in sets if (form[0] == 2) == newer]
    kind = TimestampType.LOG_APPEND_TIME if append_time else TimestampType.CREATE_TIME
    sent = b"".join(build_message_set(group, magic=magic, codec=codec) for group, magic, codec in groups)
    valid = validate(sent, Limits(timestamp_type=kind, max_magic=2), NOW_MS)
    stored = assign(valid, base_offset)
    wanted = [
        (-1 if magic == 0 else NOW_MS if append_time else record.timestamp_ms, record.key, record.value)
        for group, magic, _ in groups
        for record in group
    ]
    found = oracle.decode(bytes(stored.data))
    assert [(m.timestamp, m.key, m.value) for m in found] == wanted
    assert [m.offset for m in found] == list(range(base_offset, base_offset + len(wanted)))
    assert valid.max_timestamp_ms == stored.max_timestamp_ms == max(
        (w[0] for w in wanted), default=-1
    ) or all(w[0] < -1 for w in wanted)
    assert stored.last_offset == base_offset + len(wanted) - 1


@given(logs(), st.sampled_from((0, 1)))
def test_a_conversion_down_keeps_all_that_the_format_can_hold(
    log: tuple[bytes, list[oracle.Message]], magic: int
) -> None:
    data, messages = log
    if any(record.codec is Codec.ZSTD and not record.control for record in iterate(data)):
        with pytest.raises(BrokerError, match="UNSUPPORTED_COMPRESSION_TYPE"):
            down_convert(data, magic)
        return
    found = oracle.decode(down_convert(data, magic))
    assert found == [
        oracle.Message(m.offset, *((m.timestamp, m.timestamp_type) if magic else (-1, -1)), m.key, m.value)
        for m in messages
        if not m.control
    ]


@given(logs(), st.data())
def test_searches_find_what_a_walk_over_all_messages_finds(
    log: tuple[bytes, list[oracle.Message]], data: st.DataObject
) -> None:
    stored, messages = log
    target = data.draw(st.sampled_from([0, EVER, *(m.offset for m in messages)]))
    position = find_position(stored, target)
    rest = [] if position is None else oracle.decode(stored[position:])
    assert [m for m in rest if m.offset >= target] == [m for m in messages if m.offset >= target]
    time = data.draw(st.sampled_from([-1, 0, NOW_MS, *(m.timestamp for m in messages)]))
    wanted = next(((m.offset, m.timestamp) for m in messages if m.timestamp >= time), None)
    assert first_at_or_after(stored, time) == wanted
    behind = next(
        ((m.offset, m.timestamp) for m in messages if m.timestamp >= time and m.offset >= target), None
    )
    assert first_at_or_after(stored, time, target) == behind


@given(logs(), st.integers(0, 200))
def test_a_scan_passes_all_of_it_and_its_index_leads_to_entries(
    log: tuple[bytes, list[oracle.Message]], interval: int
) -> None:
    data, messages = log
    result = scan(data, base_offset=None, index_interval_bytes=interval, max_magic=2)
    assert (result.valid_bytes, result.problem) == (len(data), None)
    assert 0 <= result.next_offset - (messages[-1].offset + 1 if messages else 0) <= 2
    for offset, position in result.index_entries.tolist():
        first = int.from_bytes(data[position : position + 8], "big")
        last_delta = int.from_bytes(data[position + 23 : position + 27], "big")
        assert offset == (first + last_delta if data[position + 16] == 2 else first)

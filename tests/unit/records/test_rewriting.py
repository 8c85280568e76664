"""Produced sets in the format and codec of their topic (0.10.1's compression.type and
message.format.version)."""

from __future__ import annotations

import tracemalloc

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.records.append.produced import Limits, LogAppendInfo
from minikafka.records.append.validation import assign, prepare, validate
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import (
    Codec,
    Record,
    StoredRecord,
    TimestampType,
    build_message_set,
    iterate,
    open_wrapper,
    wrap,
)
from tests.oracles import codecs as oracle_codecs
from tests.oracles import messages as oracle
from tests.support.records import CODECS, MAGICS, expected, row_of, segment, some_records

NOW_MS = 1_700_000_000_000
BASE = 4_000

every_source = pytest.mark.parametrize("source", CODECS)
every_target = pytest.mark.parametrize("target", CODECS)
every_magic = pytest.mark.parametrize("magic", MAGICS)
every_new_magic = pytest.mark.parametrize("new_magic", MAGICS)


def stored(data: bytes, limits: Limits) -> LogAppendInfo:
    return assign(prepare(validate(data, limits, NOW_MS), BASE), BASE)


def entries(assigned: LogAppendInfo) -> list[StoredRecord]:
    return list(iterate(assigned.data, deep=False))


@every_source
@every_target
@every_magic
@every_new_magic
def test_rewriting_keeps_records_and_applies_the_topics_format(
    source: Codec, target: Codec, magic: int, new_magic: int
) -> None:
    records = [Record(None, b"a", 70), *some_records(30), Record(b"k", None, 5)]
    data = build_message_set(records, magic=magic, codec=source)
    assigned = stored(data, Limits(magic=new_magic, codec=target))
    found = list(iterate(assigned.data))
    assert [(r.offset, r.key, r.value) for r in found] == [
        (BASE + i, record.key, record.value) for i, record in enumerate(records)
    ]
    assert {(r.magic, r.codec) for r in found} == {(new_magic, target)}
    times = [record.timestamp_ms if magic and new_magic else -1 for record in records]
    assert [r.timestamp_ms for r in found] == times
    assert oracle.decode(bytes(assigned.data))[-1].offset == BASE + 31
    assert len(entries(assigned)) == (32 if target is Codec.NONE else 1)


@every_source
@every_magic
def test_set_in_the_topics_format_is_not_copied(source: Codec, magic: int) -> None:
    buffer = bytearray(build_message_set(some_records(5), magic=magic, codec=source))
    assert validate(buffer, Limits(magic=magic, codec=source), NOW_MS).data.obj is buffer


@every_source
@every_magic
def test_topic_without_format_stores_sets_unchanged(source: Codec, magic: int) -> None:
    data = build_message_set(some_records(5), magic=magic, codec=source)
    for limits in (Limits(), Limits(magic=2)):
        assert {(r.magic, r.codec) for r in entries(stored(data, limits))} == {(magic, source)}


@every_source
def test_producers_codec_is_kept_if_only_the_format_changes(source: Codec) -> None:
    data = build_message_set(some_records(3), magic=0, codec=source)
    found = list(iterate(stored(data, Limits(magic=1)).data))
    assert {(r.magic, r.codec, r.timestamp_ms) for r in found} == {(1, source, -1)}


@every_source
@every_target
@every_magic
def test_append_time_applies_to_every_rewritten_message(source: Codec, target: Codec, magic: int) -> None:
    limits = Limits(timestamp_type=TimestampType.LOG_APPEND_TIME, magic=1, codec=target)
    assigned = stored(build_message_set(some_records(7), magic=magic, codec=source), limits)
    found = {(r.timestamp_ms, r.timestamp_type) for r in iterate(assigned.data)}
    assert found == {(NOW_MS, TimestampType.LOG_APPEND_TIME)}
    assert assigned.max_timestamp_ms == NOW_MS
    assert assigned.max_timestamp_at == BASE + (0 if target is Codec.NONE else 6)


@every_source
def test_append_time_is_none_where_magic_0_is_stored(source: Codec) -> None:
    limits = Limits(timestamp_type=TimestampType.LOG_APPEND_TIME, magic=0)
    assigned = stored(build_message_set(some_records(7), codec=source), limits)
    assert {r.timestamp_ms for r in iterate(assigned.data)} == {-1}


@pytest.mark.parametrize(("target", "last"), [(Codec.NONE, 1), (Codec.GZIP, 4)])
def test_first_entry_with_the_largest_timestamp_is_noted(target: Codec, last: int) -> None:
    records = [Record(None, b"x", time) for time in (10, 99, 3, 99, 4)]
    for source in (Codec.NONE, Codec.SNAPPY):
        assigned = stored(build_message_set(records, codec=source), Limits(codec=target))
        assert (assigned.max_timestamp_ms, assigned.max_timestamp_at) == (99, BASE + last)


def test_messages_of_magic_0_are_never_too_old_for_magic_1() -> None:
    limits = Limits(max_timestamp_difference_ms=1000, magic=1)
    data = build_message_set(some_records(2), magic=0)
    assert {r.timestamp_ms for r in iterate(stored(data, limits).data)} == {-1}
    with pytest.raises(BrokerError, match="INVALID_TIMESTAMP"):
        validate(build_message_set(some_records(2), magic=1), limits, NOW_MS)


def test_mixed_set_becomes_one_wrapper_of_the_last_codec() -> None:
    parts = [
        build_message_set(some_records(2), magic=1, codec=Codec.GZIP),
        build_message_set(some_records(3), magic=0),
        build_message_set(some_records(4), magic=0, codec=Codec.LZ4),
        build_message_set(some_records(1), magic=1),
    ]
    assigned = stored(b"".join(parts), Limits(magic=1))
    (wrapper,) = entries(assigned)
    assert (wrapper.magic, wrapper.codec, wrapper.offset) == (1, Codec.LZ4, BASE + 9)
    found = list(iterate(assigned.data))
    assert [r.timestamp_ms for r in found] == [1000, 1001, *[-1] * 7, 1000]
    assert wrapper.timestamp_ms == 1001


@every_new_magic
def test_inner_offsets_of_new_wrapper_follow_its_format(new_magic: int) -> None:
    limits = Limits(magic=new_magic, codec=Codec.GZIP)
    assigned = stored(build_message_set(some_records(3), magic=1 - new_magic), limits)
    inner = [record.offset for record in iterate(open_wrapper(assigned.data, 0).data)]
    assert inner == ([0, 1, 2] if new_magic else [BASE, BASE + 1, BASE + 2])


def test_ignored_inner_attributes_are_dropped() -> None:
    content = oracle.entry(0, magic=1, attributes=8, timestamp=5, value=b"x")
    data = wrap(content, offset=0, magic=1, codec=Codec.GZIP, timestamp_ms=5)
    (record,) = entries(stored(data, Limits(codec=Codec.NONE)))
    assert (record.timestamp_type, record.timestamp_ms) == (TimestampType.CREATE_TIME, 5)


def test_lz4_of_magic_0_gets_its_own_header_checksum() -> None:
    data = build_message_set(some_records(3), magic=1)
    (wrapper,) = entries(stored(data, Limits(magic=0, codec=Codec.LZ4)))
    content = oracle_codecs.lz4_frame(b"", right_checksum=False)
    assert wrapper.value is not None
    assert wrapper.value[:7] == content[:7]


@every_source
def test_message_too_large_outside_its_wrapper_is_refused(source: Codec) -> None:
    records = [Record(None, b"small", 1), Record(None, bytes(10_000), 1)]
    data = build_message_set(records, magic=0, codec=source)
    size = 34 + 10_000
    assert stored(data, Limits(max_message_bytes=size, magic=1, codec=Codec.NONE)).count == 2
    with pytest.raises(BrokerError, match=f"max.message.bytes, .*; max.message.bytes={size - 1}") as raised:
        validate(data, Limits(max_message_bytes=size - 1, magic=1, codec=Codec.NONE), NOW_MS)
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_wrapper_that_is_too_large_is_refused_with_its_size() -> None:
    noise = b"".join(oracle.entry(i, magic=1, value=bytes(range(i, i + 50)), timestamp=0) for i in range(99))
    with pytest.raises(BrokerError, match=r"the set has \d+ bytes .*snappy.*max.message.bytes=300") as raised:
        validate(noise, Limits(max_message_bytes=300, codec=Codec.SNAPPY), NOW_MS)
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE


@every_target
def test_large_contents_are_refused_before_they_use_memory(target: Codec) -> None:
    inner = build_message_set([Record(None, bytes(1 << 20))])
    bombs = wrap(inner, offset=0, magic=1, codec=Codec.GZIP, timestamp_ms=0) * 50
    if target is Codec.GZIP:
        return
    limits = Limits(max_content_bytes=4 << 20, codec=target, max_message_bytes=2 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(BrokerError, match="exceeds the limit of 4194304 for conversion") as raised:
            validate(bombs, limits, NOW_MS)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert raised.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert peak < 20 << 20


def test_content_that_grows_beyond_the_limit_is_refused() -> None:
    sent = bytearray(build_message_set([Record(b"k", b"")] * 100, magic=0, codec=Codec.GZIP))
    content_bytes = len(open_wrapper(memoryview(sent), 0).data)
    with pytest.raises(BrokerError, match="for conversion to the format of the topic") as raised:
        validate(sent, Limits(max_content_bytes=content_bytes, magic=1), NOW_MS)
    assert raised.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize("codec", list(Codec))
@every_new_magic
def test_batches_become_messages_where_the_topic_stores_these(codec: Codec, new_magic: int) -> None:
    records = [Record(r.key, r.value, r.timestamp_ms, (("h", b"1"),)) for r in some_records(4)]
    data = build_batch(records, codec=codec)
    limits = Limits(max_magic=2, magic=new_magic)
    if codec is Codec.ZSTD:
        with pytest.raises(BrokerError, match="UNSUPPORTED_COMPRESSION_TYPE"):
            validate(data, limits, NOW_MS)
        return
    found = list(iterate(stored(data, limits).data))
    assert [(r.offset, r.key, r.value, r.magic, r.codec, r.headers) for r in found] == [
        (BASE + i, r.key, r.value, new_magic, codec, ()) for i, r in enumerate(records)
    ]


def test_idempotent_batches_are_refused_for_older_formats() -> None:
    data = build_batch(some_records(2), producer_id=4, producer_epoch=0, base_sequence=0)
    with pytest.raises(BrokerError, match="idempotent") as raised:
        validate(data, Limits(max_magic=2, magic=1), NOW_MS)
    assert raised.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", list(Codec))
def test_batches_keep_all_but_their_codec(source: Codec, target: Codec) -> None:
    data = build_batch(some_records(9), codec=source, producer_id=4, producer_epoch=1, base_sequence=70)
    before = list(iterate(stored(data * 2, Limits(max_magic=2)).data))
    found = list(iterate(stored(data * 2, Limits(max_magic=2, codec=target)).data))
    assert {r.codec for r in found} == {target}
    plain = [(r.offset, r.key, r.value, r.timestamp_ms, r.producer_id, r.sequence) for r in found]
    assert plain == [(r.offset, r.key, r.value, r.timestamp_ms, r.producer_id, r.sequence) for r in before]
    assert len(entries(stored(data * 2, Limits(max_magic=2, codec=target)))) == 2


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_down_conversion_gives_kafkas_recorded_magic_0(codec: str) -> None:
    """0.10.1.1 stored the same records under message.format.version 0.9.0 and 0.10.1."""
    limits = Limits(magic=0)
    assigned = assign(validate(segment(f"magic1-{codec}"), limits, NOW_MS), 0)
    assert [row_of(record) for record in iterate(assigned.data)] == expected(f"magic0-{codec}")
    if codec == "none":
        assert bytes(assigned.data) == segment("magic0-none")

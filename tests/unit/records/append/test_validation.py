from __future__ import annotations

import tracemalloc

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.records.append import content_opener, validation
from minikafka.records.append.produced import Limits, LogAppendInfo, OffsetMoved, ValidatedRecords
from minikafka.records.append.validation import assign, prepare, validate, validate_steps
from minikafka.records.format.batch import ControlType
from minikafka.records.format.compression import BudgetExceeded, ContentBudget
from minikafka.records.format.message_set import (
    Codec,
    Record,
    TimestampType,
    build_message_set,
    iterate,
    open_wrapper,
    wrap,
)
from tests.oracles import messages as oracle
from tests.support.records import CODECS, MAGICS, some_records

NOW_MS = 1_700_000_000_000
APPEND_TIME = Limits(timestamp_type=TimestampType.LOG_APPEND_TIME)

every_codec = pytest.mark.parametrize("codec", CODECS)
every_magic = pytest.mark.parametrize("magic", MAGICS)
compressed = pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])


def offsets(assigned: LogAppendInfo) -> list[int]:
    return [record.offset for record in iterate(assigned.data)]


@every_codec
@every_magic
def test_offsets_are_assigned_from_the_base(magic: int, codec: Codec) -> None:
    records = some_records(25)
    valid = validate(build_message_set(records, magic=magic, codec=codec), Limits(), NOW_MS)
    assigned = assign(valid, 1_000_000_000_000)
    assert offsets(assigned) == list(range(1_000_000_000_000, 1_000_000_000_025))
    assert [(r.key, r.value) for r in iterate(assigned.data)] == [(r.key, r.value) for r in records]
    assert (assigned.first_offset, assigned.last_offset) == (1_000_000_000_000, 1_000_000_000_024)
    assert (valid.count, valid.codec, valid.magic) == (25, codec, magic)
    assert valid.max_timestamp_ms == assigned.max_timestamp_ms == (1024 if magic else -1)


@every_codec
@every_magic
def test_a_set_can_be_assigned_again(magic: int, codec: Codec) -> None:
    valid = validate(build_message_set(some_records(3), magic=magic, codec=codec), Limits(), NOW_MS)
    assign(valid, 7)
    assert offsets(assign(valid, 50)) == [50, 51, 52]


@every_codec
@every_magic
def test_assigned_set_is_valid_for_the_oracle(magic: int, codec: Codec) -> None:
    data = build_message_set(some_records(9), magic=magic, codec=codec)
    for limits in (Limits(), APPEND_TIME):
        assigned = assign(validate(data, limits, NOW_MS), 31)
        assert [m.offset for m in oracle.decode(bytes(assigned.data))] == list(range(31, 40))


def test_a_writable_buffer_is_kept_and_a_read_only_one_is_copied() -> None:
    data = build_message_set(some_records(3))
    buffer = bytearray(data)
    assigned = assign(validate(memoryview(buffer), Limits(), NOW_MS), 9)
    assert assigned.data.obj is buffer
    assert [record.offset for record in iterate(buffer)] == [9, 10, 11]
    assign(validate(data, Limits(), NOW_MS), 9)
    assert next(iterate(data)).offset == 0


def test_wrappers_and_plain_messages_get_consecutive_offsets() -> None:
    parts = [
        build_message_set(some_records(2), magic=1, codec=Codec.GZIP),
        build_message_set(some_records(3), magic=1),
        build_message_set(some_records(4), magic=0, codec=Codec.LZ4),
        build_message_set(some_records(1), magic=0),
        build_message_set(some_records(5), magic=1, codec=Codec.SNAPPY),
        build_message_set(some_records(2), magic=0, codec=Codec.GZIP),
    ]
    valid = validate(b"".join(parts), Limits(), NOW_MS)
    assert valid.count == 17
    assert offsets(assign(valid, 100)) == list(range(100, 117))


@compressed
def test_of_a_good_magic_1_wrapper_only_the_offset_changes(codec: Codec) -> None:
    data = build_message_set(some_records(6), codec=codec)
    assigned = assign(validate(data, Limits(), NOW_MS), 60)
    assert bytes(assigned.data[8:]) == data[8:]
    assert int.from_bytes(assigned.data[:8], "big") == 65


@pytest.mark.parametrize("inner", [(0, 0, 0), (5, 6, 7), (2, 1, 0), (0, 2, 4)])
def test_magic_1_wrapper_with_other_inner_offsets_is_rebuilt(inner: tuple[int, ...]) -> None:
    content = b"".join(oracle.entry(o, magic=1, value=b"%d" % i, timestamp=i) for i, o in enumerate(inner))
    data = wrap(content, offset=0, magic=1, codec=Codec.GZIP, timestamp_ms=2)
    plain = build_message_set(some_records(2))
    assigned = assign(validate(plain + data + plain + data, Limits(), NOW_MS), 10)
    assert offsets(assigned) == list(range(10, 20))
    assert [r.value for r in iterate(assigned.data)][2:5] == [b"0", b"1", b"2"]
    position = len(plain)
    rebuilt = open_wrapper(assigned.data, position)
    assert [record.offset for record in iterate(rebuilt.data)] == [0, 1, 2]


def test_magic_0_wrapper_after_a_rebuilt_one_is_renumbered() -> None:
    content = b"".join(oracle.entry(0, magic=1, value=b"%d" % i, timestamp=i) for i in range(40))
    odd = wrap(content, offset=0, magic=1, codec=Codec.GZIP, timestamp_ms=39)
    old = build_message_set(some_records(3), magic=0, codec=Codec.GZIP)
    valid = validate(odd + old + odd + old, Limits(), NOW_MS)
    assert len(valid.data) != 2 * len(odd + old)
    assigned = assign(valid, 10)
    assert offsets(assigned) == list(range(10, 96))
    assert [record.magic for record in iterate(assigned.data)] == ([1] * 40 + [0] * 3) * 2


def test_a_magic_0_wrapper_gets_absolute_inner_offsets() -> None:
    data = build_message_set(some_records(3), magic=0, codec=Codec.GZIP)
    content = open_wrapper(assign(validate(data, Limits(), NOW_MS), 500).data, 0)
    assert [record.offset for record in iterate(content.data)] == [500, 501, 502]


def test_magic_1_wrapper_gets_largest_timestamp_of_its_content() -> None:
    content = build_message_set([Record(None, b"a", 50), Record(None, b"b", 20)])
    data = wrap(content, offset=1, magic=1, codec=Codec.GZIP, timestamp_ms=999)
    valid = validate(data, Limits(), NOW_MS)
    (wrapper,) = iterate(assign(valid, 0).data, deep=False)
    assert wrapper.timestamp_ms == valid.max_timestamp_ms == 50


@every_codec
def test_append_time_replaces_every_timestamp_of_magic_1(codec: Codec) -> None:
    valid = validate(build_message_set(some_records(4), codec=codec), APPEND_TIME, NOW_MS)
    found = list(iterate(assign(valid, 3).data))
    assert {(r.timestamp_ms, r.timestamp_type) for r in found} == {(NOW_MS, TimestampType.LOG_APPEND_TIME)}
    assert [record.offset for record in found] == [3, 4, 5, 6]
    assert valid.max_timestamp_ms == NOW_MS


@every_codec
def test_append_time_leaves_magic_0_as_it_is(codec: Codec) -> None:
    valid = validate(build_message_set(some_records(4), magic=0, codec=codec), APPEND_TIME, NOW_MS)
    assert valid.max_timestamp_ms == -1
    assert {r.timestamp_ms for r in iterate(assign(valid, 3).data)} == {-1}


@every_codec
@pytest.mark.parametrize(("off_by", "refused"), [(-1001, True), (-1000, False), (1000, False), (1001, True)])
def test_a_create_time_too_far_from_now_is_refused(codec: Codec, off_by: int, refused: bool) -> None:
    limits = Limits(max_timestamp_difference_ms=1000)
    records = [Record(None, b"near", NOW_MS), Record(None, b"x", NOW_MS + off_by)]
    data = build_message_set(records, codec=codec)
    if refused:
        with pytest.raises(BrokerError, match=f"{NOW_MS + off_by} ms.*allowed difference 1000 ms") as raised:
            validate(data, limits, NOW_MS)
        assert raised.value.code is ErrorCode.INVALID_TIMESTAMP
    else:
        assert validate(data, limits, NOW_MS).count == 2


@every_codec
def test_with_append_time_no_create_time_is_too_far(codec: Codec) -> None:
    limits = Limits(timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp_difference_ms=1)
    assert validate(build_message_set(some_records(1), codec=codec), limits, NOW_MS).count == 1


@pytest.mark.parametrize("timestamp", [-1, -(2**63), 2**63 - 1])
def test_with_no_limit_every_create_time_is_allowed(timestamp: int) -> None:
    data = oracle.entry(0, magic=1, timestamp=timestamp, value=b"x")
    assert validate(data, Limits(), NOW_MS).count == 1
    narrow = Limits(max_timestamp_difference_ms=2**63 - 1)
    assert validate(data, narrow, NOW_MS).count == 1 if timestamp == -1 else True


@every_codec
def test_a_producer_must_not_send_append_time(codec: Codec) -> None:
    data = oracle.message_set([oracle.Message(0, 5, 1, None, b"x")], magic=1, codec=int(codec))
    with pytest.raises(BrokerError, match=r"INVALID_TIMESTAMP.*position 0"):
        validate(data, Limits(), NOW_MS)


def test_the_timestamp_type_inside_of_a_wrapper_means_nothing() -> None:
    content = oracle.entry(0, magic=1, attributes=8, timestamp=5, value=b"x")
    data = wrap(content, offset=0, magic=1, codec=Codec.GZIP, timestamp_ms=5)
    assert validate(data, Limits(), NOW_MS).count == 1


@every_codec
@every_magic
def test_message_one_byte_above_the_limit_is_too_large(magic: int, codec: Codec) -> None:
    first = build_message_set([Record(None, b"")], magic=magic)
    second = build_message_set([Record(b"k", b"value" * 50)] * 3, magic=magic, codec=codec)
    size = len(second) if codec is not Codec.NONE else len(second) // 3
    assert validate(first + second, Limits(max_message_bytes=size), NOW_MS).count == 4
    with pytest.raises(BrokerError, match=f"position {len(first)}; max.message.bytes={size - 1}") as raised:
        validate(first + second, Limits(max_message_bytes=size - 1), NOW_MS)
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_the_limit_is_not_for_messages_inside_of_a_wrapper() -> None:
    data = build_message_set([Record(None, bytes(10_000))], codec=Codec.GZIP)
    assert validate(data, Limits(max_message_bytes=500), NOW_MS).count == 1


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_wrapper_that_exceeds_limit_when_rebuilt_is_too_large(codec: Codec) -> None:
    content = b"".join(oracle.entry(0, magic=0, value=b"") for _ in range(300))
    data = wrap(content, offset=0, magic=0, codec=codec, timestamp_ms=-1)
    valid = validate(data, Limits(max_message_bytes=len(data)), NOW_MS)
    with pytest.raises(BrokerError, match=r"MESSAGE_TOO_LARGE.*after compression"):
        assign(valid, 1 << 40)


@every_magic
def test_content_of_wrappers_is_not_kept(magic: int) -> None:
    inner = build_message_set([Record(None, bytes(1 << 20))], magic=magic)
    bomb = wrap(inner, offset=0, magic=magic, codec=Codec.GZIP, timestamp_ms=0)
    set_of_many = bytearray(bomb * 8)
    tracemalloc.start()
    try:
        valid = validate(set_of_many, Limits(), NOW_MS)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert valid.count == 8
    assert kept_bytes < len(inner)


def test_prepared_magic_0_wrapper_is_not_compressed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    data = build_message_set(some_records(3), magic=0, codec=Codec.GZIP)
    ready = prepare(validate(data, Limits(), NOW_MS), 50)
    assert offsets(assign(ready, 60)) == [60, 61, 62]
    monkeypatch.setattr(validation, "wrap", lambda *_, **__: pytest.fail("it was compressed again"))
    assert offsets(assign(ready, 50)) == [50, 51, 52]


@every_codec
@every_magic
def test_a_compacted_topic_refuses_a_message_without_key(magic: int, codec: Codec) -> None:
    limits = Limits(compacted=True)
    good = build_message_set([Record(b"", b"v"), Record(b"k", None)], magic=magic, codec=codec)
    assert validate(good, limits, NOW_MS).count == 2
    with pytest.raises(BrokerError, match=r"INVALID_RECORD.*must have a key"):
        validate(
            build_message_set([Record(b"k", b""), Record(None, b"v")], magic=magic, codec=codec), limits, 0
        )


@every_codec
def test_a_cut_off_last_message_is_dropped_as_in_0_10_1(codec: Codec) -> None:
    whole = build_message_set(some_records(2), codec=codec)
    more = build_message_set(some_records(2), codec=codec)
    valid = validate(whole + more[:-1], Limits(), NOW_MS)
    wanted = 2 if codec is not Codec.NONE else 3
    assert (valid.count, offsets(assign(valid, 0))) == (wanted, list(range(wanted)))


@pytest.mark.parametrize("data", [b"", b"\0" * 11, build_message_set(some_records(1))[:-1]])
def test_a_set_with_no_whole_message_is_empty(data: bytes) -> None:
    valid = validate(data, Limits(), NOW_MS)
    assigned = assign(valid, 12)
    assert (valid.count, valid.size_bytes, valid.magic) == (0, 0, -1)
    assert (assigned.first_offset, assigned.last_offset, len(assigned.data)) == (12, 11, 0)


def test_a_wrong_checksum_is_refused_with_its_position() -> None:
    data = bytearray(build_message_set(some_records(3), codec=Codec.NONE))
    data[-1] ^= 1
    position = len(build_message_set(some_records(2)))
    with pytest.raises(BrokerError, match=f"checksum.*position {position}") as raised:
        validate(data, Limits(), NOW_MS)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [2, 3, 127, 255])
def test_an_unknown_magic_byte_is_refused(magic: int) -> None:
    data = oracle.repaired(b"\0" * 8 + b"\0\0\0\x39" + b"\0" * 4 + bytes([magic]) + b"\0" * 52)
    with pytest.raises(BrokerError, match=r"CORRUPT_MESSAGE.*magic byte"):
        validate(data, Limits(), NOW_MS)


def test_a_wrong_checksum_inside_of_a_wrapper_is_refused() -> None:
    content = bytearray(build_message_set(some_records(2)))
    content[-1] ^= 1
    data = wrap(content, offset=1, magic=1, codec=Codec.GZIP, timestamp_ms=1001)
    with pytest.raises(BrokerError, match=r"checksum.*content of the compressed message at position 0"):
        validate(data, Limits(), NOW_MS)


def test_a_refused_set_was_not_changed_up_to_the_fault() -> None:
    data = bytearray(build_message_set(some_records(3)))
    data[-1] ^= 1
    before = bytes(data)
    with pytest.raises(BrokerError):
        validate(data, APPEND_TIME, NOW_MS)
    assert bytes(data) == before


@every_codec
def test_too_large_message_is_refused_before_decompression(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content_opener, "open_group", lambda *_: pytest.fail("it was opened"))
    monkeypatch.setattr(content_opener, "records_of", lambda *_: pytest.fail("it was opened"))
    limits = Limits(max_message_bytes=60, max_magic=2)
    for magic in (0, 1, 2):
        data = build_message_set([Record(None, bytes(range(100)))], magic=magic, codec=codec)
        with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
            validate(data, limits, NOW_MS)


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_a_message_that_holds_more_than_the_bound_is_refused(magic: int, codec: Codec) -> None:
    if magic < 2 and codec is Codec.ZSTD:
        return
    data = build_message_set([Record(None, bytes(1 << 20))], magic=magic, codec=codec)
    assert validate(data, Limits(max_magic=2), NOW_MS).count == 1
    with pytest.raises(BrokerError, match=r"CORRUPT_MESSAGE.*exceed the limit of 65536.*position 0"):
        validate(data, Limits(max_magic=2, max_content_bytes=1 << 16), NOW_MS)


@every_magic
@compressed
def test_a_wrapper_inside_of_a_wrapper_is_refused(magic: int, codec: Codec) -> None:
    inner = build_message_set(some_records(2), magic=magic, codec=codec)
    data = wrap(inner, offset=1, magic=magic, codec=codec, timestamp_ms=1)
    with pytest.raises(BrokerError, match=r"CORRUPT_MESSAGE.*is compressed itself"):
        validate(data, Limits(), NOW_MS)


@every_magic
@pytest.mark.parametrize("other", [0, 1, 2])
def test_message_of_another_magic_in_a_wrapper_is_refused(magic: int, other: int) -> None:
    data = wrap(
        build_message_set(some_records(1), magic=other),
        offset=0,
        magic=magic,
        codec=Codec.GZIP,
        timestamp_ms=1,
    )
    if other == magic:
        assert validate(data, Limits(), NOW_MS).count == 1
        return
    with pytest.raises(BrokerError, match=r"CORRUPT_MESSAGE.*different magic byte"):
        validate(data, Limits(), NOW_MS)


@pytest.mark.parametrize(("magic", "largest"), [(0, 3), (1, 3), (2, 4)])
def test_a_codec_that_the_format_does_not_have_is_refused(magic: int, largest: int) -> None:
    for bits in range(largest + 1, 8):
        data = bytearray(build_message_set(some_records(1), magic=magic))
        data[22 if magic == 2 else 17] |= bits
        with pytest.raises(BrokerError, match=r"CORRUPT_MESSAGE.*unknown codec in the attributes"):
            validate(oracle.repaired(bytes(data)), Limits(max_magic=2), NOW_MS)


def _compressed(magic: int, codec: Codec, size: int) -> bytes:
    return build_message_set([Record(b"k", bytes(size), 1)], magic=magic, codec=codec)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_exceeded_budget_ends_validation_and_allows_a_retry(magic: int) -> None:
    data = bytearray(_compressed(magic, Codec.GZIP, 100_000))
    limits = Limits(max_magic=2)
    with pytest.raises(BudgetExceeded):
        validate(data, limits, 1, budget=ContentBudget(50_000))
    assert validate(data, limits, 1, budget=ContentBudget(200_000)).count == 1


def test_many_small_wrappers_exceed_a_budget_too() -> None:
    data = bytearray(_compressed(1, Codec.GZIP, 1) * 100)
    with pytest.raises(BudgetExceeded):
        validate(data, Limits(), 1, budget=ContentBudget(100_000))


def test_a_set_that_is_written_anew_takes_more_of_the_budget() -> None:
    data = bytearray(_compressed(2, Codec.GZIP, 20_000))
    limits = Limits(max_magic=2, codec=Codec.LZ4)
    with pytest.raises(BudgetExceeded):
        validate(data, limits, 1, budget=ContentBudget(200_000))
    assert validate(data, Limits(max_magic=2), 1, budget=ContentBudget(200_000)).codec is Codec.GZIP
    assert validate(data, limits, 1).codec is Codec.LZ4


@pytest.mark.parametrize("magic", [0, 1])
def test_each_large_wrapper_is_a_step_that_yields_its_memory(magic: int) -> None:
    data = bytearray(_compressed(magic, Codec.LZ4, 2_000_000) * 3)
    steps = validate_steps(data, Limits(), 1)
    needs = [next(steps) for _ in range(3)]
    assert all(need >= 2_000_000 for need in needs)
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value.count == 3


def test_large_wrappers_prepared_for_another_offset_raise_moved() -> None:
    valid = prepare(validate(bytearray(_compressed(0, Codec.GZIP, 100_000)), Limits(), 1), 5)
    with pytest.raises(OffsetMoved):
        assign(valid, 7)
    assert assign(prepare(valid, 7), 7).last_offset == 7


def test_small_wrappers_prepared_for_another_offset_are_rebuilt() -> None:
    valid = prepare(validate(bytearray(_compressed(0, Codec.GZIP, 1_000)), Limits(), 1), 5)
    assert assign(valid, 7).last_offset == 7


@pytest.mark.parametrize("kind", ControlType)
def test_a_producer_must_not_send_a_marker(kind: ControlType) -> None:
    limits = Limits(max_magic=2)
    marker = ValidatedRecords.of_end_marker(kind, 7, 0, 0, limits, 0)
    with pytest.raises(BrokerError, match="must not send control records") as caught:
        validate(marker.data, limits, 0)
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_a_marker_has_no_place_in_an_older_format() -> None:
    with pytest.raises(BrokerError) as caught:
        ValidatedRecords.of_end_marker(ControlType.ABORT, 7, 0, 0, Limits(max_magic=2, magic=1), 0)
    assert caught.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.records.format.batch import read_header, write_header
from minikafka.records.format.message_set import (
    Codec,
    Record,
    TimestampType,
    build_message_set,
    iterate,
    wrap,
)
from minikafka.records.scan.scan import ScanResult, find_position, first_at_or_after, scan
from tests.oracles import messages as oracle
from tests.support.records import CODECS, segment, some_records


def plain(count: int, base_offset: int = 0) -> bytes:
    return build_message_set(some_records(count), base_offset=base_offset)


def test_a_good_set_is_passed_to_its_end() -> None:
    data = plain(10, 500)
    result = scan(data, base_offset=400)
    assert (result.valid_bytes, result.next_offset, result.count) == (len(data), 510, 10)
    assert (result.problem, result.incomplete, result.max_timestamp_ms) == (None, False, 1009)


def test_nothing_is_a_good_set() -> None:
    result = scan(b"", base_offset=7)
    assert (result.valid_bytes, result.next_offset, result.count, result.problem) == (0, 7, 0, None)
    assert result.index_entries.shape == (0, 2)


@pytest.mark.parametrize("codec", CODECS)
def test_wrappers_count_once_and_give_their_timestamp(codec: Codec) -> None:
    data = build_message_set(some_records(4), codec=codec) + build_message_set(
        some_records(5), codec=codec, base_offset=4
    )
    result = scan(data, base_offset=0)
    assert (result.count, result.next_offset) == (2 if codec else 9, 9)
    assert result.max_timestamp_ms == 1004


def test_magic_0_has_no_timestamp() -> None:
    assert scan(build_message_set(some_records(3), magic=0), base_offset=0).max_timestamp_ms == -1


@pytest.mark.parametrize("cut", [1, 5, 11])
def test_a_tail_without_its_size_is_incomplete(cut: int) -> None:
    data = plain(3)
    result = scan(data + plain(1, 3)[:cut], base_offset=0)
    assert (result.valid_bytes, result.incomplete, result.wanted_bytes) == (len(data), True, 0)
    assert result.problem is not None
    assert f"position {len(data)}" in result.problem


@pytest.mark.parametrize("cut", [12, 13, 30, -1])
def test_a_tail_with_its_size_says_how_many_bytes_it_wants(cut: int) -> None:
    data, tail = plain(3), plain(1, 3)
    result = scan(data + tail[:cut], base_offset=0)
    assert (result.valid_bytes, result.incomplete, result.wanted_bytes) == (len(data), True, len(tail))


@pytest.mark.parametrize(
    ("tail", "text"),
    [
        (bytes(4096), "size field"),
        (b"\0" * 8 + b"\xff" * 12, "size field"),
        (plain(1, 3)[:-1] + b"\xff", "checksum"),
        (plain(1, 2), "offset"),
        (plain(1, 0), "offset"),
        (plain(1, 2**31), "offset"),
        (oracle.entry(-1, magic=1, value=b"x"), "offset"),
        (oracle.repaired(plain(1, 3)[:16] + b"\x09" + plain(1, 3)[17:]), "magic"),
    ],
)
def test_damage_ends_the_scan_at_its_position(tail: bytes, text: str) -> None:
    data = plain(3)
    result = scan(data + tail, base_offset=0, position=1000)
    assert (result.valid_bytes, result.next_offset, result.count) == (len(data), 3, 3)
    assert not result.incomplete
    assert result.problem is not None
    assert text in result.problem
    assert f"position {1000 + len(data)}" in result.problem


def test_an_offset_before_the_segments_first_ends_the_scan() -> None:
    assert scan(plain(3, 9), base_offset=10).valid_bytes == 0


def test_the_largest_relative_offset_is_still_good() -> None:
    assert scan(plain(1, 2**31 - 1), base_offset=0).count == 1


def test_data_of_no_segment_may_have_any_rising_offsets() -> None:
    data = plain(1, 5) + plain(1, 2**40)
    assert scan(data, base_offset=None).next_offset == 2**40 + 1


def test_without_checksums_wrong_ones_pass() -> None:
    data = bytearray(plain(3))
    data[-1] ^= 1
    assert scan(data, base_offset=0).count == 2
    assert scan(data, base_offset=0, check_crc=False).count == 3


def test_index_entries_are_those_of_a_recovery_by_kafka() -> None:
    """Recorded: the index that 0.10.1.1 rebuilt for this segment (interval 1024)."""
    recorded = bytes.fromhex(
        "000000150000042c000000240000084f0000003800000c5d0000004700001078000000580000147d000000620000651d"
        "000000720000695c0000008500006d6500000096000071d2000000a7000075f2000000b900007a57"
    )
    entries = scan(segment("magic1-none"), base_offset=0, index_interval_bytes=1024).index_entries
    assert entries.astype(">i4").tobytes() == recorded


@pytest.mark.parametrize("window", [64, 700, 4096, 20_000, 40_000])
@pytest.mark.parametrize("name", ["magic1-none", "magic0-gzip"])
def test_scanned_in_windows_a_segment_gives_the_same_as_at_once(name: str, window: int) -> None:
    data = segment(name)
    whole = scan(data, base_offset=0, index_interval_bytes=512)
    found = []
    position, size, count = 0, window, 0
    last: ScanResult | None = None
    while position < len(data):
        result = scan(
            data[position : position + size],
            base_offset=0,
            next_offset=last.next_offset if last else None,
            last_indexed=last.last_indexed if last else 0,
            position=position,
            index_interval_bytes=512,
        )
        assert result.problem is None or result.incomplete
        size = window if result.valid_bytes else max(2 * size, result.wanted_bytes)
        position += result.valid_bytes
        count += result.count
        found += result.index_entries.tolist()
        last = result
    assert last is not None
    assert (found, count, last.next_offset) == (whole.index_entries.tolist(), whole.count, 200)


def test_the_position_of_an_offset_is_that_of_its_entry() -> None:
    data = plain(3, 10) + build_message_set(some_records(5), codec=Codec.GZIP, base_offset=20)
    starts = [0]
    for record in iterate(data[: len(plain(3))]):
        starts.append(starts[-1] + 34 + len(record.key or b"") + len(record.value or b""))
    assert [find_position(data, offset) for offset in (0, 10, 11, 12, 13, 24)] == [
        0,
        0,
        starts[1],
        starts[2],
        starts[3],
        starts[3],
    ]
    assert find_position(data, 25) is None
    assert find_position(data, 0, position=starts[2]) == starts[2]
    assert find_position(data[:-1], 20) is None


def test_a_position_outside_of_the_data_is_refused() -> None:
    with pytest.raises(ValueError, match="position 5 is outside the data, which has 4 bytes"):
        find_position(b"1234", 0, position=5)
    with pytest.raises(ValueError, match="position -1"):
        find_position(b"1234", 0, position=-1)


def test_a_search_through_damage_is_an_error_with_the_position() -> None:
    data = plain(2) + bytes(40)
    with pytest.raises(BrokerError, match=f"position {len(plain(2))}") as raised:
        find_position(data, 5)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    assert find_position(data, 1) is not None


@pytest.mark.parametrize("codec", CODECS)
def test_the_first_message_that_is_not_older_is_found(codec: Codec) -> None:
    times = [5, 3, 9, 9, 2, 30]
    records = [Record(None, b"x", time) for time in times]
    data = build_message_set(records[:3], codec=codec, base_offset=100) + build_message_set(
        records[3:], codec=codec, base_offset=103
    )
    assert first_at_or_after(data, 0) == (100, 5)
    assert first_at_or_after(data, 6) == (102, 9)
    assert first_at_or_after(data, 10) == (105, 30)
    assert first_at_or_after(data, 31) is None


def test_magic_0_is_found_only_by_a_time_of_minus_one() -> None:
    data = build_message_set(some_records(2), magic=0, base_offset=4)
    assert first_at_or_after(data, -1) == (4, -1)
    assert first_at_or_after(data, 0) is None


def test_wrapper_with_too_late_timestamp_is_skipped() -> None:
    content = build_message_set([Record(None, b"x", 10)])
    data = wrap(content, offset=0, magic=1, codec=Codec.GZIP, timestamp_ms=500)
    after = build_message_set([Record(None, b"y", 400)], base_offset=1)
    assert first_at_or_after(data + after, 300) == (1, 400)


@pytest.mark.parametrize("magic", [1, 2])
def test_a_look_up_by_time_makes_no_object_for_each_record(magic: int) -> None:
    records = [Record(None, b"x", 7) for _ in range(20_000)] + [Record(None, b"x", 8)]
    data = build_message_set(records, magic=magic, codec=Codec.LZ4)
    content_bytes = 30 * len(records)
    assert first_at_or_after(data, 7, 5) == (5, 7)
    tracemalloc.start()
    try:
        assert first_at_or_after(data, 8) == (20_000, 8)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 2 * content_bytes


@pytest.mark.parametrize("least", [0, 101, 104, 105])
def test_look_up_by_time_leaves_out_lower_offsets(least: int) -> None:
    times = [5, 3, 9, 9, 2]
    for magic in (1, 2):
        records = [Record(None, b"x", time) for time in times]
        data = build_message_set(records, magic=magic, codec=Codec.GZIP, base_offset=100)
        wanted = [
            (message.offset, message.timestamp_ms) for message in iterate(data) if message.offset >= least
        ]
        assert first_at_or_after(data, 2, least) == (wanted[0] if wanted else None)


def test_look_up_uses_append_time_for_all_messages_of_a_wrapper() -> None:
    content = build_message_set([Record(None, b"x", 10), Record(None, b"x", 900)])
    data = wrap(
        content,
        offset=4,
        magic=1,
        codec=Codec.GZIP,
        timestamp_ms=500,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
    )
    assert first_at_or_after(data, 500) == (3, 500)
    assert first_at_or_after(data, 501) is None


def test_look_up_by_time_reports_damage_in_a_wrapper() -> None:
    content = bytearray(build_message_set(some_records(3)))
    content[-1] ^= 1
    data = wrap(content, offset=2, magic=1, codec=Codec.GZIP, timestamp_ms=5_000)
    with pytest.raises(BrokerError, match="content of the compressed message") as raised:
        first_at_or_after(data, 0)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    good = build_message_set(some_records(3), codec=Codec.GZIP)
    with pytest.raises(BrokerError, match="checksum"):
        first_at_or_after(good[:-1] + bytes([good[-1] ^ 1]), 0)


def test_look_up_by_time_reports_a_wrong_record_count() -> None:
    data = bytearray(build_message_set(some_records(3), magic=2))
    header = read_header(data, 0)
    write_header(data, replace(header, count=2))
    with pytest.raises(BrokerError, match="the number of records") as raised:
        first_at_or_after(data, 0)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE

"""The check of segments and indexes: valid files pass, and damage is found in its place."""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from minikafka.base.memory_files import MemoryFiles
from minikafka.log import file_scan
from minikafka.log.tools import segment_check
from minikafka.log.tools.dump import Damage, dump_records
from minikafka.log.tools.segment_check import (
    SegmentCheck,
    check_offset_index,
    check_segment,
    check_time_index,
)
from minikafka.records.format.checksums import crc32c
from minikafka.records.format.message_set import Codec, Record, StoredRecord, build_message_set, wrap
from tests.support.damage import damaged, entries_of
from tests.support.logs import DATA, expected_records, plain

SEGMENTS = DATA / "segments"
RECORDED = {
    "magic1": json.loads((DATA / "log-corrupt" / "expected-0.10.1.1.json").read_text()),
    "magic2": json.loads((DATA / "log-corrupt" / "expected-3.9.1.json").read_text()),
}
UNSEEN = {"bitflip-offset-middle", "magic-9-middle", "first-entries-again-at-end"}
"""Checks that the releases do not make: the order of offsets, and the magic byte."""
TIME_MS = 1_700_000_000_000


def files_with(data: bytes) -> MemoryFiles:
    files = MemoryFiles()
    files.open("s", create=True).write_at(0, data)
    return files


def checked(data: bytes, base_offset: int | None = 0, **asked: list[int]) -> SegmentCheck:
    numbers = {name: np.array(values, dtype=np.int64) for name, values in asked.items()}
    return check_segment(files_with(data), "s", base_offset, **numbers)


def kinds_of(magic: str) -> Iterator[tuple[str, bytes]]:
    good = (SEGMENTS / f"{magic}-none.log").read_bytes()
    for kind, data in damaged(good):
        if magic == "magic2" and kind in {"bitflip-crc-middle", "magic-9-middle"}:
            # The checksum lies elsewhere, and does not cover the magic byte.
            changed, (middle, _) = bytearray(good), entries_of(good)[6]
            middle = next(p for p, size in entries_of(good)[6:] if size > 300)
            at = middle + (17 if kind == "bitflip-crc-middle" else 16)
            changed[at] = changed[at] ^ 8 if kind == "bitflip-crc-middle" else 9
            data = bytes(changed)
        yield kind, data


DAMAGED = {f"{magic}-{kind}": data for magic in RECORDED for kind, data in kinds_of(magic)}


@pytest.fixture(params=[None, 64], ids=["at-once", "in-windows"])
def windows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param is not None:
        monkeypatch.setattr(file_scan, "WINDOW_BYTES", request.param * 32)
        monkeypatch.setattr(segment_check, "_DECODE_BYTES", request.param * 8)


@pytest.mark.usefixtures("windows")
@pytest.mark.parametrize("name", sorted(path.stem for path in SEGMENTS.glob("*.log")))
def test_every_recorded_segment_is_right(name: str) -> None:
    found = checked((SEGMENTS / f"{name}.log").read_bytes())
    marks = 5 if name == "magic2-transactions" else 0
    assert found.damage == ()
    assert found.records == 200 + marks
    assert (found.first_offset, found.last_offset) == (0, 199 + marks)
    assert found.magics == (int(name[5]),)
    codec = next((known for known in ("gzip", "snappy", "lz4", "zstd") if known in name), "none")
    assert found.codecs == (codec,)


def test_the_offsets_topic_is_right_and_dumped_as_it_is() -> None:
    folder = DATA / "consumer-offsets"
    data = (folder / "00000000000000000000.log").read_bytes()
    records = list(dump_records(files_with(data), "s"))
    assert plain([record for record in records if isinstance(record, StoredRecord)]) == expected_records(
        folder / "expected.jsonl"
    )
    found = checked(data)
    assert (found.damage, found.records, found.last_offset) == ((), len(records), 20)


@pytest.mark.parametrize(
    "folder", sorted(DATA.glob("compacted/*/*/")), ids=lambda path: "-".join(path.parts[-2:])
)
def test_compacted_segments_are_right_and_give_their_records(folder: Path) -> None:
    records: list[StoredRecord] = []
    for segment in sorted(folder.glob("*.log")):
        data = segment.read_bytes()
        found = list(dump_records(files_with(data), "s"))
        records += [record for record in found if isinstance(record, StoredRecord)]
        check = checked(data, int(segment.stem))
        assert (check.damage, check.records) == ((), len(found))
    assert plain(records) == expected_records(folder / "expected.jsonl")


@pytest.mark.usefixtures("windows")
@pytest.mark.parametrize("name", DAMAGED)
def test_damage_begins_where_the_release_cuts(name: str) -> None:
    magic, _, kind = name.partition("-")
    data, expected = DAMAGED[name], RECORDED[magic][kind]
    assert hashlib.sha256(data).hexdigest() == expected["sha256"]
    found = checked(data)
    begins = found.damage[0].position if found.damage else len(data)
    if kind in UNSEEN:
        assert found.damage
    else:
        assert begins == expected["valid_bytes"]


@pytest.mark.parametrize("name", DAMAGED)
def test_a_dump_tells_the_same_damage_and_the_same_number_of_records(name: str) -> None:
    found = list(dump_records(files_with(DAMAGED[name]), "s"))
    damage = [(part.position, part.length) for part in found if isinstance(part, Damage)]
    records = [record for record in found if isinstance(record, StoredRecord)]
    check = checked(DAMAGED[name])
    # Of what comes in the wrong order, a dump shows the records.
    if "offset-middle" not in name and "again" not in name:
        assert [(part.position, part.length) for part in check.damage] == damage
        assert check.records == len(records)


def test_offsets_may_rise_anew_behind_those_that_fall() -> None:
    first = build_message_set([Record(None, b"x")] * 3, base_offset=10)
    second = build_message_set([Record(None, b"y")] * 3, base_offset=5)
    found = checked(first + second, 0)
    assert [(part.position, part.length) for part in found.damage] == [(len(first), len(second) // 3)]
    assert "not larger than the previous one" in found.damage[0].reason


def test_a_file_with_a_wrong_name_is_told_once() -> None:
    found = checked(build_message_set([Record(None, b"x")] * 50, base_offset=10), 1000)
    assert len(found.damage) == 1
    assert found.records == 49


def test_an_unknown_base_offset_is_that_of_the_first_entry() -> None:
    found = checked(build_message_set([Record(None, b"x")] * 3, base_offset=1 << 40), None)
    assert (found.damage, found.first_offset, found.last_offset) == ((), 1 << 40, (1 << 40) + 2)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_undecodable_content_is_damage_despite_a_right_checksum(magic: int, codec: Codec) -> None:
    records = [Record(b"k", b"v" * 100, 5)] * 20
    first, second, third = (
        build_message_set(records, magic=magic, codec=codec, base_offset=offset) for offset in (0, 20, 40)
    )
    wrong = with_right_checksum(second, {len(second) - 20: 0xFF, len(second) - 19: 0xFF})
    found = checked(first + wrong + third)
    assert [(part.position, part.length) for part in found.damage] == [(len(first), len(second))]
    assert found.records == 40


@pytest.mark.parametrize("magic", [0, 1])
def test_decreasing_inner_offsets_are_damage_of_the_outer_message(magic: int) -> None:
    before = build_message_set([Record(None, b"x")] * 2, magic=magic, codec=Codec.GZIP)
    inner = build_message_set([Record(None, b"y")] * 3, magic=magic, base_offset=0)
    content = inner[: len(inner) // 3] * 2 + inner[len(inner) // 3 :]
    wrong = wrap(content, offset=5, magic=magic, codec=Codec.GZIP, timestamp_ms=-1)
    after = build_message_set([Record(None, b"z")] * 2, magic=magic, codec=Codec.GZIP, base_offset=6)
    found = checked(before + wrong + after)
    assert [(part.position, part.length) for part in found.damage] == [(len(before), len(wrong))]
    assert (found.first_offset, found.last_offset) == (0, 7)


def with_right_checksum(entry: bytes, changes: dict[int, int]) -> bytes:
    out = bytearray(entry)
    for at, byte in changes.items():
        out[at] = byte
    if out[16] == 2:
        out[17:21] = struct.pack(">I", crc32c(bytes(out[21:])))
    else:
        out[12:16] = struct.pack(">I", zlib.crc32(out[16:]))
    return bytes(out)


def test_a_message_larger_than_a_window_is_checked_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_scan, "WINDOW_BYTES", 1000)
    good = build_message_set([Record(None, b"x" * 5000), Record(None, b"y")], magic=1)
    assert checked(good).damage == ()
    wrong = bytearray(good)
    wrong[3000] ^= 1
    found = checked(bytes(wrong))
    assert [(part.position, part.length) for part in found.damage] == [(0, 5034)]
    assert "checksum" in found.damage[0].reason
    assert found.records == 1


# Indexes.


def plain_segment(count: int = 10) -> tuple[bytes, int]:
    """Return messages of one size with increasing times, and that size."""
    records = [Record(None, b"%06d" % number, TIME_MS + number) for number in range(count)]
    data = build_message_set(records, base_offset=100)
    return data, len(data) // count


def wrong_offset_entries(*entries: tuple[int, int], growing: bool = False, data: bytes = b"") -> list[str]:
    """Return the problems of an offset index of relative offsets and message numbers."""
    whole, size = plain_segment()
    numbers = np.array([(offset, number * size) for offset, number in entries], dtype=np.int64)
    segment = checked(data or whole, 100, positions=numbers[:, 1].tolist())
    return [str(damage) for damage in check_offset_index("i", numbers, 100, segment, growing=growing)]


def test_offset_entries_of_what_lies_there_are_right() -> None:
    assert wrong_offset_entries((1, 1), (4, 4), (9, 9)) == []


def test_an_offset_entry_may_name_any_offset_up_to_the_next_entry() -> None:
    # A later release notes the last offset of all that was appended at once.
    assert wrong_offset_entries((3, 1), (9, 4)) == []


@pytest.mark.parametrize(
    ("entries", "position", "reason"),
    [
        ([(1, 1), (4, 3.5)], 8, "no entry of the segment begins there"),
        ([(1, 1), (4, 5)], 8, "offset 104, position 200: the entries before that position reach offset 104"),
        ([(5, 1), (6, 5)], 0, "to the next indexed position reach 104"),
        ([(4, 4), (4, 5)], 8, "not greater"),
        ([(4, 4), (5, 4)], 8, "not greater"),
        ([(4, 4), (10, 10)], 8, "the segment has 400 bytes"),
        ([(4, 4), (10, 9)], 8, "to the next indexed position reach 109"),
        ([(-1, 0)], 0, "negative number"),
    ],
)
def test_an_offset_entry_that_leads_astray_is_told(
    entries: list[tuple[int, int]], position: int, reason: str
) -> None:
    (text,) = wrong_offset_entries(*entries)
    assert text.startswith(f"i: 8 bytes from position {position} are damaged: ")
    assert reason in text


def test_offset_entries_of_what_was_appended_meanwhile_are_no_damage() -> None:
    assert wrong_offset_entries((4, 4), (12, 12), growing=True) == []


def test_offset_entries_into_damage_are_not_told_again() -> None:
    data, size = plain_segment()
    assert wrong_offset_entries((2, 2), (7, 7), data=data[: 5 * size] + bytes(5 * size)) == []


def wrong_time_entries(
    *entries: tuple[int, int], closed: bool = False, growing: bool = False, times: list[int] | None = None
) -> list[str]:
    """Return the problems of a time index; entries are ms after TIME_MS, and relative offsets."""
    after = times or list(range(10))
    records = [Record(None, b"x", TIME_MS + ms) for ms in after]
    numbers = np.array([(TIME_MS + ms, offset) for ms, offset in entries], dtype=np.int64).reshape(-1, 2)
    data = build_message_set(records, base_offset=100)
    segment = checked(data, 100, offsets=(100 + numbers[:, 1]).tolist())
    found = check_time_index("t", numbers, 100, segment, closed=closed, growing=growing)
    return [str(damage) for damage in found]


def test_time_entries_of_what_lies_there_are_right() -> None:
    assert wrong_time_entries((2, 2), (9, 9), closed=True) == []
    assert wrong_time_entries((5, 1), (7, 3), times=[0, 5, 3, 7], closed=True) == []


@pytest.mark.parametrize(
    ("entries", "position", "reason"),
    [
        ([(2, 3)], 0, f"the largest timestamp up to that offset is {TIME_MS + 3}"),
        ([(2, 2), (4, 3)], 12, f"the largest timestamp up to that offset is {TIME_MS + 3}"),
        ([(2, 2), (2, 3)], 12, "not greater"),
        ([(3, 3), (4, 2)], 12, "not greater"),
        ([(2, 2), (30, 30)], 12, "the segment does not hold that offset"),
        ([(2, -2)], 0, "negative number"),
    ],
)
def test_a_time_entry_that_leads_astray_is_told(
    entries: list[tuple[int, int]], position: int, reason: str
) -> None:
    (text,) = wrong_time_entries(*entries)
    assert text.startswith(f"t: 12 bytes from position {position} are damaged: ")
    assert reason in text


def test_a_time_entry_behind_a_message_that_is_as_new_is_told() -> None:
    (text,) = wrong_time_entries((5, 3), times=[0, 5, 3, 5])
    assert f"timestamp {TIME_MS + 5} occurs before that offset" in text


def test_the_time_index_of_a_closed_segment_ends_with_its_largest_time() -> None:
    reason = f"t: the last timestamp is {TIME_MS + 2}, the largest of the segment is {TIME_MS + 9}"
    assert wrong_time_entries((2, 2), closed=True) == [reason]
    assert wrong_time_entries((2, 2), closed=False) == []


def test_time_entries_of_what_was_appended_meanwhile_are_no_damage() -> None:
    assert wrong_time_entries((2, 2), (30, 30), growing=True) == []


def test_entries_are_found_across_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_scan, "WINDOW_BYTES", 100)
    assert wrong_offset_entries((1, 1), (3, 3), (4, 4), (9, 9)) == []
    assert wrong_time_entries((0, 0), (3, 3), (4, 4), (9, 9), closed=True) == []

"""The records of a segment file, as ``minikafka log dump`` shows them."""

from __future__ import annotations

import pytest

from minikafka.base.files import RealFiles
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.tools import dump
from minikafka.log.tools.dump import Damage, dump_records
from minikafka.records.format.message_set import Codec, StoredRecord
from tests.support.damage import damaged, entries_of
from tests.support.disks import WatchedReads
from tests.support.logs import DATA, expected_records, plain

SEGMENTS = DATA / "segments"
GOOD = (SEGMENTS / "magic1-none.log").read_bytes()
KINDS = dict(damaged(GOOD))


def dumped(data: bytes, *, deep: bool = True) -> list[StoredRecord | Damage]:
    files = MemoryFiles()
    files.open("s", create=True).write_at(0, data)
    return list(dump_records(files, "s", deep=deep))


@pytest.mark.parametrize("window_bytes", [1 << 20, 100])
@pytest.mark.parametrize("name", sorted(path.stem for path in SEGMENTS.glob("*.log")))
def test_every_recorded_segment_gives_its_records(
    name: str, window_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dump, "WINDOW_BYTES", window_bytes)
    expected = SEGMENTS / f"expected-{name}.jsonl"
    if not expected.exists():
        expected = SEGMENTS / f"expected-{name[:6]}.jsonl"
    records = list(dump_records(RealFiles(), str(SEGMENTS / f"{name}.log")))
    marks = [record for record in records if isinstance(record, StoredRecord) and record.control]
    found = [record for record in records if isinstance(record, StoredRecord) and not record.control]
    assert plain(found) == expected_records(expected)
    assert len(found) == 200
    assert len(records) == 200 + len(marks)
    assert len(marks) == (5 if name == "magic2-transactions" else 0)


@pytest.mark.parametrize("partition", ["alpha-0", "alpha-1", "beta-0", "beta-1"])
def test_the_segments_of_a_real_partition_give_its_records(partition: str) -> None:
    folder = DATA / "log-dir"
    found: list[StoredRecord | Damage] = []
    for path in sorted((folder / "data" / partition).glob("*.log")):
        found += dump_records(RealFiles(), str(path))
    records = [record for record in found if isinstance(record, StoredRecord)]
    assert len(records) == len(found)
    assert plain(records) == expected_records(folder / f"{partition}.jsonl")


def test_compressed_sets_can_be_left_closed() -> None:
    records = dumped((SEGMENTS / "magic1-gzip.log").read_bytes(), deep=False)
    assert len(records) == 12
    assert {record.codec for record in records if isinstance(record, StoredRecord)} == {Codec.GZIP}


def test_an_empty_file_has_no_records() -> None:
    assert dumped(b"") == []


def test_a_missing_file_says_so() -> None:
    with pytest.raises(FileNotFoundError):
        next(dump_records(MemoryFiles(), "absent"))


def test_a_torn_end_is_reported_with_position_and_length() -> None:
    *records, damage = dumped(KINDS["truncated-mid-payload"])
    assert len(records) == 199
    assert isinstance(damage, Damage)
    assert (damage.position, damage.length) == (32260, 38)
    assert "18 bytes are missing at the end of the file" in str(damage)


def test_a_flipped_bit_costs_one_message_only() -> None:
    found = dumped(KINDS["bitflip-payload-middle"])
    (damage,) = [part for part in found if isinstance(part, Damage)]
    position, size = next(entry for entry in entries_of(GOOD) if entry[0] == 26015)
    assert (damage.position, damage.length) == (position, size)
    assert "checksum" in damage.reason
    assert [record.offset for record in found if isinstance(record, StoredRecord)] == [
        *range(101),
        *range(102, 200),
    ]


def test_damage_that_nothing_plausible_follows_reaches_to_the_end() -> None:
    *records, damage = dumped(KINDS["size-plus-1-middle"])
    assert len(records) == 101
    assert isinstance(damage, Damage)
    assert (damage.position, damage.length) == (26015, len(GOOD) - 26015)
    assert "checksum" in damage.reason


@pytest.mark.parametrize(
    "kind", ["size-zero-middle", "size-negative-middle", "size-max-int-middle", "size-13-middle"]
)
def test_a_senseless_size_ends_the_dump_there(kind: str) -> None:
    *records, damage = dumped(KINDS[kind])
    assert len(records) == 101
    assert isinstance(damage, Damage)
    assert (damage.position, damage.length) == (26015, len(GOOD) - 26015)
    assert "the size field holds" in damage.reason


@pytest.mark.parametrize("kind", KINDS)
def test_no_damage_is_passed_over_in_silence(kind: str) -> None:
    found = dumped(KINDS[kind])
    records = [record for record in found if isinstance(record, StoredRecord)]
    damage = [part for part in found if isinstance(part, Damage)]
    assert len({record.offset for record in records}) >= len(records) - 2
    covered = sum(part.length for part in damage)
    assert covered <= len(KINDS[kind])
    if kind not in {"good", "empty", "bitflip-offset-middle", "first-entries-again-at-end"}:
        assert damage


def test_only_a_window_is_read_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump, "WINDOW_BYTES", 1000)
    files = WatchedReads()
    files.open("s", create=True).write_at(0, GOOD)
    assert len(list(dump_records(files, "s"))) == 200
    largest_entry = max(size for _, size in entries_of(GOOD))
    assert [size for _, size in files.reads if size > 1000] == [largest_entry]

"""Logs that hold record batches of magic 2, as Apache Kafka 3.9.1 wrote them."""

from __future__ import annotations

from functools import cache

import pytest

from minikafka.base.memory_files import MemoryFiles
from minikafka.log import file_scan
from minikafka.log import segment as segments
from minikafka.log.config import LogConfig
from minikafka.log.log import Log
from minikafka.log.reading import LogRead
from minikafka.records.append.replicated import replicated
from minikafka.records.append.validation import assign
from minikafka.records.format.message_set import iterate
from tests.support.logs import HOME, numbered, open_log, read_all, valid_set
from tests.support.records import BATCH_CASES, expected, row_of, segment

SEGMENT = f"{HOME}/00000000000.kafka"
CONFIG = LogConfig(index_interval_bytes=1024)
every_case = pytest.mark.parametrize("name", BATCH_CASES)


def end_of(name: str) -> int:
    """The log end offset that 3.9.1 had."""
    return 205 if name == "magic2-transactions" else 200


def log_with(data: bytes, *, clean: bool = False) -> tuple[MemoryFiles, Log]:
    files = MemoryFiles()
    files.make_dirs(HOME)
    file = files.open(SEGMENT, create=True)
    file.write_at(0, data)
    file.close()
    return files, open_log(files, CONFIG, clean=clean)


@every_case
@pytest.mark.parametrize("clean", [False, True])
def test_log_of_batches_opens_whole_with_the_records_of_kafka(name: str, clean: bool) -> None:
    _, log = log_with(segment(name), clean=clean)
    assert (log.recovery, log.end_offset, log.size_bytes) == (None, end_of(name), len(segment(name)))
    assert [row_of(record) for record in read_all(log) if not record.control] == expected(name)


@every_case
def test_every_offset_of_a_batch_leads_to_the_batch(name: str) -> None:
    @cache
    def offsets_in(data: bytes) -> set[int]:
        return {record.offset for record in iterate(data)}

    _, log = log_with(segment(name))
    for offset in range(end_of(name)):
        found = log.read(offset, 1).slice
        assert found is not None
        assert offset in offsets_in(bytes(found.read()))


def test_a_header_that_a_look_cuts_off_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    _, log = log_with(segment("magic2-none"))
    newest = log.segments[-1]
    whole = [newest.translate_offset(offset) for offset in range(200)]
    for look_bytes in range(27, 1200, 7):
        monkeypatch.setattr(segments, "_LOOK_BYTES", look_bytes)
        assert [newest.translate_offset(offset) for offset in range(0, 200, 9)] == whole[::9]


@every_case
def test_a_truncation_inside_a_batch_takes_all_of_it(name: str) -> None:
    _, log = log_with(segment(name))
    kept = [record.offset for record in read_all(log)]
    found = log.read(57, 1).slice
    assert found is not None
    first = next(record.offset for record in iterate(found.read()))
    log.truncate_to(57)
    assert log.end_offset == first
    assert [record.offset for record in read_all(log)] == [offset for offset in kept if offset < first]


def test_an_index_that_kafka_wrote_for_batches_is_believed() -> None:
    """Recorded: 3.9.1's index of this segment (interval 1024). It names the last offset of each batch."""
    files, _ = log_with(segment("magic2-none"))
    index = files.open(f"{HOME}/00000000000.index", create=True)
    recorded = bytes.fromhex("00000034000006610000005700001013000000b600006846000000c700006f91")
    index.write_at(0, recorded)
    index.truncate(len(recorded))
    log = open_log(files, CONFIG, clean=True)
    (only,) = log.segments
    assert len(only.index()) == 4
    for offset in range(200):
        found = log.read(offset, 1).slice
        assert found is not None
        assert offset in {record.offset for record in iterate(found.read())}
    index.close()


@pytest.mark.parametrize("damaged", [False, True])
def test_a_batch_larger_than_a_window_is_judged_by_its_own_checksum(
    monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    monkeypatch.setattr(file_scan, "WINDOW_BYTES", 300)
    data = bytearray(segment("magic2-gzip"))
    if damaged:
        data[-1] ^= 1
    _, log = log_with(data)
    assert (log.recovery is not None) == damaged
    assert (log.end_offset == 200) == (not damaged)


def is_classic(read: LogRead) -> bool:
    steps = read.classic_steps()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return bool(end.value)


def test_classic_messages_before_batches_are_known_to_be_that() -> None:
    plain = bytes(assign(valid_set(numbered(0, 3)), 0).data)
    from_offset_6_on = segment("magic2-none")[402:]
    _, log = log_with(plain + from_offset_6_on)
    assert log.end_offset == 200
    assert is_classic(log.read(0, len(plain)))
    assert not is_classic(log.read(0, len(plain) + 200))
    assert not is_classic(log.read(6, 200))


def test_reader_of_a_part_being_cut_learns_nothing_of_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    one, many = (bytes(assign(valid_set(numbered(0, count)), 0).data) for count in (1, 40))
    _, log = log_with(many)
    read, file = log.read(0, len(many)), log.segments[0].file
    whole = file.truncate

    def truncate(size: int) -> None:
        assert is_classic(read)
        whole(size)

    monkeypatch.setattr(file, "truncate", truncate)
    log.truncate_to(1)
    copied = replicated(segment("magic2-none")[402:], 6)
    assert copied is not None
    log.append_as_follower(copied)
    assert is_classic(log.read(0, len(one)))
    assert not is_classic(log.read(0, len(one) + 200))


def test_kinds_of_appended_entries_are_known_without_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(MemoryFiles(), CONFIG)
    log.append(valid_set(numbered(0, 3)))
    found = log.read(0, 1000)
    (only,) = log.segments
    monkeypatch.setattr(type(only.file), "read_at", lambda *_: pytest.fail("the file was read"))
    assert is_classic(found)


def test_a_log_is_looked_through_once_for_its_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFiles()
    log = open_log(files, CONFIG)
    for first in range(0, 30, 3):
        log.append(valid_set(numbered(first, 3)))
    log.close()
    again = open_log(files, CONFIG, clean=True)
    pieces = [again.read(offset, 200) for offset in range(0, 30, 3)]
    assert all(is_classic(piece) for piece in pieces)
    (only,) = again.segments
    monkeypatch.setattr(type(only.file), "read_at", lambda *_: pytest.fail("the file was read again"))
    assert all(is_classic(piece) for piece in pieces)

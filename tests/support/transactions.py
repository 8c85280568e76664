"""Transactions in a log: batches and markers that its leader appends."""

from __future__ import annotations

from minikafka.base.memory_files import MemoryFiles
from minikafka.log.config import LogConfig
from minikafka.log.index.transaction_index import AbortedTransaction
from minikafka.log.log import Log
from minikafka.log.transactions import aborted_steps
from minikafka.records.append.produced import Limits, ValidatedRecords
from minikafka.records.append.validation import validate
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Record
from tests.support.logs import NOW_MS, open_log

ONE_SEGMENT = LogConfig(segment_bytes=1 << 20)


def part_of_transaction(
    producer: int, count: int, *, epoch: int = 0, sequence: int = 0, key: bytes | None = None
) -> ValidatedRecords:
    """A batch of a producer's transaction."""
    data = build_batch(
        [Record(key, b"%d" % number, NOW_MS) for number in range(count)],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )
    return validate(bytearray(data), Limits(max_magic=2), NOW_MS)


def write_in_transaction(log: Log, producer: int, count: int = 1, *, key: bytes | None = None) -> None:
    """Append the next batch of a producer."""
    known = log.producers.known.get(producer)
    epoch, sequence = (max(known.epoch, 0), known.last_sequence + 1) if known else (0, 0)
    log.append(part_of_transaction(producer, count, epoch=epoch, sequence=sequence, key=key), now_ms=NOW_MS)


def end_transaction(log: Log, producer: int, *, commit: bool) -> int:
    """Append the marker of a producer; its offset."""
    known = log.producers.known.get(producer)
    epoch = max(known.epoch, 0) if known else 0
    return log.append_end_marker(producer, epoch, 0, commit=commit, now_ms=NOW_MS).first_offset


def abort(log: Log, producer: int, count: int = 1, *, key: bytes | None = None) -> int:
    """A whole transaction that is aborted; the offset of its marker."""
    write_in_transaction(log, producer, count, key=key)
    return end_transaction(log, producer, commit=False)


def entries(log: Log) -> list[AbortedTransaction]:
    """Those of all transaction indexes."""
    indexes = [segment.transactions.index() for segment in log.segments]
    return [entry for index in indexes if index is not None for entry in index.entries()]


def aborted(log: Log, offset: int = 0, max_bytes: int = 1 << 20) -> list[tuple[int, int]]:
    """The aborted transactions of a read."""
    steps = aborted_steps(log, log.read(offset, max_bytes, partial=False))
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            found: list[tuple[int, int]] = stop.value
            return found


def index_files(files: MemoryFiles, log: Log) -> list[str]:
    return [name for name in files.list_dir(log.directory) if ".txnindex" in name]


def without_indexes(files: MemoryFiles, log: Log) -> Log:
    """The log as a release left it that had no transaction indexes, opened again."""
    log.close()
    for name in index_files(files, log):
        files.remove(f"{log.directory}/{name}")
    return open_log(files, log.config, clean=True)

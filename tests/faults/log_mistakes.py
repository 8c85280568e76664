"""Mistakes that the log simulation must find: each removes one precaution from the product.

``MISTAKES`` has them by description.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from minikafka.base.files import Files
from minikafka.base.ids import TopicPartition
from minikafka.base.memory_files import MemoryFile, MemoryFiles
from minikafka.log import file_scan
from minikafka.log.checkpoints.data_directory import DataDirectory, OffsetCheckpointFile
from minikafka.log.checkpoints.leader_epochs import LeaderEpochs
from minikafka.log.cleanup import cleaner
from minikafka.log.index.offset_index import OffsetIndex
from minikafka.log.layout import CLEANED_SUFFIX, SWAP_SUFFIX, Layout
from minikafka.log.log import Log
from minikafka.log.manager import LogManager
from minikafka.log.producers.producer_state_manager import ProducerStateManager
from minikafka.log.recovery import log_loader, segment_replacement
from minikafka.log.segment import Segment
from tests.faults.mistake import Mistake, no, nothing

SEGMENTS = tuple(layout.segment_suffix for layout in Layout)

sync_file, sync_directory, remove_file = MemoryFile.sync, MemoryFiles.sync_dir, MemoryFiles.remove
roll, rename_to_deleted, load_index = Log._roll, segment_replacement.rename_to_deleted, OffsetIndex.load
adopt, rebuild = Segment.adopt_scan, ProducerStateManager.rebuild
close_directory, delete = LogManager._close_directory, LogManager.delete


def sync_no_segment(file: MemoryFile) -> None:
    if not file.path.endswith(SEGMENTS):
        sync_file(file)


def sync_no_swap(file: MemoryFile) -> None:
    if not file.path.endswith(CLEANED_SUFFIX):
        sync_file(file)


def sync_no_partition_directory(files: MemoryFiles, path: str) -> None:
    if "/" not in path:
        sync_directory(files, path)


def sync_no_data_directory(files: MemoryFiles, path: str) -> None:
    if "/" in path:
        sync_directory(files, path)


def check_nothing(found: log_loader._Recovery, number: int) -> int:
    return found._segments[number].next_offset()


def cut_nothing(segment: Segment, size: int) -> None:
    segment.size = segment.file.size()


def cut_without_sync(segment: Segment, size: int) -> None:
    segment.size = size
    segment.index().cut(size)
    segment.file.truncate(size)


def believe_index(files: Files, path: str, base_offset: int, segment_bytes: int) -> OffsetIndex | None:
    """Believe an index file that reaches beyond its segment."""
    return load_index(files, path, base_offset, 1 << 40)


def believe_every_snapshot(
    producers: ProducerStateManager, segments: Sequence[Segment], end_offset: int, _up_to: int, **more: Any
) -> None:
    """Believe a snapshot beyond the end of the log."""
    rebuild(producers, segments, 1 << 40, 1 << 40, **more)


def adopt_no_index(segment: Segment, found: file_scan.FileScan) -> OffsetIndex:
    """Use the index file instead of the scan's index, if there is one."""
    index = adopt(segment, found)
    segment._index = load_index(segment._files, segment._index_path, segment.base_offset, 1 << 40) or index
    return index


def ends(manager: LogManager, directory: DataDirectory) -> dict[TopicPartition, int]:
    return {partition: log.end_offset for partition, log in manager._in(directory)}


def roll_from_zero(log: Log, now_ms: int) -> Segment:
    """Name the new segment by an offset that is one too large."""
    real, log_loader.create_segment = log_loader.create_segment, _one_further
    try:
        return roll(log, now_ms)
    finally:
        log_loader.create_segment = real


def _one_further(
    files: Files,
    directory: str,
    layout: Layout,
    base_offset: int,
    now_ms: int | None = None,
    *,
    room_bytes: int = 0,
) -> Segment:
    name = layout.segment_name(base_offset + 1)
    return log_loader._create(files, directory, layout, base_offset, name, now_ms, room_bytes)


def replace_in_the_wrong_order(log: Log, new: Segment, old: Sequence[Segment]) -> list[str]:
    """Remove the old segments before the new one is valid."""
    new.file.sync()
    for segment in old:
        segment.load_indexes()
    deleted = list(segment_replacement.rename_to_deleted(log._files, log.directory, log.layout, old))
    log._files.sync_dir(log.directory)
    final = new.path.removesuffix(CLEANED_SUFFIX)
    log._put_in_place(new, old, final + SWAP_SUFFIX)
    log._change = None
    new.move(final)
    log._files.sync_dir(log.directory)
    return deleted


def drop_swap(files: Files, _directory: str, _layout: Layout, _base: int, swap: str) -> None:
    files.remove(swap)


def retire_newest_first(
    files: Files, directory: str, layout: Layout, segments: Iterable[Segment]
) -> Iterator[str]:
    return rename_to_deleted(files, directory, layout, list(segments)[::-1])


def truncate_only(manager: LogManager, partition: TopicPartition, offset: int) -> None:
    manager._logs[partition].truncate_to(offset)


def advance_only(manager: LogManager, partition: TopicPartition, offset: int) -> None:
    manager._logs[partition].increment_start_offset(offset)


def delete_without_checkpoints(manager: LogManager, partition: TopicPartition) -> bool:
    real, LogManager.checkpoint = LogManager.checkpoint, nothing
    try:
        return delete(manager, partition)
    finally:
        LogManager.checkpoint = real


def mark_before_closing(manager: LogManager, directory: DataDirectory) -> None:
    directory.mark_clean()
    close_directory(manager, directory)


def flush_newest_only(log: Log, up_to: int | None = None) -> int:
    log.segments[-1].file.sync()
    log._files.sync_dir(log.directory)
    log._recovery_point = log.end_offset
    return log.end_offset


def flush_later(log: Log) -> bool:
    """Flush one batch too late."""
    limit = log.config.flush_messages
    return limit is not None and log.unflushed_messages >= 2 * limit


def roll_without_sync(log: Log, now_ms: int) -> Segment:
    """Do not flush the end and the indexes of a full segment whose messages are all flushed."""
    recovery_point, log._recovery_point = log._recovery_point, -1
    try:
        return roll(log, now_ms)
    finally:
        log._recovery_point = recovery_point


MISTAKES: dict[str, Mistake] = {
    "segments are not flushed": Mistake([(MemoryFile, "sync", sync_no_segment)]),
    "names in a partition's directory are not flushed": Mistake(
        [(MemoryFiles, "sync_dir", sync_no_partition_directory)]
    ),
    "names in a data directory are not flushed": Mistake([(MemoryFiles, "sync_dir", sync_no_data_directory)]),
    "a flush leaves out full segments": Mistake([(Log, "flush", flush_newest_only)]),
    "a full segment's end and indexes are not flushed": Mistake([(Log, "_roll", roll_without_sync)]),
    "flush.messages comes late": Mistake([(Log, "needs_flush", flush_later)]),
    "flush.ms is forgotten": Mistake([(LogManager, "flush_dirty_logs", nothing)], ("wait",)),
    "a recovery point is stored before the flush": Mistake([(LogManager, "_recovery_points_of", ends)]),
    "the recovery point stays behind a truncation": Mistake([(LogManager, "truncate", truncate_only)]),
    "the points of a deleted partition stay": Mistake(
        [(LogManager, "delete", delete_without_checkpoints), (OffsetCheckpointFile, "holds_too_much", no)],
        ("delete",),
    ),
    "a truncation is not flushed": Mistake([(Segment, "cut", cut_without_sync)]),
    "a damaged end is not detected": Mistake([(log_loader._Recovery, "_check", check_nothing)]),
    "a damaged end is not cut": Mistake([(Segment, "cut", cut_nothing)]),
    "a hole in the log is served": Mistake([(log_loader._Recovery, "_break_behind", nothing)]),
    "recovery does not rewrite unflushed data": Mistake(
        [(file_scan, "_rewrite", nothing)], ("fail_a_flush",)
    ),
    "an index ahead of its segment is believed": Mistake(
        [(OffsetIndex, "load", believe_index), (Segment, "adopt_scan", adopt_no_index)]
    ),
    "a new segment has the wrong base offset": Mistake([(Log, "_roll", roll_from_zero)]),
    "the clean marker is made before the flush": Mistake(
        [(LogManager, "_close_directory", mark_before_closing)], ("close",)
    ),
    "the clean marker stays": Mistake([(DataDirectory, "unmark", nothing)]),
    "retention deletes the newest first": Mistake(
        [(segment_replacement, "rename_to_deleted", retire_newest_first)], ("retain",)
    ),
    "the start offset is not stored": Mistake([(LogManager, "increment_start_offset", advance_only)]),
    "epochs are not truncated with the log": Mistake([(LeaderEpochs, "truncate_from_end", nothing)]),
    "a replacing segment is not flushed": Mistake([(MemoryFile, "sync", sync_no_swap)], ("clean",)),
    "old segments are removed before the new one is valid": Mistake(
        [(Log, "replace_segments", replace_in_the_wrong_order)], ("clean",)
    ),
    "a replacement is not finished at open": Mistake(
        [(segment_replacement, "_finish", drop_swap)], ("clean",)
    ),
    "leftovers of replaced segments are not removed": Mistake(
        [(log_loader, "complete_swaps", no)], ("clean",)
    ),
    "a tombstone is removed by the first compaction": Mistake(
        [(cleaner._Pass, "_tombstones_stay", no)], ("compact",)
    ),
    "batches after a producer snapshot are not replayed": Mistake(
        [(ProducerStateManager, "_replay_segment", nothing)]
    ),
    "a producer snapshot of truncated batches is believed": Mistake(
        [
            (ProducerStateManager, "rebuild", believe_every_snapshot),
            (ProducerStateManager, "delete_snapshots_after", nothing),
        ],
        ("truncate",),
    ),
    "a deleted partition is kept": Mistake([(MemoryFiles, "remove_tree", nothing)]),
}

"""Opening a partition's directory: find its segments, check them, and remove what is damaged.

The module ``log`` describes what is checked and removed, and when.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from minikafka.base.errors import StorageError
from minikafka.base.files import Files
from minikafka.log.checkpoints.leader_epochs import LeaderEpochs
from minikafka.log.config import LogConfig
from minikafka.log.file_scan import (
    FileScan,
    RecoveryReport,
    RemovedBytes,
    free_path,
    only_zeros,
    save_bytes,
    scan_file,
)
from minikafka.log.layout import CLEANED_SUFFIX, LEADER_EPOCH_FILE, Layout
from minikafka.log.producers.producer_state_manager import ProducerStateManager, snapshot_offsets
from minikafka.log.recovery.segment_replacement import complete_swaps
from minikafka.log.segment import Segment


@dataclass(frozen=True, slots=True)
class LoadedLog:
    """The state of a log after it was opened."""

    segments: tuple[Segment, ...]
    start_offset: int
    end_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    report: RecoveryReport | None
    names_changed: bool
    """True if the directory has names that were not flushed."""
    producers: ProducerStateManager


def create_segment(
    files: Files,
    directory: str,
    layout: Layout,
    base_offset: int,
    now_ms: int | None = None,
    *,
    room_bytes: int = 0,
) -> Segment:
    """Create an empty segment with its index files. The caller flushes the directory. Raises StorageError.

    ``room_bytes``: the preallocated size of the file (``preallocate``).
    """
    name = layout.segment_name(base_offset)
    segment = _create(files, directory, layout, base_offset, name, now_ms, room_bytes)
    segment.create_index_files()
    return segment


def create_cleaned(files: Files, directory: str, layout: Layout, base_offset: int) -> Segment:
    """Create an empty segment for ``Log.replace_segments``, with a name that ends with ``.cleaned``."""
    name = layout.segment_name(base_offset) + CLEANED_SUFFIX
    return _create(files, directory, layout, base_offset, name, None, 0)


def _create(
    files: Files,
    directory: str,
    layout: Layout,
    base_offset: int,
    name: str,
    now_ms: int | None,
    room_bytes: int,
) -> Segment:
    try:
        file = files.open(os.path.join(directory, name), create=True)
    except FileNotFoundError as error:
        raise StorageError(f"log directory {directory} was deleted or moved while in use") from error
    if file.size():
        file.truncate(0)  # left by a failed attempt: no message was ever served from it
    if room_bytes:
        file.truncate(room_bytes)
    paths = _index_paths(directory, layout, base_offset)
    return Segment(files, file, *paths, base_offset, empty=True, created_ms=now_ms)


def _segment(files: Files, directory: str, layout: Layout, base_offset: int) -> Segment:
    file = files.open(os.path.join(directory, layout.segment_name(base_offset)))
    return Segment(files, file, *_index_paths(directory, layout, base_offset), base_offset)


def _index_paths(directory: str, layout: Layout, base_offset: int) -> tuple[str, str, str]:
    return (
        os.path.join(directory, layout.index_name(base_offset)),
        os.path.join(directory, layout.time_index_name(base_offset)),
        os.path.join(directory, layout.transaction_index_name(base_offset)),
    )


def remove_segments(files: Files, segments: Iterable[Segment]) -> None:
    """Remove the files of segments, newest first, so that a crash leaves no hole. Readers keep theirs."""
    for segment in reversed(list(segments)):
        segment.remove_indexes()
        segment.transactions.remove_file()
        files.remove(segment.path)


def rename_empty(files: Files, directory: str, layout: Layout, segment: Segment, base_offset: int) -> Segment:
    """Rename ``segment``, which has been emptied, to another base offset; return the new empty segment.

    It is renamed because two segments would look like a log with a hole. The name is flushed. Raises
    StorageError.
    """
    segment.remove_indexes()
    segment.transactions.remove_file()
    segment.move(os.path.join(directory, layout.segment_name(base_offset)))
    files.sync_dir(directory)
    return create_segment(files, directory, layout, base_offset)


@dataclass(frozen=True, slots=True)
class LoadHints:
    """The checkpoints and options with which a partition is opened."""

    clean: bool = False
    """The data directory had its clean-shutdown marker."""
    recovery_point: int = 0
    """All below this offset was flushed; 0 when that is not known."""
    start_offset: int = 0
    """Messages below this offset were deleted, though their segment may still exist."""
    advance: Callable[[int], None] = field(default=lambda size_bytes: None)
    """Called from time to time with the number of bytes that were checked."""
    journal_epochs: tuple[tuple[int, int], ...] = ()
    """Epochs and start offsets that the log's own file may lack (``leader_epoch_journal``)."""


def load_log(
    files: Files, directory: str, config: LogConfig, layout: Layout, known: LoadHints, now_ms: int | None
) -> LoadedLog:
    """Open and check all segments of a partition; see ``Log.open``."""
    files.make_dirs(directory)
    settled = complete_swaps(files, directory, layout)
    names = files.list_dir(directory)
    bases = sorted(base for name in names if (base := layout.segment_base(name)) is not None)
    for name in sorted(names, reverse=True):  # the time index first: see ``rename_to_deleted``
        base = layout.index_base(name)
        if base is not None and base not in bases:
            files.remove(os.path.join(directory, name))  # an index without its segment
    epochs = (
        LeaderEpochs.load(files, directory) if LEADER_EPOCH_FILE in names else LeaderEpochs(files, directory)
    )
    epochs.load_journal(known.journal_epochs)
    producers = ProducerStateManager(files, directory, snapshot_offsets(names))
    if not bases:
        start = known.start_offset
        room = config.segment_bytes if config.preallocate else 0
        segment = create_segment(files, directory, layout, start, now_ms, room_bytes=room)
        if start:
            files.sync_dir(directory)
        producers.rebuild((segment,), start, -1)
        return LoadedLog((segment,), start, start, start, epochs, None, True, producers)
    segments = [_segment(files, directory, layout, base) for base in bases]
    start_offset = max(known.start_offset, segments[0].base_offset)
    end_offset = _checked_tail(segments[-1], config) if known.clean else None
    if end_offset is not None:
        found = LoadedLog(
            tuple(segments), start_offset, end_offset, end_offset, epochs, None, settled, producers
        )
    else:
        found = _Recovery(files, directory, config, layout, segments, known).run(epochs, producers)
    # Also after a clean shutdown: the file may still have epochs that an earlier recovery removed.
    found.epochs.recovered(found.end_offset)
    if found.start_offset > found.end_offset:
        # Recovery has removed messages below the start: nothing of the log is left.
        # The new segment first: a directory without segments would not count as a partition.
        empty = create_segment(files, directory, layout, start_offset, now_ms)
        remove_segments(files, found.segments)
        files.sync_dir(directory)
        found = replace(found, segments=(empty,), end_offset=start_offset, names_changed=True)
    # Now, as it will be written: only readers of other segments look up an index later.
    found.segments[-1].transactions.index()
    if end_offset is None:
        found.segments[-1].transactions.cut(found.end_offset)
    producers.rebuild(
        found.segments,
        found.end_offset,
        max(found.recovery_point, found.segments[0].base_offset),
        after_clean=end_offset is not None,
        advance=known.advance,
    )
    return found


def _checked_tail(segment: Segment, config: LogConfig) -> int | None:
    """Return the end offset, when the entries after the last index entry are valid; otherwise None."""
    if segment.size == 0:
        return segment.base_offset
    offset, position = segment.index(config.index_interval_bytes).last()
    # The index may name the last offset of that entry, so its first offset may be smaller.
    found = scan_file(segment.file, position, segment.size, segment.base_offset)
    segment.load_times()
    segment.update_max_timestamp(found.max_timestamp)
    return found.next_offset if found.problem is None and found.next_offset > offset else None


class _Recovery:
    """Checks the segments that a crash may have damaged and truncates the log at the first damage."""

    def __init__(
        self,
        files: Files,
        directory: str,
        config: LogConfig,
        layout: Layout,
        segments: list[Segment],
        known: LoadHints,
    ) -> None:
        self._files = files
        self._directory = directory
        self._config = config
        self._layout = layout
        self._segments = segments
        self._known = known
        self._cuts: list[RemovedBytes] = []

    def run(self, epochs: LeaderEpochs, producers: ProducerStateManager) -> LoadedLog:
        """Check all segments at or past the recovery point, and the newest."""
        segments, recovery_point = self._segments, self._known.recovery_point
        end_offset = segments[-1].base_offset
        number = 0
        while number < len(segments):
            newest = number == len(segments) - 1
            if newest or segments[number + 1].base_offset > recovery_point:
                end_offset = self._check(number)
            number += 1
        report = RecoveryReport(self._directory, tuple(self._cuts), end_offset) if self._cuts else None
        # The process may have been killed before a truncation was flushed: a power cut must not undo it when
        # other messages, of another epoch, have been written there.
        segments[-1].file.sync()
        self._files.sync_dir(self._directory)
        return LoadedLog(
            tuple(segments),
            max(self._known.start_offset, segments[0].base_offset),
            end_offset,
            min(recovery_point, end_offset),
            epochs,
            report,
            False,
            producers,
        )

    def _check(self, number: int) -> int:
        """Check one segment and return its next offset. If the log ends in it, the rest is removed."""
        segment, following = self._segments[number], self._segments[number + 1 :]
        size = segment.size
        found = scan_file(
            segment.file,
            0,
            size,
            segment.base_offset,
            interval_bytes=self._config.index_interval_bytes,
            rewrite_from=self._known.recovery_point,
            advance=self._known.advance,
        )
        segment.adopt_scan(found)
        reason = self._break_behind(found, following)
        if reason is not None:
            # Before the cut: a crash between the two must not leave a hole in the log.
            self._set_aside(following, reason)
            del self._segments[number + 1 :]
            self._files.sync_dir(self._directory)
        if found.problem is not None:
            self._cut(segment, found, size)
        return found.next_offset

    def _cut(self, segment: Segment, found: FileScan, size: int) -> None:
        if self._config.preallocate and only_zeros(segment.file, found.valid_bytes, size):
            segment.cut(found.valid_bytes)  # preallocated space without messages
            segment.adopt_scan(found)
            return
        saved = save_bytes(self._files, segment.file, found.valid_bytes, size)
        # The copy's name must be durable before the original is cut.
        self._files.sync_dir(self._directory)
        segment.cut(found.valid_bytes)
        segment.adopt_scan(found)
        length = size - found.valid_bytes
        self._cuts.append(RemovedBytes(segment.path, found.valid_bytes, length, found.problem or "", saved))

    def _break_behind(self, found: FileScan, following: list[Segment]) -> str | None:
        """Return why the log cannot continue with the following segments; None if it can, or has none."""
        if not following:
            return None
        if found.problem is not None:
            return "it follows a damaged segment"
        if found.next_offset > following[0].base_offset:
            return f"the segment before it has offsets up to {found.next_offset - 1}"
        if found.next_offset < following[0].base_offset and not self._config.compacted:
            return f"the segment before it ends at offset {found.next_offset}: offsets between are missing"
        return None

    def _set_aside(self, segments: list[Segment], reason: str) -> None:
        """Remove the indexes of segments that cannot be served, and rename the segments, newest first."""
        for segment in reversed(segments):
            segment.remove_indexes()
            segment.transactions.remove_file()
            if segment.size:
                saved = free_path(self._files, segment.path)
                self._files.rename(segment.path, saved)
                self._cuts.append(RemovedBytes(segment.path, 0, segment.size, reason, saved))
            else:
                self._files.remove(segment.path)

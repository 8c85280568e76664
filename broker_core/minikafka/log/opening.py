"""Opening a partition's directory: which segments lie there, and which of their bytes can be believed.

See ``log`` for what is checked and cut, and when.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from minikafka.base.errors import StorageError
from minikafka.base.files import File, Files
from minikafka.log.config import LogConfig
from minikafka.log.layout import Layout
from minikafka.log.recovery import Cut, FileScan, RecoveryReport, free_path, save_bytes, scan_file
from minikafka.log.segment import Segment


@dataclass(frozen=True, slots=True)
class Found:
    """A partition's directory as opened."""

    segments: tuple[Segment, ...]
    end_offset: int
    recovery_point: int
    report: RecoveryReport | None
    names_changed: bool
    """Whether the directory holds names that were not flushed."""


def create_segment(files: Files, directory: str, layout: Layout, base_offset: int) -> Segment:
    """A new, empty segment. The directory is the caller's to flush. Raises StorageError."""
    try:
        file = files.open(os.path.join(directory, layout.segment_name(base_offset)), create=True)
    except FileNotFoundError as error:
        raise StorageError(f"{directory} is gone: it was deleted, or moved while in use") from error
    if file.size():
        file.truncate(0)  # left by a roll that failed half-way: no message was ever served from it
    return _segment(files, file, directory, layout, base_offset)


def _segment(files: Files, file: File, directory: str, layout: Layout, base_offset: int) -> Segment:
    index_path = os.path.join(directory, layout.index_name(base_offset))
    time_index_path = os.path.join(directory, layout.time_index_name(base_offset))
    return Segment(files, file, index_path, time_index_path, base_offset)


def remove_segments(files: Files, segments: Iterable[Segment]) -> None:
    """Remove the files of segments, newest first, so that a crash leaves no hole. Readers keep theirs."""
    for segment in reversed(list(segments)):
        files.remove(segment.path)
        segment.remove_indexes()


def open_segments(
    files: Files, directory: str, config: LogConfig, layout: Layout, *, clean: bool, recovery_point: int
) -> Found:
    """Open and check all segments of a partition; see ``Log.open``."""
    files.make_dirs(directory)
    names = files.list_dir(directory)
    bases = sorted(base for name in names if (base := layout.segment_base(name)) is not None)
    for name in names:
        base = layout.index_base(name)
        if base is not None and base not in bases:
            files.remove(os.path.join(directory, name))  # an index without its segment
    if not bases:
        return Found((create_segment(files, directory, layout, 0),), 0, 0, None, True)
    segments = []
    for base in bases:
        file = files.open(os.path.join(directory, layout.segment_name(base)))
        segments.append(_segment(files, file, directory, layout, base))
    if clean:
        end_offset = _checked_tail(segments[-1], config)
        if end_offset is not None:
            return Found(tuple(segments), end_offset, end_offset, None, False)
    return _Recovery(files, directory, config, layout, segments, recovery_point).run()


def _checked_tail(segment: Segment, config: LogConfig) -> int | None:
    """The end offset, when the entries behind the last index entry are whole and right; else None."""
    if segment.size == 0:
        return segment.base_offset
    offset, position = segment.index(config.index_interval_bytes).last()
    # The index may name the last offset of what lies there, so its first may be smaller.
    found = scan_file(segment.file, position, segment.size, segment.base_offset)
    segment.note_newest(found.max_timestamp)
    return found.next_offset if found.problem is None and found.next_offset > offset else None


class _Recovery:
    """Goes through the segments that a crash may have damaged and cuts the log at the first damage."""

    def __init__(
        self,
        files: Files,
        directory: str,
        config: LogConfig,
        layout: Layout,
        segments: list[Segment],
        recovery_point: int,
    ) -> None:
        self._files = files
        self._directory = directory
        self._config = config
        self._layout = layout
        self._segments = segments
        self._recovery_point = recovery_point
        self._cuts: list[Cut] = []

    def run(self) -> Found:
        """Check all segments at or past the recovery point, and the newest."""
        segments, recovery_point = self._segments, self._recovery_point
        end_offset = segments[-1].base_offset
        number = 0
        while number < len(segments):
            newest = number == len(segments) - 1
            if newest or segments[number + 1].base_offset > recovery_point:
                end_offset = self._check(number)
            number += 1
        report = RecoveryReport(self._directory, tuple(self._cuts), end_offset) if self._cuts else None
        # The newest name may never have been flushed: the crash can have come right behind its creation.
        return Found(tuple(segments), end_offset, min(recovery_point, end_offset), report, True)

    def _check(self, number: int) -> int:
        """Check one segment and give its next offset. Where the log ends in it, the rest is taken away."""
        segment, following = self._segments[number], self._segments[number + 1 :]
        size = segment.size
        found = scan_file(
            segment.file,
            0,
            size,
            segment.base_offset,
            interval_bytes=self._config.index_interval_bytes,
            rewrite_from=self._recovery_point,
        )
        segment.adopt(found)
        reason = self._break_behind(found, following)
        if reason is not None:
            # Before the cut: a crash between the two must not leave a whole log with a hole in it.
            self._set_aside(following, reason)
            del self._segments[number + 1 :]
            self._files.sync_dir(self._directory)
        if found.problem is not None:
            self._cut(segment, found, size)
        return found.next_offset

    def _cut(self, segment: Segment, found: FileScan, size: int) -> None:
        saved = save_bytes(self._files, segment.file, found.valid_bytes, size)
        # The copy's name must be safe before the original is cut.
        self._files.sync_dir(self._directory)
        segment.cut(found.valid_bytes)
        segment.adopt(found)
        length = size - found.valid_bytes
        self._cuts.append(Cut(segment.path, found.valid_bytes, length, found.problem or "", saved))

    def _break_behind(self, found: FileScan, following: list[Segment]) -> str | None:
        """Why the log cannot go on with the following segments; None when it can, or when there are none."""
        if not following:
            return None
        if found.problem is not None:
            return "it follows a damaged segment"
        if found.next_offset > following[0].base_offset:
            return f"the segment before it has offsets up to {found.next_offset - 1}"
        if found.next_offset < following[0].base_offset and not self._config.compacted:
            return f"the segment before it ends at offset {found.next_offset}: what lay between them is lost"
        return None

    def _set_aside(self, segments: list[Segment], reason: str) -> None:
        """Rename segments that cannot be served, newest first, and drop their indexes."""
        for segment in reversed(segments):
            if segment.size:
                saved = free_path(self._files, segment.path)
                self._files.rename(segment.path, saved)
                self._cuts.append(Cut(segment.path, 0, segment.size, reason, saved))
            else:
                self._files.remove(segment.path)
            segment.remove_indexes()

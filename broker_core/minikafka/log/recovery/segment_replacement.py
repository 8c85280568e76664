"""Taking segments away, and putting others in their place, so that a crash leaves the one or the other.

Each step is a rename (``layout`` has the suffixes)::

    deleting     00.kafka -> 00.kafka.deleted, oldest first; removed for good later
    replacing    00.kafka.cleaned, written and flushed
                 00.kafka.cleaned -> 00.kafka.swap; the directory is flushed: from here on it counts
                 the old segments -> .deleted, oldest first; the directory is flushed, the indexes written
                 and flushed, then 00.kafka.swap -> 00.kafka

At open ``complete_swaps`` finishes what a crash interrupted: files that are ``.deleted`` or ``.cleaned`` and
half-written snapshots are removed, and a ``.swap``
takes the place of the segments whose offsets it covers. Segments behind its last offset may stay, though
they were to be replaced too: what compaction dropped of them comes back, and nothing else, as a key's later
value or its tombstone always lies behind the dropped one. (``Log.replaceSegments`` of 0.10.1, whose names
these are; it flushes no directory.)
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from minikafka.base.files import TEMPORARY_SUFFIX, Files
from minikafka.log.file_scan import free_path, scan_file
from minikafka.log.layout import CLEANED_SUFFIX, GONE_SUFFIX, SNAPSHOT_SUFFIX, SWAP_SUFFIX, Layout
from minikafka.log.segment import Segment

_LEFT_OVER = (GONE_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, SNAPSHOT_SUFFIX + TEMPORARY_SUFFIX)
_log = logging.getLogger(__name__)


def rename_to_deleted(
    files: Files, directory: str, layout: Layout, segments: Iterable[Segment]
) -> Iterator[str]:
    """Rename the files of segments, which must be in order; gives each that is to be removed later.

    The indexes go before the file that they are of, and the time index first: Kafka's tools read the others
    for it, and fail on what a crash in between would leave.

    At the first failure it ends: StorageError. No later segment is gone then, so there is no hole. Called
    again it goes on there.
    """
    for segment in segments:
        base = segment.base_offset
        for name in (layout.time_index_name(base), layout.index_name(base)):
            yield from _put_aside(files, os.path.join(directory, name))
        if not segment.path.endswith(GONE_SUFFIX):
            try:
                segment.move(segment.path + GONE_SUFFIX)
            except FileNotFoundError:
                pass  # removed by hand: nothing may wait for it
            else:
                yield segment.path
        for name in layout.companions(base):
            yield from _put_aside(files, os.path.join(directory, name))


def _put_aside(files: Files, path: str) -> Iterator[str]:
    if files.exists(path):
        files.rename(path, path + GONE_SUFFIX)
        yield path + GONE_SUFFIX


@dataclass(slots=True)
class SegmentReplacement:
    """What a log's list of segments has, and its directory not yet: ``old`` are gone, and ``new``, if any, is
    in their place, as a ``.swap``.
    """

    old: Sequence[Segment]
    new: Segment | None = None
    retired: bool = False

    def carry_out(
        self, files: Files, directory: str, layout: Layout, sync: Callable[[], None], gone: list[str]
    ) -> None:
        """Make it, and add the files to be removed later to ``gone``. ``sync`` flushes the directory's names.

        After a StorageError another call goes on where it was. No other change may come before: what is left
        would be a log with a hole, or the name of one ``.swap`` be another's.
        """
        if not self.retired:
            if self.new is not None:
                sync()
            gone.extend(rename_to_deleted(files, directory, layout, self.old))
            sync()
            self.retired = True
        if self.new is not None:
            # Before the name that recovery passes over with its indexes.
            self.new.write_indexes(sync=True)
            if self.new.path.endswith(SWAP_SUFFIX):
                self.new.move(self.new.path.removesuffix(SWAP_SUFFIX))
            sync()


def complete_swaps(files: Files, directory: str, layout: Layout) -> bool:
    """Finish what a crash interrupted, and flush that; whether names have changed. StorageError when the disk
    fails.
    """
    swaps, changed = [], False
    for name in files.list_dir(directory):
        path = os.path.join(directory, name)
        base = layout.segment_base(name.removesuffix(SWAP_SUFFIX)) if name.endswith(SWAP_SUFFIX) else None
        if base is not None:
            swaps.append((base, path))
        elif name.endswith(_LEFT_OVER) and not files.is_dir(path):
            files.remove(path)
            changed = True
    for base, path in sorted(swaps):
        _finish(files, directory, layout, base, path)
    if changed or swaps:
        # A killed process may have left all these names unflushed, and where the log starts is told by them.
        files.sync_dir(directory)
    return changed or bool(swaps)


def _finish(files: Files, directory: str, layout: Layout, base: int, swap: str) -> None:
    file = files.open(swap)
    try:
        size = file.size()
        found = scan_file(file, 0, size, base)
    finally:
        file.close()
    if found.problem is not None:
        # It was flushed before it got this name: the disk has lost some of it, and the old ones may be there.
        saved = free_path(files, swap)
        files.rename(swap, saved)
        _log.warning("ignoring damaged swap file %s: %s; saved in %s", swap, found.problem, saved)
        return
    behind = max(found.next_offset, base + 1)
    others = (layout.segment_base(name) for name in files.list_dir(directory))
    # Its own base too: what lies there may be half an index.
    for old in sorted({base, *(other for other in others if other is not None and base <= other < behind)}):
        indexes = layout.time_index_name(old), layout.index_name(old)
        for name in (*indexes, layout.segment_name(old), *layout.companions(old)):
            path = os.path.join(directory, name)
            if files.exists(path):
                files.remove(path)
    # Their removal must not be lost while the new name is kept.
    files.sync_dir(directory)
    files.rename(swap, os.path.join(directory, layout.segment_name(base)))

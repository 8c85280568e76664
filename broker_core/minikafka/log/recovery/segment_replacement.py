"""Crash-safe deletion and replacement of segments: a crash leaves the old segments or the new one.

Each step is a rename (``layout`` has the suffixes)::

    deleting     00.kafka -> 00.kafka.deleted, oldest first; removed for good later
    replacing    00.kafka.cleaned, written and flushed; and 00.txnindex.cleaned if there are transactions
                 00.kafka.cleaned -> 00.kafka.swap; the directory is flushed: from here on it counts
                 the old segments -> .deleted, oldest first; the directory is flushed, 00.txnindex.cleaned ->
                 00.txnindex, the indexes written and flushed, then 00.kafka.swap -> 00.kafka

The index of aborted transactions is written first, as recovery does not rebuild it. At open
``complete_swaps`` finishes what a crash interrupted: ``.deleted`` and ``.cleaned`` files and half-written
snapshots are removed, and a ``.swap`` replaces the segments whose offsets it covers. Segments after its last
offset may stay, though they were to be replaced too: only messages that compaction removed come back, as a
key's later value or its tombstone is always after them. (``Log.replaceSegments`` of 0.10.1, which uses the
same names; it flushes no directory.)
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from minikafka.base.files import TEMPORARY_SUFFIX, Files
from minikafka.log.file_scan import free_path, scan_file
from minikafka.log.layout import CLEANED_SUFFIX, DELETED_FILE_SUFFIX, SNAPSHOT_SUFFIX, SWAP_SUFFIX, Layout
from minikafka.log.segment import Segment

_LEFT_OVER = (DELETED_FILE_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, SNAPSHOT_SUFFIX + TEMPORARY_SUFFIX)
_log = logging.getLogger(__name__)


def rename_to_deleted(
    files: Files, directory: str, layout: Layout, segments: Iterable[Segment]
) -> Iterator[str]:
    """Rename the files of segments, which must be in order; yield each file to be removed later.

    The indexes are renamed before their segment, and the time index first: Kafka's tools read the other files
    for a time index, and would fail on what a crash in between leaves.

    StorageError at the first failure. No later segment is renamed then, so there is no hole. The next call
    continues there.
    """
    for segment in segments:
        base = segment.base_offset
        for name in (layout.time_index_name(base), layout.index_name(base)):
            yield from _put_aside(files, os.path.join(directory, name))
        if not segment.path.endswith(DELETED_FILE_SUFFIX):
            try:
                segment.move(segment.path + DELETED_FILE_SUFFIX)
            except FileNotFoundError:
                pass  # removed by hand: the deletion must not fail because of it
            else:
                yield segment.path
        for name in layout.companions(base):
            yield from _put_aside(files, os.path.join(directory, name))


def _put_aside(files: Files, path: str) -> Iterator[str]:
    if files.exists(path):
        files.rename(path, path + DELETED_FILE_SUFFIX)
        yield path + DELETED_FILE_SUFFIX


@dataclass(slots=True)
class SegmentReplacement:
    """A change of a log's segment list that its directory does not have yet: ``old`` were removed from the
    list, and ``new``, if any, is in their place, with a ``.swap`` name.
    """

    old: Sequence[Segment]
    new: Segment | None = None
    retired: bool = False

    def carry_out(
        self, files: Files, directory: str, layout: Layout, sync: Callable[[], None], deleted: list[str]
    ) -> None:
        """Change the directory, and add the files to remove later to ``deleted``. ``sync`` flushes the names.

        After a StorageError another call continues. No other change may come before: the log could get a
        hole, or a ``.swap`` the name of another one.
        """
        if not self.retired:
            if self.new is not None:
                sync()
            deleted.extend(rename_to_deleted(files, directory, layout, self.old))
            sync()
            self.retired = True
        if self.new is not None:
            # Before the final name: recovery does not check the indexes of a full segment.
            self.new.transactions.place()
            self.new.write_indexes(sync=True)
            if self.new.path.endswith(SWAP_SUFFIX):
                self.new.move(self.new.path.removesuffix(SWAP_SUFFIX))
            sync()


def complete_swaps(files: Files, directory: str, layout: Layout) -> bool:
    """Finish replacements that a crash interrupted, and flush them; return whether names have changed.

    Raises StorageError when the disk fails.
    """
    changed = False
    names = files.list_dir(directory)
    swaps = [
        (base, os.path.join(directory, name))
        for name in names
        if name.endswith(SWAP_SUFFIX)
        and (base := layout.segment_base(name.removesuffix(SWAP_SUFFIX))) is not None
    ]
    of_swaps = {layout.transaction_index_name(base) + CLEANED_SUFFIX for base, _ in swaps}
    of_swaps.update(os.path.basename(path) for _, path in swaps)
    for name in names:
        path = os.path.join(directory, name)
        if name not in of_swaps and name.endswith(_LEFT_OVER) and not files.is_dir(path):
            files.remove(path)
            changed = True
    for base, path in sorted(swaps):
        _finish(files, directory, layout, base, path)
    if changed or swaps:
        # A killed process may have left all these names unflushed, and they give the log's start offset.
        files.sync_dir(directory)
    return changed or bool(swaps)


def _finish(files: Files, directory: str, layout: Layout, base: int, swap: str) -> None:
    with closing(files.open(swap)) as file:
        found = scan_file(file, 0, file.size(), base)
    if found.problem is not None:
        # It was flushed before it got this name, so the disk lost data; the old segments may still exist.
        saved = free_path(files, swap)
        files.rename(swap, saved)
        _log.warning("ignoring damaged swap file %s: %s; saved in %s", swap, found.problem, saved)
        return
    behind = max(found.next_offset, base + 1)
    transactions = os.path.join(directory, layout.transaction_index_name(base))
    others = (layout.segment_base(name) for name in files.list_dir(directory))
    # Its own base too: there may be an incomplete index.
    for old in sorted({base, *(other for other in others if other is not None and base <= other < behind)}):
        indexes = layout.time_index_name(old), layout.index_name(old)
        for name in (*indexes, layout.segment_name(old), *layout.companions(old)):
            path = os.path.join(directory, name)
            # The index of aborted transactions has its name already, or still ``.cleaned``, or there is none.
            if path != transactions and files.exists(path):
                files.remove(path)
    if files.exists(transactions + CLEANED_SUFFIX):
        files.rename(transactions + CLEANED_SUFFIX, transactions)
    # Their removal must not be lost while the new name is kept.
    files.sync_dir(directory)
    files.rename(swap, os.path.join(directory, layout.segment_name(base)))

"""The producers of one log: their state in memory, and the snapshot files from which it is loaded.

A snapshot (``snapshots``) is written whenever a segment ends, and when the log is closed. At open the newest
valid one is read, and the headers of the batches after it:

- a snapshot that is damaged, or past the log's end, is skipped and removed;
- after a crash so is one past the recovery point, unless the log begins there: the log may have been
  truncated below it and then continued otherwise;
- without a snapshot the whole log is scanned, but not after a clean shutdown: a clean close of a log with
  producers writes a snapshot, so such a log is from a release without producers.

The newest two are kept, and those needed down to the recovery point; a deleted segment takes the snapshot at
its base offset along. Only the one written at close is flushed: after a power cut the state is found in the
log.

A producer expires when it has written nothing for ``transactional.id.expiration.ms``; and if there are very
many, the one idle for longest is removed, so that no client can fill the memory with invented ids. The
deletion of its messages is not a reason (as since 2.4; 2.1 removes it then, and refuses the next batch).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from minikafka.base.errors import StorageError
from minikafka.base.files import TEMPORARY_SUFFIX, Buffer, File, Files, read_file, replace_file
from minikafka.log.file_scan import Window, windows
from minikafka.log.layout import SNAPSHOT_SUFFIX, snapshot_name
from minikafka.log.producers.producer_state import (
    BATCHES_KEPT,
    BatchMetadata,
    Producers,
    ProducerStateEntry,
    analyze_batches,
    expired,
    last_offsets,
    replayed,
)
from minikafka.log.producers.snapshots import encode_producers, parse_producers
from minikafka.records.format.batch import BatchHeader
from minikafka.records.scan.producer_batches import EVERY_ENTRY, coordinator_epoch_of, producer_state_batches

PRODUCERS_MOST = 1 << 15
"""About a kilobyte each."""
SNAPSHOTS_KEPT = 2

_NAME = re.compile(r"([0-9]{20})" + re.escape(SNAPSHOT_SUFFIX))
_log = logging.getLogger(__name__)


class SegmentLike(Protocol):
    """The part of a segment that this module uses."""

    base_offset: int
    file: File
    size: int


def snapshot_offsets(names: Iterable[str]) -> list[int]:
    """Return the offsets of the snapshots among file names, in increasing order."""
    return sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))


class ProducerStateManager:
    """The state of the producers of one log. Changed only with the log's mutex held."""

    __slots__ = (
        "_directory",
        "_files",
        "_known",
        "_last_error",
        "_open",
        "_snapshots",
        "first_undecided_offset",
    )

    def __init__(self, files: Files, directory: str, snapshots: Sequence[int] = ()) -> None:
        self._files = files
        self._directory = directory
        self._known: dict[int, ProducerStateEntry] = {}
        """In the order of the last append."""
        self._open: dict[int, int] = {}
        """Producer id -> first offset of its open transaction: few or none, of very many producers."""
        self._snapshots = list(snapshots)
        """Offsets of the files, increasing. Older ones may have been deleted with their segments."""
        self._last_error: str | None = None
        self.first_undecided_offset: int | None = None
        """The first offset of the oldest open transaction; None when there is none."""

    @property
    def known(self) -> Producers:
        """All producers, by id: the live mapping, not a copy."""
        return self._known

    def entries(self) -> dict[int, ProducerStateEntry]:
        """Return the states of all producers, by id. Any thread may call this."""
        return self._known.copy()

    def known_ids(self) -> list[int]:
        """Return the ids of all producers. Any thread may call this."""
        return list(self._known.copy())

    def last_offsets(self) -> dict[int, int]:
        """Return the offset of each producer's last record. Any thread may call this."""
        return last_offsets(self._known.copy())

    # While the log grows.

    def analyze_batches(
        self, batches: Sequence[BatchHeader], first_offset: int, now_ms: int
    ) -> BatchMetadata | dict[int, ProducerStateEntry]:
        """Check batches, see ``producer_state.analyze_batches``: nothing is changed here."""
        return analyze_batches(self._known, batches, first_offset, now_ms)

    def update(self, changed: Producers) -> None:
        """Apply the result of ``analyze_batches``, after the append."""
        self._put(changed)
        self._note_open()

    def update_from_leader(self, data: Buffer, positions: NDArray[np.int64], now_ms: int) -> None:
        """Update the state from whole entries at ``positions`` that were copied from the leader."""
        self._update_from(data, positions, 0, now_ms)
        self._note_open()

    def _note_open(self) -> None:
        self.first_undecided_offset = min(self._open.values(), default=None)

    def _put(self, changed: Producers) -> None:
        known, opened = self._known, self._open
        for producer_id, producer in changed.items():
            known.pop(producer_id, None)
            known[producer_id] = producer
            if producer.current_txn_first_offset >= 0:
                opened[producer_id] = producer.current_txn_first_offset
            elif opened:
                opened.pop(producer_id, None)
        while len(known) > PRODUCERS_MOST:
            oldest = next(iter(known))
            del known[oldest]
            opened.pop(oldest, None)

    def remove_expired(self, now_ms: int, expiration_ms: int) -> int:
        """Remove producers that were idle for that long; return their number."""
        removed = expired(self._known, now_ms, expiration_ms)
        for producer_id in removed:
            del self._known[producer_id]
        return len(removed)

    # Files.

    def take_snapshot(self, offset: int, recovery_point: int, *, closing: bool = False) -> None:
        """Write the snapshot at the log end offset, unless it exists, and remove old ones.

        If that fails, the next open reads the log instead. StorageError at close if the next open would not
        know that it must read the log.
        """
        if (self._snapshots and self._snapshots[-1] >= offset) or (
            closing and not self._known and not self._snapshots
        ):
            return
        path = os.path.join(self._directory, snapshot_name(offset))
        try:
            replace_file(self._files, path, encode_producers(self._known), sync=closing)
        except (StorageError, FileNotFoundError) as error:
            if closing and self._known and not self._snapshots:
                raise StorageError(f"cannot save the producer state: {error}") from error
            if self._last_error != str(error):
                _log.warning("%s; the next start will rebuild the producer state from the log", error)
            self._last_error = str(error)
            with contextlib.suppress(StorageError, FileNotFoundError):
                self._files.remove(path + TEMPORARY_SUFFIX)
            return
        self._snapshots.append(offset)
        believed = [at for at in self._snapshots if at <= recovery_point]
        oldest = min([*self._snapshots[-SNAPSHOTS_KEPT:], *believed[-1:]])
        self._remove(lambda at: at < oldest)

    def delete_snapshots_before(self, start_offset: int) -> None:
        """Remove the snapshots before ``start_offset``, where the log begins now."""
        self._remove(lambda at: at < start_offset)

    def delete_snapshots_after(self, end_offset: int) -> None:
        """Remove the snapshots after ``end_offset``, to which the log was truncated."""
        self._remove(lambda at: at > end_offset)

    def _remove(self, unwanted: Callable[[int], bool]) -> None:
        for offset in self._snapshots[:]:
            if unwanted(offset):
                with contextlib.suppress(StorageError, FileNotFoundError):
                    self._files.remove(os.path.join(self._directory, snapshot_name(offset)))
                self._snapshots.remove(offset)

    # From the files.

    def rebuild(
        self,
        segments: Sequence[SegmentLike],
        end_offset: int,
        believed_up_to: int,
        *,
        after_clean: bool = False,
        advance: Callable[[int], None] = lambda size_bytes: None,
    ) -> None:
        """Rebuild the state below ``end_offset``, the log end offset.

        Raises StorageError if the log is unreadable.

        Snapshots above ``believed_up_to`` are removed. ``after_clean``: a log without a snapshot has no
        producers. ``advance`` is called with the number of bytes that were read.
        """
        none = not self._snapshots
        self._known, self._open = {}, {}
        begin = segments[0].base_offset
        self._remove(lambda at: not begin <= at <= min(believed_up_to, end_offset))
        while self._snapshots:
            if self._load(self._snapshots[-1]):
                begin = self._snapshots[-1]
                break
            self._remove(lambda at: at == self._snapshots[-1])
        if begin < end_offset and not (none and after_clean):
            ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
            for segment, behind in zip(segments, ends, strict=True):
                if behind > begin and segment.size:
                    self._replay_segment(segment, begin, advance)
        self._note_open()

    def _load(self, offset: int) -> bool:
        path = os.path.join(self._directory, snapshot_name(offset))
        try:
            known, wrong = parse_producers(path, read_file(self._files, path))
        except FileNotFoundError:
            return False
        except StorageError as error:
            known, wrong = {}, str(error)
        if wrong is not None:
            _log.warning("ignoring producer snapshot %s, reading the log instead: %s", path, wrong)
            return False
        self._known = dict(sorted(known.items(), key=lambda item: item[1].last_timestamp_ms))
        self._open = {
            producer_id: producer.current_txn_first_offset
            for producer_id, producer in known.items()
            if producer.current_txn_first_offset >= 0
        }
        return True

    def _replay_segment(self, segment: SegmentLike, begin: int, advance: Callable[[int], None]) -> None:
        # Its producers count as active when the file was last written, whatever the messages' timestamps are.
        active_ms = segment.file.modified_ms()
        at_start = True
        for window in windows(
            segment.file, 0, segment.size, segment.base_offset, interval_bytes=EVERY_ENTRY, check_crc=False
        ):
            self._replay(window, begin, active_ms, at_start=at_start)
            at_start = False
            advance(len(window.data))

    def _replay(self, window: Window, begin: int, active_ms: int, *, at_start: bool) -> None:
        positions = np.ascontiguousarray(window.result.index_entries[:, 1]) - window.position
        if at_start and len(window.data):
            positions = np.concatenate([np.zeros(1, dtype=np.int64), positions])
        self._update_from(window.data, positions, begin, active_ms)

    def _update_from(self, data: Buffer, positions: NDArray[np.int64], begin: int, active_ms: int) -> None:
        for position, header in producer_state_batches(data, positions, begin, BATCHES_KEPT):
            producer_id = header.producer_id
            producer = self._known.get(producer_id)
            if not header.control:
                self._put({producer_id: replayed(producer, header, active_ms)})
                continue
            coordinator_epoch = coordinator_epoch_of(data, position)
            if coordinator_epoch is not None:
                written_ms = max(header.max_timestamp_ms, active_ms)
                marked = (producer or ProducerStateEntry()).with_end_marker(
                    header.producer_epoch, coordinator_epoch, written_ms
                )
                self._put({producer_id: marked})

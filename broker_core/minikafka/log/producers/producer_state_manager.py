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

**Transactions**. An offset is unstable from the first batch of a transaction until the high watermark has
passed its marker: before, another leader might not have the marker. The last stable offset is the first one,
or the high watermark. Transactions whose marker is not yet below the high watermark are kept for this, but
not over a restart: as in Kafka, the high watermark is the bound then. Every marker that aborts gives an entry
of the segment's transaction index; when the state is rebuilt, so are the entries of the segments that are
read.

A producer expires when it has written nothing for ``transactional.id.expiration.ms``; and if there are very
many, the one idle for longest is removed, so that no client can fill the memory with invented ids. One with
an open transaction stays in both cases. The deletion of its messages is not a reason (as since 2.4; 2.1
removes it then, and refuses the next batch).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from minikafka.base.errors import StorageError
from minikafka.base.files import TEMPORARY_SUFFIX, Buffer, File, Files, read_file, replace_file
from minikafka.log.file_scan import windows
from minikafka.log.index.transaction_index import AbortedTransaction, SegmentTransactions
from minikafka.log.layout import SNAPSHOT_SUFFIX, snapshot_name
from minikafka.log.producers.producer_state import (
    BATCHES_KEPT,
    OPEN_TRANSACTION,
    UNKNOWN,
    BatchMetadata,
    Guard,
    Producers,
    ProducerStateEntry,
    VerificationGuard,
    VerificationStateEntry,
    analyze_batches,
    analyze_end_marker,
    expired,
    is_in_open_transaction,
    last_offsets,
    replayed,
)
from minikafka.log.producers.snapshots import encode_producers, parse_producers
from minikafka.records.format.batch import BatchHeader, ControlType
from minikafka.records.kernels.arrays import INT64_MAX
from minikafka.records.scan.producer_batches import EVERY_ENTRY, end_marker_of, producer_state_batches

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
    transactions: SegmentTransactions


def snapshot_offsets(names: Iterable[str]) -> list[int]:
    """Return the offsets of the snapshots among file names, in increasing order."""
    return sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))


class ProducerStateManager:
    """The state of the producers of one log. Changed only with the log's mutex held, except by
    ``start_verification``.
    """

    __slots__ = (
        "_directory",
        "_files",
        "_known",
        "_last_error",
        "_open",
        "_snapshots",
        "_unstable",
        "_verifications",
        "high_watermark",
    )

    def __init__(self, files: Files, directory: str, snapshots: Sequence[int] = ()) -> None:
        self._files = files
        self._directory = directory
        self._known: dict[int, ProducerStateEntry] = {}
        """In the order of the last append."""
        self._open: dict[int, int] = {}
        """Producer id -> first offset of its open transaction, in their order: few or none, of very many
        producers."""
        self._verifications: dict[int, VerificationStateEntry] = {}
        """Producer id -> the verification of its next transaction, in the order in which they began."""
        self._snapshots = list(snapshots)
        """Offsets of the files, increasing. Older ones may have been deleted with their segments."""
        self._last_error: str | None = None
        self._unstable: tuple[int | None, tuple[tuple[int, int], ...]] = (None, ())
        """The first offset of the oldest open transaction; and (marker, first offset) of transactions whose
        marker the high watermark has not passed, both rising, without those that begin behind another one
        with a later marker. Replaced as a whole: any thread reads it."""
        self.high_watermark = INT64_MAX
        """The high watermark of the partition, which may lag. Without a partition, markers count at once."""

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

    def coordinator_epoch(self, producer_id: int) -> int:
        """Return the coordinator epoch of a producer's last marker; -1 if none is known. Any thread may call
        this.
        """
        producer = self._known.get(producer_id)
        return UNKNOWN if producer is None else producer.coordinator_epoch

    @property
    def first_undecided_offset(self) -> int | None:
        """The first offset of the oldest open transaction; None when there is none."""
        return self._unstable[0]

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the first offset of the oldest transaction without a marker below ``high_watermark``; None
        when there is none. Any thread may call this.
        """
        first_open, completed = self._unstable
        if completed and completed[-1][0] >= high_watermark:
            first = completed[bisect_left(completed, (high_watermark,))][1]
            return first if first_open is None else min(first, first_open)
        return first_open

    @property
    def last_stable_offset(self) -> int:
        """The offset before which all is decided, as far as the high watermark is known here."""
        high_watermark = self.high_watermark
        unstable = self.first_unstable_offset(high_watermark)
        return high_watermark if unstable is None else min(high_watermark, unstable)

    # While the log grows.

    def start_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int
    ) -> VerificationGuard:
        """Begin or continue the verification of a producer's transaction; OPEN_TRANSACTION if it is open. One
        of another epoch is not: whoever sends that is not the producer that began it.

        ``epoch`` and ``sequence`` are those of the batch that is to be verified. No batch or marker may be
        appended meanwhile.
        """
        producer = self._known.get(producer_id)
        if producer is not None and is_in_open_transaction(producer, epoch):
            return OPEN_TRANSACTION
        verifications = self._verifications
        known = verifications.get(producer_id)
        if known is None:
            known = VerificationStateEntry(VerificationGuard(), epoch, sequence, now_ms)
            if len(verifications) >= PRODUCERS_MOST:
                del verifications[next(iter(verifications))]
        verifications[producer_id] = known.seen(epoch, sequence)
        return known.guard

    def analyze_batches(
        self, batches: Sequence[BatchHeader], first_offset: int, now_ms: int, guard: Guard = None
    ) -> BatchMetadata | dict[int, ProducerStateEntry]:
        """Check batches, see ``producer_state.analyze_batches``: nothing is changed here."""
        return analyze_batches(self._known, batches, first_offset, now_ms, guard, self._verifications)

    def analyze_end_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, now_ms: int
    ) -> ProducerStateEntry:
        """Check a marker, see ``producer_state.analyze_end_marker``: nothing is changed here."""
        return analyze_end_marker(self._known, producer_id, producer_epoch, coordinator_epoch, now_ms)

    def update(self, changed: Producers) -> None:
        """Apply the result of ``analyze_batches``, after the append."""
        self._put(changed)
        self._note_unstable(self._unstable[1])

    def end_transaction(
        self, producer_id: int, producer: ProducerStateEntry, kind: ControlType, offset: int
    ) -> AbortedTransaction | None:
        """Apply the result of ``analyze_end_marker``, after the append of a marker at ``offset``; return the
        transaction if it was aborted.
        """
        aborted = self._end(producer_id, producer, kind, offset)
        self._note_unstable(self._unstable[1])
        return aborted

    def update_from_leader(
        self, data: Buffer, positions: NDArray[np.int64], now_ms: int
    ) -> list[AbortedTransaction]:
        """Update the state from whole entries at ``positions`` that were copied from the leader; return the
        transactions that end there and were aborted.
        """
        aborted, _ = self._update_from(data, positions, 0, now_ms)
        self._note_unstable(self._unstable[1])
        return aborted

    def take_over(self, other: ProducerStateManager) -> None:
        """Take the state of ``other``, of a log with the same batches."""
        self._known, self._open = dict(other._known), dict(other._open)
        self._verifications = dict(other._verifications)
        self._unstable, self.high_watermark = other._unstable, other.high_watermark

    def _note_unstable(self, completed: tuple[tuple[int, int], ...]) -> None:
        first_open = next(iter(self._open.values()), None)
        if first_open != self._unstable[0] or completed is not self._unstable[1]:
            self._unstable = (first_open, completed)

    def _put(self, changed: Producers) -> None:
        known, opened = self._known, self._open
        if self._verifications:
            for producer_id in changed:
                self._verifications.pop(producer_id, None)
        for producer_id, producer in changed.items():
            known.pop(producer_id, None)
            known[producer_id] = producer
            if producer.current_txn_first_offset >= 0:
                opened[producer_id] = producer.current_txn_first_offset
            elif opened:
                opened.pop(producer_id, None)
        while len(known) > PRODUCERS_MOST:
            oldest = next((producer_id for producer_id in known if producer_id not in opened), None)
            if oldest is None:
                break
            del known[oldest]

    def _end(
        self, producer_id: int, producer: ProducerStateEntry, kind: ControlType, offset: int
    ) -> AbortedTransaction | None:
        first = self._open.get(producer_id)
        self._put({producer_id: producer})
        if first is None:
            return None
        if offset >= self.high_watermark:
            before = self._unstable[1]
            kept = [entry for entry in before if entry[0] >= self.high_watermark and entry[1] < first]
            self._note_unstable((*kept, (offset, first)))
        if kind is ControlType.COMMIT:
            return None
        stable = next(iter(self._open.values()), offset + 1)
        return AbortedTransaction(producer_id, first, offset, stable)

    def remove_expired(self, now_ms: int, expiration_ms: int) -> int:
        """Remove producers that were idle for that long; return their number."""
        removed = expired(self._known, now_ms, expiration_ms)
        for producer_id in removed:
            del self._known[producer_id]
        for producer_id, verification in list(self._verifications.items()):
            if now_ms - verification.started_ms >= expiration_ms:
                del self._verifications[producer_id]
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
        producers. ``advance`` is called with the number of bytes that were read. The transaction indexes of
        the segments that are read are rebuilt too, without a flush.
        """
        none = not self._snapshots
        self._known, self._open, self._verifications = {}, {}, {}
        high_watermark, self.high_watermark = self.high_watermark, INT64_MAX
        begin = segments[0].base_offset
        self._remove(lambda at: not begin <= at <= min(believed_up_to, end_offset))
        while self._snapshots:
            if self._load(self._snapshots[-1]):
                begin = self._snapshots[-1]
                break
            self._remove(lambda at: at == self._snapshots[-1])
        if begin < end_offset and not (none and after_clean):
            ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
            for number, (segment, behind) in enumerate(zip(segments, ends, strict=True)):
                if behind > begin and segment.size:
                    aborted, transactional = self._replay_segment(segment, begin, advance)
                    complete = begin <= segment.base_offset or any(
                        earlier.transactions.is_indexed() for earlier in islice(segments, number)
                    )
                    segment.transactions.restore(
                        begin, aborted, transactional=transactional, complete=complete
                    )
        self.high_watermark = high_watermark
        self._note_unstable(())

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
        opened = [
            (producer.current_txn_first_offset, producer_id)
            for producer_id, producer in known.items()
            if producer.current_txn_first_offset >= 0
        ]
        self._open = {producer_id: first for first, producer_id in sorted(opened)}
        return True

    def _replay_segment(
        self, segment: SegmentLike, begin: int, advance: Callable[[int], None]
    ) -> tuple[list[AbortedTransaction], bool]:
        """Read the batches from ``begin`` on. Return the aborted transactions that end there, and whether any
        batch is transactional.
        """
        # Its producers count as active when the file was last written, whatever the messages' timestamps are.
        active_ms = segment.file.modified_ms()
        aborted: list[AbortedTransaction] = []
        at_start, transactional = True, False
        for window in windows(
            segment.file, 0, segment.size, segment.base_offset, interval_bytes=EVERY_ENTRY, check_crc=False
        ):
            positions = np.ascontiguousarray(window.result.index_entries[:, 1]) - window.position
            if at_start and len(window.data):
                positions = np.concatenate([np.zeros(1, dtype=np.int64), positions])
            ended, found = self._update_from(window.data, positions, begin, active_ms)
            aborted += ended
            transactional = transactional or found
            at_start = False
            advance(len(window.data))
        return aborted, transactional

    def _update_from(
        self, data: Buffer, positions: NDArray[np.int64], begin: int, active_ms: int
    ) -> tuple[list[AbortedTransaction], bool]:
        """Return the aborted transactions that end here, and whether any batch is transactional."""
        ended, transactional = [], False
        for position, header in producer_state_batches(data, positions, begin, BATCHES_KEPT):
            producer_id = header.producer_id
            producer = self._known.get(producer_id)
            transactional = transactional or header.transactional
            if not header.control:
                self._put({producer_id: replayed(producer, header, active_ms)})
                continue
            marker = end_marker_of(data, position)
            if marker is not None:
                written_ms = max(header.max_timestamp_ms, active_ms)
                marked = (producer or ProducerStateEntry()).with_end_marker(
                    header.producer_epoch, marker.coordinator_epoch, written_ms
                )
                aborted = self._end(producer_id, marked, marker.kind, header.base_offset)
                if aborted is not None:
                    ended.append(aborted)
        return ended, transactional

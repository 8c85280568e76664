"""The producers of one log: kept in memory, and in snapshot files from which they come back.

A snapshot (``producer_snapshots``) is written whenever a segment ends, and when the log is closed. At open
the newest one that can be believed is read, and the headers of the batches behind it:

- one that is damaged, or lies past the log's end, is passed over and removed;
- after a crash also one past the recovery point, where the log does not begin there: it may have ended
  before, and gone on otherwise;
- where there is none, all of the log is gone through, but not after a clean shutdown: who writes producers'
  batches and closes writes one, so such a log is from a release without producers.

The newest two stay, and what is needed down to the recovery point; a deleted segment takes the one at its
beginning along. None is flushed but at close: what a power cut takes is found again in the log.

A producer is forgotten when it has written nothing for ``transactional.id.expiration.ms``; and of very many
the one that has been silent for longest, so that nobody can fill the memory with ids of its own making.
Its messages being deleted is no reason (as since 2.4; 2.1 forgets it then, and refuses what comes next).
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
from minikafka.records.scan.producer_batches import EVERY_ENTRY, coordinator_epoch_of, telling_batches

PRODUCERS_MOST = 1 << 15
"""About a kilobyte each."""
SNAPSHOTS_KEPT = 2

_NAME = re.compile(r"([0-9]{20})" + re.escape(SNAPSHOT_SUFFIX))
_log = logging.getLogger(__name__)


class Stretch(Protocol):
    """A segment, as far as this module looks at it."""

    base_offset: int
    file: File
    size: int


def snapshot_offsets(names: Iterable[str]) -> list[int]:
    """The offsets of the snapshots among file names, rising."""
    return sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))


class ProducerStateManager:
    """What one log knows of its producers. Changed by who holds the log's mutex."""

    __slots__ = (
        "_complaint",
        "_directory",
        "_files",
        "_known",
        "_open",
        "_snapshots",
        "first_undecided_offset",
    )

    def __init__(self, files: Files, directory: str, snapshots: Sequence[int] = ()) -> None:
        self._files = files
        self._directory = directory
        self._known: dict[int, ProducerStateEntry] = {}
        """The one that wrote last comes last."""
        self._open: dict[int, int] = {}
        """Where the transaction begins of each that has one open: seldom any, of very many producers."""
        self._snapshots = list(snapshots)
        """Offsets of the files, rising. Of those below the newest, some may be gone with their segments."""
        self._complaint: str | None = None
        self.first_undecided_offset: int | None = None
        """Where the oldest transaction begins that has not ended; None when all have."""

    @property
    def known(self) -> Producers:
        """All producers, by id. Not to be kept."""
        return self._known

    def known_ids(self) -> list[int]:
        """The ids of all of them. Any thread may ask."""
        return list(self._known.copy())

    def last_offsets(self) -> dict[int, int]:
        """The offset of each one's last record. Any thread may ask."""
        return last_offsets(self._known.copy())

    # While the log grows.

    def analyze_batches(
        self, batches: Sequence[BatchHeader], first_offset: int, now_ms: int
    ) -> BatchMetadata | dict[int, ProducerStateEntry]:
        """See ``producer_state.decide``: nothing is changed here."""
        return analyze_batches(self._known, batches, first_offset, now_ms)

    def update(self, changed: Producers) -> None:
        """Take what ``analyze_batches`` gave, once that is appended."""
        self._put(changed)
        self._note_open()

    def update_from_leader(self, data: Buffer, positions: NDArray[np.int64], now_ms: int) -> None:
        """Take what whole entries at ``positions`` say, which were copied from the leader's log."""
        self._learn(data, positions, 0, now_ms)
        self._note_open()

    def _note_open(self) -> None:
        self.first_undecided_offset = min(self._open.values(), default=None)

    def _put(self, changed: Producers) -> None:
        known, begun = self._known, self._open
        for producer_id, producer in changed.items():
            known.pop(producer_id, None)
            known[producer_id] = producer
            if producer.current_txn_first_offset >= 0:
                begun[producer_id] = producer.current_txn_first_offset
            elif begun:
                begun.pop(producer_id, None)
        while len(known) > PRODUCERS_MOST:
            oldest = next(iter(known))
            del known[oldest]
            begun.pop(oldest, None)

    def remove_expired(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that were silent for so long; how many."""
        gone = expired(self._known, now_ms, expiration_ms)
        for producer_id in gone:
            del self._known[producer_id]
        return len(gone)

    # Files.

    def take_snapshot(self, offset: int, recovery_point: int, *, closing: bool = False) -> None:
        """Write the snapshot at the log end offset, where it is not there, and remove old ones.

        Where it cannot be written the log is read instead, at the next open. StorageError at close if that
        open would not know that there is anything to be read.
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
            if self._complaint != str(error):
                _log.warning("%s; the next start will rebuild the producer state from the log", error)
            self._complaint = str(error)
            with contextlib.suppress(StorageError, FileNotFoundError):
                self._files.remove(path + TEMPORARY_SUFFIX)
            return
        self._snapshots.append(offset)
        believed = [at for at in self._snapshots if at <= recovery_point]
        oldest = min([*self._snapshots[-SNAPSHOTS_KEPT:], *believed[-1:]])
        self._remove(lambda at: at < oldest)

    def delete_snapshots_before(self, start_offset: int) -> None:
        """The log begins at ``start_offset`` now: older snapshots say nothing that is needed."""
        self._remove(lambda at: at < start_offset)

    def delete_snapshots_after(self, end_offset: int) -> None:
        """The log is cut there: newer snapshots tell of what is gone."""
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
        segments: Sequence[Stretch],
        end_offset: int,
        believed_up_to: int,
        *,
        after_clean: bool = False,
        advance: Callable[[int], None] = lambda size_bytes: None,
    ) -> None:
        """Find out what is known below ``end_offset``, where the log ends. StorageError when it cannot be
        read.

        Snapshots above ``believed_up_to`` are removed. ``after_clean``: a log without any has no producers.
        ``advance`` is told how many bytes were read.
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
            number: one.current_txn_first_offset
            for number, one in known.items()
            if one.current_txn_first_offset >= 0
        }
        return True

    def _replay_segment(self, segment: Stretch, begin: int, advance: Callable[[int], None]) -> None:
        # Who wrote to it was active when it was last written to, whatever the messages' timestamps say.
        active_ms = segment.file.modified_ms()
        at_start = True
        for window in windows(
            segment.file,
            0,
            segment.size,
            segment.base_offset,
            interval_bytes=EVERY_ENTRY,
            check_crc=False,
        ):
            self._replay(window, begin, active_ms, at_start=at_start)
            at_start = False
            advance(len(window.data))

    def _replay(self, window: Window, begin: int, active_ms: int, *, at_start: bool) -> None:
        positions = np.ascontiguousarray(window.result.index_entries[:, 1]) - window.position
        if at_start and len(window.data):
            positions = np.concatenate([np.zeros(1, dtype=np.int64), positions])
        self._learn(window.data, positions, begin, active_ms)

    def _learn(self, data: Buffer, positions: NDArray[np.int64], begin: int, active_ms: int) -> None:
        for position, header in telling_batches(data, positions, begin, BATCHES_KEPT):
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

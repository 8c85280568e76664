"""The leader epochs of one log: the offset at which each leader began to write.

``leader-epoch-checkpoint`` in the partition's directory, Kafka's text form (0.11 and later)::

    0            version
    2            number of lines that follow
    0 0          epoch, and the first offset written under it
    3 4711

Epochs and offsets increase from line to line. A restarted follower asks the leader for the end of the
follower's own last epoch, and truncates its log there: with the high watermark alone, two logs could differ
forever (KIP-101).

Every change writes and flushes the file; changes are as rare as elections. The first entry is an exception:
it becomes durable with the flush of the first messages (``make_durable``). Entries that ``assign`` does not
write are written by the broker for many logs at once (``leader_epoch_journal``, ``recorded``); the file gets
them with the next ``save``. When the file cannot be written (a full disk must not stop reads), ``save``
retries. An invalid file counts as absent: then no request can be answered, and followers fall back to the
high watermark.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing, nullcontext

from minikafka.base.errors import StorageError
from minikafka.base.files import Files, read_file, replace_file
from minikafka.log.checkpoints.offset_checkpoint import VERSION, counted_lines
from minikafka.log.layout import LEADER_EPOCH_FILE
from minikafka.records.append.replicated import FollowerRecords

UNKNOWN = -1

_log = logging.getLogger(__name__)


class LeaderEpochs:
    """The leader epochs of one log. Any thread may change them, when ``mutex`` is a lock."""

    __slots__ = (
        "_durable",
        "_entries",
        "_file_is_stale",
        "_files",
        "_in_journal",
        "_last_error",
        "_saved",
        "latest_at_open",
        "mutex",
        "path",
    )

    def __init__(self, files: Files, directory: str) -> None:
        self.path = os.path.join(directory, LEADER_EPOCH_FILE)
        self._files = files
        self._entries: tuple[tuple[int, int], ...] = ()
        self._saved = True
        self._durable = True
        self._in_journal = False
        """True if the entries are durable in the journal instead of the file."""
        self._file_is_stale = False
        """True if the file still has epochs that recovery has removed."""
        self.latest_at_open = UNKNOWN
        """The newest epoch in the file when the log was opened, even if no message of it is left: it was
        started here, or copied."""
        self._last_error: str | None = None
        self.mutex: AbstractContextManager[object] = nullcontext()

    @classmethod
    def load(cls, files: Files, directory: str) -> LeaderEpochs:
        """Read the file; empty when it is absent, and with a warning when it is not valid."""
        epochs = cls(files, directory)
        try:
            epochs._entries = read_epochs(files, epochs.path)
            epochs.latest_at_open = epochs.latest
            epochs._durable = False  # unknown
        except FileNotFoundError:
            pass
        except StorageError as error:
            _log.warning("%s; the leader epochs of this log are unknown", error)
        return epochs

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        """(epoch, first offset), increasing."""
        return self._entries

    @property
    def latest(self) -> int:
        """The newest epoch; -1 when none is known."""
        return self._entries[-1][0] if self._entries else UNKNOWN

    def load_journal(self, entries: tuple[tuple[int, int], ...]) -> None:
        """Use the entries of the journal when their newest epoch is newer than that of the file."""
        if entries and entries[-1][0] > self.latest:
            self._entries, self._saved, self._in_journal = entries, False, True
            self.latest_at_open = entries[-1][0]

    def assign(self, epoch: int, first_offset: int, *, write: bool = True) -> None:
        """Record that ``epoch`` starts at ``first_offset``. Older epochs change nothing.

        Entries of epochs that started at or after that offset are removed: no message of them was kept.
        Without ``write`` the caller writes the journal and then calls ``recorded``. The first entry is
        written anyway, and so is an epoch that the file had at open: the journal counts only for newer ones.
        """
        with self.mutex:
            if epoch > self.latest:
                kept = tuple(entry for entry in self._entries if entry[1] < first_offset)
                self._replace((*kept, (epoch, first_offset)), write=write or epoch <= self.latest_at_open)

    @property
    def written(self) -> bool:
        """Return whether the entries are written, in the file or the journal."""
        return self._saved or self._in_journal

    def recorded(self, entries: tuple[tuple[int, int], ...]) -> None:
        """Record that these entries are durable in the journal."""
        with self.mutex:
            if entries and entries == self._entries:
                self._in_journal = True

    def save_durably(self) -> None:
        """Write the file durably, as the journal's entries will be removed. Raises StorageError."""
        with self.mutex:
            self._saved = self._in_journal = False
        self.require_saved()

    def copy(self, copied: FollowerRecords, reported: Sequence[tuple[int, int]]) -> None:
        """Take over the epochs of records that are about to be copied from the leader.

        ``reported``, increasing: epochs and start offsets in the leader's log, as far as it reports them.
        Before the first of them the batches name their epoch. Messages of older formats name none, and then
        the end of an epoch before them is no longer known.
        """
        reported_epoch, reported_from = reported[0] if reported else (1 << 31, copied.next_offset)
        if copied.first_without_epoch < reported_from:
            self.truncate_from_end(0)
        else:
            for epoch, first_offset in copied.epochs:
                if epoch < reported_epoch:
                    self.assign(epoch, first_offset)
        for epoch, first_offset in reported:
            if first_offset < copied.next_offset:
                self.assign(epoch, first_offset)

    def end_offset_for(
        self, epoch: int, log_end_offset: int, log_start_offset: int = 1 << 63
    ) -> tuple[int, int]:
        """Return (epoch, offset): the largest known epoch not above ``epoch``, and its end offset.

        The end offset is the start offset of the next epoch, or the log end offset. (-1, -1) when ``epoch``
        is newer than all, or nothing is known: also when it is older than all, and the log has messages from
        before them. (OffsetForLeaderEpoch.)
        """
        entries = self._entries
        if epoch < 0 or not entries or epoch > entries[-1][0]:
            return UNKNOWN, UNKNOWN
        if epoch == entries[-1][0]:
            return epoch, log_end_offset
        later = next(number for number, entry in enumerate(entries) if entry[0] > epoch)
        if later:
            return entries[later - 1][0], entries[later][1]
        return (epoch, entries[0][1]) if log_start_offset >= entries[0][1] else (UNKNOWN, UNKNOWN)

    def epoch_for_offset(self, offset: int) -> int:
        """Return the epoch in which ``offset`` was written, or will be; -1 when it is not known."""
        return next((epoch for epoch, first in reversed(self._entries) if first <= offset), UNKNOWN)

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the epochs that start at or after ``end_offset``, where the log ends now."""
        with self.mutex:
            self._replace(tuple(entry for entry in self._entries if entry[1] < end_offset))

    def recovered(self, end_offset: int) -> None:
        """Remove the epochs after the end of the opened log, but not from the file until a write: after the
        next crash it must still be known that such an epoch was started here.
        """
        with self.mutex:
            kept = tuple(entry for entry in self._entries if entry[1] < end_offset)
            self._file_is_stale = kept != self._entries
            self._entries = kept

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the epochs before ``start_offset``, where the log begins now, except for the last of them:
        it starts there now.
        """
        with self.mutex:
            before = [entry for entry in self._entries if entry[1] <= start_offset]
            kept = tuple(entry for entry in self._entries if entry[1] > start_offset)
            if before:
                kept = ((before[-1][0], start_offset), *kept)
            self._replace(kept)

    def _replace(self, entries: tuple[tuple[int, int], ...], *, write: bool = True) -> None:
        if entries == self._entries:
            return
        first = not self._entries and not self._files.exists(self.path)
        self._entries = entries
        self._file_is_stale = self._saved = self._in_journal = False
        if write or first:
            self._save(sync=not first)

    def save(self) -> None:
        """Write the file if that is pending; a failure is logged once, and the next call retries."""
        with self.mutex:
            if not self._saved:
                self._save(sync=not self._in_journal)

    def require_saved(self) -> None:
        """Save the epochs before records of an epoch are appended. Raises StorageError when that fails.

        A log whose epochs start at other offsets after a restart would diverge from the other replicas.
        """
        if self._file_is_stale:
            self._file_is_stale = self._saved = self._in_journal = False
        if not self.written:
            self.save()
            if not self._saved:
                raise StorageError(f"cannot append before the leader epochs are saved: {self._last_error}")

    def make_durable(self) -> bool:
        """Flush the file if needed; return whether its name must be flushed too. Raises StorageError."""
        with self.mutex:
            if self._durable or self._in_journal or not self._entries:
                return False
            with closing(self._files.open(self.path)) as file:
                file.sync()
            self._durable = True
            return True

    def _save(self, *, sync: bool) -> None:
        lines = [str(VERSION), str(len(self._entries))]
        lines += [f"{epoch} {offset}" for epoch, offset in self._entries]
        try:
            replace_file(self._files, self.path, "".join(f"{line}\n" for line in lines).encode(), sync=sync)
        except (StorageError, FileNotFoundError) as error:
            if self._last_error != str(error):
                _log.warning("%s; will retry", error)
            self._last_error = str(error)
        else:
            self._saved, self._durable, self._last_error = True, sync, None


def read_epochs(files: Files, path: str) -> tuple[tuple[int, int], ...]:
    """Read (epoch, first offset) of each line.

    Raises StorageError when the file is not valid; FileNotFoundError.
    """
    data = read_file(files, path)
    try:
        return _parse(data.decode("ascii")) if data else ()
    except (ValueError, IndexError) as error:
        raise StorageError(f"{path} is not a leader epoch file of version {VERSION}: {error}") from None


def _parse(content: str) -> tuple[tuple[int, int], ...]:
    if not content.endswith("\n"):
        raise ValueError("the last line is incomplete")  # half an offset is one too
    entries: list[tuple[int, int]] = []
    for text in counted_lines(content):
        epoch, offset = (int(part) for part in text.split())
        if epoch < 0 or offset < 0 or (entries and (epoch <= entries[-1][0] or offset < entries[-1][1])):
            raise ValueError(f"{text!r} is out of order")
        entries.append((epoch, offset))
    return tuple(entries)

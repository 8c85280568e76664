"""Leader epochs of one log: at which offset each leader began to write.

``leader-epoch-checkpoint`` in the partition's directory, Kafka's text form (0.11 and later)::

    0            version
    2            number of lines that follow
    0 0          epoch, and the first offset written under it
    3 4711

Epochs and offsets rise from line to line. A follower that comes back asks the leader where its own last epoch
ended, and cuts its log there: the high watermark alone would let two logs differ for ever (KIP-101).

The file is written with every change, and flushed; changes are as rare as elections. Only the first one is
not: it becomes as durable as the first messages, by their flush (``make_durable``). And what ``begin`` is
told not to write the broker writes down for many logs at once (``begun``, ``recorded``); the file gets it
with the next ``save``. Where a file cannot be written (a full disk must not stop reads) ``save`` tries again.
One that makes no sense counts as absent: then no question can be answered, and followers fall back to the
high watermark.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from minikafka.base.errors import StorageError
from minikafka.base.files import Files, read_file, replace_file
from minikafka.log.checkpoints.offset_checkpoint import VERSION, counted_lines
from minikafka.log.layout import EPOCHS_FILE
from minikafka.records.append.replicated import FollowerRecords

UNKNOWN = -1

_log = logging.getLogger(__name__)


class LeaderEpochs:
    """The epochs of one log. Any thread may change them, when ``mutex`` is a lock."""

    __slots__ = (
        "_complaint",
        "_durable",
        "_elsewhere",
        "_entries",
        "_files",
        "_kept",
        "_saved",
        "begun",
        "mutex",
        "path",
    )

    def __init__(self, files: Files, directory: str, entries: tuple[tuple[int, int], ...] = ()) -> None:
        self.path = os.path.join(directory, EPOCHS_FILE)
        self._files = files
        self._entries = entries
        self._saved = True
        self._durable = True
        self._elsewhere = False
        """Whether the entries are written down, durably, beside the file."""
        self._kept = False
        """Whether the file has epochs yet that recovery has cut."""
        self.begun = UNKNOWN
        """The newest epoch that the file told of when the log was opened, also where nothing is left of it:
        it was begun here, or copied."""
        self._complaint: str | None = None
        self.mutex: AbstractContextManager[object] = nullcontext()

    @classmethod
    def load(cls, files: Files, directory: str) -> LeaderEpochs:
        """Read the file; empty when it is absent, and with a warning when it makes no sense."""
        epochs = cls(files, directory)
        try:
            epochs._entries = read_epochs(files, epochs.path)
            epochs.begun = epochs.latest
            epochs._durable = False  # nobody knows
        except FileNotFoundError:
            pass
        except StorageError as error:
            _log.warning("%s; the leader epochs of this log are unknown", error)
        return epochs

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        """(epoch, first offset), rising."""
        return self._entries

    @property
    def latest(self) -> int:
        """The newest epoch; -1 when none is known."""
        return self._entries[-1][0] if self._entries else UNKNOWN

    def learn(self, begun: tuple[tuple[int, int], ...]) -> None:
        """These were written down beside the file: they count where they reach further."""
        if begun and begun[-1][0] > self.latest:
            self._entries, self.begun, self._saved, self._elsewhere = begun, begun[-1][0], False, True

    def begin(self, epoch: int, first_offset: int, *, write: bool = True) -> None:
        """A leader of ``epoch`` writes from ``first_offset`` on. Older epochs change nothing.

        Entries of epochs that began at or behind that offset go: nothing of them was kept. Without ``write``
        the caller writes them down elsewhere, and says so (``recorded``); the first one is written anyway,
        and one that the file told of already: against the file, only a newer one would count elsewhere.
        """
        with self.mutex:
            if epoch > self.latest:
                kept = tuple(entry for entry in self._entries if entry[1] < first_offset)
                self._replace((*kept, (epoch, first_offset)), write=write or epoch <= self.begun)

    @property
    def written(self) -> bool:
        """Return whether they are written down, here or elsewhere."""
        return self._saved or self._elsewhere

    def recorded(self, entries: tuple[tuple[int, int], ...]) -> None:
        """These are written down elsewhere, durably."""
        with self.mutex:
            if entries and entries == self._entries:
                self._elsewhere = True

    def stand_alone(self) -> None:
        """Write the file durably: what is written down elsewhere is to go. StorageError."""
        with self.mutex:
            self._saved = self._elsewhere = False
        self.require_saved()

    def copy(self, copied: FollowerRecords, told: Sequence[tuple[int, int]]) -> None:
        """These messages are about to be written as the leader has them.

        ``told``, rising: where epochs begin in the leader's log, as far as it tells. Where it tells nothing,
        batches say which epoch they are of; messages of older formats do not, and then nobody can say any
        more where an epoch before them ended.
        """
        told_epoch, told_from = told[0] if told else (1 << 31, copied.next_offset)
        if copied.unnumbered_from < told_from:
            self.cut_end(0)
        else:
            for epoch, first_offset in copied.epochs:
                if epoch < told_epoch:
                    self.begin(epoch, first_offset)
        for epoch, first_offset in told:
            if first_offset < copied.next_offset:
                self.begin(epoch, first_offset)

    def end_offset_for(
        self, epoch: int, log_end_offset: int, log_start_offset: int = 1 << 63
    ) -> tuple[int, int]:
        """(epoch, offset): the largest known epoch not above ``epoch``, and where the next one begins.

        That is the log end offset for the newest one; (-1, -1) when ``epoch`` is newer than all, or nothing
        is known: also when it is older than all, and the log has messages from before them.
        (OffsetForLeaderEpoch.)
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

    def epoch_of(self, offset: int) -> int:
        """The epoch under which ``offset`` was written, or will be; -1 when it is not known."""
        return next((epoch for epoch, first in reversed(self._entries) if first <= offset), UNKNOWN)

    def cut_end(self, end_offset: int) -> None:
        """The log ends at ``end_offset`` now: epochs that began there or later are forgotten."""
        with self.mutex:
            self._replace(tuple(entry for entry in self._entries if entry[1] < end_offset))

    def recovered(self, end_offset: int) -> None:
        """The log that was opened ends there. The file keeps what it has until something is written: that an
        epoch was begun here has to be known after the next crash, too.
        """
        with self.mutex:
            kept = tuple(entry for entry in self._entries if entry[1] < end_offset)
            self._kept = kept != self._entries
            self._entries = kept

    def cut_start(self, start_offset: int) -> None:
        """The log begins at ``start_offset`` now: only the last epoch that began before is kept, from there
        on.
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
        self._kept = self._saved = self._elsewhere = False
        if write or first:
            self._save(sync=not first)

    def save(self) -> None:
        """Write the file where that failed; a failure is told once, and left to the next call."""
        with self.mutex:
            if not self._saved:
                self._save(sync=not self._elsewhere)

    def require_saved(self) -> None:
        """Before anything is written under an epoch, the file has to tell of it: a log whose epochs begin
        elsewhere after a restart would part from the others. StorageError where it cannot be written.
        """
        if self._kept:
            self._kept = self._saved = self._elsewhere = False
        if not self.written:
            self.save()
            if not self._saved:
                raise StorageError(f"cannot append before the leader epochs are saved: {self._complaint}")

    def make_durable(self) -> bool:
        """Flush the file where that may not have been done; whether its name has to be, too. StorageError."""
        with self.mutex:
            if self._durable or self._elsewhere or not self._entries:
                return False
            file = self._files.open(self.path)
            try:
                file.sync()
            finally:
                file.close()
            self._durable = True
            return True

    def _save(self, *, sync: bool) -> None:
        lines = [str(VERSION), str(len(self._entries))]
        lines += [f"{epoch} {offset}" for epoch, offset in self._entries]
        try:
            replace_file(self._files, self.path, "".join(f"{line}\n" for line in lines).encode(), sync=sync)
        except (StorageError, FileNotFoundError) as error:
            if self._complaint != str(error):
                _log.warning("%s; will retry", error)
            self._complaint = str(error)
        else:
            self._saved, self._durable, self._complaint = True, sync, None


def read_epochs(files: Files, path: str) -> tuple[tuple[int, int], ...]:
    """(epoch, first offset) of each line. StorageError when the file makes no sense; FileNotFoundError."""
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

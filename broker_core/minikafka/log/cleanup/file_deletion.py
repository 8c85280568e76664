"""Files that go: those of old segments, ``file.delete.delay.ms`` after nothing names them any more, and the
directories of partitions that are deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from minikafka.base.clock import Clock
from minikafka.base.errors import StorageError
from minikafka.base.files import Files
from minikafka.base.ids import TopicPartition
from minikafka.log.checkpoints.data_directory import DataDirectory
from minikafka.log.log import Log

_logger = logging.getLogger(__name__)


class FileDeletion:
    """``add`` and ``remove_due`` may run on different threads."""

    def __init__(self, files: Files, clock: Clock) -> None:
        self._files = files
        self._clock = clock
        self._due: list[tuple[int, list[str]]] = []
        """When (the clock's monotonic scale), and what."""

    def add(self, log: Log, paths: list[str]) -> None:
        """Have these files of a log removed after its time."""
        self._due.append((self._clock.monotonic_ms() + log.config.file_delete_delay_ms, paths))

    def remove_due(self) -> None:
        """Remove the files whose time has come."""
        now_ms = self._clock.monotonic_ms()
        due = [entry for entry in list(self._due) if entry[0] <= now_ms]
        for entry in due:
            self._due.remove(entry)
            for path in entry[1]:
                try:
                    self._files.remove(path)
                except FileNotFoundError:
                    continue  # with its whole partition, for one
                except StorageError as error:
                    _logger.warning("%s; the next start will remove it", error)


def remove_partitions(
    files: Files,
    home: DataDirectory,
    partitions: Sequence[TopicPartition],
    *,
    put_away: Callable[[TopicPartition], None],
    checkpoint: Callable[[], object],
    forget: Callable[[Sequence[TopicPartition]], None],
) -> dict[TopicPartition, StorageError]:
    """Remove partitions that lie in one data directory, at the cost of one look at it and one checkpoint;
    give those that could not be removed.

    ``put_away`` renames one's directory, ``checkpoint`` writes the offsets of those that are left, and
    ``forget`` drops what is known of those that are gone. All may raise StorageError.
    """
    failed: dict[TopicPartition, StorageError] = {}

    def left() -> list[TopicPartition]:
        return [partition for partition in partitions if partition not in failed]

    def fail(partition: TopicPartition, error: StorageError | FileNotFoundError) -> None:
        if isinstance(error, FileNotFoundError):
            error = StorageError(f"cannot delete {partition} completely: {error.filename} is missing")
        failed[partition] = error

    def of_each(step: Callable[[TopicPartition], None]) -> None:
        for partition in left():
            try:
                step(partition)
            except (StorageError, FileNotFoundError) as error:
                fail(partition, error)

    def remove_rubbish(partition: TopicPartition) -> None:
        for path in rubbish[partition]:
            files.remove_tree(path)

    try:
        of_each(put_away)
        if home.failure is not None:
            forget(left())
            return failed
        files.sync_dir(home.path)
        rubbish = home.leftovers_of(left())
        # Before the checkpoints: on a full disk this makes the room for them.
        of_each(remove_rubbish)
        if any(home.may_hold_above(partition, 0) for partition in left()):
            checkpoint()
        forget(left())
    except (StorageError, FileNotFoundError) as error:
        for partition in left():
            fail(partition, error)
    return failed

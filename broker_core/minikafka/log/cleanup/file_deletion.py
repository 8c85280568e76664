"""Deletion of the files of deleted segments, after ``file.delete.delay.ms``, and of deleted partitions."""

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
    """The delayed deletion of segment files. ``add`` and ``remove_due`` may run on different threads."""

    def __init__(self, files: Files, clock: Clock) -> None:
        self._files = files
        self._clock = clock
        self._due: list[tuple[int, list[str]]] = []
        """(monotonic time, paths)."""

    def add(self, log: Log, paths: list[str]) -> None:
        """Schedule files of a log for removal after its ``file.delete.delay.ms``."""
        self._due.append((self._clock.monotonic_ms() + log.config.file_delete_delay_ms, paths))

    def remove_due(self) -> None:
        """Remove the files that are due."""
        now_ms = self._clock.monotonic_ms()
        due = [entry for entry in list(self._due) if entry[0] <= now_ms]
        for entry in due:
            self._due.remove(entry)
            for path in entry[1]:
                try:
                    self._files.remove(path)
                except FileNotFoundError:
                    continue  # its whole partition may have been deleted
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
    """Delete partitions of one data directory, with one listing and one checkpoint for all of them; return
    those that could not be deleted, with the errors.

    ``put_away`` renames a partition's directory, ``checkpoint`` writes the offsets of the remaining
    partitions, and ``forget`` removes the state of the deleted ones. All may raise StorageError.
    """
    failed: dict[TopicPartition, StorageError] = {}

    def left() -> list[TopicPartition]:
        return [partition for partition in partitions if partition not in failed]

    def fail(partition: TopicPartition, error: StorageError | FileNotFoundError) -> None:
        if isinstance(error, FileNotFoundError):
            error = StorageError(f"cannot delete {partition} completely: {error.filename} is missing")
        failed[partition] = error

    def for_each(step: Callable[[TopicPartition], None]) -> None:
        for partition in left():
            try:
                step(partition)
            except (StorageError, FileNotFoundError) as error:
                fail(partition, error)

    def remove_leftovers(partition: TopicPartition) -> None:
        for path in leftovers[partition]:
            files.remove_tree(path)

    try:
        for_each(put_away)
        if home.failure is not None:
            forget(left())
            return failed
        files.sync_dir(home.path)
        leftovers = home.leftovers_of(left())
        # Before the checkpoints: on a full disk this makes room for them.
        for_each(remove_leftovers)
        if any(home.may_hold_above(partition, 0) for partition in left()):
            checkpoint()
        forget(left())
    except (StorageError, FileNotFoundError) as error:
        for partition in left():
            fail(partition, error)
    return failed

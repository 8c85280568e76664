"""The high watermarks of all logs as they were written down last: ``replication-offset-checkpoint``.

One file in each data directory, as 0.10.1 has it. It says less than is true, or as much: what is behind it
is decided anew, by the replicas that are in sync (as the leader) or by the leader's epochs (as a follower).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from minikafka.base.errors import StorageError
from minikafka.base.ids import TopicPartition
from minikafka.log.checkpoints.data_directory import DataDirectory

_logger = logging.getLogger(__name__)


class HighWatermarkCheckpoints:
    """Of the data directories that were entered. ``write`` may run on another thread than the rest."""

    def __init__(self) -> None:
        self._directories: list[DataDirectory] = []

    def enter(self, directory: DataDirectory) -> None:
        """Read those of a directory; none where the file makes no sense."""
        try:
            directory.high_watermarks.read()
        except StorageError as error:
            _logger.warning("%s; followers will ask their leaders where to truncate", error)
        self._directories.append(directory)

    def of(self, partition: TopicPartition) -> int:
        """What was written down; 0 where nothing was."""
        return max((one.high_watermarks.held.get(partition, 0) for one in self._directories), default=0)

    def write(self, watermarks: Mapping[TopicPartition, int]) -> None:
        """Write them down; of partitions that are not named, and lie there, what was known before.

        Where it is not possible, a warning says so, once until it is possible again.
        """
        for directory in self._directories:
            if directory.failure is not None:
                continue
            with directory.writing:
                held, here = directory.high_watermarks.held, sorted(directory.partitions)
                wanted = {partition: watermarks.get(partition, held.get(partition, 0)) for partition in here}
                if not directory.high_watermarks.holds(wanted):
                    directory.high_watermarks.write(wanted)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """The logs are gone: the next ones of their names begin with none. StorageError where a disk keeps
        them.
        """
        for directory in self._directories:
            with directory.writing:
                held = dict(directory.high_watermarks.held)
                changed = [partition for partition in partitions if held.pop(partition, 0)]
                if changed and directory.failure is None:
                    directory.high_watermarks.write(held)

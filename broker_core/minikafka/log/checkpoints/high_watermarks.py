"""The checkpointed high watermarks of all logs: ``replication-offset-checkpoint``.

One file in each data directory, as in 0.10.1. A checkpointed high watermark is never too high. The messages
after it are decided again, by the in-sync replicas (as the leader) or the leader's epochs (as a follower).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from minikafka.base.errors import StorageError
from minikafka.base.ids import TopicPartition
from minikafka.log.checkpoints.data_directory import DataDirectory

_logger = logging.getLogger(__name__)


class HighWatermarkCheckpoints:
    """The high watermark checkpoints of all data directories. ``write`` may run on a thread of its own."""

    def __init__(self) -> None:
        self._directories: list[DataDirectory] = []

    def enter(self, directory: DataDirectory) -> None:
        """Add a data directory and read its file; an invalid file counts as empty."""
        try:
            directory.high_watermarks.read()
        except StorageError as error:
            _logger.warning("%s; followers will ask their leaders where to truncate", error)
        self._directories.append(directory)

    def of(self, partition: TopicPartition) -> int:
        """Return the checkpointed high watermark of a partition; 0 when there is none."""
        return max((home.high_watermarks.held.get(partition, 0) for home in self._directories), default=0)

    def write(self, watermarks: Mapping[TopicPartition, int]) -> None:
        """Write the checkpoints. Other partitions of a directory keep their previous high watermark.

        A failure is reported by one warning until it succeeds again.
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
        """Remove the entries of deleted logs: new logs of their names start without one.

        Raises StorageError when a file can be neither replaced nor removed.
        """
        for directory in self._directories:
            with directory.writing:
                held = dict(directory.high_watermarks.held)
                changed = [partition for partition in partitions if held.pop(partition, 0)]
                if changed and directory.failure is None:
                    directory.high_watermarks.write(held)

    def move(self, partition: TopicPartition, old: DataDirectory, new: DataDirectory) -> None:
        """Move the entry of a partition whose log has moved. Raises StorageError as ``forget``."""
        offset = old.high_watermarks.held.get(partition, 0)
        with new.writing:
            new.high_watermarks.write({**new.high_watermarks.held, partition: offset})
        with old.writing:
            held = {other: at for other, at in old.high_watermarks.held.items() if other != partition}
            old.high_watermarks.write(held)

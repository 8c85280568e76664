"""The port through which changes of a log pause the log cleaner."""

from __future__ import annotations

from typing import Protocol

from minikafka.base.ids import TopicPartition
from minikafka.log.log import Log


class CleanerControl(Protocol):
    """Lets changes of a log pause its cleaning (implemented by ``cleaner_manager``)."""

    def pause(self, partition: TopicPartition) -> None:
        """Stop the cleaning of a partition; on return none is running."""

    def resume(self, partition: TopicPartition) -> None:
        """Let the partition be cleaned again."""

    def forget(self, partition: TopicPartition) -> None:
        """Remove the state of a deleted partition."""

    def move(self, partition: TopicPartition, old: Log) -> None:
        """Keep the first dirty offset of a partition whose log has replaced ``old`` in another directory."""

"""Who works on logs in the background, as those who change a log see it."""

from __future__ import annotations

from typing import Protocol

from minikafka.base.ids import TopicPartition


class CleanerControl(Protocol):
    """Who works on logs in the background and must keep off one that is to change (``cleaning``)."""

    def pause(self, partition: TopicPartition) -> None:
        """Keep off; on return nothing is under way."""

    def resume(self, partition: TopicPartition) -> None:
        """Go on with the log as it is now."""

    def forget(self, partition: TopicPartition) -> None:
        """The partition is gone."""

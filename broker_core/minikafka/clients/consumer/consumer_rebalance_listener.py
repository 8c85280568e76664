"""A hook into rebalances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from minikafka.clients.consumer.consumer_thread_id import ConsumerThreadId


class ConsumerRebalanceListener(Protocol):
    """Called by the thread that rebalances, in both cases while nothing is fetched or handed out.

    ConsumerRebalanceListener of the release. What it raises lets the attempt fail. It may shut the consumer
    down.
    """

    def before_releasing_partitions(self, ownership: Mapping[str, set[int]]) -> None:
        """``ownership``, topic -> partitions, is what this consumer has read so far, and may give up now.

        Offsets are committed already, under auto commit. Without it ``commit_offsets`` may be called here,
        so that whoever gets them does not begin with what was done already; messages that are still in work
        do not count.
        """

    def before_starting_fetchers(
        self, consumer_id: str, assignment: Mapping[str, Mapping[int, ConsumerThreadId]]
    ) -> None:
        """This consumer owns its partitions: ``assignment`` is that of the whole group, topic -> partition ->
        thread.
        """

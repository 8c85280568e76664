"""The listeners of a consumer: the application's listener for rebalances, and that for the list of topics
(``ConsumerRebalanceListener``, ``TopicEventHandler`` and ``ZookeeperTopicEventWatcher`` of text 004).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from minikafka.clients.consumer.assignment import ConsumerThreadId
from minikafka.registry import paths
from minikafka.registry.store import Store


class ConsumerRebalanceListener(Protocol):
    """A hook into rebalances (``ConsumerRebalanceListener`` of the release).

    Called on the thread that rebalances, while nothing is fetched or delivered. An exception fails the
    attempt. The listener may shut the consumer down.
    """

    def before_releasing_partitions(self, ownership: Mapping[str, set[int]]) -> None:
        """Called before partitions are released. ``ownership`` maps topics to the partitions that this
        consumer has read so far, some of which it may release.

        With auto commit, offsets are already committed. Without it the listener may call ``commit_offsets``,
        so that the next owners do not repeat processed messages; messages in process do not count.
        """

    def before_starting_fetchers(
        self, consumer_id: str, assignment: Mapping[str, Mapping[int, ConsumerThreadId]]
    ) -> None:
        """Called once this consumer owns its partitions. ``assignment`` is that of the whole group: topic ->
        partition -> thread.
        """


class TopicEventHandler(Protocol):
    """Handles changes of the list of topics."""

    def handle_topic_event(self, all_topics: Sequence[str]) -> None:
        """Handle the list of all topics, sorted by name."""


class ZookeeperTopicEventWatcher:
    """Calls ``event_handler`` with the children of ``/brokers/topics``, once soon and after every change.

    Events come one at a time, as all callbacks of the store do. A topic that is created and deleted between
    two events may be missed. The watch survives lost connections and the end of the session, so it needs no
    listener for them.
    """

    def __init__(self, store: Store, event_handler: TopicEventHandler) -> None:
        self._event_handler = event_handler
        self._ended = False
        self._watch = store.watch_children(paths.BROKER_TOPICS, self._on_children)

    def shutdown(self) -> None:
        """Stop the calls; a call that is running continues. A second shutdown does nothing."""
        self._ended = True
        self._watch.cancel()

    def _on_children(self, names: list[str] | None) -> None:
        if not self._ended:
            self._event_handler.handle_topic_event(names or [])

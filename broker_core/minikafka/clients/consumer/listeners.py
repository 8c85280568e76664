"""The listeners of a consumer: the application's listener for rebalances, and those for ZooKeeper's topics,
partitions and session (``ConsumerRebalanceListener``, ``TopicEventHandler``, ``ZookeeperTopicEventWatcher``,
``ZKTopicPartitionChangeListener`` and ``ZKSessionExpireListener`` of text 004).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from minikafka.clients.consumer.assignment import ConsumerThreadId
from minikafka.clients.consumer.registration import GroupRegistration
from minikafka.clients.consumer.runtime import Steps
from minikafka.registry import paths
from minikafka.registry.store import SessionState, Store


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


logger = logging.getLogger("minikafka.clients.consumer")


class ZkTopicPartitionChangeListener:
    """Triggers a rebalance when the partitions of a topic change. One instance for all topics of a consumer.

    Called on the store's own thread.
    """

    def __init__(self, rebalance_event_triggered: Callable[[], None]) -> None:
        self._triggered = rebalance_event_triggered
        self._seen: set[str] = set()

    def handle_data(self, data_path: str, data: bytes | None, stat: object = None) -> None:
        """Handle a report of a persistent watch: the znode's data, or None if the znode does not exist."""
        if data is not None:
            self._seen.add(data_path)
            self.handle_data_change(data_path, data)
        elif data_path in self._seen:
            self._seen.discard(data_path)
            self.handle_data_deleted(data_path)

    def handle_data_change(self, data_path: str, data: bytes) -> None:
        """Trigger a rebalance: the topic was created, or its assignment changed."""
        logger.debug("%s changed to %r", data_path, data)
        self._triggered()

    def handle_data_deleted(self, data_path: str) -> None:
        """Trigger a rebalance, which gives up the partitions of the deleted topic.

        Kafka 0.10.1 only warns, and keeps their owners.
        """
        logger.warning("topic %s was deleted while this consumer reads it", data_path.rpartition("/")[2])
        self._triggered()


class Rebalancer(Protocol):
    """The part of the rebalance listener that this module uses."""

    def reset_state(self) -> None:
        """Forget all ownership."""

    def rebalance_event_triggered(self) -> None:
        """Trigger a rebalance."""


class ZkSessionExpireListener:
    """Handles the end of a consumer's session with ZooKeeper."""

    def __init__(self, registration: GroupRegistration, load_balancer_listener: Rebalancer) -> None:
        self._registration = registration
        self._load_balancer_listener = load_balancer_listener

    def handle_state_changed(self, state: SessionState) -> None:
        """Handle a state of the session, on the store's own thread.

        A reconnection within the same session changes nothing. After an expiry no message is delivered any
        more, and a rebalance is triggered, which starts with ``handle_new_session``.
        """
        if state is SessionState.EXPIRED:
            logger.warning("%s: the session with ZooKeeper has expired", self._registration.consumer_id)
            self._registration.lease.revoke()
        if state is not SessionState.SUSPENDED:
            self._load_balancer_listener.rebalance_event_triggered()

    def handle_new_session(self) -> Steps[None]:
        """Forget the partitions of the old session, and register again; the rebalance follows."""
        self._registration.lease.revoke()
        self._load_balancer_listener.reset_state()
        yield None
        yield from self._registration.register()

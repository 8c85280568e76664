"""The listeners of a consumer: the application's for rebalances, and those on ZooKeeper's topics, partitions
and session (``ConsumerRebalanceListener``, ``TopicEventHandler``, ``ZookeeperTopicEventWatcher``,
``ZKTopicPartitionChangeListener`` and ``ZKSessionExpireListener`` of text 004).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from minikafka.clients.consumer.assignment import ConsumerThreadId
from minikafka.clients.consumer.registration import Lease
from minikafka.clients.consumer.runtime import Steps
from minikafka.registry import paths
from minikafka.registry.store import SessionState, Store


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


class TopicEventHandler(Protocol):
    """Hears of the topics, and of every change."""

    def handle_topic_event(self, all_topics: Sequence[str]) -> None:
        """``all_topics`` are the names of all topics that there are now, sorted."""


class ZookeeperTopicEventWatcher:
    """Tells ``event_handler`` of the children of ``/brokers/topics``: soon, and after every change.

    Events come one at a time, as all callbacks of the store; topics that come and go in between may be left
    out. The watch survives lost connections and the end of the session, so there is no listener for these.
    """

    def __init__(self, store: Store, event_handler: TopicEventHandler) -> None:
        self._event_handler = event_handler
        self._ended = False
        self._watch = store.watch_children(paths.BROKER_TOPICS, self._on_children)

    def shutdown(self) -> None:
        """Tell of nothing more, but for an event that is just being handled. A second call does nothing."""
        self._ended = True
        self._watch.cancel()

    def _on_children(self, names: list[str] | None) -> None:
        if not self._ended:
            self._event_handler.handle_topic_event(names or [])


logger = logging.getLogger("minikafka.clients.consumer")


class ZkTopicPartitionChangeListener:
    """Of one consumer, for all topics that it reads. ``rebalance_event_triggered`` has a rebalance made.

    Called on the store's own thread.
    """

    def __init__(self, rebalance_event_triggered: Callable[[], None]) -> None:
        self._triggered = rebalance_event_triggered
        self._seen: set[str] = set()

    def handle_data(self, data_path: str, data: bytes | None, stat: object = None) -> None:
        """What a persistent watch reports: the znode as it is, or that it is not there."""
        if data is not None:
            self._seen.add(data_path)
            self.handle_data_change(data_path, data)
        elif data_path in self._seen:
            self._seen.discard(data_path)
            self.handle_data_deleted(data_path)

    def handle_data_change(self, data_path: str, data: bytes) -> None:
        """The topic is there, or has another assignment than before."""
        logger.debug("%s is %r now", data_path, data)
        self._triggered()

    def handle_data_deleted(self, data_path: str) -> None:
        """The topic was deleted: its partitions are given up.

        Kafka 0.10.1 only warns, and keeps their owners.
        """
        logger.warning("topic %s was deleted while it is read", data_path.rpartition("/")[2])
        self._triggered()


class Rebalancer(Protocol):
    """What it asks of the rebalance."""

    def reset_state(self) -> None:
        """Forget all that was owned."""

    def rebalance_event_triggered(self) -> None:
        """Have a rebalance made."""


class ZkSessionExpireListener:
    """Of one consumer. ``register`` registers it, in the present session."""

    def __init__(
        self,
        consumer_id: str,
        lease: Lease,
        register: Callable[[], Steps[None]],
        load_balancer_listener: Rebalancer,
    ) -> None:
        self.consumer_id = consumer_id
        self.load_balancer_listener = load_balancer_listener
        self._lease = lease
        self._register = register

    def handle_state_changed(self, state: SessionState) -> None:
        """News of the session, on the store's own thread.

        A connection that comes back with the same session changes nothing. After expiry nothing is handed out
        from this moment on, and a rebalance is made, which begins with ``handle_new_session``.
        """
        if state is SessionState.EXPIRED:
            logger.warning("%s: the session with ZooKeeper has expired", self.consumer_id)
            self._lease.revoke()
        if state is not SessionState.SUSPENDED:
            self.load_balancer_listener.rebalance_event_triggered()

    def handle_new_session(self) -> Steps[None]:
        """Forget what the old session owned, and register anew; the rebalance goes on behind it."""
        self._lease.revoke()
        self.load_balancer_listener.reset_state()
        yield None
        yield from self._register()

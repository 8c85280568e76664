"""Watches which topics there are (texts: ``ZookeeperTopicEventWatcher``)."""

from __future__ import annotations

from minikafka.clients.consumer.topic_event_handler import TopicEventHandler
from minikafka.registry import paths
from minikafka.registry.store import Store


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

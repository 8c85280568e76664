"""Streams of all topics that a filter chooses (texts: ``WildcardStreamsHandler``)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from minikafka.clients.consumer.topic_filter import TopicFilter

logger = logging.getLogger("minikafka.clients.consumer")


class WildcardStreamsHandler:
    """A TopicEventHandler: learns of all topics, and says which of those that it reads have come or gone.

    ``topics_changed`` gets the topics that are read from now on, once there is a difference. Called on the
    store's own thread.
    """

    def __init__(
        self,
        topic_filter: TopicFilter,
        exclude_internal_topics: bool,
        topics: Iterable[str],
        topics_changed: Callable[[list[str]], None],
    ) -> None:
        self._filter = topic_filter
        self._exclude_internal_topics = exclude_internal_topics
        self._changed = topics_changed
        self.wildcard_topics = self._allowed(topics)
        """What is read now."""

    def handle_topic_event(self, all_topics: Iterable[str]) -> None:
        """These are all topics of the cluster."""
        topics = self._allowed(all_topics)
        added = [topic for topic in topics if topic not in self.wildcard_topics]
        deleted = [topic for topic in self.wildcard_topics if topic not in topics]
        self.wildcard_topics = topics
        if added or deleted:
            logger.info("filter %s: new topics %s, deleted ones %s", self._filter, added, deleted)
            self._changed(topics)

    def _allowed(self, topics: Iterable[str]) -> list[str]:
        return sorted(
            topic for topic in topics if self._filter.is_topic_allowed(topic, self._exclude_internal_topics)
        )

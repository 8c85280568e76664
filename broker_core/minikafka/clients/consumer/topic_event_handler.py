"""Who wants to know which topics there are (texts: ``TopicEventHandler``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class TopicEventHandler(Protocol):
    """Hears of the topics, and of every change."""

    def handle_topic_event(self, all_topics: Sequence[str]) -> None:
        """``all_topics`` are the names of all topics that there are now, sorted."""

"""Topics that were deleted and created again while a query runs, known by their ids (KIP-516). Pure.

Only the process that runs a query knows the ids: a checkpoint has offsets alone, as that of Spark's own
source. So a batch without records first takes the query's positions back to the new topic's first offsets:
from then on the checkpoint says it, also to a query that is started again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minikafka.base.ids import TopicPartition


class RecreatedTopics:
    """The partitions whose topic is another one than the query has read, until a batch takes them back."""

    def __init__(self) -> None:
        self._ids: dict[str, bytes] = {}
        self._former_ids: set[bytes] = set()
        self._positions: dict[TopicPartition, int] = {}
        self._planned: set[TopicPartition] = set()

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that no batch has taken back."""
        return frozenset(self._positions)

    def observe(self, ids: Mapping[str, bytes], known: Mapping[TopicPartition, int]) -> None:
        """Take the present ids of topics, and the query's positions in the topics before.

        A broker that is behind may still name a former id; it is passed over.
        """
        changed = set()
        for topic, topic_id in ids.items():
            before = self._ids.get(topic, topic_id)
            if topic_id in self._former_ids:
                continue
            self._ids[topic] = topic_id
            if topic_id != before:
                self._former_ids.add(before)
                changed.add(topic)
        self._positions |= {tp: offset for tp, offset in known.items() if tp.topic in changed}

    def to_take_back(self, first: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the ``first`` offsets to which positions are to be taken. A position that is there already
        needs no batch, and none would come: it is forgotten.
        """
        for tp in [tp for tp, offset in first.items() if self._positions.get(tp) == offset]:
            del self._positions[tp]
        return {tp: offset for tp, offset in first.items() if tp in self._positions}

    def taken_back(self, start: Mapping[TopicPartition, int]) -> frozenset[TopicPartition]:
        """Return the partitions that a batch from ``start`` takes back, at every planning of it."""
        found = frozenset(tp for tp, offset in self._positions.items() if start.get(tp) == offset)
        self._planned |= found
        return found

    def forget_taken_back(self) -> None:
        """Forget the partitions that a planned batch has taken back, before the next batch."""
        for tp in self._planned:
            del self._positions[tp]
        self._planned.clear()


def loss_text(partitions: Iterable[TopicPartition]) -> str:
    """Return the message about partitions whose topic was created again."""
    topics = sorted({tp.topic for tp in partitions})
    return f"topic {', '.join(map(repr, topics))} was deleted and created again"

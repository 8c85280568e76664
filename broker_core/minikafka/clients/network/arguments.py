"""What public methods of clients are given, as no type checker may have looked."""

from __future__ import annotations

from collections.abc import Iterable

from minikafka.base.ids import TopicPartition, check_topic_name


def has_methods(obj: object, *names: str) -> bool:
    """Whether it is an object, and no class, with these methods."""
    return not isinstance(obj, type) and all(callable(getattr(obj, name, None)) for name in names)


def to_topic_partitions(partitions: Iterable[object]) -> tuple[TopicPartition, ...]:
    """Partitions as a caller names them: as such, or as pairs of topic and number.

    TypeError for anything else, INVALID_TOPIC for the name of no topic.
    """
    if isinstance(partitions, (str, TopicPartition)) or not isinstance(partitions, Iterable):
        raise TypeError(f"partitions are several, not {partitions!r}: [TopicPartition(topic, number)]")
    return tuple(map(_to_topic_partition, partitions))


def _to_topic_partition(obj: object) -> TopicPartition:
    if isinstance(obj, tuple) and len(obj) == 2:
        topic, number = obj
        if isinstance(topic, str) and isinstance(number, int) and not isinstance(number, bool):
            check_topic_name(topic)
            return obj if isinstance(obj, TopicPartition) else TopicPartition(topic, number)
    raise TypeError(f"a partition is a TopicPartition(topic, number), not {obj!r}")

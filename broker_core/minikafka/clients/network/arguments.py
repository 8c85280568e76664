"""What public methods of clients are given, as no type checker may have looked."""

from __future__ import annotations

from collections.abc import Iterable

from minikafka.base.ids import TopicPartition, check_topic_name


def has_methods(given: object, *names: str) -> bool:
    """Whether it is an object, and no class, with these methods."""
    return not isinstance(given, type) and all(callable(getattr(given, one, None)) for one in names)


def partitions_given(partitions: Iterable[object]) -> tuple[TopicPartition, ...]:
    """Partitions as a caller names them: as such, or as pairs of topic and number.

    TypeError for anything else, INVALID_TOPIC for the name of no topic.
    """
    if isinstance(partitions, (str, TopicPartition)) or not isinstance(partitions, Iterable):
        raise TypeError(f"partitions are several, not {partitions!r}: [TopicPartition(topic, number)]")
    return tuple(map(_partition, partitions))


def _partition(given: object) -> TopicPartition:
    if isinstance(given, tuple) and len(given) == 2:
        topic, number = given
        if isinstance(topic, str) and isinstance(number, int) and not isinstance(number, bool):
            check_topic_name(topic)
            return given if isinstance(given, TopicPartition) else TopicPartition(topic, number)
    raise TypeError(f"a partition is a TopicPartition(topic, number), not {given!r}")

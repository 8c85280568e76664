"""Checks of the arguments of clients' public methods, as callers may not use a type checker."""

from __future__ import annotations

from collections.abc import Iterable

from minikafka.base.ids import TopicPartition, check_topic_name


def has_methods(obj: object, *names: str) -> bool:
    """Return True if ``obj`` is an object, not a class, with these methods."""
    return not isinstance(obj, type) and all(callable(getattr(obj, name, None)) for name in names)


def to_topic_partitions(partitions: Iterable[object]) -> tuple[TopicPartition, ...]:
    """Return the partitions that a caller gave as TopicPartition or as pairs of topic and number.

    Raises TypeError for anything else, BrokerError INVALID_TOPIC for an invalid topic name.
    """
    if isinstance(partitions, (str, TopicPartition)) or not isinstance(partitions, Iterable):
        raise TypeError(f"expected an iterable of TopicPartition(topic, number), got {partitions!r}")
    return tuple(map(_to_topic_partition, partitions))


def _to_topic_partition(obj: object) -> TopicPartition:
    if isinstance(obj, tuple) and len(obj) == 2:
        topic, number = obj
        if isinstance(topic, str) and isinstance(number, int) and not isinstance(number, bool):
            check_topic_name(topic)
            return obj if isinstance(obj, TopicPartition) else TopicPartition(topic, number)
    raise TypeError(f"expected a TopicPartition(topic, number), got {obj!r}")

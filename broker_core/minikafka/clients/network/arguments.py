"""Checks of the arguments of clients' public methods, as callers may not use a type checker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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


def checked_times(times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return partitions with times in ms since the epoch. Raises as ``to_topic_partitions``, and TypeError or
    ValueError for other times.
    """
    given: object = times
    if not isinstance(given, Mapping):
        raise TypeError(f"expected a dict of partitions and ms since the epoch, got {given!r}")
    wanted = dict(zip(to_topic_partitions(times), times.values(), strict=True))
    for tp, time in wanted.items():
        if not hasattr(time, "__index__"):
            raise TypeError(f"{tp}: expected a whole number of ms since the epoch, got {time!r}")
        if time < 0:
            raise ValueError(f"{tp}: expected ms since the epoch, 0 or more, got {time}")
    return wanted


def checked_max_records(max_records: int) -> int:
    """Return the largest number of records of a poll. Raises ValueError for less than 1."""
    if max_records < 1:
        raise ValueError(f"expected max_records of 1 or more, got {max_records}")
    return max_records


def _to_topic_partition(obj: object) -> TopicPartition:
    if isinstance(obj, tuple) and len(obj) == 2:
        topic, number = obj
        if isinstance(topic, str) and isinstance(number, int) and not isinstance(number, bool):
            check_topic_name(topic)
            return obj if isinstance(obj, TopicPartition) else TopicPartition(topic, number)
    raise TypeError(f"expected a TopicPartition(topic, number), got {obj!r}")

"""Checks of the arguments of a consumer's public methods, made before anything else.

Each raises TypeError for a value of the wrong type, with the value and an example of a right one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minikafka.base.errors import BrokerError, ConfigError
from minikafka.base.ids import TopicPartition, check_topic_name
from minikafka.clients.consumer.config import ConsumerConfig
from minikafka.clients.consumer.topic_filter import TopicFilter
from minikafka.clients.network.arguments import has_methods

_LISTENER = ("before_releasing_partitions", "before_starting_fetchers")


def checked_config(config: Any) -> ConsumerConfig:
    """Return ``config`` if it is a ConsumerConfig, or that of a mapping of properties."""
    if isinstance(config, ConsumerConfig):
        return config
    if not isinstance(config, Mapping):
        expected = "a ConsumerConfig, or a mapping of properties, such as {'group.id': 'billing', …}"
        raise _type_error("config", expected, config)
    return ConsumerConfig.from_properties(config)


def check_topic_counts(topic_count_map: Any) -> None:
    """Check a mapping of topics to numbers of streams. (StaticTopicCount checks the numbers.) Raises
    ConfigError for an invalid topic name.
    """
    expected = "a mapping of topics to their numbers of streams, such as {'flights': 1}"
    if not isinstance(topic_count_map, Mapping) or not all(
        isinstance(topic, str) for topic in topic_count_map
    ):
        raise _type_error("topic_count_map", expected, topic_count_map)
    for topic in topic_count_map:
        _check_topic(topic)


def check_filter(topic_filter: Any) -> None:
    """Check a Whitelist or a Blacklist."""
    if not isinstance(topic_filter, TopicFilter) or type(topic_filter) is TopicFilter:
        example = topic_filter if isinstance(topic_filter, str) else "fli.*"
        filters = f"Whitelist({example!r}) or Blacklist({example!r})"
        expected = f"a filter of clients.consumer.topic_filter, such as {filters}"
        raise _type_error("topic_filter", expected, topic_filter)


def check_decoders(key_decoder: Any, value_decoder: Any) -> None:
    """Check that each decoder has ``from_bytes``, is a function, or is None. A class with ``from_bytes`` is
    refused: it was meant to be an instance.
    """
    expected = "an object with from_bytes(data), such as StringDecoder(), or a function of bytes"
    for name, decoder in (("key_decoder", key_decoder), ("value_decoder", value_decoder)):
        function = callable(decoder) and not hasattr(decoder, "from_bytes")
        if decoder is not None and not function and not has_methods(decoder, "from_bytes"):
            raise _type_error(name, expected, decoder)


def check_listener(listener: Any) -> None:
    """Check a ConsumerRebalanceListener."""
    if not has_methods(listener, *_LISTENER):
        raise _type_error("listener", f"an object with {' and '.join(_LISTENER)}", listener)


def checked_offsets(offsets: Any) -> dict[TopicPartition, int]:
    """Return a mapping of partitions to the offset of the next message; pairs become partitions.

    Raises ValueError for a negative offset or partition, ConfigError for an invalid topic name.
    """
    expected = "a mapping of partitions to offsets, such as {TopicPartition('flights', 0): 12}"
    if not isinstance(offsets, Mapping):
        raise _type_error("offsets", expected, offsets)
    found = {}
    for partition, offset in offsets.items():
        if not _is_partition(partition) or type(offset) is not int:
            raise _type_error("offsets", expected, {partition: offset})
        if offset < 0:
            raise ValueError(f"expected offsets of 0 or more, got {{{partition!r}: {offset}}}")
        found[checked_partition(partition)] = offset
    return found


def checked_partition(partition: Any) -> TopicPartition:
    """Return one partition; a pair becomes one. Raises ValueError and ConfigError as ``checked_offsets``."""
    if not _is_partition(partition):
        raise _type_error("partition", "a TopicPartition, such as TopicPartition('flights', 0)", partition)
    found = TopicPartition(*partition)
    _check_topic(found.topic)
    if found.partition < 0:
        raise ValueError(
            f"expected a partition number of 0 or more, got {found.partition} (topic {found.topic!r})"
        )
    return found


def _is_partition(value: Any) -> bool:
    return isinstance(value, tuple) and list(map(type, value)) == [str, int]


def _check_topic(topic: str) -> None:
    try:
        check_topic_name(topic)
    except BrokerError as problem:
        raise ConfigError("topic", topic, problem.detail) from None


def _type_error(name: str, expected: str, value: Any) -> TypeError:
    return TypeError(f"{name}: expected {expected}, got {value!r:.100}")

"""What a consumer's public methods are given, looked at before anything is done with it.

Each raises TypeError for what is of another kind than wanted, with the value and what to give.
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
    """A ConsumerConfig, as it was given."""
    if not isinstance(config, ConsumerConfig):
        wanted = "a ConsumerConfig, as ConsumerConfig.from_properties({'group.id': …}) makes it"
        raise _type_error("config", wanted, config)
    return config


def check_topic_counts(topic_count_map: Any) -> None:
    """Topic -> number of streams. (What the numbers are, is StaticTopicCount's matter.) ConfigError for a
    name that no topic can have.
    """
    wanted = "a mapping of topics to their numbers of streams, as {'flights': 1}"
    if not isinstance(topic_count_map, Mapping) or not all(isinstance(one, str) for one in topic_count_map):
        raise _type_error("topic_count_map", wanted, topic_count_map)
    for topic in topic_count_map:
        _check_topic(topic)


def check_filter(topic_filter: Any) -> None:
    """A Whitelist or a Blacklist."""
    if not isinstance(topic_filter, TopicFilter) or type(topic_filter) is TopicFilter:
        example = topic_filter if isinstance(topic_filter, str) else "fli.*"
        filters = f"Whitelist({example!r}) or Blacklist({example!r})"
        wanted = f"a filter of clients.consumer.topic_filter, as {filters}"
        raise _type_error("topic_filter", wanted, topic_filter)


def check_decoders(key_decoder: Any, value_decoder: Any) -> None:
    """Each an object that decodes, or None."""
    for name, decoder in (("key_decoder", key_decoder), ("value_decoder", value_decoder)):
        if decoder is not None and not has_methods(decoder, "from_bytes"):
            raise _type_error(name, "an object with from_bytes(data), as StringDecoder()", decoder)


def check_listener(listener: Any) -> None:
    """A ConsumerRebalanceListener."""
    if not has_methods(listener, *_LISTENER):
        raise _type_error("listener", f"an object with {' and '.join(_LISTENER)}", listener)


def checked_offsets(offsets: Any) -> dict[TopicPartition, int]:
    """Partition -> the offset of the next message; pairs become partitions.

    ValueError for a negative offset or partition, ConfigError for a name that no topic can have.
    """
    wanted = "a mapping of partitions to offsets, as {TopicPartition('flights', 0): 12}"
    if not isinstance(offsets, Mapping):
        raise _type_error("offsets", wanted, offsets)
    found = {}
    for partition, offset in offsets.items():
        if not _is_partition(partition) or type(offset) is not int:
            raise _type_error("offsets", wanted, {partition: offset})
        if offset < 0:
            raise ValueError(f"offsets are whole numbers from 0 on, not {{{partition!r}: {offset}}}")
        found[checked_partition(partition)] = offset
    return found


def checked_partition(partition: Any) -> TopicPartition:
    """One partition; a pair becomes one. ValueError and ConfigError as ``checked_offsets``."""
    if not _is_partition(partition):
        raise _type_error("partition", "a TopicPartition, as TopicPartition('flights', 0)", partition)
    found = TopicPartition(*partition)
    _check_topic(found.topic)
    if found.partition < 0:
        raise ValueError(
            f"partitions are numbered from 0 on, not {found.partition} (of topic {found.topic!r})"
        )
    return found


def _is_partition(given: Any) -> bool:
    return isinstance(given, tuple) and list(map(type, given)) == [str, int]


def _check_topic(topic: str) -> None:
    try:
        check_topic_name(topic)
    except BrokerError as problem:
        raise ConfigError("topic", topic, problem.detail) from None


def _type_error(name: str, wanted: str, given: Any) -> TypeError:
    return TypeError(f"{name} is {wanted}, not {given!r:.100}")

"""The partitions of a query: assigned ones, all of some topics, or those of a pattern. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from minikafka.base.config.config_def import ConfigKey
from minikafka.base.config.types import TEXT
from minikafka.base.errors import BrokerError, ConfigError
from minikafka.base.ids import TopicPartition, check_topic_name
from minikafka.clients.java_regex import translator
from pyspark_minikafka.offsets import parse_object

OPTIONS = (
    ConfigKey("assign", TEXT, None, 'Partitions to read, as JSON: `{"orders":[0,1]}`.'),
    ConfigKey("subscribe", TEXT, None, "Topics to read, separated by commas."),
    ConfigKey("subscribePattern", TEXT, None, "Topics to read, by a Java regular expression."),
)
NAMES = tuple(key.name for key in OPTIONS)


@dataclass(frozen=True, slots=True)
class Assign:
    """The option ``assign``: exactly these partitions."""

    partitions: tuple[TopicPartition, ...]

    def reads(self, topic: str) -> bool:
        """Return True if ``topic`` is read."""
        return any(partition.topic == topic for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class Subscribe:
    """The option ``subscribe``: all partitions of these topics."""

    topics: tuple[str, ...]

    def reads(self, topic: str) -> bool:
        """Return True if ``topic`` is read."""
        return topic in self.topics


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """The option ``subscribePattern``: all partitions of the topics whose whole name matches a Java regular
    expression.
    """

    pattern: str

    def among(self, topics: Iterable[str]) -> list[str]:
        """Return those of ``topics`` that match."""
        expression = translator.compile_pattern(self.pattern)
        return [topic for topic in topics if expression.fullmatch(topic)]

    def reads(self, topic: str) -> bool:
        """Return True if ``topic`` is read."""
        return bool(self.among([topic]))


Strategy = Assign | Subscribe | SubscribePattern


def strategy(options: Mapping[str, str]) -> Strategy:
    """Return the one strategy that ``options`` (keys in lower case) name. Raise ConfigError for none, several
    or an invalid one.
    """
    given = [name for name in NAMES if name.lower() in options]
    choices = "exactly one of the options assign, subscribe and subscribePattern is required"
    if not given:
        writes = " (topic is for writes)" if "topic" in options else ""
        raise ConfigError("subscribe", None, choices + writes)
    if len(given) > 1:
        raise ConfigError(given[1], options[given[1].lower()], f"{choices}; found {', '.join(given)}")
    value = options[given[0].lower()]
    if given[0] == "assign":
        return _assign(value)
    if given[0] == "subscribe":
        return _subscribe(value)
    return _subscribe_pattern(value)


def topic_name(option: str, value: str, topic: str) -> str:
    """Return ``topic``. Raise ConfigError with ``option`` and its whole ``value`` if it is not a valid topic
    name.
    """
    try:
        check_topic_name(topic)
    except BrokerError as problem:
        raise ConfigError(option, value, problem.detail) from None
    return topic


def _assign(value: str) -> Assign:
    form = 'must be JSON such as {"topic":[0,1]} with at least one partition'
    partitions = set()
    for topic, numbers in parse_object("assign", value, form).items():
        if not isinstance(numbers, list) or not numbers:
            raise ConfigError("assign", value, form)
        topic_name("assign", value, topic)
        for number in numbers:
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise ConfigError("assign", value, form)
            partitions.add(TopicPartition(topic, number))
    if not partitions:
        raise ConfigError("assign", value, form)
    return Assign(tuple(sorted(partitions)))


def _subscribe(value: str) -> Subscribe:
    topics = {part.strip() for part in value.split(",") if part.strip()}
    if not topics:
        raise ConfigError("subscribe", value, "must name at least one topic, as in topic1,topic2")
    return Subscribe(tuple(sorted(topic_name("subscribe", value, topic) for topic in topics)))


def _subscribe_pattern(value: str) -> SubscribePattern:
    pattern = value.strip()
    if not pattern:
        raise ConfigError("subscribePattern", value, "must be a regular expression on topic names, not empty")
    try:
        translator.compile_pattern(pattern)
    except translator.BadPattern as problem:
        allowed = f"must be a Java regular expression that minikafka supports: {problem}"
        raise ConfigError("subscribePattern", value, allowed) from None
    return SubscribePattern(pattern)

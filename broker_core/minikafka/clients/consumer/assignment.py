"""What a consumer reads with how many threads (texts: ``TopicCount``, ``StaticTopicCount``,
``WildcardTopicCount``).

It stands in the consumer's registration, where the others of its group read it:

    {"version":1,"subscription":{"orders":2},"pattern":"static","timestamp":"1795241013651"}
    {"version":1,"subscription":{"ord.*|pay.*":1},"pattern":"white_list","timestamp":"1795241013937"}

``subscription`` has topics, each with its number of threads, or one pattern with the number of threads for
every topic that matches. A pattern that is neither ``white_list`` nor ``black_list``, and an empty
subscription, are read as ``static``, as 0.10.1 does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from minikafka.base.errors import ConfigError, CoordinationError, NoNode
from minikafka.clients.consumer.consumer_thread_id import ConsumerThreadId
from minikafka.clients.consumer.topic_filter import Blacklist, TopicFilter, Whitelist
from minikafka.registry import paths
from minikafka.registry.paths import ConsumerRegistration
from minikafka.registry.store import Store

STATIC_PATTERN = "static"
WHITE_LIST_PATTERN = Whitelist.pattern
BLACK_LIST_PATTERN = Blacklist.pattern

ThreadIds = dict[str, tuple[ConsumerThreadId, ...]]
"""Topic to the threads of one consumer that read it, in order of their numbers."""


class TopicCount(Protocol):
    """What one consumer reads."""

    @property
    def pattern(self) -> str:
        """``static``, ``white_list`` or ``black_list``."""

    def get_consumer_thread_ids_per_topic(self) -> ThreadIds:
        """The consumer's threads for each topic that it reads now."""

    def get_topic_count_map(self) -> dict[str, int]:
        """What is registered: topics, or the one pattern, with the number of threads."""


@dataclass(frozen=True, slots=True)
class StaticTopicCount:
    """Topics that are named, each with its own number of threads.

    Raises ConfigError unless every topic has a thread.
    """

    consumer_id: str
    topic_count_map: Mapping[str, int]

    def __post_init__(self) -> None:
        for topic, streams in self.topic_count_map.items():
            _check_streams(topic, streams)

    @property
    def pattern(self) -> str:
        """Always ``static``."""
        return STATIC_PATTERN

    def get_consumer_thread_ids_per_topic(self) -> ThreadIds:
        """The threads for each topic, whether there is such a topic or not."""
        return make_consumer_thread_ids_per_topic(self.consumer_id, self.topic_count_map)

    def get_topic_count_map(self) -> dict[str, int]:
        """The topics with their numbers of threads."""
        return dict(self.topic_count_map)


@dataclass(frozen=True, slots=True)
class WildcardTopicCount:
    """Topics that a filter chooses, all with the same number of threads. Raises ConfigError unless that is
    one at least.
    """

    consumer_id: str
    topic_filter: TopicFilter
    num_streams: int
    exclude_internal_topics: bool
    topics: Callable[[], Iterable[str]] = field(compare=False, repr=False)
    """Gives the names of all topics that there are now; ``topics_in(store)`` for one."""

    def __post_init__(self) -> None:
        _check_streams(self.topic_filter.regex, self.num_streams)

    @property
    def pattern(self) -> str:
        """``white_list`` or ``black_list``."""
        return self.topic_filter.pattern

    def get_consumer_thread_ids_per_topic(self) -> ThreadIds:
        """The threads for each topic that there is now and that the filter chooses."""
        chosen = (
            topic
            for topic in self.topics()
            if self.topic_filter.is_topic_allowed(topic, self.exclude_internal_topics)
        )
        return make_consumer_thread_ids_per_topic(self.consumer_id, dict.fromkeys(chosen, self.num_streams))

    def get_topic_count_map(self) -> dict[str, int]:
        """The pattern with the number of threads."""
        return {self.topic_filter.regex: self.num_streams}


def make_thread_id(consumer_id: str, thread_id: int) -> str:
    """The name of a consumer's thread."""
    return str(ConsumerThreadId(consumer_id, thread_id))


def make_consumer_thread_ids_per_topic(consumer_id: str, topic_count_map: Mapping[str, int]) -> ThreadIds:
    """As many threads of the consumer for each topic as ``topic_count_map`` says, numbered from 0 on."""
    return {
        topic: tuple(ConsumerThreadId(consumer_id, number) for number in range(streams))
        for topic, streams in topic_count_map.items()
    }


def construct_topic_count(
    group: str, consumer_id: str, store: Store, exclude_internal_topics: bool
) -> TopicCount:
    """What a consumer of ``group`` has registered.

    The texts' two other forms are the constructors of the two classes. Raises NoNode where the consumer is
    not registered, and as ``topic_count_of``.
    """
    path = paths.consumer_id_path(group, consumer_id)
    data, _ = store.read(path)
    return topic_count_of(data, path, exclude_internal_topics, lambda: topics_in(store))


def topic_count_of(
    data: bytes, path: str, exclude_internal_topics: bool, topics: Callable[[], Iterable[str]]
) -> TopicCount:
    """What stands in a consumer's registration; the consumer's id is the last part of ``path``.

    Raises CoordinationError, which names the znode, for one that is not as it should be, or that has a
    pattern which would not mean the same here as in Java.
    """
    registration = ConsumerRegistration.from_json(data, path)
    consumer_id = path.rpartition("/")[2]
    kind = {WHITE_LIST_PATTERN: Whitelist, BLACK_LIST_PATTERN: Blacklist}.get(registration.pattern)
    try:
        if kind is None or not registration.subscription:
            return StaticTopicCount(consumer_id, registration.subscription)
        regex, streams = next(iter(registration.subscription.items()))
        return WildcardTopicCount(consumer_id, kind(regex), streams, exclude_internal_topics, topics)
    except ConfigError as problem:
        raise CoordinationError(f"{path}: {problem}") from None


def registration_of(topic_count: TopicCount, now_ms: int) -> ConsumerRegistration:
    """What a consumer writes that reads ``topic_count``."""
    return ConsumerRegistration(topic_count.get_topic_count_map(), now_ms, topic_count.pattern)


def topics_in(store: Store) -> list[str]:
    """The names of all topics, sorted; none where there never was a topic."""
    try:
        return store.children(paths.BROKER_TOPICS)
    except NoNode:
        return []


def _check_streams(what: str, streams: int) -> None:
    if type(streams) is not int or streams < 1:
        raise ConfigError(f"number of streams for {what!r}", streams, "a whole number from 1 on")

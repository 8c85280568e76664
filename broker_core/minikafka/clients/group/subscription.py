"""What a member wants to read: topics by name, or all whose names a pattern matches."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from minikafka.base.errors import BrokerError, ConfigError, ErrorCode
from minikafka.base.ids import check_topic_name
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.metadata import TopicMetadata
from minikafka.clients.network.response_errors import authorization_hint
from minikafka.clients.network.retry import Deadline


@dataclass(frozen=True, slots=True)
class Subscription:
    """``pattern`` None: ``names``, whether they are there or not. Internal topics are found by name only,
    unless ``internal``.
    """

    names: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    internal: bool = False

    @classmethod
    def of(cls, names: Iterable[str]) -> Subscription:
        """Of names. INVALID_TOPIC for one that cannot be, TypeError for a single text."""
        if isinstance(names, str):
            raise TypeError(f"topics are several names, not one text: subscribe([{names!r}])")
        wanted = tuple(dict.fromkeys(names))
        for name in wanted:
            check_topic_name(name)
        return cls(wanted)

    @classmethod
    def matching(cls, pattern: str | re.Pattern[str], *, internal: bool) -> Subscription:
        """Of a pattern of Python's. ConfigError where it is none."""
        try:
            return cls((), re.compile(pattern), internal)
        except re.error as error:
            raise ConfigError("pattern", pattern, f"no regular expression of Python's: {error}") from None

    def __bool__(self) -> bool:
        return bool(self.names) or self.pattern is not None

    def topics(self, cluster: ClusterClient, deadline: Deadline) -> tuple[str, ...]:
        """The names; of a pattern those of the topics that are there when it is asked. NetworkError."""
        pattern = self.pattern
        if pattern is None:
            return self.names
        known = cluster.metadata(None, timeout_ms=max(1, deadline.remaining_ms())).topics.values()
        wanted = (one.name for one in known if self.internal or not one.is_internal)
        return tuple(sorted(name for name in wanted if pattern.fullmatch(name)))


def check_describable(topic: TopicMetadata) -> None:
    """TOPIC_AUTHORIZATION_FAILED for a topic that this client may not describe."""
    if topic.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        right = authorization_hint(topic.error, "Describe", f"Topic:{topic.name}")
        raise BrokerError(topic.error, f"topic {topic.name!r} cannot be read{right}")

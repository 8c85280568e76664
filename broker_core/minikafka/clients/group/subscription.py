"""The subscription of a member: topics by name, or by a pattern of names."""

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
class TopicSubscription:
    """Topics by ``names``, whether they exist or not, or by ``pattern``. A pattern finds internal topics only
    with ``internal``.
    """

    names: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    internal: bool = False

    @classmethod
    def of(cls, names: Iterable[str]) -> TopicSubscription:
        """Return a subscription by names. Raises INVALID_TOPIC for an invalid one, TypeError for a str."""
        if isinstance(names, str):
            raise TypeError(f"expected an iterable of topic names, got {names!r}: subscribe([{names!r}])")
        wanted = tuple(dict.fromkeys(names))
        for name in wanted:
            check_topic_name(name)
        return cls(wanted)

    @classmethod
    def matching(cls, pattern: str | re.Pattern[str], *, internal: bool) -> TopicSubscription:
        """Return a subscription by a Python regular expression. Raises ConfigError for an invalid one."""
        try:
            return cls((), re.compile(pattern), internal)
        except re.error as error:
            raise ConfigError("pattern", pattern, f"invalid Python regular expression: {error}") from None

    def __bool__(self) -> bool:
        return bool(self.names) or self.pattern is not None

    def topics(self, cluster: ClusterClient, deadline: Deadline) -> tuple[str, ...]:
        """Return the names; of a pattern, those of the topics that exist now. Raises NetworkError."""
        pattern = self.pattern
        if pattern is None:
            return self.names
        known = cluster.metadata(None, timeout_ms=max(1, deadline.remaining_ms())).topics.values()
        wanted = (topic.name for topic in known if self.internal or not topic.is_internal)
        return tuple(sorted(name for name in wanted if pattern.fullmatch(name)))


def check_describable(topic: TopicMetadata) -> None:
    """Raise TOPIC_AUTHORIZATION_FAILED for a topic that this client may not describe."""
    if topic.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        hint = authorization_hint(topic.error, "Describe", f"Topic:{topic.name}")
        raise BrokerError(topic.error, f"topic {topic.name!r} cannot be read{hint}")

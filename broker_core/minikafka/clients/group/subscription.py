"""The subscription of a member: topics by name, or by a pattern of names; and its part in the protocol."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from minikafka.base.errors import BrokerError, ConfigError, ErrorCode, NetworkError, RemoteWireError
from minikafka.base.ids import TopicPartition, check_topic_name
from minikafka.clients.group.config import GroupConsumerConfig
from minikafka.clients.group.member_subscriptions import MemberSubscription, decode_member_subscriptions
from minikafka.clients.group.membership import AssignmentComputed, ComputeAssignment
from minikafka.clients.group.requests import compute_assignment, join_protocols
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.metadata import TopicMetadata
from minikafka.clients.network.response_errors import authorization_hint
from minikafka.clients.network.retry import Deadline
from minikafka.wire.apis.join_group import JoinGroupRequestProtocol

logger = logging.getLogger("minikafka.clients.group")


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
        known = cluster.metadata(None, timeout_ms=deadline.remaining_ms()).topics.values()
        wanted = (topic.name for topic in known if self.internal or not topic.is_internal)
        return tuple(sorted(name for name in wanted if pattern.fullmatch(name)))


def check_describable(topic: TopicMetadata) -> None:
    """Raise TOPIC_AUTHORIZATION_FAILED for a topic that this client may not describe."""
    if topic.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        hint = authorization_hint(topic.error, "Describe", f"Topic:{topic.name}")
        raise BrokerError(topic.error, f"topic {topic.name!r} cannot be read{hint}")


_CHECK_INTERVAL_MS = 1_000
"""The interval between two look-ups of topics subscribed by name."""


class SubscribedTopics:
    """The protocol of a consumer: its subscription, and the partitions of the topics (``MemberProtocol``).

    owned: returns the partitions that the consumer has.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        config: GroupConsumerConfig,
        owned: Callable[[], tuple[TopicPartition, ...]],
    ) -> None:
        self.subscription = TopicSubscription()
        self.names: tuple[str, ...] = ()
        """The subscribed topics; of a pattern, its matches at the last look-up."""
        self._cluster = cluster
        self._config = config
        self._owned = owned
        self._counts: dict[str, int] = {}
        """The number of partitions of each topic at the last assignment."""
        self._check_at_ms = 0

    def replace(self, subscription: TopicSubscription) -> None:
        """Replace the subscription."""
        self.subscription, self.names = subscription, subscription.names

    def join_protocols(self, generation: int, deadline: Deadline) -> tuple[JoinGroupRequestProtocol, ...]:
        """See ``MemberProtocol``."""
        self._counts = self._refresh(deadline)
        self._check_at_ms = 0
        return join_protocols(
            self._config.assignors, MemberSubscription(self.names, self._owned(), generation)
        )

    def compute_assignment(self, effect: ComputeAssignment, deadline: Deadline) -> AssignmentComputed:
        """See ``MemberProtocol``."""
        subscriptions = decode_member_subscriptions(effect.members)
        topics = sorted({topic for wanted in subscriptions.values() for topic in wanted.topics})
        counts = _counts(self._describe(topics, deadline, refresh=True), topics)
        self._counts = {topic: count for topic, count in counts.items() if topic in self.names}
        return compute_assignment(effect, subscriptions, counts)

    def has_changed(self, deadline: Deadline) -> bool:
        """Return True if a subscribed topic has more partitions, was created, or was deleted."""
        now_ms = self._cluster.clock.monotonic_ms()
        if now_ms < self._check_at_ms:
            return False
        by_name = self.subscription.pattern is None
        self._check_at_ms = now_ms + (_CHECK_INTERVAL_MS if by_name else self._config.metadata_max_age_ms)
        try:
            counts = self._refresh(deadline)
        except (NetworkError, RemoteWireError):
            self._check_at_ms = now_ms + _CHECK_INTERVAL_MS
            return False
        if counts == self._counts:
            return False
        logger.info("rejoining: the topics' partitions have changed from %s to %s", self._counts, counts)
        return True

    def _refresh(self, deadline: Deadline) -> dict[str, int]:
        """Return the subscribed topics that exist, with their numbers of partitions. Raises
        TOPIC_AUTHORIZATION_FAILED for one that this client may not describe.
        """
        self.names = self.subscription.topics(self._cluster, deadline)
        known = self._describe(self.names, deadline)
        for name in self.names:
            check_describable(known[name])
        return _counts(known, self.names)

    def _describe(
        self, topics: Iterable[str], deadline: Deadline, *, refresh: bool = False
    ) -> Mapping[str, TopicMetadata]:
        timeout_ms = deadline.remaining_ms()
        return self._cluster.metadata(topics, refresh=refresh, timeout_ms=timeout_ms).topics


def _counts(known: Mapping[str, TopicMetadata], topics: Iterable[str]) -> dict[str, int]:
    """Return the numbers of partitions of those topics that exist."""
    return {name: len(known[name].partitions) for name in topics if known[name].partitions}

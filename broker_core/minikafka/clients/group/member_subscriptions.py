"""The subscriptions of a group's members, as its leader and the assignors see them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from minikafka.base.binary import INT32
from minikafka.base.errors import RemoteWireError
from minikafka.base.ids import TopicPartition, numbers_by_topic
from minikafka.wire.apis.offset_commit import NO_GENERATION
from minikafka.wire.consumer_protocol import (
    ConsumerPartitions,
    Subscription,
    decode_subscription,
    encode_subscription,
)

logger = logging.getLogger("minikafka.clients.group")


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """The topics of a member, and the partitions that it reads, of the assignment of ``generation``."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    group_instance_id: str | None = None

    def encode(self) -> bytes:
        """Return it as the metadata of a member that keeps its partitions, in the newest version.

        The generation is also the assignor's own data, which readers of version 1 look at.
        """
        subscription = Subscription(
            self.topics, INT32.pack(self.generation), to_consumer_partitions(self.owned), self.generation
        )
        return encode_subscription(subscription, version=3)


Subscriptions = Mapping[str, MemberSubscription]
"""By member id."""
Assignments = dict[str, tuple[TopicPartition, ...]]
"""Member id to its partitions; a row for every member."""
Assignor = Callable[[Subscriptions, Mapping[str, int]], Assignments]
"""Returns the assignments for the members and the numbers of partitions of the topics that exist."""


def decode_member_subscriptions(
    members: Iterable[tuple[str, str | None, bytes]],
) -> dict[str, MemberSubscription]:
    """Return the subscriptions in rows of member id, instance id and metadata.

    Metadata that cannot be decoded counts as no topics, with a warning.
    """
    found: dict[str, MemberSubscription] = {}
    for member_id, instance_id, data in members:
        try:
            decoded = decode_subscription(data)
        except RemoteWireError as error:
            logger.warning(
                "member %s gets no partitions: failed to decode its subscription: %s", member_id, error
            )
            found[member_id] = MemberSubscription((), group_instance_id=instance_id)
            continue
        owned = from_consumer_partitions(decoded.owned_partitions)
        found[member_id] = MemberSubscription(decoded.topics, owned, _generation(decoded), instance_id)
    return found


def _generation(subscription: Subscription) -> int:
    user_data = subscription.user_data
    if subscription.generation_id == NO_GENERATION and user_data is not None and len(user_data) == INT32.size:
        generation: int = INT32.unpack(user_data)[0]
        return generation
    return subscription.generation_id


def to_consumer_partitions(partitions: Iterable[TopicPartition]) -> tuple[ConsumerPartitions, ...]:
    """Return partitions by topic, in the form of the consumer protocol."""
    topics = numbers_by_topic(partitions).items()
    return tuple(ConsumerPartitions(topic, tuple(numbers)) for topic, numbers in topics)


def from_consumer_partitions(rows: Iterable[ConsumerPartitions]) -> tuple[TopicPartition, ...]:
    """Return the partitions in rows of the consumer protocol."""
    return tuple(TopicPartition(row.topic, number) for row in rows for number in row.partitions)


def readers_of(subscriptions: Subscriptions) -> list[tuple[str, list[str]]]:
    """Return the topics in order, each with its subscribed members in order."""
    readers: dict[str, list[str]] = {}
    for member in in_order(subscriptions):
        for topic in set(subscriptions[member].topics):
            readers.setdefault(topic, []).append(member)
    return sorted(readers.items())


def in_order(subscriptions: Subscriptions) -> list[str]:
    """Return the members as assignors order them: static ones by instance id, then the others by member
    id.
    """

    def place(member: str) -> tuple[bool, str]:
        instance_id = subscriptions[member].group_instance_id
        return instance_id is None, instance_id or member

    return sorted(subscriptions, key=place)

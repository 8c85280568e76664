"""The consumers of groups in ZooKeeper, as Kafka's consumers of 0.8 to 0.10 register, and their partitions.

The parents of the znodes are persistent and created when needed. Offsets are in ``consumer_offsets``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from minikafka.base.ids import TopicPartition
from minikafka.registry import paths
from minikafka.registry.node import Node, dump, id_in, invalid
from minikafka.registry.store import Store
from minikafka.registry.znodes import Kind, Znodes, children, read_values

_ESCAPED_TOO = re.compile(r"[/\x7f-\x9f]")
"""Characters that 0.10.1 escapes in a pattern although JSON does not require it."""


def _escape(found: re.Match[str]) -> str:
    return "\\/" if found[0] == "/" else f"\\u{ord(found[0]):04x}"


@dataclass(frozen=True, slots=True)
class ConsumerRegistration:
    """A consumer of a group in ZooKeeper, with its subscription."""

    subscription: Mapping[str, int]
    """Topic or pattern -> number of threads that read it."""
    timestamp_ms: int
    """The time at which it registered; -1 if the znode does not say."""
    pattern: str = "static"
    """``static`` for topics; ``white_list`` or ``black_list`` for a pattern."""

    def to_json(self) -> bytes:
        """Return the data for ``consumer_id_path(group, consumer_id)``, identical to those that 0.10.1
        writes.
        """
        plain = dump(
            {
                "version": 1,
                "subscription": dict(self.subscription),
                "pattern": self.pattern,
                "timestamp": str(self.timestamp_ms),
            }
        )
        return _ESCAPED_TOO.sub(_escape, plain.decode("utf-8")).encode("utf-8")

    @classmethod
    def from_json(cls, data: bytes, path: str) -> ConsumerRegistration:
        """Parse the registration in ``data``."""
        node = Node(data, path)
        subscription = node.mapping("subscription")
        if not all(type(threads) is int for threads in subscription.values()):
            raise node.error("subscription", "an object whose values are numbers of threads")
        return cls(subscription, node.number_as_text("timestamp", -1), node.text("pattern"))


CONSUMER = Kind(
    f"{paths.CONSUMERS}/G/ids/ID",
    "a live consumer with its subscription; ephemeral",
    "0.10.1 (version 1)",
    ConsumerRegistration.from_json,
    ConsumerRegistration.to_json,
    "the group does not rebalance until you restart that consumer",
)
"""Only tools pass it over. A consumer of the group stops its rebalance, as 0.10.1's: without the subscription
of each consumer it is unknown which partitions are left for the others.
"""


def _decode_owner(data: bytes, path: str) -> str:
    """Return the thread ``ID-N`` of an owner."""
    text = data.decode("utf-8", "replace")
    consumer, _, number = text.rpartition("-")
    if not consumer or id_in(number) is None:
        raise invalid(path, "expected the thread of a consumer, CONSUMER-N", data)
    return text


OWNER = Kind(
    f"{paths.CONSUMERS}/G/owners/T/P",
    "the consumer and its thread that read a partition, as ID-N; ephemeral",
    "0.10.1",
    _decode_owner,
    str.encode,
    "the partition has no owner for tools; restart the consumer that created the znode, or remove it",
)
"""Whether a partition is owned depends on the session that created the znode, never on its data."""


def partitions_below(store: Store, above: str) -> list[TopicPartition]:
    """Return the partitions that have a znode ``above/TOPIC/PARTITION``."""
    znodes, found = Znodes(store), []
    for topic in children(store, above):
        for name in children(store, f"{above}/{topic}"):
            number = id_in(name)
            if number is None or name != str(number):
                path = f"{above}/{topic}/{name}"
                znodes.warn(path, f"ignored an invalid znode: {path}: {name!r} is no partition; remove it")
            else:
                found.append(TopicPartition(topic, number))
    return found


def read_owners(store: Store, group: str) -> dict[TopicPartition, str]:
    """Return the owner, ``CONSUMER-N``, of each partition that ``group`` owns."""
    partitions = partitions_below(store, paths.consumer_owners_path(group))
    by_path = {paths.consumer_owner_path(group, *tp): tp for tp in partitions}
    return read_values(store, by_path, OWNER)

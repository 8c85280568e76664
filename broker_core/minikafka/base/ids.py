"""Names and ids: topics, partitions, brokers, the cluster."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from minikafka.base.errors import BrokerError, ErrorCode

TOPIC_NAME_MAX_LENGTH = 249
"""The longest topic name: with a partition number it must fit a directory name of 255 characters."""

Row = TypeVar("Row")

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")

OFFSETS_TOPIC = "__consumer_offsets"
"""The topic in which groups and their offsets are stored."""
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, "__transaction_state"})


class TopicPartition(NamedTuple):
    """A partition of a topic. Sorts by topic, then by number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def numbers_by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Return the partition numbers of each topic, both in the order given."""
    return rows_by_topic((partition, partition[1]) for partition in partitions)


def rows_by_topic(rows: Iterable[tuple[tuple[str, int], Row]]) -> dict[str, list[Row]]:
    """Return the rows of each topic's partitions, both in the order given."""
    topics: dict[str, list[Row]] = {}
    for (topic, _), row in rows:
        topics.setdefault(topic, []).append(row)
    return topics


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The address of a broker's listener."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"broker {self.broker_id} at {host_port(self.host, self.port)}"


def host_port(host: str, port: int) -> str:
    """Return ``HOST:PORT``, with an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_topic_name(name: str) -> bool:
    """Return True if ``check_topic_name`` accepts the name."""
    try:
        check_topic_name(name)
    except BrokerError:
        return False
    return True


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC unless ``name`` is a legal topic name (``Topic.validate`` of 0.10.1)."""
    problem = None
    if not name:
        problem = "a topic name must not be empty"
    elif name in {".", ".."}:
        problem = f"{name!r} is not allowed as a topic name"
    elif len(name) > TOPIC_NAME_MAX_LENGTH:
        problem = f"a topic name of {len(name)} characters exceeds the limit of {TOPIC_NAME_MAX_LENGTH}"
    elif _TOPIC_NAME.fullmatch(name) is None:
        problem = f"topic name {name!r}: only letters, digits, '.', '_' and '-' are allowed"
    if problem is not None:
        raise BrokerError(ErrorCode.INVALID_TOPIC, problem)


def unify_collision_chars(name: str) -> str:
    """Return a name that is equal for all names that collide (``has_collision``)."""
    return name.replace(".", "_")


def has_collision(name: str, other: str) -> bool:
    """Return True if two names differ at most in ``.`` and ``_``, which are equal in metric names."""
    return unify_collision_chars(name) == unify_collision_chars(other)


def cluster_id_of(sixteen_bytes: bytes) -> str:
    """Return a cluster id: 22 characters of URL-safe base64, as Kafka encodes a random UUID."""
    if len(sixteen_bytes) != 16:
        raise ValueError(f"expected 16 bytes for a cluster id, got {len(sixteen_bytes)}")
    return base64.urlsafe_b64encode(sixteen_bytes).rstrip(b"=").decode("ascii")

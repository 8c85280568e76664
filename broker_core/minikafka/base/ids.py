"""Names and ids: topics, partitions, brokers, the cluster.

A topic id (KIP-516) is a UUID of 16 bytes. No other topic ever has it, not even a later one of that name.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from minikafka.base.errors import BrokerError, ErrorCode

TOPIC_NAME_MAX_LENGTH = 249
"""The longest topic name: with a partition number it must fit a directory name of 255 characters."""

Row = TypeVar("Row")

_UUID_BYTES = 16
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")

OFFSETS_TOPIC = "__consumer_offsets"
"""The topic in which groups and their offsets are stored."""
TRANSACTION_STATE_TOPIC = "__transaction_state"
"""The topic in which transaction coordinators store transactions."""
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC})


class TopicPartition(NamedTuple):
    """A partition of a topic. Sorts by topic, then by number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ProducerIdAndEpoch(NamedTuple):
    """The identity of a producer. An older epoch is fenced."""

    producer_id: int
    epoch: int


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


def uuid_text(uuid: bytes | bytearray) -> str:
    """Return 16 bytes as Kafka writes a UUID: 22 characters of URL-safe base64."""
    if len(uuid) != _UUID_BYTES:
        raise ValueError(f"expected {_UUID_BYTES} bytes for a UUID, got {len(uuid)}")
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode("ascii")


def topic_id_text(topic_id: bytes) -> str | None:
    """Return a topic id as Kafka's tools show it; None for zero, an unknown id."""
    return uuid_text(topic_id) if any(topic_id) else None


def uuid_in(text: str) -> bytes | None:
    """Return the 16 bytes of ``uuid_text``; None if the text is something else."""
    try:
        uuid = base64.urlsafe_b64decode(text + "==")
    except ValueError:
        return None
    return uuid if len(uuid) == _UUID_BYTES and uuid_text(uuid) == text else None


def new_topic_id(random_bytes: Callable[[int], bytes]) -> bytes:
    """Return the id for a new topic: a random UUID, version 4, whose text does not begin with ``-``, which
    command lines take for an option.
    """
    while True:
        topic_id = bytearray(random_bytes(_UUID_BYTES))
        topic_id[6] = topic_id[6] & 0x0F | 0x40  # version 4
        topic_id[8] = topic_id[8] & 0x3F | 0x80  # the variant of RFC 4122
        if not uuid_text(topic_id).startswith("-"):
            return bytes(topic_id)

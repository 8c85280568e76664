"""Names and ids: topics, partitions, brokers, the cluster."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import NamedTuple

from minikafka.base.errors import BrokerError, ErrorCode

TOPIC_NAME_MAX_LENGTH = 249
"""Longest topic name: directory names of 255 characters must hold it with a partition number."""

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")

OFFSETS_TOPIC = "__consumer_offsets"
"""Where groups and their offsets are kept."""
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, "__transaction_state"})


class TopicPartition(NamedTuple):
    """One partition of one topic. Sorts by topic, then by number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where a broker listens."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"broker {self.broker_id} at {host_port(self.host, self.port)}"


def host_port(host: str, port: int) -> str:
    """An address as one text: IPv6 hosts stand in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_topic_name(name: str) -> bool:
    """Whether ``check_topic_name`` takes it."""
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
        problem = f"{name!r} cannot be a topic name"
    elif len(name) > TOPIC_NAME_MAX_LENGTH:
        problem = f"a topic name has at most {TOPIC_NAME_MAX_LENGTH} characters, this has {len(name)}"
    elif _TOPIC_NAME.fullmatch(name) is None:
        problem = f"topic name {name!r}: only letters, digits, '.', '_' and '-' are allowed"
    if problem is not None:
        raise BrokerError(ErrorCode.INVALID_TOPIC, problem)


def unify_collision_chars(name: str) -> str:
    """The same for all names that collide with this one (``has_collision``)."""
    return name.replace(".", "_")


def has_collision(one: str, other: str) -> bool:
    """Whether two names differ at most in ``.`` against ``_``, which metric names cannot tell apart."""
    return unify_collision_chars(one) == unify_collision_chars(other)


def cluster_id_of(sixteen_bytes: bytes) -> str:
    """22 characters of URL-safe base64, as Kafka makes a cluster id of a random UUID."""
    if len(sixteen_bytes) != 16:
        raise ValueError(f"a cluster id is made of 16 bytes, not {len(sixteen_bytes)}")
    return base64.urlsafe_b64encode(sixteen_bytes).rstrip(b"=").decode("ascii")

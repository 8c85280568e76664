"""The consumer protocol: subscriptions and assignments, which the group coordinator treats as opaque bytes.

A subscription is a member's ``metadata`` in JoinGroup, an assignment its ``assignment`` in SyncGroup, both of
protocol type ``consumer``: an int16 version, then the fields. Readers decode an unknown newer version as the
newest that they know, and ignore the rest. Version 1 (KIP-429) adds the partitions that a member owns, 2
(KIP-792) the generation in which it got them, 3 (KIP-881) its rack.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

from minikafka.base import binary
from minikafka.base.errors import LocalWireError, RemoteWireError
from minikafka.base.files import Buffer
from minikafka.base.values import fast_value
from minikafka.wire import schema
from minikafka.wire.fields import Int32, since
from minikafka.wire.frame_parts import join

PROTOCOL_TYPE = "consumer"
MAX_VERSION = 3

T = TypeVar("T")


@fast_value
class ConsumerPartitions:
    """Partitions of one topic."""

    topic: str
    partitions: tuple[Int32, ...]


@fast_value
class Subscription:
    """The topics that a member subscribes to. ``user_data`` belongs to the assignor."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: Annotated[tuple[ConsumerPartitions, ...], since(1)] = ()
    generation_id: Annotated[Int32, since(2, default=-1)] = -1
    rack_id: Annotated[str | None, since(3)] = None


@fast_value
class Assignment:
    """The partitions assigned to a member. ``user_data`` belongs to the assignor."""

    assigned_partitions: tuple[ConsumerPartitions, ...]
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription, version: int = 0) -> bytes:
    """Encode a subscription for JoinGroup. Raises LocalWireError when a value does not fit."""
    return _encode(Subscription, version, subscription)


def decode_subscription(data: Buffer) -> Subscription:
    """Decode a member's subscription. Raises RemoteWireError for invalid bytes."""
    return _decode(Subscription, data)


def encode_assignment(assignment: Assignment, version: int = 0) -> bytes:
    """Encode an assignment for SyncGroup. Raises LocalWireError when a value does not fit."""
    return _encode(Assignment, version, assignment)


def decode_assignment(data: Buffer) -> Assignment:
    """Decode a member's assignment. Raises RemoteWireError for invalid bytes.

    Empty bytes, of a member without an assignment from the leader, mean no partitions.
    """
    return _decode(Assignment, data) if len(data) else Assignment(())


def _encode(message: type[T], version: int, value: T) -> bytes:
    if not 0 <= version <= MAX_VERSION:
        raise LocalWireError(f"{message.__name__} {version} is not supported: expected 0 to {MAX_VERSION}")
    return binary.INT16.pack(version) + join(schema.encode(message, version, value))


def _decode(message: type[T], data: Buffer) -> T:
    version, position = binary.read_integer(binary.INT16, data, 0)
    if version < 0:
        raise RemoteWireError(f"invalid version {version} of {message.__name__}")
    return schema.decode_prefix(message, min(version, MAX_VERSION), memoryview(data)[position:])[0]

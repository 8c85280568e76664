"""The records of ``__transaction_state``: Kafka's own keys and values, as messages of ``wire.schema``.

Both begin with the version, an int16::

    key 0   (transactional id)      value 0 or 1: the producer, and the state of its transaction

A key without a value is a tombstone: the id has expired. The topic is compacted, so that the newest value of
each key stays. Version 0 is written, which brokers since 0.11 can read. Version 1 (3.8, with the feature
``transaction.version``) is flexible, and newer brokers add tagged fields to it, which are ignored here: they
have what a transaction of version 2 needs. Source: ``TransactionLog.scala`` of 3.9.
"""

from __future__ import annotations

from typing import TypeVar

from minikafka.base.binary import INT16
from minikafka.base.errors import RemoteWireError
from minikafka.base.files import Buffer
from minikafka.base.values import fast_value
from minikafka.wire import schema
from minikafka.wire.fields import Int8, Int16, Int32, Int64
from minikafka.wire.frame_parts import join

T = TypeVar("T")

WRITTEN_VALUE = 0
"""The version in which values are written."""

_NEWEST_KEY = 0
_NEWEST_VALUE = 1
_FLEXIBLE_SINCE = 1


@fast_value
class TransactionLogKey:
    """The key of a transactional id."""

    transactional_id: str


@fast_value
class TransactionLogPartitions:
    """The partitions of one topic in a transaction."""

    topic: str
    partition_ids: tuple[Int32, ...]


@fast_value
class TransactionLogValue:
    """The producer of an id, and its transaction. Times are ms since the epoch; a start of -1: there was no
    transaction yet. ``transaction_partitions`` is None if and only if the state is Empty.
    """

    producer_id: Int64
    producer_epoch: Int16
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: tuple[TransactionLogPartitions, ...] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64


def key_bytes(transactional_id: str) -> bytes:
    """Encode a key."""
    return _encode(TransactionLogKey, _NEWEST_KEY, TransactionLogKey(transactional_id))


def value_bytes(value: TransactionLogValue, version: int = WRITTEN_VALUE) -> bytes:
    """Encode a value."""
    return _encode(TransactionLogValue, version, value)


def read_key(data: Buffer) -> TransactionLogKey | None:
    """Decode a key; None for versions of later releases. Raises RemoteWireError when it is damaged."""
    version, body = _split_version(data)
    return schema.decode(TransactionLogKey, version, body) if version <= _NEWEST_KEY else None


def read_value(data: Buffer) -> TransactionLogValue:
    """Decode a value. Raises RemoteWireError when it is damaged or of an unknown version."""
    version, body = _split_version(data)
    if version > _NEWEST_VALUE:
        raise RemoteWireError(f"version {version} of TransactionLogValue is newer than {_NEWEST_VALUE}")
    return schema.decode(TransactionLogValue, version, body, flexible=version >= _FLEXIBLE_SINCE)


def _encode(message: type[T], version: int, value: T) -> bytes:
    flexible = message is TransactionLogValue and version >= _FLEXIBLE_SINCE
    return INT16.pack(version) + join(schema.encode(message, version, value, flexible))


def _split_version(data: Buffer) -> tuple[int, memoryview]:
    if len(data) < INT16.size:
        raise RemoteWireError(f"{bytes(data)!r} is too short for a version")
    version: int = INT16.unpack_from(data)[0]
    if version < 0:
        raise RemoteWireError(f"version {version} of a message of __transaction_state")
    return version, memoryview(data)[INT16.size :]

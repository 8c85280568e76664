"""Keys and values of ``__transaction_state``: those that Kafka 3.9.1 wrote, byte for byte."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.base.errors import RemoteWireError
from minikafka.transactions.messages import (
    TransactionLogKey,
    TransactionLogPartitions,
    TransactionLogValue,
    key_bytes,
    read_key,
    read_value,
    value_bytes,
)
from tests.support.recorded_frames import RecordedFrame, recorded_frames

KEYS = [frame for frame in recorded_frames() if frame.name == "TransactionLogKey"]
VALUES = [frame for frame in recorded_frames() if frame.name == "TransactionLogValue"]

COMMITTING = TransactionLogValue(
    producer_id=7,
    producer_epoch=3,
    transaction_timeout_ms=60_000,
    transaction_status=2,
    transaction_partitions=(TransactionLogPartitions("t", (0, 2)), TransactionLogPartitions("u", (1,))),
    transaction_last_update_timestamp_ms=1_600_000_000_001,
    transaction_start_timestamp_ms=1_600_000_000_000,
)
COMMITTING_BYTES = bytes.fromhex(
    "0000 0000000000000007 0003 0000ea60 02 00000002"
    "0001 74 00000002 00000000 00000002 0001 75 00000001 00000001"
    "00000174876e8001 00000174876e8000"
)


def prefixed(frame: RecordedFrame) -> bytes:
    """The bytes of a structure, behind its version."""
    return frame.version.to_bytes(2, "big") + frame.body


def value_of(message: dict[str, Any]) -> TransactionLogValue:
    topics = message["transactionPartitions"]
    return TransactionLogValue(
        message["producerId"],
        message["producerEpoch"],
        message["transactionTimeoutMs"],
        message["transactionStatus"],
        None
        if topics is None
        else tuple(
            TransactionLogPartitions(topic["topic"], tuple(topic["partitionIds"])) for topic in topics
        ),
        message["transactionLastUpdateTimestampMs"],
        message["transactionStartTimestampMs"],
    )


@pytest.mark.parametrize("frame", KEYS, ids=str)
def test_keys_of_the_release_are_read_and_written(frame: RecordedFrame) -> None:
    name = frame.message["transactionalId"]
    assert read_key(prefixed(frame)) == TransactionLogKey(name)
    assert key_bytes(name) == prefixed(frame)


@pytest.mark.parametrize("frame", VALUES, ids=str)
def test_values_of_the_release_are_read(frame: RecordedFrame) -> None:
    assert read_value(prefixed(frame)) == value_of(frame.message)


@pytest.mark.parametrize("frame", [frame for frame in VALUES if frame.variant != "unknown-tags"], ids=str)
def test_values_are_written_as_the_release_writes_them(frame: RecordedFrame) -> None:
    assert value_bytes(value_of(frame.message), frame.version) == prefixed(frame)


def test_version_0_is_written() -> None:
    assert value_bytes(COMMITTING) == COMMITTING_BYTES
    assert read_value(COMMITTING_BYTES) == COMMITTING


def test_tagged_fields_of_transactions_of_version_2_are_ignored() -> None:
    # Kafka 4.0: previous and next producer id, and the version of the client.
    tags = bytes.fromhex("03 00 08 0000000000000001 01 08 ffffffffffffffff 02 02 0002")
    data = value_bytes(COMMITTING, 1)
    assert read_value(data[:-1] + tags) == COMMITTING


def test_key_of_a_later_release_is_none() -> None:
    assert read_key(bytes.fromhex("0001 00 00")) is None


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("00", "too short for a version"),
        ("ffff", "version -1"),
        ("0002 00", "version 2 of TransactionLogValue is newer than 1"),
        ("0000 00", "TransactionLogValue"),
    ],
)
def test_damaged_value_is_refused(data: str, problem: str) -> None:
    with pytest.raises(RemoteWireError, match=problem):
        read_value(bytes.fromhex(data))


@pytest.mark.parametrize("data", ["", "8000 0001 61", "0000 0002 61"])
def test_damaged_key_is_refused(data: str) -> None:
    with pytest.raises(RemoteWireError):
        read_key(bytes.fromhex(data))

"""The tree of errors."""

from __future__ import annotations

import pickle

import pytest

from minikafka.base import errors
from minikafka.base.errors import BrokerError, ConfigError, ErrorCode, OffsetOutOfRange


def test_an_unknown_code_is_unknown() -> None:
    assert ErrorCode.of(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ErrorCode.of(12345) is ErrorCode.UNKNOWN


def test_codes_are_those_of_3_9_without_a_gap() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, 128))


@pytest.mark.parametrize(
    ("code", "retriable"),
    [
        (ErrorCode.NOT_LEADER_FOR_PARTITION, True),
        (ErrorCode.CORRUPT_MESSAGE, True),
        (ErrorCode.MESSAGE_TOO_LARGE, False),
        (ErrorCode.NONE, False),
        (ErrorCode.FENCED_LEADER_EPOCH, True),
        (ErrorCode.REPLICA_NOT_AVAILABLE, False),
        (ErrorCode.CONCURRENT_TRANSACTIONS, False),
    ],
)
def test_a_broker_error_knows_whether_trying_again_can_help(code: ErrorCode, retriable: bool) -> None:
    assert BrokerError(code).is_retriable is retriable


def test_messages_say_what_was_wrong_with_the_value() -> None:
    assert str(BrokerError(ErrorCode.INVALID_TOPIC)) == "INVALID_TOPIC"
    assert str(BrokerError(ErrorCode.INVALID_TOPIC, "a b")) == "INVALID_TOPIC: a b"
    assert str(ConfigError("segment.bytes", "x", "a number")) == "segment.bytes='x': a number"
    assert str(ConfigError("log.dirs", r"C:\d", "a path")) == r"log.dirs='C:\d': a path"
    assert "offset 9 is outside the log: expected 1 to 5" in str(OffsetOutOfRange(9, 1, 5))


@pytest.mark.parametrize(
    "error",
    [
        BrokerError(ErrorCode.CORRUPT_MESSAGE, "detail"),
        OffsetOutOfRange(9, 1, 5),
        ConfigError("a", 1, "b"),
        errors.DirectoryLocked("d"),
        errors.RemoteWireError("r"),
    ],
)
def test_errors_travel_between_processes(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_every_error_has_one_root() -> None:
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    raised = [error for error in classes if issubclass(error, Exception)]
    assert len(raised) > 15
    assert all(issubclass(error, errors.MinikafkaError) for error in raised)

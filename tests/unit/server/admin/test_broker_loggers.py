"""Levels of loggers are described and changed as those of Kafka's (KIP-412)."""

from __future__ import annotations

import logging

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.server.admin.broker_loggers import BrokerLoggers
from minikafka.wire.apis.incremental_alter_configs import AlterOperation, IncrementalAlterableConfig

SET, DELETE, APPEND = AlterOperation.SET, AlterOperation.DELETE, AlterOperation.APPEND


@pytest.fixture
def loggers() -> BrokerLoggers:
    """The root logger, at INFO, and a logger with a parent."""
    manager = logging.Manager(logging.RootLogger(logging.INFO))
    manager.getLogger("a")
    manager.getLogger("a.b.c")
    return BrokerLoggers(manager)


def levels(loggers: BrokerLoggers) -> dict[str, str | None]:
    return {row.name: row.value for row in loggers.describe()}


def change(
    loggers: BrokerLoggers, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> None:
    loggers.change(
        [IncrementalAlterableConfig(name, operation, value) for name, operation, value in changes],
        validate_only=validate_only,
    )


def test_a_logger_without_a_level_has_that_of_its_parent(loggers: BrokerLoggers) -> None:
    assert levels(loggers) == {"a": "INFO", "a.b.c": "INFO", "root": "INFO"}
    change(loggers, ("a", SET, "WARN"))
    assert levels(loggers) == {"a": "WARN", "a.b.c": "WARN", "root": "INFO"}
    change(loggers, ("a", DELETE, None), ("root", SET, "ERROR"))
    assert levels(loggers) == {"a": "ERROR", "a.b.c": "ERROR", "root": "ERROR"}


@pytest.mark.parametrize("level", ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"])
def test_each_level_of_kafka_is_kept(loggers: BrokerLoggers, level: str) -> None:
    change(loggers, ("a", SET, level))
    assert levels(loggers)["a"] == level


def test_a_level_between_two_is_described_as_the_lower_one() -> None:
    manager = logging.Manager(logging.RootLogger(logging.WARNING + 5))
    assert levels(BrokerLoggers(manager)) == {"root": "WARN"}
    assert levels(BrokerLoggers(logging.Manager(logging.RootLogger(1)))) == {"root": "TRACE"}


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ([("a", SET, "LOUD")], ErrorCode.INVALID_CONFIG, r"'LOUD'.*logger a.*TRACE, DEBUG, INFO"),
        ([("a", SET, None)], ErrorCode.INVALID_REQUEST, "a is null"),
        ([("x", SET, "INFO")], ErrorCode.INVALID_CONFIG, "no logger x"),
        ([("x", DELETE, None)], ErrorCode.INVALID_CONFIG, "no logger x"),
        ([("root", DELETE, None)], ErrorCode.INVALID_REQUEST, "root"),
        ([("a", APPEND, "INFO")], ErrorCode.INVALID_REQUEST, "operation 2"),
        ([("a", SET, "INFO"), ("a", DELETE, None)], ErrorCode.INVALID_REQUEST, "a appears 2 times"),
    ],
)
def test_an_invalid_change_is_refused_and_nothing_is_changed(
    loggers: BrokerLoggers, changes: list[tuple[str, int, str | None]], code: ErrorCode, text: str
) -> None:
    with pytest.raises(BrokerError, match=text) as refused:
        change(loggers, ("a.b.c", SET, "ERROR"), *changes)
    assert refused.value.code is code
    assert set(levels(loggers).values()) == {"INFO"}


def test_a_change_that_is_only_validated_is_not_made(loggers: BrokerLoggers) -> None:
    change(loggers, ("a", SET, "ERROR"), validate_only=True)
    assert levels(loggers)["a"] == "INFO"

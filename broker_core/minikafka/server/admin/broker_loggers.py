"""Levels of a broker's loggers, as clients read and change them (KIP-412).

A change lasts until the broker ends. The names of levels are Kafka's; TRACE is below DEBUG, and nothing is
logged at it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.server.admin.dynamic_config import check_once
from minikafka.wire.apis.describe_configs import ConfigSource, DescribeConfigsResourceResult
from minikafka.wire.apis.incremental_alter_configs import AlterOperation, IncrementalAlterableConfig

ROOT = "root"
LEVELS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


class BrokerLoggers:
    """The loggers of this process, or of ``manager``."""

    def __init__(self, manager: logging.Manager = logging.root.manager) -> None:
        self._manager = manager

    def describe(self) -> Iterable[DescribeConfigsResourceResult]:
        """Yield the level of each logger, its own or its parent's, sorted by name."""
        for name, logger in sorted(self._loggers().items()):
            yield DescribeConfigsResourceResult(
                name=name,
                value=_name(logger.getEffectiveLevel()),
                read_only=False,
                is_default=False,
                config_source=ConfigSource.DYNAMIC_BROKER_LOGGER,
                is_sensitive=False,
                synonyms=(),
            )

    def change(self, changes: Sequence[IncrementalAlterableConfig], *, validate_only: bool) -> None:
        """Set or unset levels. Raises BrokerError, and changes nothing then."""
        check_once(change.name for change in changes)
        loggers = self._loggers()
        levels = {change.name: _level(change, loggers) for change in changes}
        if not validate_only:
            for name, level in levels.items():
                loggers[name].setLevel(level)

    def _loggers(self) -> dict[str, logging.Logger]:
        known = list(self._manager.loggerDict.items())  # other threads may add some
        found = {name: logger for name, logger in known if isinstance(logger, logging.Logger)}
        return {**found, ROOT: self._manager.root}


def _level(change: IncrementalAlterableConfig, loggers: dict[str, logging.Logger]) -> int:
    """Return the level after the change. Raises BrokerError."""
    name, value = change.name, change.value
    match change.config_operation:
        case AlterOperation.SET if value is None:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"the level of {name} is null: provide a level")
        case AlterOperation.SET if value not in LEVELS:
            raise BrokerError(
                ErrorCode.INVALID_CONFIG,
                f"{value!r} is not a level of logger {name}: expected one of {', '.join(LEVELS)}",
            )
        case AlterOperation.DELETE if name == ROOT:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "the root logger needs a level: set another one")
        case AlterOperation.SET | AlterOperation.DELETE:
            pass
        case other:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"invalid operation {other} for logger {name}: expected 0 (SET) or 1 (DELETE)",
            )
    if name not in loggers:
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"there is no logger {name}")
    return LEVELS[value] if value and change.config_operation == AlterOperation.SET else logging.NOTSET


def _name(level: int) -> str:
    """Return the name of the highest level that is not above ``level``."""
    return max((known, name) for name, known in LEVELS.items() if known <= max(level, LEVELS["TRACE"]))[1]

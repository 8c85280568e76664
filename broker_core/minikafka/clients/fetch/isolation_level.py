"""The isolation level of a consumer.

A module of its own, for code that reads options and sends nothing.
"""

from __future__ import annotations

from enum import IntEnum

from minikafka.base.errors import ConfigError


class IsolationLevel(IntEnum):
    """The ``isolation.level`` of a consumer, with its values in requests. Brokers before 0.11 have no
    transactions, so that both levels give the same.
    """

    READ_UNCOMMITTED = 0
    """All messages."""
    READ_COMMITTED = 1
    """Messages without a transaction or of a committed one, up to the first open transaction."""

    @classmethod
    def parse(cls, name: str, value: str) -> IsolationLevel:
        """Return the level whose Kafka name is ``value``, in any case.

        Raises ConfigError for the property ``name``.
        """
        for level in cls:
            if level.name.lower() == value.strip().lower():
                return level
        raise ConfigError(name, value, "must be read_committed or read_uncommitted")

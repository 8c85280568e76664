"""Which messages of transactions a consumer wants. Apart, for who reads options and sends nothing."""

from __future__ import annotations

from enum import IntEnum

from minikafka.base.errors import ConfigError


class IsolationLevel(IntEnum):
    """Which messages of transactions count (``isolation.level``), as requests have it. Brokers before 0.11
    have no transactions, and so no difference.
    """

    READ_UNCOMMITTED = 0
    """All."""
    READ_COMMITTED = 1
    """Those that were committed, as far as none of an open transaction lies before."""

    @classmethod
    def parse(cls, name: str, value: str) -> IsolationLevel:
        """Kafka's name for it, in any case; for any other a ConfigError of the property ``name``."""
        for level in cls:
            if level.name.lower() == value.strip().lower():
                return level
        raise ConfigError(name, value, "must be read_committed or read_uncommitted")

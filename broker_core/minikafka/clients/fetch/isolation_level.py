"""The isolation level of a consumer.

A module of its own, for code that reads options and sends nothing.
"""

from __future__ import annotations

from enum import IntEnum

from minikafka.base.config.types import choice


class IsolationLevel(IntEnum):
    """The ``isolation.level`` of a consumer, with its values in requests. Brokers before 0.11 have no
    transactions, so that both levels give the same.
    """

    READ_UNCOMMITTED = 0
    """All messages."""
    READ_COMMITTED = 1
    """Messages without a transaction or of a committed one, up to the first open transaction."""


ISOLATION_LEVEL = choice({level.name.lower(): level for level in IsolationLevel})
"""The type of ``isolation.level``."""

"""The properties of ``__transaction_state``, and of the timers of transactions."""

from __future__ import annotations

from dataclasses import dataclass

from minikafka.base.config.config_def import setting
from minikafka.base.config.types import ConfigType, int32, integer
from minikafka.records.kernels.layout import MIN_SIZE

TRANSACTIONS = "Transactions"
"""The section of the reference page."""


@dataclass(frozen=True, slots=True)
class TransactionStateConfig:
    """The configuration of ``__transaction_state`` and of its coordinators. Times are milliseconds."""

    partitions: int = setting(
        "transaction.state.log.num.partitions", int32(1), 50, "Partitions of `__transaction_state`."
    )
    replication_factor: int = setting(
        "transaction.state.log.replication.factor",
        int32(1).as_kind(ConfigType.SHORT),
        3,
        "Replicas of `__transaction_state`, at most: fewer if fewer brokers are alive.",
    )
    min_isr: int = setting(
        "transaction.state.log.min.isr",
        int32(1),
        2,
        "`min.insync.replicas` of `__transaction_state`, at most: not more than it has replicas.",
    )
    segment_bytes: int = setting(
        "transaction.state.log.segment.bytes",
        int32(MIN_SIZE),
        104_857_600,
        "The segment size of `__transaction_state`.",
    )
    load_bytes: int = setting(
        "transaction.state.log.load.buffer.size",
        integer(1, 1 << 30),
        5_242_880,
        "Bytes of `__transaction_state` that are read at once while transactions are loaded.",
    )
    expiry_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        int32(1),
        10_000,
        "How often to look for transactions that are open for longer than their time-out.",
    )
    id_expiry_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        int32(1),
        3_600_000,
        "How often to look for transactional ids that nobody has used for long.",
    )

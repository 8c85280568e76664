"""The loader, which reads transactions back from ``__transaction_state``, off the core's lock."""

from __future__ import annotations

import logging

from minikafka.base.clock import Clock
from minikafka.base.ids import TopicPartition
from minikafka.log.log import Log
from minikafka.server.coordination.window_reader import WindowReader
from minikafka.transactions.loading import TransactionMetadataLoader
from minikafka.transactions.shard import TransactionCoordinatorShard, TransactionSettings

_log = logging.getLogger(__name__)


class TransactionLoader:
    """Loads one partition at a time, on its caller's thread, until it is stopped."""

    def __init__(self, settings: TransactionSettings, clock: Clock, window_bytes: int) -> None:
        self._settings = settings
        self._clock = clock
        self._reader = WindowReader(clock, window_bytes, "transactions")

    def stop(self) -> None:
        """Abort the current load."""
        self._reader.stop()

    def load(
        self, log: Log, topic_partition: TopicPartition, coordinator_epoch: int
    ) -> TransactionCoordinatorShard | None:
        """Return the transactions in a log; None when stopped. Raises StorageError or BrokerError."""
        began_ms = self._clock.monotonic_ms()
        loading = TransactionMetadataLoader(self._settings)
        for window in self._reader.windows(log, topic_partition):
            columns = window.columns
            loading.add(
                columns.key_array().to_pylist(), columns.offsets.tolist(), columns.value_array().to_pylist()
            )
        if self._reader.is_stopped:
            return None
        shard = loading.finish(coordinator_epoch)
        elapsed_ms = self._clock.monotonic_ms() - began_ms
        _log.info("loaded %d transactions from %s in %d ms", len(shard), topic_partition, elapsed_ms)
        return shard

"""The loader, which reads groups and offsets back from ``__consumer_offsets``, off the core's lock."""

from __future__ import annotations

import logging

from minikafka.base.clock import Clock
from minikafka.base.ids import TopicPartition
from minikafka.groups.loading import GroupMetadataLoader
from minikafka.groups.shard import GroupCoordinatorShard, GroupSettings
from minikafka.log.log import Log
from minikafka.records.scan.isolation import transaction_parts
from minikafka.server.coordination.window_reader import WindowReader

_log = logging.getLogger(__name__)


class GroupLoader:
    """Loads one partition at a time, on its caller's thread, until it is stopped."""

    def __init__(self, settings: GroupSettings, clock: Clock, window_bytes: int) -> None:
        self._settings = settings
        self._clock = clock
        self._reader = WindowReader(clock, window_bytes, "groups")

    def stop(self) -> None:
        """Abort the current load."""
        self._reader.stop()

    def load(self, log: Log, topic_partition: TopicPartition) -> GroupCoordinatorShard | None:
        """Return the groups in a log; None when stopped. Raises StorageError or BrokerError."""
        began_ms = self._clock.monotonic_ms()
        loading = GroupMetadataLoader(self._settings)
        for window in self._reader.windows(log, topic_partition):
            columns = window.columns
            loading.add(
                columns.key_array().to_pylist(),
                columns.offsets.tolist(),
                columns.value_array().to_pylist(),
                [part for part in transaction_parts(window.data) if part.first_offset < columns.next_offset],
            )
        if self._reader.is_stopped:
            return None
        shard = loading.finish(self._clock.monotonic_ms(), self._clock.now_ms())
        elapsed_ms = self._clock.monotonic_ms() - began_ms
        _log.info("loaded %d groups from %s in %d ms", len(shard), topic_partition, elapsed_ms)
        return shard

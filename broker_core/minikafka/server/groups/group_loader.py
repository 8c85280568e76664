"""The loader, which reads groups and offsets back from ``__consumer_offsets``, off the core's lock."""

from __future__ import annotations

import logging
import threading

from minikafka.base.clock import Clock
from minikafka.base.errors import OffsetOutOfRange, StorageError
from minikafka.base.ids import TopicPartition
from minikafka.groups.loading import GroupMetadataLoader
from minikafka.groups.shard import GroupCoordinatorShard, GroupSettings
from minikafka.log.log import Log
from minikafka.records.columns import decode
from minikafka.records.scan.isolation import transaction_parts

_log = logging.getLogger(__name__)

_PROGRESS_INTERVAL_MS = 5_000
"""The interval between progress messages of a long load."""


class GroupLoader:
    """Loads one partition at a time, on its caller's thread, until it is stopped."""

    def __init__(self, settings: GroupSettings, clock: Clock, window_bytes: int) -> None:
        self._settings = settings
        self._clock = clock
        self._window_bytes = window_bytes
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Abort the current load."""
        self._stopping.set()

    def load(self, log: Log, topic_partition: TopicPartition) -> GroupCoordinatorShard | None:
        """Return the groups in a log; None when stopped. Raises StorageError or BrokerError."""
        began_ms = logged_ms = self._clock.monotonic_ms()
        loading = GroupMetadataLoader(self._settings)
        start, end = log.start_offset, log.end_offset
        offset = start
        while offset < end:
            if self._stopping.is_set():
                return None
            try:
                read = log.read(offset, self._window_bytes, up_to=end)
            except OffsetOutOfRange:
                if log.start_offset <= offset:
                    raise
                offset = log.start_offset  # retention removed the segment meanwhile
                continue
            if read.slice is None:
                break
            data = read.slice.read()
            columns = decode(data, offset, end)
            loading.add(
                columns.key_array().to_pylist(),
                columns.offsets.tolist(),
                columns.value_array().to_pylist(),
                [part for part in transaction_parts(data) if part.first_offset < columns.next_offset],
            )
            if columns.next_offset <= offset:
                raise StorageError(f"cannot read {topic_partition} beyond offset {offset}")
            offset = columns.next_offset
            now_ms = self._clock.monotonic_ms()
            if now_ms - logged_ms >= _PROGRESS_INTERVAL_MS:
                logged_ms = now_ms
                _log.info("loading groups: %s at offset %d of %d", topic_partition, offset, end)
        shard = loading.finish(self._clock.monotonic_ms(), self._clock.now_ms())
        elapsed_ms = self._clock.monotonic_ms() - began_ms
        _log.info("loaded %d groups from %s in %d ms", len(shard), topic_partition, elapsed_ms)
        return shard

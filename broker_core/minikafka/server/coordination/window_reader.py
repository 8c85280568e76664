"""The reader of a coordinator's log, from its start to its end, off the core's lock."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from minikafka.base.clock import Clock
from minikafka.base.errors import OffsetOutOfRange, StorageError
from minikafka.base.files import Buffer
from minikafka.base.ids import TopicPartition
from minikafka.log.log import Log
from minikafka.records.columns import Columns, decode

_log = logging.getLogger(__name__)

_PROGRESS_INTERVAL_MS = 5_000
"""The interval between progress messages of a long load."""


@dataclass(frozen=True, slots=True)
class Window:
    """Whole batches of a log, and their records as columns."""

    data: Buffer
    columns: Columns


class WindowReader:
    """Reads one partition at a time, on its caller's thread, until it is stopped."""

    def __init__(self, clock: Clock, window_bytes: int, contents: str) -> None:
        """``contents`` is what the log has, for messages."""
        self._clock = clock
        self._window_bytes = window_bytes
        self._contents = contents
        self._stopping = threading.Event()

    @property
    def is_stopped(self) -> bool:
        """True once nothing is read any more."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """End the current ``windows`` early."""
        self._stopping.set()

    def windows(self, log: Log, topic_partition: TopicPartition) -> Iterator[Window]:
        """Yield the windows up to the present end of a log. Raises StorageError or BrokerError."""
        logged_ms = self._clock.monotonic_ms()
        offset, end = log.start_offset, log.end_offset
        while offset < end and not self.is_stopped:
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
            yield Window(data, columns)
            if columns.next_offset <= offset:
                raise StorageError(f"cannot read {topic_partition} beyond offset {offset}")
            offset = columns.next_offset
            now_ms = self._clock.monotonic_ms()
            if now_ms - logged_ms >= _PROGRESS_INTERVAL_MS:
                logged_ms = now_ms
                _log.info("loading %s: %s at offset %d of %d", self._contents, topic_partition, offset, end)

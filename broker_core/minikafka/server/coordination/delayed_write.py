"""Delayed operations of a coordinator: the replication of records that it wrote, and a deadline."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.partition.partition import LogAppendResult, Partition
from minikafka.server.core.broker import Broker

_log = logging.getLogger(__name__)

WriteCallback = Callable[[ErrorCode, int], None]
"""Called in a step with the outcome of a write: the error, and the first record's offset (-1 on error)."""


class DelayedWrite:
    """Waits until every in-sync replica has the appended records (for ``Broker.wait``)."""

    def __init__(
        self, broker: Broker, partition: Partition, appended: LogAppendResult, done: WriteCallback
    ) -> None:
        self._broker = broker
        self._partition = partition
        self._first = appended.append_info.first_offset
        self._last = appended.append_info.last_offset
        self._leader_epoch = appended.leader_epoch
        self._done = done
        self.failure: ErrorCode | None = None

    def satisfied(self, key: Hashable | None = None) -> bool:
        if self.failure is None:
            try:
                return self._partition.is_committed(self._last, self._leader_epoch)
            except BrokerError as error:
                self.failure = error.code
        return True

    def complete(self) -> None:
        self._broker.run(self.finish)

    def abandon(self, reason: str) -> None:
        _log.error(
            "requests that wait for a write to %s get no response: %s",
            self._partition.topic_partition,
            reason,
        )

    def finish(self) -> None:
        """Report the outcome to the callback. Called within a step."""
        safe = self.satisfied()
        if self.failure is not None:
            self._done(self.failure, -1)
        elif safe:
            self._done(ErrorCode.NONE, self._first)
        else:
            self._done(ErrorCode.REQUEST_TIMED_OUT, -1)


class Timer:
    """Calls ``ring``, outside of a step, when its deadline is over (for ``Broker.wait``)."""

    def __init__(self, deadline_ms: int, ring: Callable[[Timer], None]) -> None:
        self.deadline_ms = deadline_ms
        self._on_timer = ring

    def satisfied(self, key: Hashable | None = None) -> bool:
        return False

    def complete(self) -> None:
        self._on_timer(self)

    def abandon(self, reason: str) -> None:
        _log.error("lost a timer of a coordinator: %s", reason)

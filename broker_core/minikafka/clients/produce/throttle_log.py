"""The pauses of a producer by its quota: the reason why batches wait, and the warnings about that.

A broker responds at once, names the pause (``throttle_time_ms``), and reads no more requests of the client
until it is over. So batches wait, and may expire, although no attempt has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from minikafka.base.errors import NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.base.text import counted, first_of
from minikafka.clients.produce.batch import ProducerBatch
from minikafka.clients.produce.retry_log import LISTED_PARTITIONS_MAX, WARN_AFTER_MS, WARN_INTERVAL_MS

GRACE_MS = 2_000
"""The time after a pause in which the next response is expected."""
ADVICE = "send less, or raise producer_byte_rate"


@dataclass(frozen=True, slots=True)
class _Pause:
    throttle_ms: int
    until_ms: int


class ThrottleLog:
    """The brokers whose last response has announced a pause. Times are monotonic ms."""

    def __init__(self) -> None:
        self._pauses: dict[int, _Pause] = {}
        self._next_check_ms = 0
        self._warned = False

    def __bool__(self) -> bool:
        """Return True if a broker pauses the producer. May be called without the producer's lock."""
        return bool(self._pauses)

    def record_response(self, broker_id: int, throttle_ms: int, now_ms: int) -> None:
        """Record the pause that a response announces, 0 for none."""
        self._forget_ended(now_ms)
        if throttle_ms <= 0:
            self._pauses.pop(broker_id, None)
            return
        if not self._pauses:
            self._next_check_ms, self._warned = now_ms + WARN_AFTER_MS, False
        self._pauses[broker_id] = _Pause(throttle_ms, now_ms + throttle_ms + GRACE_MS)

    def error(self, broker_id: int, now_ms: int) -> NetworkError | None:
        """Return the reason why batches for a broker wait; None if it does not pause the producer."""
        pause = self._pauses.get(broker_id)
        if pause is None or pause.until_ms < now_ms:
            return None
        text = f"broker {broker_id} paused this client by its quota (throttle_time_ms={pause.throttle_ms})"
        return NetworkError(text, advice=ADVICE)

    def next_check_ms(self, now_ms: int) -> int | None:
        """Return the ms until ``due_warning`` is to be called; None for never."""
        return max(0, self._next_check_ms - now_ms) if self._pauses else None

    def due_warning(
        self,
        waiting: Iterable[ProducerBatch],
        known_leader: Callable[[TopicPartition], int | None],
        timeout_ms: int | None,
        now_ms: int,
    ) -> str | None:
        """Return the warning that is due now, or None. See ``RetryLog.due_warning``."""
        if not self._pauses or now_ms < self._next_check_ms:
            return None
        self._next_check_ms = now_ms + WARN_AFTER_MS
        self._forget_ended(now_ms)
        batches = [batch for batch in waiting if known_leader(batch.topic_partition) in self._pauses]
        created_ms = min((batch.created_ms for batch in batches), default=now_ms)
        if now_ms - created_ms < WARN_AFTER_MS:
            return None
        error = self.error(max(self._pauses, key=lambda it: self._pauses[it].throttle_ms), now_ms)
        still, self._warned = "still " if self._warned else "", True
        self._next_check_ms = now_ms + WARN_INTERVAL_MS
        left = ""
        if timeout_ms is not None:
            left = f"; waiting, for {max(1, round((created_ms + timeout_ms - now_ms) / 1000))} s more"
        count = counted(sum(batch.count for batch in batches), "record")
        partitions = first_of(
            sorted({batch.topic_partition for batch in batches}), LISTED_PARTITIONS_MAX, "partition"
        )
        lasts_s = round((now_ms - created_ms) / 1000)
        return f"{still}{count} for {partitions} not acknowledged for {lasts_s} s: {error}{left}"

    def _forget_ended(self, now_ms: int) -> None:
        self._pauses = {number: it for number, it in self._pauses.items() if it.until_ms >= now_ms}

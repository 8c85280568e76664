"""What time brings: requests whose wait is over, logs to be flushed, recovery points to be written, segments
and offsets that nobody needs any more.

Three threads: a slow disk must not delay the answers of requests that wait, nor compaction the flushes.
"""

from __future__ import annotations

import logging
import threading

from minikafka.log.cleaning import Cleaning
from minikafka.server.broker import Broker
from minikafka.server.control import ControlPath
from minikafka.server.coordinator import Coordinator

_log = logging.getLogger(__name__)

_FAR_MS = 1 << 62
_RETRY_MS = 1_000
"""Between tries of what failed. Flushes may be scheduled for never, which is the release's default."""
_GO_ON_MS = 10
"""Between the steps of a look at all groups, for others to have the core's lock."""
_FIRST_RETENTION_MS = 30_000
"""The first look for old segments comes that soon, as 0.10.1's."""


class Housekeeper:
    """The periodic work of one broker. ``tick`` does what is due; ``start`` lets threads do it in time."""

    def __init__(
        self, broker: Broker, coordinator: Coordinator, control: ControlPath, cleaning: Cleaning | None
    ) -> None:
        """``cleaning`` compacts logs; None where none are to be."""
        self._broker = broker
        self._coordinator = coordinator
        self._cleaning = cleaning
        self._control = control
        self._clock = broker.clock
        now_ms = self._clock.monotonic_ms()
        self._flush_at_ms = now_ms + broker.config.flush_scheduler_interval_ms
        self._checkpoint_at_ms = now_ms + broker.config.flush_checkpoint_interval_ms
        self._retry_at_ms = now_ms + _RETRY_MS
        self._clean_at_ms = now_ms + broker.config.cleaner.backoff_ms
        self._retention_at_ms = now_ms + min(_FIRST_RETENTION_MS, broker.config.retention_check_interval_ms)
        self._expire_at_ms = now_ms + broker.config.offsets.check_interval_ms
        self._wake = threading.Condition()
        self._wakes_at_ms = 0
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def tick(self) -> None:
        """Do all that is due: the simulation's way."""
        self._broker.expire()
        self._look_after_logs()
        if self._clock.monotonic_ms() >= self._clean_at_ms:
            self._clean_at_ms = self._clock.monotonic_ms() + self._broker.config.cleaner.backoff_ms
            self._clean()

    def start(self) -> None:
        """Work on threads until ``stop``."""
        self._broker.deadline_added = self._wake_by
        self._threads = [
            threading.Thread(target=self._watch_deadlines, name="deadlines", daemon=True),
            threading.Thread(target=self._watch_logs, name="housekeeper", daemon=True),
            threading.Thread(target=self._keep_clean, name="cleaner", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the threads; nothing is flushed by this."""
        self._stopping.set()
        if self._cleaning is not None:
            self._cleaning.stop()
        with self._wake:
            self._wake.notify()
        for thread in self._threads:
            thread.join()

    def _look_after_logs(self) -> int:
        """Flush, write checkpoints and retry what is due; return when to come again (monotonic ms)."""
        broker, now_ms = self._broker, self._clock.monotonic_ms()
        try:
            if now_ms >= self._flush_at_ms:
                self._flush_at_ms = now_ms + broker.config.flush_scheduler_interval_ms
                broker.logs.flush_due(now_ms)
            if now_ms >= self._retry_at_ms:
                self._retry_at_ms = now_ms + _RETRY_MS
                self._control.retry()
                broker.logs.remove_doomed()
            if now_ms >= self._retention_at_ms:
                self._retention_at_ms = now_ms + broker.config.retention_check_interval_ms
                broker.logs.delete_old(broker.readable_up_to)
                broker.logs.forget_producers()
            if now_ms >= self._expire_at_ms:
                self._expire_at_ms = now_ms + broker.config.offsets.check_interval_ms
                if self._coordinator.expire():
                    self._expire_at_ms = now_ms + _GO_ON_MS
            if now_ms >= self._checkpoint_at_ms:
                self._checkpoint_at_ms = now_ms + broker.config.flush_checkpoint_interval_ms
                broker.logs.checkpoint_offsets()
        except Exception:  # noqa: BLE001 - one failure must not end the thread
            _log.exception("housekeeping failed; it is tried again")
        return min(
            self._flush_at_ms,
            self._retry_at_ms,
            self._retention_at_ms,
            self._expire_at_ms,
            self._checkpoint_at_ms,
        )

    def _watch_logs(self) -> None:
        while True:
            left_ms = self._look_after_logs() - self._clock.monotonic_ms()
            if self._stopping.wait(max(0, left_ms) / 1000):
                return

    def _keep_clean(self) -> None:
        while not self._stopping.wait(self._broker.config.cleaner.backoff_ms / 1000):
            self._clean()

    def _clean(self) -> None:
        """Compact logs until none needs it."""
        try:
            while self._cleaning is not None and self._cleaning.run_once(self._clock.now_ms()) is not None:
                pass
        except Exception:  # noqa: BLE001 - one failure must not end the thread
            _log.exception("compaction failed; it is tried again")

    def _wake_by(self, deadline_ms: int) -> None:
        # Most deadlines are later than the next waking, and cost nothing here.
        if deadline_ms < self._wakes_at_ms:
            with self._wake:
                self._wakes_at_ms = min(self._wakes_at_ms, deadline_ms)
                self._wake.notify()

    def _watch_deadlines(self) -> None:
        while True:
            # Deadlines that come meanwhile find a far waking time, and correct it.
            self._wakes_at_ms = _FAR_MS
            next_ms = self._broker.expire()
            with self._wake:
                if next_ms is not None:
                    self._wakes_at_ms = min(self._wakes_at_ms, next_ms)
                while not self._stopping.is_set():
                    left_ms = self._wakes_at_ms - self._clock.monotonic_ms()
                    if left_ms <= 0:
                        break
                    self._wake.wait(min(left_ms, 3_600_000) / 1000)
            if self._stopping.is_set():
                return

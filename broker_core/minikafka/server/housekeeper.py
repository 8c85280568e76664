"""The periodic work of a broker: request time-outs, flushes, checkpoints, lagging followers, retention of
segments and offsets, time-outs of transactions, and compaction.

It runs on three threads, so that a slow disk does not delay request time-outs, and compaction does not delay
flushes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from minikafka.base.clock import NEVER_MS
from minikafka.log.cleanup.cleaner_manager import LogCleanerManager
from minikafka.server.control.controller_event_manager import ControllerEventManager
from minikafka.server.core.broker import Broker
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.server.metrics.definitions import CLEANED_BYTES, CLEANER_RUNS
from minikafka.server.replication.failing_logs import FailingLogs
from minikafka.server.replication.isr_writer import REPORT_CHECK_MS, IsrWriter
from minikafka.server.transactions.transaction_coordinator import TransactionCoordinator

_log = logging.getLogger(__name__)

_RETRY_MS = 1_000
"""The interval of retries. Flushes may be scheduled for never, which is the release's default."""
_GO_ON_MS = 10
"""The pause between the steps of a pass over all groups, in which others get the core's lock."""
_FIRST_RETENTION_MS = 30_000
"""The delay of the first retention check, as in 0.10.1."""
_CERTIFICATES_MS = 10_000
"""The interval of looks at the files of certificates."""
_TOPIC_IDS_AT_ONCE = 50
"""The most topic ids that are written, a flush each, before other tasks."""
_BACKOFF_LOOK_MS = 10_000
"""The interval of looks at the cleaner's backoff, which may change, and be longer than a thread can wait."""
_FORGET_TOPICS_MS = 30_000
"""The interval of looks for topics whose metrics are not needed any more."""
_COUNTERS_MS = 60_000
"""The interval of checks that ZooKeeper's counters, after a restore or an edit, are above the ids in use."""


@dataclass(slots=True, eq=False)
class _Task:
    """A periodic task. Times are monotonic ms."""

    act: Callable[[], int | None]
    """Runs the task. Returns the delay of the next run in ms, None for the usual interval."""
    interval_ms: int
    at_ms: int

    def do(self, now_ms: int) -> None:
        if now_ms >= self.at_ms:
            self.at_ms = now_ms + self.interval_ms
            again_ms = self.act()
            if again_ms is not None:
                self.at_ms = now_ms + again_ms


class Housekeeper:
    """The periodic work of one broker. ``tick`` runs what is due; ``start`` runs it on threads."""

    def __init__(
        self,
        broker: Broker,
        coordinator: GroupCoordinator,
        transactions: TransactionCoordinator,
        control: ControllerEventManager,
        in_sync: IsrWriter,
        cleaning: LogCleanerManager | None,
        failing: FailingLogs,
        renew_certificates: Callable[[], None],
    ) -> None:
        """``cleaning`` compacts logs; None if compaction is off.

        ``renew_certificates`` looks for new certificates of listeners.
        """
        self._broker = broker
        self._coordinator = coordinator
        self._transactions = transactions
        self._cleaning = cleaning
        self._control = control
        self._failing = failing
        self._clock = broker.clock
        config = broker.config
        now_ms = self._clock.monotonic_ms()

        def task(act: Callable[[], int | None], interval_ms: int, first_ms: int | None = None) -> _Task:
            return _Task(act, interval_ms, now_ms + (interval_ms if first_ms is None else first_ms))

        retention_ms = config.retention_check_interval_ms
        self._tasks = (
            task(self._flush, config.flush_scheduler_interval_ms),
            task(self._retry, _RETRY_MS),
            task(self._delete_old, retention_ms, min(_FIRST_RETENTION_MS, retention_ms)),
            task(self._expire_offsets, config.offsets.check_interval_ms),
            task(self._abort_timed_out, config.transaction_state.expiry_interval_ms),
            task(self._expire_ids, config.transaction_state.id_expiry_interval_ms),
            task(failing.find_removed, config.replication.checkpoint_interval_ms),
            task(broker.logs.checkpoint_offsets, config.flush_checkpoint_interval_ms),
            task(self.write_watermarks, config.replication.checkpoint_interval_ms),
            task(in_sync.shrink_isrs, max(1, config.replication.lag_time_max_ms // 2)),
            task(in_sync.report_changes, REPORT_CHECK_MS),
            task(self._look_at_counters, _COUNTERS_MS),
            task(renew_certificates, _CERTIFICATES_MS),
            task(self._forget_topics, _FORGET_TOPICS_MS),
            *(
                [task(control.rebalance, config.control.rebalance_interval_ms)]
                * config.control.rebalance_leaders
            ),
        )
        self._look_at_ms = now_ms
        self._clean_at_ms = now_ms + config.cleaner.backoff_ms
        self._wake = threading.Condition()
        self._wakes_at_ms = 0
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def tick(self) -> None:
        """Run everything that is due. For the simulation."""
        now_ms = self._clock.monotonic_ms()
        deadline_ms = self._broker.purgatory.next_deadline_ms()
        if deadline_ms is not None and now_ms >= deadline_ms:
            self._broker.expire()
        if now_ms >= self._look_at_ms:
            self._look_at_ms = self._look_after_logs()
        if now_ms >= self._clean_at_ms:
            self._clean_at_ms = now_ms + self._broker.dynamic_properties.cleaner.backoff_ms
            self._clean()

    def due_ms(self) -> int:
        """Return the time (monotonic) before which ``tick`` has nothing to do."""
        deadline_ms = self._broker.purgatory.next_deadline_ms()
        first_ms = NEVER_MS if deadline_ms is None else deadline_ms
        return min(first_ms, self._look_at_ms, self._clean_at_ms)

    def start(self) -> None:
        """Start the threads, which run until ``stop``."""
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

    def ended_threads(self) -> list[str]:
        """Return the names of threads that have ended, although they should run."""
        if self._stopping.is_set():
            return []
        return [thread.name for thread in self._threads if not thread.is_alive()]

    def _look_after_logs(self) -> int:
        """Run the tasks that are due; return the time of the next one (monotonic ms)."""
        for task in self._tasks:
            try:
                task.do(self._clock.monotonic_ms())
            except Exception:  # noqa: BLE001 - one failure must not end the thread
                _log.exception("unexpected error in a periodic task, retrying")
        return min(task.at_ms for task in self._tasks)

    def _flush(self) -> None:
        self._broker.logs.flush_dirty_logs(self._clock.monotonic_ms())

    def _retry(self) -> None:
        self._control.retry()
        self._failing.look()
        self._broker.logs.file_deletion.remove_due()
        self._broker.logs.topic_incarnations.save_topic_ids(_TOPIC_IDS_AT_ONCE)

    def _delete_old(self) -> None:
        self._broker.logs.delete_old_segments(self._broker.readable_up_to)
        self._broker.logs.remove_expired_producers()

    def _look_at_counters(self) -> None:
        if self._broker.highest_producer_id() >= 0:
            self._broker.worker.submit(self._broker.raise_producer_ids)

    def _forget_topics(self) -> None:
        self._broker.metrics.forget_topics(self._broker.metadata_cache.topics)

    def _expire_offsets(self) -> int | None:
        return _GO_ON_MS if self._coordinator.expire() else None

    def _abort_timed_out(self) -> int | None:
        return _GO_ON_MS if self._transactions.abort_timed_out() else None

    def _expire_ids(self) -> int | None:
        return _GO_ON_MS if self._transactions.expire_ids() else None

    def write_watermarks(self) -> None:
        """Checkpoint the high watermarks."""
        partitions = dict(self._broker.partitions)
        watermarks = {key: partition.high_watermark for key, partition in partitions.items()}
        self._broker.logs.high_watermarks.write(watermarks)

    def _watch_logs(self) -> None:
        while True:
            left_ms = self._look_after_logs() - self._clock.monotonic_ms()
            if self._stopping.wait(max(0, left_ms) / 1000):
                return

    def _keep_clean(self) -> None:
        while self._backs_off():
            self._clean()

    def _backs_off(self) -> bool:
        """Wait for ``log.cleaner.backoff.ms`` as it is then; return False once the broker stops."""
        begun_ms = self._clock.monotonic_ms()
        while True:
            backoff_ms = self._broker.dynamic_properties.cleaner.backoff_ms
            left_ms = max(0, begun_ms + backoff_ms - self._clock.monotonic_ms())
            if self._stopping.wait(min(left_ms, _BACKOFF_LOOK_MS) / 1000):
                return False
            if left_ms <= _BACKOFF_LOOK_MS:
                return True

    def _clean(self) -> None:
        """Compact logs until none needs it."""
        try:
            while self._cleaning is not None:
                cleaned = self._cleaning.run_once(self._clock.now_ms())
                if cleaned is None:
                    break
                self._broker.metrics.count(CLEANER_RUNS)
                self._broker.metrics.count(CLEANED_BYTES, count=cleaned.bytes_read)
        except Exception:  # noqa: BLE001 - one failure must not end the thread
            _log.exception("unexpected error during compaction, retrying")

    def _wake_by(self, deadline_ms: int) -> None:
        # Most deadlines are later than the next wake-up, and cost nothing here.
        if deadline_ms < self._wakes_at_ms:
            with self._wake:
                self._wakes_at_ms = min(self._wakes_at_ms, deadline_ms)
                self._wake.notify()

    def _watch_deadlines(self) -> None:
        while True:
            # Deadlines that are added meanwhile find a far wake-up time, and correct it.
            self._wakes_at_ms = NEVER_MS
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

"""The moves of replicas between the data directories of a broker (AlterReplicaLogDirs, KIP-113).

The worker begins, drops and ends moves; threads copy the logs meanwhile, a slice at a time, the partitions in
turn. When a copy has almost all, the worker lets it replace the log. After a restart a move goes on once the
controller has sent the partition's leader to this broker. What a move does to the files: ``log.future_logs``.

The rate of all copies together is limited by ``replica.alter.log.dirs.io.max.bytes.per.second``. A copy whose
disk fails stops until it is requested again or the broker is restarted; the log itself serves on.
(``ReplicaAlterLogDirsManager`` of Kafka.)
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial

from minikafka.base.clock import NEVER_MS
from minikafka.base.errors import BrokerError, ErrorCode, StorageError
from minikafka.base.ids import TopicPartition
from minikafka.log.future_logs import FutureLog
from minikafka.log.log import Log
from minikafka.partition.partition import Partition
from minikafka.server.core.broker import Broker

_log = logging.getLogger(__name__)

_AGAIN_MS = 500
"""The pause before a move that cannot go on now is tried again."""


class ReplicaAlterLogDirsManager:
    """The moves of a broker. ``alter`` runs on the worker; ``step`` on any number of threads."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._quota = broker.replication_quotas.alter_log_dirs
        self._changed = threading.Condition()
        self._busy: set[TopicPartition] = set()
        """Partitions that a thread copies, or that the worker is about to switch."""
        self._not_before_ms: dict[TopicPartition, int] = {}
        self._complaints: dict[TopicPartition, str] = {}
        self._stopping = False
        self._threads: list[threading.Thread] = []

    def alter(self, topic_partition: TopicPartition, path: str) -> None:
        """Move the log of a partition to the data directory at an absolute path, or drop its move if it is
        there already. Raises BrokerError: LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR, INVALID_TOPIC; and if there
        is no such replica yet REPLICA_NOT_AVAILABLE or UNKNOWN_TOPIC_OR_PARTITION: its log will be created
        there.
        """
        logs = self._broker.logs
        known = {os.path.abspath(held): held for held in (*logs.paths, *logs.offline_paths)}
        if path not in known:
            raise BrokerError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not in log.dirs of this broker")
        if known[path] in logs.offline_paths:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"data directory {path} is offline")
        home = logs.home_of(topic_partition)
        if home is None or topic_partition not in self._broker.partitions:
            if home is None:
                logs.futures.preferred[topic_partition] = known[path]
            raise self._not_here(topic_partition)
        moves = home.path != known[path]
        if moves and logs.offline_paths:
            # One of them may have a copy that was begun before.
            raise BrokerError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"logs do not move while a data directory is offline: {', '.join(logs.offline_paths)}",
            )
        try:
            logs.futures.begin(topic_partition, known[path])
        except (StorageError, FileNotFoundError) as error:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from None
        if moves:
            _log.info("moving the log of %s from %s to %s", topic_partition, home.path, path)
        self._put_off(topic_partition, 0)

    def _not_here(self, topic_partition: TopicPartition) -> BrokerError:
        if self._broker.metadata_cache.leadership(topic_partition) is None:
            return BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(topic_partition))
        return BrokerError(
            ErrorCode.REPLICA_NOT_AVAILABLE, f"{topic_partition} has no replica on this broker yet"
        )

    # --- the threads ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the threads, which run until ``stop``."""
        config = self._broker.config
        count = config.replication.alter_log_dirs_threads or len(config.log_dirs)
        self._threads = [
            threading.Thread(target=self._run, name=f"alter-log-dirs-{number}", daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Copy nothing from now on."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while True:
            try:
                worked = self.step()
            except Exception:  # noqa: BLE001 - one failure must not end the thread
                _log.exception("unexpected error while a log is copied, retrying")
                worked = False
            with self._changed:
                if self._stopping:
                    return
                if not worked:
                    pause_ms = self.due_ms() - self._broker.clock.monotonic_ms()
                    # Partitions that are not served yet become due without a notification.
                    waiting = bool(self._broker.logs.futures.all())
                    self._changed.wait(min(max(pause_ms, 1), _AGAIN_MS) / 1000 if waiting else None)

    def step(self) -> bool:
        """Copy the next slice of one partition; return False if nothing can be done now."""
        now_ms = self._broker.clock.monotonic_ms()
        with self._changed:
            due = [] if self._stopping or self._quota.pause_ms(now_ms) else self._due(now_ms)
            if not due:
                return False
            # The one that has waited longest.
            topic_partition = min(due, key=lambda key: (self._not_before_ms.get(key, 0), key))
            self._busy.add(topic_partition)
        try:
            with self._trying_again(topic_partition):
                copied = self._broker.logs.futures.copy(topic_partition)
        except (StorageError, BrokerError, FileNotFoundError) as error:
            self._failed(topic_partition, error)
            return True
        self._quota.record(copied, now_ms)
        if self._broker.logs.futures.has_almost_all(topic_partition, copied):
            self._broker.worker.submit(lambda: self._finish(topic_partition))
        else:
            self._put_off(topic_partition, now_ms)
        return True

    def due_ms(self) -> int:
        """Return the time (monotonic) before which ``step`` has nothing to do; for a simulation."""
        now_ms = self._broker.clock.monotonic_ms()
        moving = self._moving()
        if not moving:
            return NEVER_MS
        first_ms = min(self._not_before_ms.get(topic_partition, 0) for topic_partition in moving)
        return max(first_ms, now_ms + self._quota.pause_ms(now_ms))

    def _due(self, now_ms: int) -> list[TopicPartition]:
        return [key for key in self._moving() if self._not_before_ms.get(key, 0) <= now_ms]

    def _moving(self) -> list[TopicPartition]:
        """Return the partitions that a thread may copy."""
        return [key for key, future in self._broker.logs.futures.all().items() if self._may_copy(key, future)]

    def _may_copy(self, topic_partition: TopicPartition, future: FutureLog) -> bool:
        partition = self._broker.partitions.get(topic_partition)
        return (
            topic_partition not in self._busy
            and future.log.failure is None
            and partition is not None
            and partition.log.failure is None
        )

    def _put_off(self, topic_partition: TopicPartition, until_ms: int) -> None:
        with self._changed:
            self._busy.discard(topic_partition)
            self._not_before_ms[topic_partition] = until_ms
            self._changed.notify_all()

    @contextlib.contextmanager
    def _trying_again(self, topic_partition: TopicPartition) -> Iterator[None]:
        """Put a partition off after any error, also one that only the thread or the worker logs."""
        try:
            yield
        except Exception:
            self._put_off(topic_partition, self._broker.clock.monotonic_ms() + _AGAIN_MS)
            raise

    def _failed(self, topic_partition: TopicPartition, error: Exception) -> None:
        future = self._broker.logs.futures.get(topic_partition)
        if future is not None and self._complaints.get(topic_partition) != str(error):
            self._complaints[topic_partition] = str(error)
            _log.error(
                "failed to copy the log of %s to %s, it is served where it is%s: %s",
                topic_partition,
                future.home.path,
                ", retrying" if future.log.failure is None else "; request the move again",
                error,
            )

    # --- the end of a move ----------------------------------------------------------------------------------

    def _finish(self, topic_partition: TopicPartition) -> None:
        """Let the copy replace the log, if it is served. A job."""
        broker, logs = self._broker, self._broker.logs
        partition, future = broker.partitions.get(topic_partition), logs.futures.get(topic_partition)
        if partition is None or future is None or self._stopping:
            self._put_off(topic_partition, broker.clock.monotonic_ms() + _AGAIN_MS)
            return
        try:
            with self._trying_again(topic_partition):
                moved = logs.futures.replace_current(topic_partition, partial(self._switch, partition))
        except (StorageError, BrokerError, FileNotFoundError) as error:
            self._failed(topic_partition, error)
            return
        if not moved:
            self._put_off(topic_partition, broker.clock.monotonic_ms())
            return
        broker.run(lambda: self._note_flush(partition))
        _log.info("moved the log of %s to %s", topic_partition, future.home.path)
        with self._changed:
            self._busy.discard(topic_partition)
            for table in (self._not_before_ms, self._complaints):
                table.pop(topic_partition, None)

    def _note_flush(self, partition: Partition) -> None:
        """Release the producers that waited for a flush of the old log. Called within a step."""
        if partition.complete_flush(partition.log.recovery_point):
            self._broker.touch(partition.topic_partition)

    def _switch(self, partition: Partition, complete: Callable[[], Log | None]) -> bool:
        def step() -> bool:
            log = complete()
            if log is not None:
                partition.replace_log(log)
            return log is not None

        return self._broker.run(step)

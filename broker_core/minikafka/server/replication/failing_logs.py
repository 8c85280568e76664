"""Leaders whose disk fails: they hand leadership over if another replica is in sync.

This broker reports the failure in ZooKeeper (``registry.controller.LogFailures``). The controller elects
another replica and takes this one out of the ISR. From then on this replica follows, but does not fetch until
a small file can be written beside its log: it would be in sync again, and ``acks=all`` would wait for it.
Without another replica in sync nothing changes: reads are served, and writes are rejected until the disk has
room again.

Logs and whole data directories that are removed under the running broker count as failed too. If all
directories are removed, the broker stops.

A 0.10.1 controller does not read these reports. If no other broker leads after half a minute of failures,
this broker does what that release does at once: it stops cleanly, and others take over leadership.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from minikafka.base.files import Files
from minikafka.base.ids import TopicPartition
from minikafka.base.reports import report
from minikafka.log.probe import can_write
from minikafka.partition.replica import LeaderAndIsr
from minikafka.server.core.broker import Broker
from minikafka.server.replication.replica_manager import ReplicaManager

_log = logging.getLogger(__name__)

_AGAIN_MS = 5_000
"""The interval between two reports to the controller."""
_PATIENCE_MS = 30_000
_OVER_MS = 10_000
"""A log without a failure for that long has recovered."""
_SAY_EVERY_MS = 60_000
"""The interval between log lines about one partition: a full disk rejects hundreds of requests a second."""


@dataclass(slots=True)
class _Failing:
    """A log that fails. Times are monotonic ms."""

    since_ms: int
    last_ms: int
    reported_ms: int | None = None

    def is_due(self, now_ms: int) -> bool:
        """Return True if the failure has to be reported to the controller, again or for the first time."""
        return self.reported_ms is None or now_ms - self.reported_ms >= _AGAIN_MS


@dataclass(slots=True)
class _Logged:
    """A message in the broker's log, and how often it was suppressed. Times are monotonic ms."""

    text: str
    logged_ms: int
    last_ms: int
    suppressed: int = 0


class FailingLogs:
    """The logs that this broker leads and cannot write to."""

    def __init__(
        self, broker: Broker, replicas: ReplicaManager, files: Files, fatal: Callable[[str], None]
    ) -> None:
        """``fatal`` is called with the reason when this broker must stop."""
        self._broker = broker
        self._files = files
        self._replicas = replicas
        self._fatal = fatal
        self._failing: dict[TopicPartition, _Failing] = {}
        self._logged: dict[TopicPartition, _Logged] = {}
        self._stopping = False
        """True once all data directories were removed and ``fatal`` was called."""

    def failed(self, topic_partition: TopicPartition, complaint: str = "") -> None:
        """Record that a leader on this broker failed to write to its log. Any thread may call this.

        ``complaint`` is logged, at most once a minute while it is repeated.
        """
        now_ms = self._broker.clock.monotonic_ms()
        if complaint:
            self._log_failure(topic_partition, complaint, now_ms)
        known = self._failing.setdefault(topic_partition, _Failing(now_ms, now_ms))
        known.last_ms = now_ms
        if known.reported_ms is None:
            self._broker.worker.submit(self._report)

    def _log_failure(self, topic_partition: TopicPartition, complaint: str, now_ms: int) -> None:
        logged = self._logged.get(topic_partition)
        if logged is None or logged.text != complaint or now_ms - logged.last_ms >= _OVER_MS:
            self._logged[topic_partition] = _Logged(complaint, now_ms, now_ms)
            report("warning", message=complaint)
            _log.error("%s", complaint)
            return
        logged.last_ms, logged.suppressed = now_ms, logged.suppressed + 1
        if now_ms - logged.logged_ms >= _SAY_EVERY_MS:
            _log.error("%s (repeated %d times)", complaint, logged.suppressed)
            logged.logged_ms, logged.suppressed = now_ms, 0

    def look(self) -> None:
        """Check the failed logs again: report those that still fail, and forget the others.

        For the housekeeper's thread.
        """
        now_ms = self._broker.clock.monotonic_ms()
        for topic_partition, partition in list(self._broker.partitions.items()):
            if partition.log.failure is not None and self._others(topic_partition):
                self.failed(topic_partition)
        for topic_partition, failing in list(self._failing.items()):
            if not self._others(topic_partition) or now_ms - failing.last_ms >= _OVER_MS:
                del self._failing[topic_partition]
            elif now_ms - failing.since_ms >= _PATIENCE_MS and self._broker.zk_client.connected:
                self._fatal(
                    f"failed to write to the log of {topic_partition}, and the controller has not elected "
                    "another replica: stopping this broker; free disk space or fix the disk, then start it "
                    "again"
                )
        for topic_partition in list(self._broker.unwritable):
            log = self._broker.logs.get(topic_partition)
            if log is None or (log.failure is None and can_write(self._files, log.directory)):
                self._broker.unwritable.discard(topic_partition)
        if any(failing.is_due(now_ms) for failing in self._failing.values()):
            self._broker.worker.submit(self._report)

    def find_removed(self) -> None:
        """Check whether logs or all data directories were removed. For the housekeeper's thread."""
        reason = self._broker.logs.find_removed()
        if reason is not None and not self._stopping:
            self._stopping = True
            self._fatal(f"{reason}: stopping this broker, since new records would be lost at its next start")

    def _others(self, topic_partition: TopicPartition) -> bool:
        """Return True if this broker leads a partition and another replica is in sync."""
        own, partition = self._broker.broker_id, self._broker.partitions.get(topic_partition)
        known: LeaderAndIsr | None = self._replicas.pending_leadership(topic_partition)
        if known is None and partition is not None:
            known = partition.leadership
        return known is not None and known.leader == own and any(replica != own for replica in known.isr)

    def _report(self) -> None:
        """Report failing logs to the controller. A job."""
        now_ms = self._broker.clock.monotonic_ms()
        due = {
            key: failing
            for key, failing in list(self._failing.items())
            if self._others(key) and failing.is_due(now_ms)
        }
        if due:
            self._broker.unwritable |= due.keys()
            self._broker.zk_client.states.report_log_failures(self._broker.broker_id, due.keys())
            for topic_partition, failing in due.items():
                if failing.reported_ms is None:
                    _log.warning(
                        "failed to write to the log of %s: asked the controller to elect another replica",
                        topic_partition,
                    )
                failing.reported_ms = now_ms

"""Leaders whose disk fails: where another replica is in sync, it is to lead.

The controller is told in ZooKeeper (``registry.admin_paths.LogFailures``), has another replica lead, and
takes this one out of the ISR. From then on it follows, and asks its leader for nothing before a small file
can be written beside the log: it would be in sync again, and ``acks=all`` wait for it. Without another
replica in sync nothing changes: reads are served, writes are refused until there is room again.

Logs, and whole data directories, that somebody removes under the running broker have failed too. Where all of
them are gone the broker stops.

A controller of 0.10.1 does not look there. Where nobody else leads after half a minute of failures this
broker does as that release does at once: it stops, in good order, and others lead.
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
"""Between two times that the controller is told."""
_PATIENCE_MS = 30_000
_OVER_MS = 10_000
"""A log that took everything for so long is whole again."""
_SAY_EVERY_MS = 60_000
"""A full disk refuses hundreds of requests a second."""


@dataclass(slots=True)
class _Failing:
    """Times are monotonic ms."""

    since_ms: int
    last_ms: int
    told_ms: int | None = None


@dataclass(slots=True)
class _Said:
    """A complaint in the broker's log. Times are monotonic ms."""

    text: str
    said_ms: int
    last_ms: int
    unsaid: int = 0


class FailingLogs:
    """The logs that this broker leads and cannot write to."""

    def __init__(
        self, broker: Broker, replicas: ReplicaManager, files: Files, fatal: Callable[[str], None]
    ) -> None:
        """``fatal`` is called when this broker is to stop, with the reason."""
        self._broker = broker
        self._files = files
        self._replicas = replicas
        self._fatal = fatal
        self._failing: dict[TopicPartition, _Failing] = {}
        self._said: dict[TopicPartition, _Said] = {}
        self._stopping = False
        """Whether all its directories are gone, and that was said."""

    def failed(self, topic_partition: TopicPartition, complaint: str = "") -> None:
        """From anywhere: a log did not take what its leader here wrote. ``complaint`` is logged, once a
        minute where it comes again and again.
        """
        now_ms = self._broker.clock.monotonic_ms()
        if complaint:
            self._say(topic_partition, complaint, now_ms)
        known = self._failing.setdefault(topic_partition, _Failing(now_ms, now_ms))
        known.last_ms = now_ms
        if known.told_ms is None:
            self._broker.worker.submit(self._tell)

    def _say(self, topic_partition: TopicPartition, complaint: str, now_ms: int) -> None:
        said = self._said.get(topic_partition)
        if said is None or said.text != complaint or now_ms - said.last_ms >= _OVER_MS:
            self._said[topic_partition] = _Said(complaint, now_ms, now_ms)
            report("warning", message=complaint)
            _log.error("%s", complaint)
            return
        said.last_ms, said.unsaid = now_ms, said.unsaid + 1
        if now_ms - said.said_ms >= _SAY_EVERY_MS:
            _log.error("%s (%d times more)", complaint, said.unsaid)
            said.said_ms, said.unsaid = now_ms, 0

    def look(self) -> None:
        """Go on with what failed before. For one thread, the housekeeper's."""
        now_ms = self._broker.clock.monotonic_ms()
        for topic_partition, partition in list(self._broker.partitions.items()):
            if partition.log.failure is not None and self._others(topic_partition):
                self.failed(topic_partition)
        for topic_partition, one in list(self._failing.items()):
            if not self._others(topic_partition) or now_ms - one.last_ms >= _OVER_MS:
                del self._failing[topic_partition]
            elif now_ms - one.since_ms >= _PATIENCE_MS and self._broker.registrar.connected:
                self._fatal(
                    f"the log of {topic_partition} cannot be written to, and no controller has another "
                    "replica lead: this broker stops; start it again when its disk has room or is mended"
                )
        for topic_partition in list(self._broker.unwritable):
            log = self._broker.logs.get(topic_partition)
            if log is None or (log.failure is None and can_write(self._files, log.directory)):
                self._broker.unwritable.discard(topic_partition)
        if any(one.told_ms is None or now_ms - one.told_ms >= _AGAIN_MS for one in self._failing.values()):
            self._broker.worker.submit(self._tell)

    def find_removed(self) -> None:
        """Look whether somebody removed logs, or all that this broker has. For the housekeeper's thread."""
        reason = self._broker.logs.find_removed()
        if reason is not None and not self._stopping:
            self._stopping = True
            self._fatal(f"{reason}: this broker stops, what it would take no restart could find")

    def _others(self, topic_partition: TopicPartition) -> bool:
        """Whether this broker is to lead a partition, and another replica could."""
        own, partition = self._broker.broker_id, self._broker.partitions.get(topic_partition)
        known: LeaderAndIsr | None = self._replicas.wanted(topic_partition)
        if known is None and partition is not None:
            known = partition.leadership
        return known is not None and known.leader == own and any(one != own for one in known.isr)

    def _tell(self) -> None:
        """A job."""
        now_ms = self._broker.clock.monotonic_ms()
        due = {
            key: one
            for key, one in list(self._failing.items())
            if self._others(key) and (one.told_ms is None or now_ms - one.told_ms >= _AGAIN_MS)
        }
        if due:
            self._broker.unwritable |= due.keys()
            self._broker.registrar.states.tell_failures(self._broker.broker_id, due.keys())
            for topic_partition, one in due.items():
                if one.told_ms is None:
                    _log.warning("%s cannot be written to: another replica is to lead", topic_partition)
                one.told_ms = now_ms

"""ISR updates by the leaders on this broker, written to the partitions' state znodes.

The writes are jobs of the worker, each conditional on its znode's version. The controller is notified
(``/isr_change_notification``) of expanded ISRs at once, as from 2.7 on (KIP-497): a reassignment and a
deletion may wait for them. Of those that shrank it is notified some time later, of many partitions at once:
it only passes them on to clients.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial

from minikafka.base.errors import CoordinationError, CoordinationLost, InconsistentClusterId, SessionExpired
from minikafka.base.ids import TopicPartition
from minikafka.base.text import counted
from minikafka.partition.partition import Partition
from minikafka.partition.replica import LeaderAndIsr
from minikafka.server.core.broker import Broker
from minikafka.server.metrics.definitions import ISR_EXPANDS, ISR_SHRINKS

_log = logging.getLogger(__name__)

REPORT_CHECK_MS = 2_500
"""The interval between checks for shrunk ISRs to report, as in 0.10.1; so are the next two."""
_REPORT_QUIET_MS = 5_000
"""Changes are reported when no ISR has changed for this time,"""
_REPORT_MAX_INTERVAL_MS = 60_000
"""or this time after the last report."""


_Waiting = dict[TopicPartition, tuple[Partition, LeaderAndIsr]]


class IsrWriter:
    """Writes the ISRs of the partitions that this broker leads."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: _Waiting | None = None
        """The updates of the job that was submitted last; None once that job has started."""
        self._changed: set[TopicPartition] = set()
        self._changed_ms = 0
        self._reported_ms = 0

    def write(self, partition: Partition, wanted: LeaderAndIsr) -> None:
        """Submit the write of ``wanted``, the new state of ``partition``. Called within a step.

        All updates until the job starts are written together: a broker that comes back joins the ISRs of a
        thousand partitions at the same time.
        """
        if self._waiting is None or partition.topic_partition in self._waiting:
            self._waiting = {}
            self._broker.worker.submit(partial(self._write, self._waiting))
        self._waiting[partition.topic_partition] = partition, wanted

    def _write(self, waiting: _Waiting) -> None:
        broker = self._broker

        def close() -> None:
            if self._waiting is waiting:
                self._waiting = None

        broker.run(close)
        states = self._written(waiting)
        expanded = {name for name in states if self._expands(name, waiting[name][0].leadership, states[name])}

        def step() -> None:
            for name, (partition, wanted) in waiting.items():
                if partition.complete_isr_update(wanted, states.get(name)):
                    broker.touch(name)
            self._changed |= waiting.keys() - expanded
            self._changed_ms = broker.clock.monotonic_ms()

        broker.run(step)
        if expanded:
            self._report(expanded)

    def _written(self, waiting: _Waiting) -> dict[TopicPartition, LeaderAndIsr]:
        """Write the updates of partitions on this broker; return the states in ZooKeeper where known."""
        broker = self._broker
        try:
            created = broker.zk_client.creations({name.topic for name in waiting})
            here = {
                key: wanted
                for key, (partition, wanted) in waiting.items()
                if not self._is_deleted(partition, created)
            }
            return broker.zk_client.states.write(here)
        except (CoordinationLost, SessionExpired):
            raise
        except InconsistentClusterId:
            return {}  # logged already
        except CoordinationError as error:
            # The error may concern one partition: the others must not wait for a result for ever.
            _log.error(
                "failed to write the ISR of %s, retrying: %s", counted(len(waiting), "partition"), error
            )
            return {}

    def _expands(self, name: TopicPartition, known: LeaderAndIsr | None, stored: LeaderAndIsr) -> bool:
        """Log and count a change of the ISR, and return True if it expanded."""
        if known is None or stored.isr == known.isr:
            return False
        expands = len(stored.isr) >= len(known.isr)
        how = "expanded" if expands else "shrank"
        self._broker.metrics.count(ISR_EXPANDS if expands else ISR_SHRINKS)
        _log.info("ISR of %s %s from %s to %s", name, how, list(known.isr), list(stored.isr))
        return expands

    def _is_deleted(self, partition: Partition, created: Mapping[str, int]) -> bool:
        """Return True if the partition's topic was deleted: the state may be that of a new topic of the same
        name.
        """
        broker, name = self._broker, partition.topic_partition
        made_by = broker.logs.topic_incarnations.of(name).created
        if broker.partitions.get(name) is not partition:
            return True
        return made_by not in {None, created.get(name.topic)}

    def shrink_isrs(self) -> None:
        """Remove lagging followers from the ISRs. For the housekeeper's thread."""
        broker = self._broker
        most_ms = broker.config.replication.lag_time_max_ms

        def step() -> None:
            now_ms = broker.clock.monotonic_ms()
            for partition in broker.partitions.values():
                wanted = partition.shrink_isr(now_ms, most_ms)
                if wanted is not None:
                    self.write(partition, wanted)

        broker.run(step)

    def report_changes(self) -> None:
        """Report shrunk ISRs to the controller, when that is due."""
        now_ms = self._broker.clock.monotonic_ms()
        quiet = now_ms - self._changed_ms >= _REPORT_QUIET_MS
        if self._changed and (quiet or now_ms - self._reported_ms >= _REPORT_MAX_INTERVAL_MS):
            changed, self._changed = self._changed, set()
            self._reported_ms = now_ms
            self._report(changed)

    def _report(self, changed: set[TopicPartition]) -> None:
        self._broker.worker.submit(lambda: self._broker.zk_client.states.report_isr_changes(changed))

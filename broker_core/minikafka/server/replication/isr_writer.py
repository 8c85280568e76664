"""What leaders write themselves: who is in sync, into the partitions' state znodes.

The writes are jobs of the worker, each under the condition of its znode's version. That they happened is told
to the controller some time later, many partitions at once (``/isr_change_notification``): it only tells
clients.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial

from minikafka.base.errors import CoordinationError, CoordinationLost, InconsistentClusterId, SessionExpired
from minikafka.base.ids import TopicPartition
from minikafka.partition.partition import Partition
from minikafka.partition.replica import LeaderAndIsr
from minikafka.server.core.broker import Broker

_log = logging.getLogger(__name__)

TELL_LOOK_MS = 2_500
"""Between looks whether there is anything to tell, as 0.10.1's; so are the next two."""
_TELL_QUIET_MS = 5_000
"""Told once nothing has changed for so long,"""
_TELL_AT_LAST_MS = 60_000
"""or this long after the last time."""


_Waiting = dict[TopicPartition, tuple[Partition, LeaderAndIsr]]


class IsrWriter:
    """The ISRs of the partitions that this broker leads."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: _Waiting | None = None
        """What the job that was submitted last is to write; None once that has begun."""
        self._changed: set[TopicPartition] = set()
        self._changed_ms = 0
        self._told_ms = 0

    def write(self, partition: Partition, wanted: LeaderAndIsr) -> None:
        """In a step: have ``wanted``, of ``partition``, written, with all that comes until its turn is there:
        a broker that comes back is in sync of a thousand partitions at the same time.
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
        for name in states:
            self._log_change(name, waiting[name][0].leadership, states[name])

        def step() -> None:
            for name, (partition, wanted) in waiting.items():
                if partition.complete_isr_update(wanted, states.get(name)):
                    broker.touch(name)
            self._changed |= waiting.keys()
            self._changed_ms = broker.clock.monotonic_ms()

        broker.run(step)

    def _written(self, waiting: _Waiting) -> dict[TopicPartition, LeaderAndIsr]:
        """What ZooKeeper holds after the writes, of those that are here, and where that is known."""
        broker = self._broker
        try:
            created = broker.registrar.creations({name.topic for name in waiting})
            here = {key: wanted for key, (one, wanted) in waiting.items() if not self._is_gone(one, created)}
            return broker.registrar.states.write(here)
        except (CoordinationLost, SessionExpired):
            raise
        except InconsistentClusterId:
            return {}  # that is logged already
        except CoordinationError as error:
            # Of one, perhaps: the others are not to wait for an answer for ever.
            _log.error("in-sync replicas cannot be written, it is tried again: %s", error)
            return {}

    @staticmethod
    def _log_change(name: TopicPartition, known: LeaderAndIsr | None, stored: LeaderAndIsr) -> None:
        if known is not None and stored.isr != known.isr:
            how = "shrinks" if len(stored.isr) < len(known.isr) else "grows"
            _log.info("the ISR of %s %s from %s to %s", name, how, list(known.isr), list(stored.isr))

    def _is_gone(self, partition: Partition, created: Mapping[str, int]) -> bool:
        """Whether the state may be that of another topic of the name, as this one's znodes were removed."""
        broker, name = self._broker, partition.topic_partition
        made_by = broker.logs.topic_incarnations.of(name)
        if broker.partitions.get(name) is not partition:
            return True
        return made_by not in {None, created.get(name.topic)}

    def drop_laggards(self) -> None:
        """Take followers that lag out of the ISRs. For one thread, the housekeeper's."""
        broker = self._broker
        most_ms = broker.config.replication.lag_time_max_ms

        def step() -> None:
            now_ms = broker.clock.monotonic_ms()
            for partition in broker.partitions.values():
                wanted = partition.shrink_isr(now_ms, most_ms)
                if wanted is not None:
                    self.write(partition, wanted)

        broker.run(step)

    def tell(self) -> None:
        """Tell the controller of what was written, when it is time."""
        now_ms = self._broker.clock.monotonic_ms()
        quiet = now_ms - self._changed_ms >= _TELL_QUIET_MS
        if self._changed and (quiet or now_ms - self._told_ms >= _TELL_AT_LAST_MS):
            changed, self._changed = self._changed, set()
            self._told_ms = now_ms
            self._broker.worker.submit(lambda: self._broker.registrar.states.tell_changes(changed))

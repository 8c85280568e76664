"""The leader and ISR of each partition in ZooKeeper: ``/brokers/topics/T/partitions/P/state``.

The controller writes leaders, and leaders write the ISR. Each write is conditional on the znode's version, so
that of two concurrent writers one reads what the other wrote. ISR changes are reported to the controller
under ``/isr_change_notification``.

For the jobs of the worker: every method can be run twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from minikafka.base.ids import TopicPartition
from minikafka.partition.replica import LeaderAndIsr
from minikafka.registry import paths
from minikafka.registry.controller import ISR_CHANGE, LOG_FAILURE, IsrChange, LogFailures
from minikafka.registry.store import Stat, Store, parent_of
from minikafka.registry.topics import PARTITION_STATE, PartitionState
from minikafka.registry.znodes import Kind, Znodes, children, remove

Notification = TypeVar("Notification")

_NAMED_AT_ONCE = 2_000
"""The number of partitions, with the longest names, that fit into one znode."""


class PartitionStates:
    """Reads and writes the state znodes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._znodes = Znodes(store)

    def read(self, replicas: Mapping[TopicPartition, tuple[int, ...]]) -> dict[TopicPartition, LeaderAndIsr]:
        """Return the states of the partitions that have one, many read at once."""
        return self.read_with_bounced_brokers(replicas, {})[0]

    def read_with_bounced_brokers(
        self, replicas: Mapping[TopicPartition, tuple[int, ...]], registered: Mapping[int, int]
    ) -> tuple[dict[TopicPartition, LeaderAndIsr], dict[TopicPartition, tuple[int, ...]]]:
        """Return ``read``, and the in-sync replicas on brokers that registered after the state was written.

        Those brokers restarted since, and no controller has noticed it. ``registered``: broker id -> the zxid
        of its registration.
        """
        states = self._znodes.read_all((_path(key) for key in replicas), PARTITION_STATE)
        leaderships, bounced = {}, {}
        for topic_partition, own in replicas.items():
            if _path(topic_partition) in states:
                state, stat = states[_path(topic_partition)]
                leaderships[topic_partition] = _leadership(own, state, stat)
                away = tuple(
                    replica for replica in state.isr if registered.get(replica, 0) > stat.modified_at
                )
                if away and len(own) > 1:  # a single replica cannot differ from another
                    bounced[topic_partition] = away
        return leaderships, bounced

    def create(
        self, leaderships: Mapping[TopicPartition, LeaderAndIsr]
    ) -> dict[TopicPartition, LeaderAndIsr]:
        """Create the states of new partitions; return the stored states, without those of deleted topics.

        A state that another process created first is kept and returned.
        """
        topics = dict.fromkeys(topic_partition.topic for topic_partition in leaderships)
        found = self._store.read_all(paths.topic_path(topic) for topic in topics)
        here = {topic for topic in topics if paths.topic_path(topic) in found}
        wanted = {key: value for key, value in leaderships.items() if key.topic in here}
        states = {_path(key): _state_of(value).to_json() for key, value in wanted.items()}
        above = {paths.partitions_path(topic): b"" for topic in sorted(here)}
        above |= {parent_of(path): b"" for path in states}
        self._store.create_all(above)
        refused = self._store.create_all(states)
        return self._written(wanted, refused)

    def write(self, leaderships: Mapping[TopicPartition, LeaderAndIsr]) -> dict[TopicPartition, LeaderAndIsr]:
        """Replace states, many at once; return the stored states, which another process may have written.

        States that were deleted or are invalid are left out.
        """
        nodes = {
            _path(key): (_state_of(value).to_json(), value.version - 1) for key, value in leaderships.items()
        }
        return self._written(leaderships, self._store.write_all(nodes))

    def report_isr_changes(self, partitions: Iterable[TopicPartition]) -> None:
        """Notify the controller that the ISRs of partitions have changed."""
        path, left = f"{paths.ISR_CHANGES}/{paths.ISR_CHANGE_PREFIX}", sorted(partitions)
        while left:
            named, left = left[:_NAMED_AT_ONCE], left[_NAMED_AT_ONCE:]
            self._store.create(path, IsrChange(frozenset(named)).to_json(), sequential=True)

    def take_isr_changes(self, seen: Callable[[frozenset[TopicPartition]], None]) -> None:
        """Call ``seen`` with the partitions of all ISR change notifications, then remove those."""

        def look(changes: list[IsrChange]) -> None:
            seen(frozenset(partition for change in changes for partition in change.partitions))

        self._take(paths.ISR_CHANGES, ISR_CHANGE, look)

    def report_log_failures(self, broker_id: int, partitions: Collection[TopicPartition]) -> None:
        """Notify the controller that a broker cannot write to the logs of partitions."""
        path, left = f"{paths.LOG_FAILURES}/{paths.LOG_FAILURE_PREFIX}", sorted(partitions)
        while left:
            named, left = left[:_NAMED_AT_ONCE], left[_NAMED_AT_ONCE:]
            data = LogFailures(broker_id, frozenset(named)).to_json()
            self._store.create(path, data, sequential=True, make_parents=True)

    def take_log_failures(self, seen: Callable[[list[LogFailures]], None]) -> None:
        """Call ``seen`` with all notifications of log failures, then remove those."""
        self._take(paths.LOG_FAILURES, LOG_FAILURE, seen)

    def _written(
        self, leaderships: Mapping[TopicPartition, LeaderAndIsr], refused: Collection[str]
    ) -> dict[TopicPartition, LeaderAndIsr]:
        """Return ``leaderships``, with those that another process has written at the ``refused`` paths."""
        others = {key: value.replicas for key, value in leaderships.items() if _path(key) in refused}
        held = {key: value for key, value in leaderships.items() if key not in others}
        return held | self.read(others)

    def _take(self, above: str, kind: Kind[Notification], seen: Callable[[list[Notification]], None]) -> None:
        there = [f"{above}/{name}" for name in children(self._store, above)]
        found = self._znodes.read_all(there, kind)
        if found:
            seen([notification for notification, _ in found.values()])
        for path in there:
            remove(self._store, path)
            self._znodes.forget(path)


def _path(topic_partition: TopicPartition) -> str:
    return paths.partition_state_path(topic_partition.topic, topic_partition.partition)


def _leadership(replicas: tuple[int, ...], state: PartitionState, stat: Stat) -> LeaderAndIsr:
    return LeaderAndIsr(
        state.leader, state.leader_epoch, state.isr, replicas, state.controller_epoch, stat.version
    )


def _state_of(leadership: LeaderAndIsr) -> PartitionState:
    return PartitionState(
        leadership.leader, leadership.leader_epoch, leadership.isr, leadership.controller_epoch
    )

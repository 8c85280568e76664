"""Logs in the data directories of partitions that ZooKeeper does not assign to this broker.

They are kept, logged and not served. They may be the only copy of their messages: the topics' znodes may have
been removed by hand, the replicas moved away while this broker was stopped, or moved to this broker after the
copy was made from which ZooKeeper was restored.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence

from minikafka.base.errors import CoordinationError
from minikafka.base.ids import TopicPartition
from minikafka.base.text import first_of
from minikafka.controller.election import LEADER_DURING_DELETE
from minikafka.partition.replica import LeaderAndIsr
from minikafka.server.core.broker import Broker

_log = logging.getLogger(__name__)

NAMED_MOST = 20
"""The number of logs that one warning names."""
_ASSIGN_AGAIN = (
    "assign the partitions to this broker again (`minikafka reassign execute`) before others write to them"
)


class UnassignedLogs:
    """The logs of partitions that are not assigned to this broker. For the jobs of the worker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._reported = False
        self._partitions: set[TopicPartition] = set()
        """Partitions whose logs are ahead of ZooKeeper, which was restored from an older copy."""

    def take(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Remove and return those of ``partitions``, assigned to this broker, that are ahead of ZooKeeper."""
        taken = self._partitions.intersection(partitions)
        self._partitions -= taken
        return taken

    def find_taken(self, leaderships: Mapping[TopicPartition, LeaderAndIsr]) -> list[TopicPartition]:
        """Return the partitions of this broker that an older state gives to other replicas.

        The state is older if ZooKeeper was restored from an older copy; the state after a reassignment is
        newer.
        """
        return [key for key, state, known in self._moved(leaderships) if is_older(state, known)]

    def find_led(self, leaderships: Mapping[TopicPartition, LeaderAndIsr]) -> list[TopicPartition]:
        """Return the partitions that this broker leads and a newer state gives to other replicas.

        They were reassigned, or ZooKeeper was restored from an older copy and this broker noticed it after
        others had led for a while.
        """
        own = self._broker.broker_id
        return [
            key
            for key, state, known in self._moved(leaderships)
            if known.leader == own and state.leader_epoch > known.leader_epoch
        ]

    def _moved(
        self, leaderships: Mapping[TopicPartition, LeaderAndIsr]
    ) -> Iterator[tuple[TopicPartition, LeaderAndIsr, LeaderAndIsr]]:
        """Yield the partitions of this broker that the new state gives to others, with both states."""
        partitions, own = self._broker.partitions, self._broker.broker_id
        for key in sorted(leaderships.keys() & partitions.keys()):
            state, known = leaderships[key], partitions[key].leadership
            if known is not None and own not in state.replicas and state.leader != LEADER_DURING_DELETE:
                yield key, state, known

    def log_taken(self, partitions: Sequence[TopicPartition]) -> None:
        """Log the partitions of ``find_taken``, once they are not served any more."""
        if not partitions:
            return
        self._partitions.update(partitions)
        _log.warning(
            "ZooKeeper was restored from an older copy, which assigns partitions of this broker to their "
            "earlier replicas; this broker keeps their logs, but does not serve them; %s: %s",
            _ASSIGN_AGAIN,
            first_of([self._whereabouts(topic_partition) for topic_partition in partitions], NAMED_MOST),
        )

    def log_found(self, asked_for: Collection[TopicPartition]) -> None:
        """Log the unassigned logs, once, when this broker knows the cluster. ``asked_for`` is assigned."""
        if self._reported:
            return
        broker, left, elsewhere = self._broker, [], False
        logs = {
            key: log
            for key, log in broker.logs.logs().items()
            if key not in asked_for and key not in self._partitions
        }
        try:
            topics = broker.zk_client.creations(dict.fromkeys(topic for topic, _ in logs))
        except CoordinationError:
            return  # retried with the next metadata update, which must not fail for this
        self._reported = True
        for topic_partition, log in sorted(logs.items(), key=lambda item: item[0]):
            known = broker.metadata_cache.leadership(topic_partition)
            if topic_partition.topic not in topics:
                left.append(f"{log.directory} (there is no topic {topic_partition.topic})")
            elif known is not None and broker.broker_id not in known.replicas:
                elsewhere = True
                # A reassignment raises the epoch: then this log would be behind.
                if max(log.epochs.latest, log.epochs.latest_at_open) >= known.leader_epoch:
                    self._partitions.add(topic_partition)
                left.append(self._whereabouts(topic_partition))
        if left:
            _log.warning(
                "found logs of partitions without a replica on this broker; they are kept and not served, "
                "and may be the only copy of their messages: remove only what is not needed%s: %s",
                f"; if ZooKeeper was restored from an older copy, {_ASSIGN_AGAIN}" if elsewhere else "",
                first_of(left, NAMED_MOST),
            )

    def _whereabouts(self, topic_partition: TopicPartition) -> str:
        log, known = (
            self._broker.logs.get(topic_partition),
            self._broker.metadata_cache.leadership(topic_partition),
        )
        path = topic_partition if log is None else log.directory
        return f"{path} (its replicas are on brokers {[] if known is None else list(known.replicas)})"


def is_older(state: LeaderAndIsr, known: LeaderAndIsr) -> bool:
    """Return True if ``state`` was written before ``known``: an older epoch, or another leader in it."""
    if state.leader_epoch == known.leader_epoch:
        return state.leader != known.leader
    return state.leader_epoch < known.leader_epoch

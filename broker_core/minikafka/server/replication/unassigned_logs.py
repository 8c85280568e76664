"""Logs that lie here and are no replicas of this broker by ZooKeeper: they stay, are told, and not served.

They may be all that there is of something: of topics whose znodes were removed by hand, of replicas that were
moved away while this broker was, or that were moved here since the copy that ZooKeeper was restored from.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence

from minikafka.base.errors import CoordinationError
from minikafka.base.ids import TopicPartition
from minikafka.controller.election import LEADER_DURING_DELETE
from minikafka.partition.replica import LeaderAndIsr
from minikafka.server.core.broker import Broker

_log = logging.getLogger(__name__)

_NAMED_MOST = 20
"""Of many logs that a warning is about, so many are named."""
_ASSIGN_AGAIN = (
    "assign the partitions to this broker again (`minikafka reassign execute`) before others write to them"
)


class UnassignedLogs:
    """See the module. For the worker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._told = False
        self._partitions: set[TopicPartition] = set()
        """Those whose logs have what ZooKeeper does not know of: it went back."""

    def take(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Those of these that are ahead of ZooKeeper; they are assigned to this broker now."""
        taken = self._partitions.intersection(partitions)
        self._partitions -= taken
        return taken

    def find_taken(self, leaderships: Mapping[TopicPartition, LeaderAndIsr]) -> list[TopicPartition]:
        """Partitions that are served here and have other replicas, by states that are older than those here:
        ZooKeeper went back. When a replica is moved away, a newer state tells it.
        """
        return [key for key, told, known in self._moved(leaderships) if _is_older(told, known)]

    def find_led(self, leaderships: Mapping[TopicPartition, LeaderAndIsr]) -> list[TopicPartition]:
        """Those that this broker leads, and others by newer states: it was moved away, or was not heard of
        after ZooKeeper went back until others had led for a while.
        """
        own = self._broker.broker_id
        return [
            key
            for key, told, known in self._moved(leaderships)
            if known.leader == own and told.leader_epoch > known.leader_epoch
        ]

    def _moved(
        self, leaderships: Mapping[TopicPartition, LeaderAndIsr]
    ) -> Iterator[tuple[TopicPartition, LeaderAndIsr, LeaderAndIsr]]:
        """Those that are served here and have other replicas, with what is told and what is known."""
        partitions, own = self._broker.partitions, self._broker.broker_id
        for key in sorted(leaderships.keys() & partitions.keys()):
            told, known = leaderships[key], partitions[key].leadership
            if known is not None and own not in told.replicas and told.leader != LEADER_DURING_DELETE:
                yield key, told, known

    def tell_taken(self, partitions: Sequence[TopicPartition]) -> None:
        """Of those that ``find_taken`` gave, once they are served no more."""
        if not partitions:
            return
        self._partitions.update(partitions)
        _log.warning(
            "partitions that were moved to this broker have the replicas of before, as ZooKeeper was "
            "restored from an older copy; their logs stay and are not served; %s: %s",
            _ASSIGN_AGAIN,
            named([self._whereabouts(topic_partition) for topic_partition in partitions]),
        )

    def tell_found(self, asked_for: Collection[TopicPartition]) -> None:
        """Once, when this broker knows the cluster: which logs lie here, beside those that are asked for."""
        if self._told:
            return
        broker, left, elsewhere = self._broker, [], False
        logs = {
            key: log
            for key, log in broker.logs.logs().items()
            if key not in asked_for and key not in self._partitions
        }
        try:
            topics = broker.registrar.creations(dict.fromkeys(topic for topic, _ in logs))
        except CoordinationError:
            return  # told with the next metadata, which must not fail for this
        self._told = True
        for topic_partition, log in sorted(logs.items(), key=lambda item: item[0]):
            known = broker.image.leadership(topic_partition)
            if topic_partition.topic not in topics:
                left.append(f"{log.directory} (there is no topic {topic_partition.topic})")
            elif known is not None and broker.broker_id not in known.replicas:
                elsewhere = True
                # Whoever moves a replica away raises the epoch: this log would be behind.
                if max(log.epochs.latest, log.epochs.begun) >= known.leader_epoch:
                    self._partitions.add(topic_partition)
                left.append(self._whereabouts(topic_partition))
        if left:
            _log.warning(
                "logs that are no replicas of this broker stay and are not served; they may be all that "
                "there is of their messages: remove only what nobody needs%s: %s",
                f"; where ZooKeeper was restored from an older copy, {_ASSIGN_AGAIN}" if elsewhere else "",
                named(left),
            )

    def _whereabouts(self, topic_partition: TopicPartition) -> str:
        log, known = self._broker.logs.get(topic_partition), self._broker.image.leadership(topic_partition)
        path = topic_partition if log is None else log.directory
        return f"{path} (its replicas are on brokers {[] if known is None else list(known.replicas)})"


def _is_older(told: LeaderAndIsr, known: LeaderAndIsr) -> bool:
    if told.leader_epoch == known.leader_epoch:
        return told.leader != known.leader
    return told.leader_epoch < known.leader_epoch


def named(found: Sequence[str]) -> str:
    """The first of many, and how many more there are."""
    more = len(found) - _NAMED_MOST
    return ", ".join(found[:_NAMED_MOST]) + (f", and {more} more" if more > 0 else "")

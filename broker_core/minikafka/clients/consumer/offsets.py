"""How far a group has read, in ZooKeeper (``offsets.storage=zookeeper``), at its coordinator (``kafka``) or
both.

    /consumers/G/offsets/T/P     the offset of the next message, a bare number

While ``dual.commit.enabled`` is on, both are written and the larger one is taken, whichever storage is named:
a group may then go over from the one to the other, and back, consumer by consumer. Kafka 0.10.1 does so only
with ``kafka``: of a group that goes back it would not write the coordinator's offsets any more, which
consumers that have not gone back yet still look at, and it would not look at them, but at what stands in
ZooKeeper.

The place that ``offsets.storage`` names is written first, and the other one only after it: a consumer that is
killed between the two, or that does not reach one of them, leaves no offset behind that the next one, which
may know the named place alone, would go back from.

How znodes are written, so that no offset goes back by a late write: ``registry.consumers.ZookeeperOffsets``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from minikafka.base.errors import CoordinationError, CoordinationLost, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.offsets_channel import OffsetsChannel
from minikafka.clients.consumer.runtime import Steps, Wait
from minikafka.registry.consumers import StillOwned, ZookeeperOffsets

logger = logging.getLogger("minikafka.clients.consumer")

Offsets = Mapping[TopicPartition, int]


def merge(zookeeper: Offsets, kafka: Offsets) -> dict[TopicPartition, int]:
    """The larger offset of each partition; of one that only one of them has, that one."""
    return {
        tp: max(zookeeper.get(tp, -1), kafka.get(tp, -1)) for tp in sorted({*zookeeper.keys(), *kafka.keys()})
    }


class ConsumerOffsets:
    """The offsets of one consumer's group, wherever they are kept. Not thread-safe."""

    def __init__(
        self,
        zookeeper: ZookeeperOffsets,
        channel: OffsetsChannel | None,
        *,
        in_zookeeper: bool,
        zookeeper_first: bool,
        still_owned: StillOwned,
        max_retries: int,
        backoff_ms: int,
    ) -> None:
        """``channel`` is None where no offsets are kept at the coordinator. ``zookeeper_first``: ZooKeeper is
        the place that is named, where both are written.
        """
        self.zookeeper = zookeeper
        self._channel = channel
        self._in_zookeeper = in_zookeeper
        self._zookeeper_first = zookeeper_first
        self._still_owned = still_owned
        self._max_retries = max_retries
        self._backoff_ms = backoff_ms

    def commit(
        self, offsets: Offsets, *, retried: bool, check: Callable[[], None] | None
    ) -> Steps[frozenset[TopicPartition]]:
        """Commit; with ``retried`` at most ``offsets.commit.max.retries`` times more after a failure. Returns
        the partitions that ZooKeeper says are owned no more, whose offsets are not committed there.

        ``check`` is called before each attempt, and once the coordinator is found: it raises where the
        partitions may be others' by now. None is for administrators: the offsets are written whoever owns the
        partitions. Looking for the coordinator is no attempt. Raises what the last attempt raised.
        """
        wanted = {tp: offset for tp, offset in offsets.items() if offset >= 0}
        retries = self._max_retries if retried else 0
        while wanted:
            try:
                return self._try(wanted, check)
            except MinikafkaError as failed:
                if retries <= 0 or not _may_pass(failed):
                    raise
                logger.info("offsets are not committed yet: %s", failed)
            retries -= 1
            yield Wait(self._backoff_ms)
        return frozenset()

    def _try(self, offsets: Offsets, check: Callable[[], None] | None) -> frozenset[TopicPartition]:
        still_owned = _every if check is None else self._still_owned
        check = check or (lambda: None)
        lost: frozenset[TopicPartition] = frozenset()
        check()
        if self._zookeeper_first and self._in_zookeeper:
            lost = self.zookeeper.commit(offsets, still_owned)
        if self._channel is not None:
            self._channel.connect()
            check()  # again, as that may have taken its time
            self._channel.commit({tp: offset for tp, offset in offsets.items() if tp not in lost})
        if not self._zookeeper_first and self._in_zookeeper:
            lost = self.zookeeper.commit(offsets, still_owned)
        return lost

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where to go on, without partitions that nothing is committed of.

        CoordinationError, NetworkError or BrokerError where that cannot be said now.
        """
        wanted = list(partitions)
        kafka = self._channel.fetch(wanted) if self._channel is not None and wanted else {}
        zookeeper = self.zookeeper.fetch(wanted) if self._in_zookeeper else {}
        return merge(zookeeper, kafka)


def _every(partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
    return partitions


def _may_pass(error: MinikafkaError) -> bool:
    """Whether another attempt is worth while: not where the session is gone."""
    return isinstance(error, CoordinationLost) or not isinstance(error, CoordinationError)

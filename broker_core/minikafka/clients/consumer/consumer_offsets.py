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

A znode is written under the condition of the version that was read, or written, last. So what a consumer that
has lost its partition writes late fails, and no offset goes back by it. The owner itself looks again and
writes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from minikafka.base.errors import CoordinationError, CoordinationLost, MinikafkaError, NodeExists
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.offsets_channel import OffsetsChannel
from minikafka.clients.consumer.steps import Steps, Wait
from minikafka.registry import paths
from minikafka.registry.node import number_in
from minikafka.registry.store import Store

logger = logging.getLogger("minikafka.clients.consumer")

Offsets = Mapping[TopicPartition, int]


def merge(zookeeper: Offsets, kafka: Offsets) -> dict[TopicPartition, int]:
    """The larger offset of each partition; of one that only one of them has, that one."""
    return {
        tp: max(zookeeper.get(tp, -1), kafka.get(tp, -1)) for tp in sorted({*zookeeper.keys(), *kafka.keys()})
    }


class ZookeeperOffsets:
    """Those of one group in ZooKeeper. Not thread-safe."""

    def __init__(self, store: Store, group: str) -> None:
        self._store = store
        self._group = group
        self.checkpointed: dict[TopicPartition, int] = {}
        """What is known to stand there: it is not written again."""
        self._versions: dict[TopicPartition, int] = {}
        """Of the znodes, as far as they are known."""

    def forget(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Nothing is known any more of these (None: of any)."""
        for tp in list(self.checkpointed if partitions is None else partitions):
            self.checkpointed.pop(tp, None)
            self._versions.pop(tp, None)

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """What stands there. CoordinationError, also for what is no number, with the path."""
        wanted = {paths.consumer_offset_path(self._group, *tp): tp for tp in partitions}
        self.forget(wanted.values())
        found = {}
        for path, (data, stat) in self._store.read_all(wanted).items():
            offset = number_in(data.strip())
            if offset is None:
                raise CoordinationError(f"{path}: an offset is wanted, this is {data[:200]!r}")
            tp = wanted[path]
            found[tp] = self.checkpointed[tp] = offset
            self._versions[tp] = stat.version
        return found

    def commit(self, offsets: Offsets, still_owns: Callable[[TopicPartition], bool]) -> None:
        """Write those that do not stand there.

        ``still_owns`` asks ZooKeeper; a partition that others have written, and that is not owned any more,
        is left to them.
        """
        changed = {tp: offset for tp, offset in offsets.items() if self.checkpointed.get(tp) != offset}
        known = {tp: offset for tp, offset in changed.items() if tp in self._versions}
        writes = {
            paths.consumer_offset_path(self._group, *tp): (b"%d" % offset, self._versions[tp])
            for tp, offset in known.items()
        }
        try:
            refused = self._store.write_all(writes) if writes else frozenset()
            for path, (tp, offset) in zip(writes, known.items(), strict=True):
                if path not in refused:
                    self._stands(tp, offset, self._versions[tp] + 1)
            for tp, offset in changed.items():
                if self.checkpointed.get(tp) != offset:
                    self._commit_looking(tp, offset, still_owns)
        except CoordinationError:
            # Which of them was written is not known.
            self.forget(changed)
            raise

    def _commit_looking(
        self, tp: TopicPartition, offset: int, still_owns: Callable[[TopicPartition], bool]
    ) -> None:
        path, data = paths.consumer_offset_path(self._group, *tp), b"%d" % offset
        for _ in range(3):
            if not still_owns(tp):
                logger.warning("%s is not owned any more: its offset %d is not committed", tp, offset)
                return self.forget([tp])
            stat = self._store.exists(path)
            if stat is None:
                try:
                    self._store.create(path, data, make_parents=True)
                    return self._stands(tp, offset, 0)
                except NodeExists:
                    continue
            if path not in self._store.write_all({path: (data, stat.version)}):
                return self._stands(tp, offset, stat.version + 1)
        raise CoordinationError(f"{path} is written by others again and again")

    def _stands(self, tp: TopicPartition, offset: int, version: int) -> None:
        self.checkpointed[tp], self._versions[tp] = offset, version


class ConsumerOffsets:
    """The offsets of one consumer's group, wherever they are kept. Not thread-safe."""

    def __init__(
        self,
        zookeeper: ZookeeperOffsets,
        channel: OffsetsChannel | None,
        *,
        in_zookeeper: bool,
        zookeeper_first: bool,
        still_owns: Callable[[TopicPartition], bool],
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
        self._still_owns = still_owns
        self._max_retries = max_retries
        self._backoff_ms = backoff_ms

    def commit(
        self, offsets: Offsets, *, retried: bool, check: Callable[[], None] | None = None
    ) -> Steps[None]:
        """Commit; with ``retried`` at most ``offsets.commit.max.retries`` times more after a failure.

        ``check`` is called before each attempt, and once the coordinator is found: it raises where the
        partitions may be others' by now. Without it they are written whoever has them. Looking for the
        coordinator is no attempt. Raises what the last attempt raised.
        """
        wanted = {tp: offset for tp, offset in offsets.items() if offset >= 0}
        still_owns = (lambda _: True) if check is None else self._still_owns
        retries = self._max_retries if retried else 0
        while wanted:
            failed = self._try(wanted, check, still_owns)
            if failed is None:
                return
            if retries <= 0 or not _may_pass(failed):
                raise failed
            logger.info("offsets are not committed yet: %s", failed)
            retries -= 1
            yield Wait(self._backoff_ms)

    def _try(
        self,
        offsets: Offsets,
        check: Callable[[], None] | None,
        still_owns: Callable[[TopicPartition], bool],
    ) -> MinikafkaError | None:
        check = check or (lambda: None)
        try:
            check()
            if self._zookeeper_first:
                self._commit_to_zookeeper(offsets, still_owns)
            if self._channel is not None:
                self._channel.connect()
                check()  # again, as that may have taken its time
                self._channel.commit(offsets)
            if not self._zookeeper_first:
                self._commit_to_zookeeper(offsets, still_owns)
        except MinikafkaError as error:
            return error
        return None

    def _commit_to_zookeeper(self, offsets: Offsets, still_owns: Callable[[TopicPartition], bool]) -> None:
        if self._in_zookeeper:
            self.zookeeper.commit(offsets, still_owns)

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where to go on, without partitions that nothing is committed of.

        CoordinationError, NetworkError or BrokerError where that cannot be said now.
        """
        wanted = list(partitions)
        kafka = self._channel.fetch(wanted) if self._channel is not None and wanted else {}
        zookeeper = self.zookeeper.fetch(wanted) if self._in_zookeeper else {}
        return merge(zookeeper, kafka)


def _may_pass(error: MinikafkaError) -> bool:
    """Whether another attempt is worth while: not where the session is gone."""
    return isinstance(error, CoordinationLost) or not isinstance(error, CoordinationError)

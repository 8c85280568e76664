"""The positions of a member in its partitions: from a seek, a committed offset, or an end of the log.

The position of a partition is the offset after the last returned record. Records that are fetched but not
yet returned are between it and the fetch position. The records of the last poll are in progress until the
caller polls again; if its work on them raises, the positions before them can be restored.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from minikafka.base.clock import NEVER_MS
from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, NoCommittedOffset
from minikafka.base.ids import TopicPartition
from minikafka.base.text import first_of
from minikafka.clients.fetch.fetch_state import CompletedFetch
from minikafka.clients.fetch.list_offsets import EARLIEST, LATEST, list_offsets
from minikafka.clients.group.config import GroupConsumerConfig, Reset
from minikafka.clients.group.coordinator_client import CoordinatorClient
from minikafka.clients.group.offsets import Committed, committed_offsets
from minikafka.clients.group.subscription import check_describable
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.response_errors import is_retriable
from minikafka.clients.network.retry import Deadline

logger = logging.getLogger("minikafka.clients.group")

_RETRY_MS = 1_000
"""The pause before missing positions are looked up again."""


class SubscriptionState:
    """The partitions of one member and their positions. Not thread-safe."""

    def __init__(
        self, cluster: ClusterClient, config: GroupConsumerConfig, coordinator: CoordinatorClient
    ) -> None:
        self.assigned: tuple[TopicPartition, ...] = ()
        self.positions: dict[TopicPartition, int] = {}
        self.paused: frozenset[TopicPartition] = frozenset()
        self._cluster = cluster
        self._config = config
        self._coordinator = coordinator
        self._fetch_positions: dict[TopicPartition, int] = {}
        """The next offset to fetch, if that is not the position."""
        self._undo_positions: dict[TopicPartition, int] = {}
        """The positions before the last returned records."""
        self._resets: dict[TopicPartition, Reset] = {}
        self._unverified: set[TopicPartition] = set()
        """Manually assigned partitions whose existence was not checked yet."""
        self._update_at_ms = 0
        """The time of the next look-up of missing positions; NEVER_MS if none is missing."""
        self._wanted: Mapping[TopicPartition, int] | None = None
        """The result of ``wanted``, until a fetch position changes."""

    def assign(self, partitions: Iterable[TopicPartition], *, verify: bool = False) -> None:
        """Replace the assignment; the state of partitions that stay is kept.

        ``verify``: a manual assignment, of partitions that may not exist.
        """
        before, self.assigned = frozenset(self.assigned), tuple(sorted(set(partitions)))
        new = {tp for tp in self.assigned if tp in self._unverified or tp not in before}
        self._unverified = new if verify else set()
        kept = frozenset(self.assigned)
        self.positions = {tp: offset for tp, offset in self.positions.items() if tp in kept}
        self._fetch_positions = {tp: offset for tp, offset in self._fetch_positions.items() if tp in kept}
        self._undo_positions = {tp: offset for tp, offset in self._undo_positions.items() if tp in kept}
        self._resets = {tp: rule for tp, rule in self._resets.items() if tp in kept}
        self.paused &= kept
        self._update_at_ms = 0
        self._wanted = None

    def check(self, partitions: Iterable[TopicPartition]) -> None:
        """Raise ValueError for a partition that is not assigned to this member."""
        assigned = frozenset(self.assigned)
        for tp in partitions:
            if tp not in assigned:
                raise ValueError(
                    f"{tp} is not assigned to this member; assigned: {first_of(self.assigned, 3) or 'none'}"
                )

    def wanted(self) -> Mapping[TopicPartition, int]:
        """Return the partitions to fetch, with their fetch positions: the same object until they change."""
        if self._wanted is None:
            fetched, paused = self._fetch_positions, self.paused
            self._wanted = {
                tp: fetched.get(tp, offset) for tp, offset in self.positions.items() if tp not in paused
            }
        return self._wanted

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Do not fetch ``partitions`` until ``resume``; fetch then what is fetched but not returned."""
        self.paused = self.paused.union(partitions)
        for tp in partitions:
            self._fetch_positions.pop(tp, None)
        self._wanted = None

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch ``partitions`` again."""
        self.paused = self.paused.difference(partitions)
        self._wanted = None

    def fetched(self, partition: TopicPartition, next_offset: int) -> None:
        """Set the fetch position of a partition whose records before ``next_offset`` are fetched."""
        self._fetch_positions[partition] = next_offset
        self._wanted = None

    def mark_delivered(self, partition: TopicPartition, next_offset: int) -> None:
        """Set the position of a partition whose records before ``next_offset`` have been returned."""
        self._undo_positions.setdefault(partition, self.positions.get(partition, next_offset))
        self.positions[partition] = next_offset
        fetched = self._fetch_positions.get(partition)
        if fetched == next_offset:
            del self._fetch_positions[partition]
        elif fetched is None:
            self._wanted = None

    def done(self) -> None:
        """Record that the caller has processed all returned records, as it polls again."""
        self._undo_positions.clear()

    def commits(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Record that the caller has processed returned records up to ``offsets``, which it commits."""
        self._undo_positions.update(
            {tp: committed.offset for tp, committed in offsets.items() if tp in self._undo_positions}
        )

    def undo_last_delivery(self) -> None:
        """Restore the positions before the last returned records. Only at the end: nothing is refetched."""
        self.positions.update(self._undo_positions)
        self._wanted = None

    def committable(self) -> dict[TopicPartition, Committed]:
        """Return all known positions, to be committed."""
        return {tp: Committed(offset) for tp, offset in self.positions.items()}

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at ``offset``."""
        self._resets.pop(partition, None)
        self._fetch_positions.pop(partition, None)
        self._undo_positions.pop(partition, None)
        self.positions[partition] = offset
        self._wanted = None

    def reset(self, partitions: Iterable[TopicPartition], where: Reset) -> None:
        """Continue at an end of the log."""
        for tp in partitions:
            self.positions.pop(tp, None)
            self._fetch_positions.pop(tp, None)
            self._undo_positions.pop(tp, None)
            self._resets[tp] = where
        self._update_at_ms = 0
        self._wanted = None

    def out_of_range(self, partition: TopicPartition) -> None:
        """Apply ``auto.offset.reset`` to a position outside of the log. ``none``: OFFSET_OUT_OF_RANGE."""
        rule, offset = self._config.auto_offset_reset, self.wanted()[partition]
        if rule is Reset.NONE:
            raise BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {partition} is not in the log, and auto.offset.reset is none: seek to "
                "an offset in the log, or set auto.offset.reset",
            )
        logger.warning("%s: offset %d is out of range; resetting to %s", partition, offset, rule.value)
        self.reset([partition], rule)

    def truncated(self, completed: CompletedFetch) -> None:
        """Continue at the end of what is left of the log before the position. ``auto.offset.reset`` none:
        LogTruncated.
        """
        tp, end_offset = completed.topic_partition, completed.next_offset
        if self.wanted().get(tp) != completed.offset:
            return  # a fetch of the same poll counted first
        assert completed.error is not None
        if self._config.auto_offset_reset is Reset.NONE:
            raise completed.error
        logger.warning("%s; continuing at %d", completed.error.detail, end_offset)
        self.seek(tp, end_offset)

    def update_positions(self, deadline: Deadline) -> None:
        """Look up missing positions, as far as brokers respond.

        Raises NoCommittedOffset, or a BrokerError that is not retriable.
        """
        if self._cluster.clock.monotonic_ms() < self._update_at_ms:
            return
        missing = [tp for tp in self.assigned if tp not in self.positions]
        if not (missing or self._unverified):
            self._update_at_ms = NEVER_MS
            return
        try:
            self._verify_partitions(deadline)
            self._update_from_committed([tp for tp in missing if tp not in self._resets], deadline)
            for rule, end in ((Reset.EARLIEST, EARLIEST), (Reset.LATEST, LATEST)):
                self._update_from_log([tp for tp in missing if self._resets.get(tp) is rule], end, deadline)
        except MinikafkaError as error:
            if not is_retriable(error):
                raise
            logger.info("failed to look up positions of %s; retrying: %s", first_of(missing, 3), error)
            self._update_at_ms = self._cluster.clock.monotonic_ms() + _RETRY_MS

    def _verify_partitions(self, deadline: Deadline) -> None:
        """Warn once of partitions that do not exist. Raises TOPIC_AUTHORIZATION_FAILED."""
        if not self._unverified:
            return
        names = {tp.topic for tp in self._unverified}
        timeout_ms = deadline.remaining_ms()
        known = self._cluster.metadata(names, refresh=True, timeout_ms=timeout_ms).topics
        for topic in map(known.__getitem__, sorted(names)):
            check_describable(topic)
        for tp in sorted(self._unverified):
            topic = known[tp.topic]
            if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                logger.warning("%s is assigned, but there is no topic %r", tp, tp.topic)
            elif topic.error is ErrorCode.NONE and topic.partition(tp.partition) is None:
                logger.warning("%s is assigned, but %s", tp, topic.partition_range)
        self._unverified.clear()

    def _update_from_committed(self, partitions: list[TopicPartition], deadline: Deadline) -> None:
        committed = committed_offsets(self._coordinator, partitions, deadline)
        rule = self._config.auto_offset_reset
        none = []
        for tp in partitions:
            if tp in committed:
                self.seek(tp, committed[tp].offset)
            elif rule is Reset.NONE:
                none.append(tp)
            else:
                self._resets[tp] = rule
        if none:
            raise NoCommittedOffset(
                f"group {self._config.group_id!r} has no committed offset of {first_of(none, 3)}, and "
                "auto.offset.reset is none: seek to a start offset, or set auto.offset.reset"
            )

    def _update_from_log(self, partitions: list[TopicPartition], end: int, deadline: Deadline) -> None:
        if not partitions:
            return
        wanted = dict.fromkeys(partitions, end)
        for tp, offset in list_offsets(self._cluster, wanted, deadline, self._config.isolation).items():
            if offset is not None:
                self.seek(tp, offset)

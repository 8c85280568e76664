"""Where a member reads each of its partitions: what it seeks, what the group has committed, or an end.

The position of a partition is the offset behind what was given out. What was fetched and not yet given out
lies between that and where fetching goes on. What was given out last is in the caller's hand until it asks
for more; should its work on that raise, it can be taken back.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from minikafka.base.errors import (
    BrokerError,
    ErrorCode,
    MinikafkaError,
    NoCommittedOffset,
)
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.list_offsets import EARLIEST, LATEST, list_offsets
from minikafka.clients.group.config import GroupConsumerConfig, Reset
from minikafka.clients.group.coordinator_client import CoordinatorClient
from minikafka.clients.group.offsets import Committed, committed_offsets
from minikafka.clients.group.subscription import check_describable
from minikafka.clients.network.cluster import ClusterClient, describe_partitions
from minikafka.clients.network.response_errors import is_retriable
from minikafka.clients.network.retry import Deadline

logger = logging.getLogger("minikafka.clients.group")

_RETRY_MS = 1_000
"""Pause before positions that could not be found are looked for again."""


class SubscriptionState:
    """The partitions of one member. Not thread-safe."""

    def __init__(
        self, cluster: ClusterClient, config: GroupConsumerConfig, coordinator: CoordinatorClient
    ) -> None:
        self.assigned: tuple[TopicPartition, ...] = ()
        self.positions: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self._cluster = cluster
        self._config = config
        self._coordinator = coordinator
        self._fetch_positions: dict[TopicPartition, int] = {}
        """Where fetching goes on, where that is not the position."""
        self._undo_positions: dict[TopicPartition, int] = {}
        """Positions before what was given out last."""
        self._resets: dict[TopicPartition, Reset] = {}
        self._unverified: set[TopicPartition] = set()
        """Assigned by hand, and not yet looked for."""
        self._update_at_ms = 0

    def assign(self, partitions: Iterable[TopicPartition], *, keep: bool = False) -> None:
        """Read these, and forget all that was before; with ``keep`` (they are the caller's choice, and may
        not be there) only of other partitions.
        """
        before, self.assigned = self.assigned, tuple(sorted(set(partitions)))
        new = {tp for tp in self.assigned if tp in self._unverified or tp not in before}
        self._unverified = new if keep else set()
        kept = frozenset(self.assigned if keep else ())
        self.positions = {tp: offset for tp, offset in self.positions.items() if tp in kept}
        self._fetch_positions = {tp: offset for tp, offset in self._fetch_positions.items() if tp in kept}
        self._undo_positions = {tp: offset for tp, offset in self._undo_positions.items() if tp in kept}
        self._resets = {tp: rule for tp, rule in self._resets.items() if tp in kept}
        self.paused &= kept
        self._update_at_ms = 0

    def check(self, partitions: Iterable[TopicPartition]) -> None:
        """ValueError for one that is another member's."""
        for tp in partitions:
            if tp not in self.assigned:
                raise ValueError(
                    f"{tp} is not assigned to this member, which has {_abbreviated(self.assigned)}"
                )

    def wanted(self) -> dict[TopicPartition, int]:
        """What is to be fetched, and from where."""
        fetched = self._fetch_positions
        return {tp: fetched.get(tp, offset) for tp, offset in self.positions.items() if tp not in self.paused}

    def fetched(self, partition: TopicPartition, next_offset: int) -> None:
        """What lies before ``next_offset`` is here: fetch what comes behind it."""
        self._fetch_positions[partition] = next_offset

    def mark_delivered(self, partition: TopicPartition, next_offset: int) -> None:
        """What lies before ``next_offset`` was given out."""
        self._undo_positions.setdefault(partition, self.positions.get(partition, next_offset))
        self.positions[partition] = next_offset
        if self._fetch_positions.get(partition) == next_offset:
            del self._fetch_positions[partition]

    def done(self) -> None:
        """The caller asks for more: it is done with what was given out before."""
        self._undo_positions.clear()

    def commits(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        """The caller commits these: so far it is done with what is in its hand, and no further."""
        self._undo_positions.update(
            {tp: one.offset for tp, one in offsets.items() if tp in self._undo_positions}
        )

    def undo_last_delivery(self) -> None:
        """What is in the caller's hand does not count as given out. For the end only: nothing is fetched
        again.
        """
        self.positions.update(self._undo_positions)

    def committable(self) -> dict[TopicPartition, Committed]:
        """All positions that are known."""
        return {tp: Committed(offset) for tp, offset in self.positions.items()}

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on at ``offset``."""
        self._resets.pop(partition, None)
        self._fetch_positions.pop(partition, None)
        self._undo_positions.pop(partition, None)
        self.positions[partition] = offset

    def refetch(self, partitions: Iterable[TopicPartition]) -> None:
        """What was fetched of these and not given out is fetched again."""
        for tp in partitions:
            self._fetch_positions.pop(tp, None)

    def reset(self, partitions: Iterable[TopicPartition], where: Reset) -> None:
        """Read on at an end of the log."""
        for tp in partitions:
            self.positions.pop(tp, None)
            self._fetch_positions.pop(tp, None)
            self._undo_positions.pop(tp, None)
            self._resets[tp] = where
            self._update_at_ms = 0

    def out_of_range(self, partition: TopicPartition) -> None:
        """The log does not have the position any more, or not yet. OFFSET_OUT_OF_RANGE without a rule."""
        rule, offset = self._config.auto_offset_reset, self.wanted()[partition]
        if rule is Reset.NONE:
            raise BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"the log of {partition} does not have offset {offset}, and auto.offset.reset is none: "
                "seek to one that it has",
            )
        logger.warning("%s has no offset %d, going on with the %s one", partition, offset, rule.value)
        self.reset([partition], rule)

    def update_positions(self, deadline: Deadline) -> None:
        """Find the positions that are missing, as far as brokers answer.

        Raises NoCommittedOffset, or the BrokerError of what will not pass.
        """
        now_ms = self._cluster.clock.monotonic_ms()
        missing = [tp for tp in self.assigned if tp not in self.positions]
        if not (missing or self._unverified) or now_ms < self._update_at_ms:
            return
        try:
            self._verify_partitions(deadline)
            self._update_from_committed([tp for tp in missing if tp not in self._resets], deadline)
            for rule, end in ((Reset.EARLIEST, EARLIEST), (Reset.LATEST, LATEST)):
                self._update_from_log([tp for tp in missing if self._resets.get(tp) is rule], end, deadline)
        except MinikafkaError as error:
            if not is_retriable(error):
                raise
            logger.info("positions of %s are not known yet: %s", _abbreviated(missing), error)
            self._update_at_ms = self._cluster.clock.monotonic_ms() + _RETRY_MS

    def _verify_partitions(self, deadline: Deadline) -> None:
        """Warn once of those that are not there; TOPIC_AUTHORIZATION_FAILED for what may not be seen."""
        if not self._unverified:
            return
        names = {tp.topic for tp in self._unverified}
        timeout_ms = max(1, deadline.remaining_ms())
        known = self._cluster.metadata(names, refresh=True, timeout_ms=timeout_ms).topics
        for topic in map(known.__getitem__, sorted(names)):
            check_describable(topic)
        for tp in sorted(self._unverified):
            topic = known[tp.topic]
            if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                logger.warning("%s was assigned, and there is no topic %r", tp, tp.topic)
            elif topic.error is ErrorCode.NONE and topic.partition(tp.partition) is None:
                logger.warning("%s was assigned, and %s", tp, describe_partitions(topic))
        self._unverified.clear()

    def _update_from_committed(self, partitions: list[TopicPartition], deadline: Deadline) -> None:
        committed = committed_offsets(self._coordinator, partitions, deadline)
        rule = self._config.auto_offset_reset
        none = []
        for tp in partitions:
            if tp in committed:
                self.positions[tp] = committed[tp].offset
            elif rule is Reset.NONE:
                none.append(tp)
            else:
                self._resets[tp] = rule
        if none:
            raise NoCommittedOffset(
                f"group {self._config.group_id!r} has committed no offset of {_abbreviated(none)}, and "
                "auto.offset.reset is none: seek to where it shall begin"
            )

    def _update_from_log(self, partitions: list[TopicPartition], end: int, deadline: Deadline) -> None:
        if not partitions:
            return
        wanted = dict.fromkeys(partitions, end)
        for tp, offset in list_offsets(self._cluster, wanted, deadline, self._config.isolation).items():
            if offset is not None:
                self.seek(tp, offset)


def _abbreviated(partitions: Collection[TopicPartition]) -> str:
    names = [str(tp) for tp in list(partitions)[:3]]
    more = f" and {len(partitions) - 3} more" if len(partitions) > 3 else ""
    return ", ".join(names) + more if names else "none"

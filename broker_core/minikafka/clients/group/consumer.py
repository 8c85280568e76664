"""A consumer that shares the partitions of its topics with the other members of its group.

    with GroupConsumer(cluster, GroupConsumerConfig("billing", auto_commit=False)) as consumer:
        consumer.subscribe(["orders"])
        while True:
            table = consumer.poll_table(1_000)       # Arrow; or poll_records: objects; or poll: sets of bytes
            ...
            consumer.commit_sync()

``GroupMember`` keeps it in its group, ``GroupFetcher`` fetches message sets, and ``FetchBuffer`` holds them
until a poll returns them. All calls except ``wakeup`` come from one thread, as with Kafka's consumer; a
second thread only sends heartbeats, so that the caller may take ``max.poll.interval.ms`` between two polls.
With ``assign`` it reads partitions of its own choice instead, without being a member.

Records that a poll has returned count as read: they set the position, which ``commit_sync`` commits, and
which ``enable.auto.commit`` commits every ``auto.commit.interval.ms``, before partitions are revoked, and at
the end. So each record is read at least once; after a crash the records since the last commit are read again.
If the ``with`` block ends by an exception, the last returned records do not count: the current record of an
iteration, or all records of the last poll.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

from minikafka.base.errors import MinikafkaError, Wakeup
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.list_offsets import EARLIEST, LATEST, list_offsets
from minikafka.clients.group.commits import CommitCallback, CommitRequestManager, log_commit_failure
from minikafka.clients.group.config import GroupConsumerConfig, Reset
from minikafka.clients.group.coordinator_client import CoordinatorClient
from minikafka.clients.group.fetch_buffer import FetchBuffer
from minikafka.clients.group.fetched_records import ConsumerRecord, Fetched
from minikafka.clients.group.fetcher import GroupFetcher
from minikafka.clients.group.member import (
    POLL_SLICE_MS,
    REQUEST_MIN_TIMEOUT_MS,
    REVOKE_TIMEOUT_MS,
    GroupMember,
)
from minikafka.clients.group.offsets import (
    Committed,
    Committer,
    GroupMetadata,
    checked_offsets,
    committed_offsets,
)
from minikafka.clients.group.subscription import SubscribedTopics, TopicSubscription
from minikafka.clients.group.subscription_state import SubscriptionState
from minikafka.clients.metrics.consumer import PREFIX, PollMetrics
from minikafka.clients.metrics.registry import Metrics, merged_groups
from minikafka.clients.network.arguments import (
    checked_max_records,
    checked_times,
    has_methods,
    to_topic_partitions,
)
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.connections import DedicatedConnectionPool
from minikafka.clients.network.retry import Deadline

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Committed",
    "ConsumerRecord",
    "Fetched",
    "GroupConsumer",
    "GroupConsumerConfig",
    "RebalanceListener",
    "Reset",
]

T = TypeVar("T")


class RebalanceListener(Protocol):
    """Callbacks of a rebalance, on the caller's thread in a poll or ``close``. May use the consumer."""

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Called before ``partitions`` are revoked. Their offsets may still be committed."""

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Called with the partitions that are new, before they are read. ``seek`` may set positions.

        Only with ``cooperative-sticky`` there may be others, which this member had before.
        """


class GroupConsumer:
    """One member of a group (``KafkaConsumer`` of 0.10.1). Close it, or use it as a context manager.

    Not thread-safe, except ``wakeup``. Polls raise BrokerError for an error of the coordinator or a leader
    that is not retriable, and CORRUPT_MESSAGE for damage; NoCommittedOffset; Wakeup; and errors of a
    listener. While brokers cannot be reached they wait, with warnings of the logger ``minikafka.clients``.
    A partition may also be given as a pair of topic and number, and the settings as a mapping of Kafka's
    properties; TypeError for anything else.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        config: GroupConsumerConfig | Mapping[str, object],
        *,
        listener: RebalanceListener | None = None,
        threads: bool = True,
    ) -> None:
        self.config = config = _checked_config(config)
        self._cluster = cluster = _checked_cluster(cluster)
        cluster.check_security(config.security)
        self._clock = cluster.clock
        self._listener = _checked_listener(listener)
        self._pools = DedicatedConnectionPool(), DedicatedConnectionPool()
        self._coordinator = CoordinatorClient(cluster, config.group_id, self._pools[0])
        self._topics = SubscribedTopics(cluster, config, lambda: self.assignment)
        self._member = GroupMember(
            self._coordinator,
            config,
            self._topics,
            self._on_assigned,
            self._on_revoked,
            self._on_rejoin,
            threads=threads,
        )
        self._subscription_state = SubscriptionState(cluster, config, self._coordinator)
        self._commits = CommitRequestManager(
            self._coordinator, self._member.on_commit_rejected, self._member.metrics
        )
        self._fetcher = GroupFetcher(cluster, config, self._pools[1])
        self._fetch_buffer = FetchBuffer(self._subscription_state, self._fetcher.metrics)
        self._poll_metrics = PollMetrics(cluster.clock)
        self._manual = False
        """True with partitions of ``assign``."""
        self._next_auto_commit_ms = 0
        self._woken = threading.Event()

    # --- subscription

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Replace the subscription by ``topics``; none: leave the group. Polls get the assignment.

        Or all topics whose whole name ``pattern`` (a Python regular expression) matches, also future ones:
        they are looked up every ``metadata.max.age.ms``. A ``listener`` replaces the previous one. Raises
        ConfigError for an invalid pattern, TypeError for a listener without its methods.
        """
        self._check_open()
        _checked_listener(listener)
        if self._manual:
            raise ValueError("cannot subscribe with manually assigned partitions; unsubscribe first")
        wanted = TopicSubscription.of(topics)
        if pattern is not None:
            if wanted:
                raise ValueError("expected topics or a pattern, got both")
            wanted = TopicSubscription.matching(pattern, internal=not self.config.exclude_internal_topics)
        if listener is not None:
            self._listener = listener
        if wanted == self._topics.subscription:
            return
        self._topics.replace(wanted)
        if wanted:
            self._member.rejoin("the subscription has changed")
        else:
            self._member.leave(for_good=False)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Replace the assignment by ``partitions``, without group membership and listener calls.

        Commits still go to the group, which must have no members then. Partitions that stay keep their
        positions.
        """
        self._check_open()
        if self._topics.subscription:
            raise ValueError("cannot assign partitions with a subscription; unsubscribe first")
        wanted = frozenset(to_topic_partitions(partitions))
        if self._manual and self.config.auto_commit:
            self._auto_commit_sync()
        self._fetch_buffer.drop([tp for tp in self.assignment if tp not in wanted])
        self._subscription_state.assign(wanted, verify=True)
        self._fetcher.retain(wanted)
        self._commits.requested.clear()
        self._next_auto_commit_ms = self._clock.monotonic_ms() + self.config.auto_commit_interval_ms
        self._manual = bool(wanted)

    def unsubscribe(self) -> None:
        """Leave the group, or drop the partitions of ``assign``."""
        if self._manual:
            self.assign(())
        else:
            self.subscribe()

    @property
    def subscription(self) -> tuple[str, ...]:
        """The subscribed topics; of a pattern, its matches at the last look-up."""
        return self._topics.names

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The assigned partitions, sorted."""
        return self._subscription_state.assigned

    @property
    def generation(self) -> int:
        """The member's generation; -1 for none."""
        return self._member.generation

    @property
    def member_id(self) -> str:
        """The member id from the coordinator; empty if this is not a member."""
        return self._member.member_id

    def group_metadata(self) -> GroupMetadata:
        """Return the group and this member's generation (KIP-447). Raises BrokerError as ``commit_sync``."""
        return GroupMetadata.of(self.config.group_id, self._committer())

    # --- polling

    def poll(self, timeout_ms: int) -> tuple[Fetched, ...]:
        """Return fetched records as sets of bytes.

        Polls wait up to ``timeout_ms`` if there are none, and join the group if needed.
        """
        return self._poll(timeout_ms, self._fetch_buffer.sets, ())

    def poll_records(self, timeout_ms: int, max_records: int | None = None) -> list[ConsumerRecord]:
        """Return fetched records as objects, at most ``max_records`` (``max.poll.records`` by default)."""
        most = self.config.max_poll_records if max_records is None else checked_max_records(max_records)
        return self._poll(timeout_ms, lambda: self._fetch_buffer.records(most), [])

    def poll_table(
        self, timeout_ms: int, *, max_records: int | None = None, headers: bool = False
    ) -> pa.Table:
        """Return fetched records as one Arrow table: all of them, or at most ``max_records`` rows.

        Columns: topic (string), partition (int32), offset (int64), timestamp (ms, UTC; null for none), key
        and value (binary), and with ``headers`` also headers (list of key and value). Rows of one partition
        are in offset order.
        """
        from minikafka.clients.group.rows import table

        most = None if max_records is None else checked_max_records(max_records)
        none: list[pa.RecordBatch] = []
        batches = self._poll(timeout_ms, lambda: self._fetch_buffer.batches(most, headers=headers), none)
        return table(batches, headers=headers)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Yield records one by one, forever; ``wakeup`` ends it. Each counts as read when it is yielded.

        A due automatic commit happens between two records, when the next one is requested.
        """
        while True:
            self._poll(POLL_SLICE_MS, lambda: bool(self._fetch_buffer), False)
            # Not at once again, as the rest of the records is then decoded again.
            next_ms = max(self._next_auto_commit_ms, self._clock.monotonic_ms() + POLL_SLICE_MS)
            for record in self._fetch_buffer.one_by_one(self.config.max_poll_records):
                yield record
                if self.config.auto_commit and self._clock.monotonic_ms() >= next_ms:
                    break

    def wakeup(self) -> None:
        """Make the waiting poll, or else the next one, raise Wakeup within 0.1 seconds; within about a second
        while brokers do not respond. Thread-safe.
        """
        self._woken.set()

    # --- positions

    def position(self, partition: TopicPartition) -> int | None:
        """Return the next offset to read; None if it is not known yet."""
        (partition,) = self._checked_partitions([partition])
        return self._subscription_state.positions.get(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read ``partition`` from ``offset`` on."""
        if offset < 0:
            raise ValueError(f"{partition}: expected an offset of 0 or more, got {offset}")
        (partition,) = self._checked_partitions([partition])
        self._fetch_buffer.drop([partition])
        self._subscription_state.seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read ``partitions`` (default: all) from the start of the log."""
        self._seek_to(partitions, Reset.EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read ``partitions`` (default: all) from the end of the log."""
        self._seek_to(partitions, Reset.LATEST)

    def _seek_to(self, partitions: Collection[TopicPartition], where: Reset) -> None:
        wanted = self._checked_partitions(partitions) or self.assignment
        self._fetch_buffer.drop(wanted)
        self._subscription_state.reset(wanted, where)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of ``partitions`` until ``resume`` or the next assignment."""
        wanted = self._checked_partitions(partitions)
        self._fetch_buffer.drop(wanted)
        self._subscription_state.pause(wanted)

    def resume(self, *partitions: TopicPartition) -> None:
        """End a ``pause``."""
        self._subscription_state.resume(self._checked_partitions(partitions))

    @property
    def paused(self) -> tuple[TopicPartition, ...]:
        """The paused partitions, sorted."""
        return tuple(sorted(self._subscription_state.paused))

    def _checked_partitions(self, partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
        wanted = to_topic_partitions(partitions)
        self._subscription_state.check(wanted)
        return wanted

    # --- the log and the cluster

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the start offsets of the logs of any partitions."""
        return self._log_ends(partitions, EARLIEST, timeout_ms)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the end offsets of any partitions, as visible with the ``isolation.level``."""
        return self._log_ends(partitions, LATEST, timeout_ms)

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int | None]:
        """Return each partition's first offset at or after a time (ms since the epoch); None for none."""
        wanted = checked_times(times)
        return self._list_offsets(wanted, timeout_ms)

    def _log_ends(
        self, partitions: Iterable[TopicPartition], end: int, timeout_ms: int | None
    ) -> dict[TopicPartition, int]:
        found = self._list_offsets(dict.fromkeys(to_topic_partitions(partitions), end), timeout_ms)
        return {tp: offset or 0 for tp, offset in found.items()}

    def _list_offsets(
        self, wanted: Mapping[TopicPartition, int], timeout_ms: int | None
    ) -> dict[TopicPartition, int | None]:
        deadline, isolation = self._cluster.deadline(timeout_ms), self.config.isolation
        return list_offsets(self._cluster, wanted, deadline, isolation, creates_topics=False)

    def partitions_for(self, topic: str, *, timeout_ms: int | None = None) -> tuple[TopicPartition, ...]:
        """Return all partitions of a topic. Raises BrokerError if it does not exist; unlike in Kafka 0.10,
        the request does not create it.
        """
        found = self._cluster.topic(topic, timeout_ms, creates_topics=False)
        return tuple(partition.topic_partition for partition in found.partitions)

    def topics(self, *, timeout_ms: int | None = None) -> tuple[str, ...]:
        """Return the names of all topics except internal ones, sorted."""
        known = self._cluster.metadata(None, timeout_ms=timeout_ms).topics.values()
        return tuple(sorted(topic.name for topic in known if not topic.is_internal))

    # --- commits

    def commit_sync(
        self, offsets: Mapping[TopicPartition, Committed] | None = None, *, timeout_ms: int | None = None
    ) -> None:
        """Commit ``offsets`` (default: the positions) and wait for the response.

        Raises BrokerError: ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID or REBALANCE_IN_PROGRESS if other members
        may have this member's partitions already; the next poll rejoins.
        """
        deadline = self._cluster.deadline(timeout_ms)
        wanted = self._subscription_state.committable() if offsets is None else checked_offsets(offsets)
        self._commits.commit_sync(self._committer(), wanted, deadline)
        self._subscription_state.commits(wanted)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, Committed] | None = None,
        callback: CommitCallback = log_commit_failure,
    ) -> None:
        """Commit ``offsets`` (default: the positions) without waiting, in one attempt.

        A later poll, commit or close calls ``callback(offsets, error)``; by default a failure is logged.
        """
        wanted = self._subscription_state.committable() if offsets is None else checked_offsets(offsets)
        if wanted:
            self._commits.commit_async(
                self._committer(), wanted, callback, self._cluster.deadline(REQUEST_MIN_TIMEOUT_MS)
            )
            self._subscription_state.commits(wanted)

    def committed(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, Committed]:
        """Return the group's committed offsets; partitions without one are left out."""
        wanted = to_topic_partitions(partitions)
        return committed_offsets(self._coordinator, wanted, self._cluster.deadline(timeout_ms))

    def _committer(self) -> Committer:
        self._check_open()
        return Committer() if self._manual else self._member.committer()

    def _maybe_auto_commit(self) -> None:
        """Send the automatic commit if it is due."""
        now_ms = self._clock.monotonic_ms()
        may_commit = self._manual or self._member.can_commit
        if not self.config.auto_commit or now_ms < self._next_auto_commit_ms or not may_commit:
            return
        self._next_auto_commit_ms = now_ms + self.config.auto_commit_interval_ms
        uncommitted = self._commits.uncommitted(self._subscription_state.committable())
        if uncommitted:
            self._commits.commit_async(
                self._committer(),
                uncommitted,
                log_commit_failure,
                self._cluster.deadline(REQUEST_MIN_TIMEOUT_MS),
            )

    def _auto_commit_sync(self) -> None:
        """Send the automatic commit before partitions are revoked, and wait for it."""
        deadline = self._cluster.deadline(REVOKE_TIMEOUT_MS)
        self._commits.complete(deadline)  # a failed one is uncommitted again
        uncommitted = self._commits.uncommitted(self._subscription_state.committable())
        try:
            self._commits.commit_sync(self._committer(), uncommitted, deadline)
        except MinikafkaError as error:
            log_commit_failure(uncommitted, error)

    def metrics(self) -> Metrics:
        """Return the metrics of this consumer and its connections: group -> name -> value. Thread-safe."""
        return merged_groups(
            self._poll_metrics.read(),
            self._member.metrics.read(len(self.assignment)),
            self._fetcher.metrics.read(self._subscription_state.positions),
            self._cluster.metrics(PREFIX),
        )

    # --- closing

    def close(self, timeout_ms: int = REVOKE_TIMEOUT_MS) -> None:
        """Commit (with ``enable.auto.commit``), revoke the partitions and leave. A second call does nothing.

        All returned records are committed, also those of the last poll. An error of a listener is raised at
        the end.
        """
        if self._member.closed:
            return
        try:
            if self._manual:
                self.assign(())
            self._member.leave()
        finally:
            # In case a listener has raised an error.
            self._member.end()
            self._commits.complete(self._cluster.deadline(timeout_ms))
            self._member.stop(timeout_ms)
            for pool in self._pools:
                self._cluster.close_pool(pool)

    def __enter__(self) -> GroupConsumer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the consumer. If the block has raised, the last returned records may be unprocessed: they are
        not committed (unless the block has committed them), and are read again.
        """
        if kind is not None:
            self._subscription_state.undo_last_delivery()
        self.close()

    # --- one round of polling

    def _poll(self, timeout_ms: int, take: Callable[[], T], nothing: T) -> T:
        self._check_open()
        if not self._manual and not self._topics.subscription:
            raise ValueError("poll without topics: subscribe to topics or assign partitions first")
        self._subscription_state.done()
        deadline = self._cluster.deadline(timeout_ms)
        with self._poll_metrics:
            while True:
                if self._woken.is_set():
                    self._woken.clear()
                    raise Wakeup("wakeup() was called")
                if self._poll_once(deadline) and (found := take()):
                    return found
                if deadline.expired:
                    return nothing

    def _poll_once(self, deadline: Deadline) -> bool:
        """Do all due work of a poll, and wait a short time for records. Return True if there are records of
        this consumer.
        """
        self._commits.complete()
        if not self._manual and not self._member.ensure_active(deadline):
            return False
        if self._manual or self._member.can_commit:  # otherwise the look-up would wait behind its JoinGroup
            self._subscription_state.update_positions(self._member.step_deadline(deadline))
        self._maybe_auto_commit()
        if not self._fetch_buffer:
            self._fetch(deadline.at_most(POLL_SLICE_MS))
        return bool(self._fetch_buffer)

    def _fetch(self, timeout_ms: int) -> None:
        state = self._subscription_state
        found = self._fetcher.collect_fetch(state.wanted(), timeout_ms)
        # First, as the rest may raise: then the next poll returns them, and one partition starves no other.
        for fetched in found.sets:
            state.fetched(fetched.topic_partition, fetched.next_offset)
        self._fetch_buffer.add(found.sets)
        for partition in found.out_of_range:
            state.out_of_range(partition)
        for completed in found.truncated:
            state.truncated(completed)
        if found.error is not None:
            raise found.error
        self._fetcher.send_fetches(state.wanted())

    def _on_assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Read an assignment. Of the partitions before, which only a cooperative member has, some may
        stay.
        """
        before = frozenset(self.assignment)
        revoked = before.difference(partitions)
        try:
            if revoked:
                self._member.rejoin("others wait for the partitions that it has given up")
                self._give_up(revoked)
        finally:
            self._subscription_state.assign(partitions)
            self._fetcher.retain(frozenset(partitions))
            self._next_auto_commit_ms = self._clock.monotonic_ms() + self.config.auto_commit_interval_ms
        if self._listener is not None:
            self._listener.assigned(tuple(tp for tp in partitions if tp not in before))

    def _on_rejoin(self) -> None:
        """Commit before a cooperative member joins again, which keeps the partitions of subscribed topics."""
        topics = frozenset(self._topics.names)
        unsubscribed = frozenset(tp for tp in self.assignment if tp.topic not in topics)
        if unsubscribed:
            self._give_up(unsubscribed)
        elif self.config.auto_commit:
            self._auto_commit_sync()

    def _give_up(self, partitions: frozenset[TopicPartition], *, commits: bool = True) -> None:
        """Give up partitions, after an automatic commit if ``commits``, and tell the listener."""
        self._fetch_buffer.drop(partitions)
        try:
            if self.config.auto_commit and commits:
                self._auto_commit_sync()  # raises errors of an earlier commit's callback
        finally:
            try:
                if self._listener is not None:
                    self._listener.revoked(tuple(sorted(partitions)))
            finally:
                kept = tuple(tp for tp in self.assignment if tp not in partitions)
                self._subscription_state.assign(kept)
                self._fetcher.retain(frozenset(kept))
                for tp in partitions:
                    self._commits.requested.pop(tp, None)

    def _on_revoked(self, lost: bool) -> None:
        # Records that were not returned are fetched by the partition's next owner.
        self._give_up(frozenset(self.assignment), commits=not lost)

    def _check_open(self) -> None:
        if self._member.closed:
            raise ValueError("the consumer is closed")


# Arguments as objects: callers may not use a type checker.


def _checked_config(given: object) -> GroupConsumerConfig:
    if isinstance(given, Mapping):
        return GroupConsumerConfig.from_properties(given)
    if not isinstance(given, GroupConsumerConfig):
        raise TypeError(f'expected a GroupConsumerConfig("a-group") or a dict of properties, got {given!r}')
    return given


def _checked_cluster(given: object) -> ClusterClient:
    if not isinstance(given, ClusterClient):
        raise TypeError(f'expected a ClusterClient("host:port"), got {given!r}')
    return given


def _checked_listener(given: RebalanceListener | None) -> RebalanceListener | None:
    if given is not None and not has_methods(given, "assigned", "revoked"):
        raise TypeError(
            "expected a listener with the methods assigned(partitions) and revoked(partitions), got "
            f"{given!r}"
        )
    return given

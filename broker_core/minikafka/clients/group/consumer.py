"""A consumer that shares the partitions of its topics with the other members of its group.

    with GroupConsumer(cluster, GroupConsumerConfig("billing", auto_commit=False)) as consumer:
        consumer.subscribe(["orders"])
        while True:
            table = consumer.poll_table(1_000)       # Arrow; or poll_records: objects; or poll: sets of bytes
            ...
            consumer.commit_sync()

``GroupMember`` keeps it in its group, ``GroupFetcher`` brings message sets, ``FetchBuffer`` has what was not
given out yet. All calls come from one thread, as with Kafka's consumer, but for ``wakeup``; a second thread
only sends heartbeats, so that the caller may take ``max.poll.interval.ms`` between two polls. With ``assign``
it reads partitions of its own choice instead, as nobody's member.

What a poll has given out counts as read: that is the position, what ``commit_sync`` commits, and what
``enable.auto.commit`` commits every ``auto.commit.interval.ms``, before partitions are given up, and at the
end. So each record is read at least once; after a crash those since the last commit come again. Where the
``with`` block ends by an exception, what was given out last does not count: the record in hand of an
iteration, or all that the last poll gave.
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
from minikafka.clients.group.offsets import Committed, Committer, committed_offsets
from minikafka.clients.group.subscription import Subscription
from minikafka.clients.group.subscription_state import SubscriptionState
from minikafka.clients.network.arguments import has_methods, to_topic_partitions
from minikafka.clients.network.cluster import ClusterClient, DedicatedConnectionPool
from minikafka.clients.network.retry import Deadline
from minikafka.wire.apis.offset_commit import NO_GENERATION

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
    """Is told on the caller's thread, inside of a poll and ``close``, and may use the consumer there."""

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """These are taken away. What was read of them may still be committed."""

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """These are read from now on, and no others. ``seek`` may say where."""


class GroupConsumer:
    """One member of a group (``KafkaConsumer`` of 0.10.1). Close it, or use it as a context manager.

    Not thread-safe, but for ``wakeup``. Polls raise BrokerError for what the coordinator or a leader refuses
    for good, and CORRUPT_MESSAGE for damage; NoCommittedOffset; Woken; and what a listener raises. That
    brokers cannot be reached is waited out, with warnings of the logger ``minikafka.clients`` meanwhile.
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
        self._clock = cluster.clock
        self._listener = _checked_listener(listener)
        self._pools = DedicatedConnectionPool(), DedicatedConnectionPool()
        self._coordinator = CoordinatorClient(cluster, config.group_id, self._pools[0])
        self._member = GroupMember(
            self._coordinator, config, self._on_assigned, self._on_revoked, threads=threads
        )
        self._subscription_state = SubscriptionState(cluster, config, self._coordinator)
        self._commits = CommitRequestManager(self._coordinator, self._member.on_commit_rejected)
        self._fetcher = GroupFetcher(cluster, config, self._pools[1])
        self._fetch_buffer = FetchBuffer(self._subscription_state)
        self._manual = False
        """Whether the partitions are those of ``assign``."""
        self._next_auto_commit_ms = 0
        self._woken = threading.Event()

    # --- what is read

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read these topics, in place of those before; none: leave the group. Polls bring the partitions.

        Or all topics whose whole name ``pattern`` (Python's) matches, also those that come later: they are
        looked for every ``metadata.max.age.ms``. A ``listener`` takes the place of the one before.
        ConfigError for a pattern that is none, TypeError for a listener without its methods.
        """
        self._check_open()
        _checked_listener(listener)
        if self._manual:
            raise ValueError("partitions were assigned by hand: unsubscribe first")
        wanted = Subscription.of(topics)
        if pattern is not None:
            if wanted:
                raise ValueError("topics or a pattern, not both")
            wanted = Subscription.matching(pattern, internal=not self.config.exclude_internal_topics)
        if listener is not None:
            self._listener = listener
        self._member.subscribe(wanted)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these, in place of those before; none: nothing. The group divides nothing, and no listener is
        called.

        Commits go to the group all the same, which must have no members then. Partitions that stay are read
        on where they are.
        """
        self._check_open()
        if self._member.wanted:
            raise ValueError("topics are subscribed to: unsubscribe first")
        wanted = frozenset(to_topic_partitions(partitions))
        if self._manual and self.config.auto_commit:
            self._auto_commit_sync()
        self._fetch_buffer.drop([tp for tp in self.assignment if tp not in wanted])
        self._subscription_state.assign(wanted, keep=True)
        self._commits.requested.clear()
        self._next_auto_commit_ms = self._clock.monotonic_ms() + self.config.auto_commit_interval_ms
        self._manual = bool(wanted)

    def unsubscribe(self) -> None:
        """Read nothing: leave the group, or end what ``assign`` said."""
        if self._manual:
            self.assign(())
        else:
            self.subscribe()

    @property
    def subscription(self) -> tuple[str, ...]:
        """The topics that are subscribed to; of a pattern those that it matched when it was last looked."""
        return self._member.topics

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that are this consumer's, sorted."""
        return self._subscription_state.assigned

    @property
    def generation(self) -> int:
        """The group's generation that this member is of; -1 for none."""
        return self._member.generation

    @property
    def member_id(self) -> str:
        """What the coordinator calls this member; empty while it is none."""
        return self._member.member_id

    # --- polling

    def poll(self, timeout_ms: int) -> tuple[Fetched, ...]:
        """What has come, as sets of bytes.

        Polls wait up to ``timeout_ms`` when there is nothing, and join the group where needed.
        """
        return self._poll(timeout_ms, self._fetch_buffer.sets, ())

    def poll_records(self, timeout_ms: int, max_records: int | None = None) -> list[ConsumerRecord]:
        """What has come, record by record: at most ``max_records`` (``max.poll.records`` by default)."""
        most = self.config.max_poll_records if max_records is None else _checked_max_records(max_records)
        return self._poll(timeout_ms, lambda: self._fetch_buffer.records(most), [])

    def poll_table(
        self, timeout_ms: int, *, max_records: int | None = None, headers: bool = False
    ) -> pa.Table:
        """What has come, as one Arrow table: all of it, or at most ``max_records`` rows.

        Columns: topic (string), partition (int32), offset (int64), timestamp (ms, UTC; null for none), key
        and value (binary), and with ``headers`` those (list of key and value). Rows of one partition are in
        their order.
        """
        from minikafka.clients.group.rows import table

        most = None if max_records is None else _checked_max_records(max_records)
        none: list[pa.RecordBatch] = []
        batches = self._poll(timeout_ms, lambda: self._fetch_buffer.batches(most, headers=headers), none)
        return table(batches, headers=headers)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Records one by one, for ever: Woken ends it. Each counts as read when it is given out.

        An automatic commit comes between two of them, when it is due and the next one is asked for.
        """
        while True:
            self._poll(POLL_SLICE_MS, lambda: bool(self._fetch_buffer), False)
            # Not at once again, as what is left of the records is then made anew.
            next_ms = max(self._next_auto_commit_ms, self._clock.monotonic_ms() + POLL_SLICE_MS)
            for record in self._fetch_buffer.one_by_one(self.config.max_poll_records):
                yield record
                if self.config.auto_commit and self._clock.monotonic_ms() >= next_ms:
                    break

    def wakeup(self) -> None:
        """End the poll that waits, or else the next one, with Woken, within a tenth of a second. From any
        thread.
        """
        self._woken.set()

    # --- positions

    def position(self, partition: TopicPartition) -> int | None:
        """The offset that is read next; None where that is not known yet."""
        (partition,) = self._checked_partitions([partition])
        return self._subscription_state.positions.get(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read ``partition`` from ``offset`` on."""
        if offset < 0:
            raise ValueError(f"{partition}: an offset is 0 or more, not {offset}")
        (partition,) = self._checked_partitions([partition])
        self._fetch_buffer.drop([partition])
        self._subscription_state.seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read these (all, where none is named) from the first record that is there."""
        self._seek_to(partitions, Reset.EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read these (all, where none is named) from the next record that comes."""
        self._seek_to(partitions, Reset.LATEST)

    def _seek_to(self, partitions: Collection[TopicPartition], where: Reset) -> None:
        wanted = self._checked_partitions(partitions) or self.assignment
        self._fetch_buffer.drop(wanted)
        self._subscription_state.reset(wanted, where)

    def pause(self, *partitions: TopicPartition) -> None:
        """Give out nothing of these until ``resume``, or until partitions are assigned anew."""
        wanted = self._checked_partitions(partitions)
        self._subscription_state.paused.update(wanted)
        self._fetch_buffer.drop(wanted)
        self._subscription_state.refetch(wanted)

    def resume(self, *partitions: TopicPartition) -> None:
        """End a ``pause``."""
        self._subscription_state.paused.difference_update(self._checked_partitions(partitions))

    @property
    def paused(self) -> tuple[TopicPartition, ...]:
        """What is paused, sorted."""
        return tuple(sorted(self._subscription_state.paused))

    def _checked_partitions(self, partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
        wanted = to_topic_partitions(partitions)
        self._subscription_state.check(wanted)
        return wanted

    # --- the log and the cluster

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The offsets of the first records that these have. Any partitions, whoever reads them."""
        return self._log_ends(partitions, EARLIEST, timeout_ms)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The offsets of the next records of these, as far as ``isolation.level`` lets them be seen."""
        return self._log_ends(partitions, LATEST, timeout_ms)

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int | None]:
        """Of each partition the first record at or after a time (ms since the epoch); None for none."""
        wanted = _checked_times(times)
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
        """All partitions of a topic. BrokerError where there is none: the question makes none, unlike that of
        Kafka 0.10.
        """
        found = self._cluster.topic(topic, timeout_ms, creates_topics=False)
        return tuple(one.topic_partition for one in found.partitions)

    def topics(self, *, timeout_ms: int | None = None) -> tuple[str, ...]:
        """The names of all topics, sorted, but for internal ones."""
        known = self._cluster.metadata(None, timeout_ms=timeout_ms).topics.values()
        return tuple(sorted(one.name for one in known if not one.is_internal))

    # --- commits

    def commit_sync(
        self, offsets: Mapping[TopicPartition, Committed] | None = None, *, timeout_ms: int | None = None
    ) -> None:
        """Commit ``offsets`` (the positions, where none are given) and wait until that is done.

        Raises BrokerError: ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID or REBALANCE_IN_PROGRESS when this member's
        partitions may be others' by now; the next poll joins again.
        """
        deadline = self._cluster.deadline(timeout_ms)
        wanted = self._subscription_state.committable() if offsets is None else _checked_offsets(offsets)
        self._commits.commit_sync(self._committer(), wanted, deadline)
        self._subscription_state.commits(wanted)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, Committed] | None = None,
        callback: CommitCallback = log_commit_failure,
    ) -> None:
        """Begin to commit ``offsets`` (the positions, where none are given), in one attempt.

        A later poll, commit or close calls ``callback(offsets, error)``; without one a failure is logged.
        """
        wanted = self._subscription_state.committable() if offsets is None else _checked_offsets(offsets)
        if wanted:
            self._commits.commit_async(
                self._committer(), wanted, callback, self._cluster.deadline(REQUEST_MIN_TIMEOUT_MS)
            )
            self._subscription_state.commits(wanted)

    def committed(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, Committed]:
        """What the group has committed for these; without those it has nothing for."""
        wanted = to_topic_partitions(partitions)
        return committed_offsets(self._coordinator, wanted, self._cluster.deadline(timeout_ms))

    def _committer(self) -> Committer:
        self._check_open()
        return Committer() if self._manual else self._member.committer()

    def _maybe_auto_commit(self) -> None:
        """The automatic commit, when it is due."""
        now_ms = self._clock.monotonic_ms()
        nobody = self.generation == NO_GENERATION and not self._manual
        if not self.config.auto_commit or now_ms < self._next_auto_commit_ms or nobody:
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
        """The automatic commit before partitions are given up."""
        deadline = self._cluster.deadline(REVOKE_TIMEOUT_MS)
        self._commits.complete(deadline)  # what fails of it is news again
        uncommitted = self._commits.uncommitted(self._subscription_state.committable())
        try:
            self._commits.commit_sync(self._committer(), uncommitted, deadline)
        except MinikafkaError as error:
            log_commit_failure(uncommitted, error)

    # --- the end

    def close(self, timeout_ms: int = REVOKE_TIMEOUT_MS) -> None:
        """Commit (where that is automatic), give the partitions up and leave. A second call does nothing.

        All that was given out is committed, also what is in hand. What a listener raises is raised when all
        is done.
        """
        if self._member.closed:
            return
        try:
            if self._manual:
                self.assign(())
            self._member.leave()
        finally:
            # Where a listener has raised an error.
            self._member.end()
            self._commits.complete(self._cluster.deadline(timeout_ms))
            self._member.stop(timeout_ms)
            for pool in self._pools:
                self._cluster.close_pool(pool)

    def __enter__(self) -> GroupConsumer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """``close``. Where the block has raised, what was given out last may not be done with: it is not
        committed (but for what the block has committed itself), and comes again.
        """
        if kind is not None:
            self._subscription_state.undo_last_delivery()
        self.close()

    # --- one round of polling

    def _poll(self, timeout_ms: int, take: Callable[[], T], nothing: T) -> T:
        self._check_open()
        if not self._manual and not self._member.wanted:
            raise ValueError("subscribe to a topic before polling, or assign partitions")
        self._subscription_state.done()
        deadline = self._cluster.deadline(timeout_ms)
        while True:
            if self._woken.is_set():
                self._woken.clear()
                raise Wakeup("wakeup() was called")
            if self._poll_once(deadline) and (found := take()):
                return found
            if deadline.expired:
                return nothing

    def _poll_once(self, deadline: Deadline) -> bool:
        """Do all that is to be done between two polls, and wait a short time for records; whether there are
        any, and they are this consumer's.
        """
        self._commits.complete()
        if not self._manual and not self._member.ensure_active(deadline):
            return False
        self._subscription_state.update_positions(self._member.step_deadline(deadline))
        self._maybe_auto_commit()
        if not self._fetch_buffer:
            self._fetch(deadline.at_most(POLL_SLICE_MS))
        return bool(self._fetch_buffer)

    def _fetch(self, timeout_ms: int) -> None:
        state = self._subscription_state
        found = self._fetcher.collect_fetch(state.wanted(), timeout_ms)
        # First, as it may raise: then nothing of this was given out.
        for partition in found.out_of_range:
            state.out_of_range(partition)
        for fetched in found.sets:
            state.fetched(fetched.topic_partition, fetched.next_offset)
        self._fetch_buffer.add(found.sets)
        self._fetcher.send_fetches(state.wanted())

    def _on_assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        self._subscription_state.assign(partitions)
        self._next_auto_commit_ms = self._clock.monotonic_ms() + self.config.auto_commit_interval_ms
        if self._listener is not None:
            self._listener.assigned(partitions)

    def _on_revoked(self, lost: bool) -> None:
        # What was not given out is fetched by whoever gets the partition.
        self._fetch_buffer.drop()
        try:
            if self.config.auto_commit and not lost:
                self._auto_commit_sync()  # raises what the callback of an earlier commit does
        finally:
            self._finish_revocation()

    def _finish_revocation(self) -> None:
        try:
            if self._listener is not None:
                self._listener.revoked(self.assignment)
        finally:
            self._subscription_state.assign(())
            self._commits.requested.clear()

    def _check_open(self) -> None:
        if self._member.closed:
            raise ValueError("this consumer is closed")


def _checked_offsets(offsets: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, Committed]:
    values: list[object] = list(offsets.values())
    for one in values:
        if not isinstance(one, Committed):
            raise TypeError(f"an offset to commit is a Committed(offset), not {one!r}")
    return dict(zip(to_topic_partitions(offsets), offsets.values(), strict=True))


def _checked_times(times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    given: object = times
    if not isinstance(given, Mapping):
        raise TypeError(f"times are a dict of partitions and ms since the epoch, not {given!r}")
    wanted = dict(zip(to_topic_partitions(times), times.values(), strict=True))
    for tp, time in wanted.items():
        if not hasattr(time, "__index__"):
            raise TypeError(f"{tp}: a time is a whole number of ms since the epoch, not {time!r}")
        if time < 0:
            raise ValueError(f"{tp}: {time}: a time is in ms since the epoch, 0 or more")
    return wanted


# As objects: no type checker may have looked.


def _checked_config(given: object) -> GroupConsumerConfig:
    if isinstance(given, Mapping):
        return GroupConsumerConfig.from_properties(given)
    if not isinstance(given, GroupConsumerConfig):
        raise TypeError(
            f'settings are a GroupConsumerConfig("a-group") or a dict of properties, not {given!r}'
        )
    return given


def _checked_cluster(given: object) -> ClusterClient:
    if not isinstance(given, ClusterClient):
        raise TypeError(f'a consumer is given a Cluster("host:port"), not {given!r}')
    return given


def _checked_listener(given: RebalanceListener | None) -> RebalanceListener | None:
    if given is not None and not has_methods(given, "assigned", "revoked"):
        raise TypeError(
            "a listener is an object with the methods assigned(partitions) and revoked(partitions), "
            f"not {given!r}"
        )
    return given


def _checked_max_records(max_records: int) -> int:
    if max_records < 1:
        raise ValueError(f"max_records must be 1 or more, not {max_records}")
    return max_records

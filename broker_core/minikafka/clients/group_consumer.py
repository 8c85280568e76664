"""A consumer that shares the partitions of its topics with the other members of its group.

    with GroupConsumer(cluster, GroupConsumerConfig("billing", auto_commit=False)) as consumer:
        consumer.subscribe(["orders"])
        while True:
            for fetched in consumer.poll(1_000):
                for columns in fetched.columns(): ...        # or record by record: fetched.records()
            consumer.commit_sync()

``Membership`` decides, this carries out. All calls come from one thread, as with Kafka's consumer; a second
thread only sends heartbeats, so that the caller may take ``max.poll.interval.ms`` between two polls. With
``threads=False`` there is none, for a simulation: heartbeats leave in ``poll``.

What ``poll`` has given out counts as read: that is the position, what ``commit_sync`` commits, and what
``enable.auto.commit`` commits every ``auto.commit.interval.ms``, before partitions are given up, and at the
end. So each record is read at least once; after a crash those since the last commit come again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, NetworkError, RemoteWireError
from minikafka.base.ids import TopicPartition, check_topic_name
from minikafka.clients import group_membership as member
from minikafka.clients.cluster import Cluster, OwnLane, worth_a_retry
from minikafka.clients.group_commits import CommitCallback, GroupCommits, log_failure
from minikafka.clients.group_config import GroupConsumerConfig, Reset
from minikafka.clients.group_coordinator import Coordinator
from minikafka.clients.group_fetcher import Fetched, GroupFetcher
from minikafka.clients.group_membership import Membership, Phase
from minikafka.clients.group_offsets import Author, Committed, committed_offsets
from minikafka.clients.group_positions import GroupPositions
from minikafka.clients.group_requests import (
    join_request,
    joined,
    partitions_of,
    shared,
    subscriptions_of,
    sync_request,
    synced,
)
from minikafka.clients.links import Reply
from minikafka.clients.retry import Deadline
from minikafka.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from minikafka.wire.apis.join_group import JOIN_GROUP
from minikafka.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupRequest
from minikafka.wire.apis.offset_commit import NO_GENERATION
from minikafka.wire.apis.sync_group import SYNC_GROUP

__all__ = ["Committed", "Fetched", "GroupConsumer", "GroupConsumerConfig", "RebalanceListener", "Reset"]

logger = logging.getLogger("minikafka.clients.group")

_STEP_MS = 1_000
"""What a poll with less time than this still takes for one question to a broker."""
_SLICE_MS = 100
"""How soon a waiting poll notices that it has to join again."""
_GIVE_UP_MS = 5_000
"""Longest wait for the commit before partitions are given up."""
_WATCH_MS = 1_000
"""How often is looked for topics that are not there."""
_LATE_MS = 5_000
"""How late the answer to JoinGroup may be after the rebalance's time-out."""


class RebalanceListener(Protocol):
    """Is told on the caller's thread, inside of ``poll`` and ``close``, and may use the consumer there."""

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """These are taken away. What was read of them may still be committed."""

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """These are read from now on, and no others. ``seek`` may say where."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """JoinGroup or SyncGroup under way; ``take`` makes an event of its answer."""

    reply: Reply[Any]
    take: Callable[[Any], member.Event]
    deadline: Deadline


class GroupConsumer:
    """One member of a group. Not thread-safe. Close it, or use it as a context manager."""

    def __init__(
        self,
        cluster: Cluster,
        config: GroupConsumerConfig,
        *,
        listener: RebalanceListener | None = None,
        threads: bool = True,
    ) -> None:
        self.config = config
        self._cluster = cluster
        self._clock = cluster.clock
        self._listener = listener
        self._threads = threads
        self._lanes = OwnLane(), OwnLane()
        self._coordinator = Coordinator(cluster, config.group_id, self._lanes[0])
        self._positions = GroupPositions(cluster, config, self._coordinator)
        self._commits = GroupCommits(self._coordinator, self._refused)
        self._fetcher = GroupFetcher(cluster, config, self._lanes[1])
        self._topics: tuple[str, ...] = ()
        self._counts: dict[str, int] = {}
        """Partitions of each topic when they were shared."""
        self._watch_at_ms = 0
        self._commit_at_ms = 0
        self._waiting: _Waiting | None = None
        # Guards what the heartbeats' thread shares with the caller's: these two.
        self._lock = threading.Lock()
        self._membership = Membership(config)
        self._failure: BrokerError | None = None
        self._wake = threading.Event()
        self._heart: threading.Thread | None = None

    # --- membership

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read these topics, in place of those before; none: leave the group. Polls bring the partitions."""
        self._check_open()
        wanted = tuple(dict.fromkeys(topics))
        for name in wanted:
            check_topic_name(name)
        if wanted == self._topics:
            return
        self._topics = wanted
        self._do(member.Changed() if wanted else member.Leaving(for_good=False))

    def poll(self, timeout_ms: int) -> tuple[Fetched, ...]:
        """What has come; waits up to ``timeout_ms`` when there is nothing, and joins the group where needed.

        Raises BrokerError for what the coordinator or a leader refuses for good, NoCommittedOffset, and what
        a listener raises. That brokers cannot be reached is waited out.
        """
        self._check_open()
        if not self._topics:
            raise ValueError("subscribe to a topic before polling")
        if self._threads and self._heart is None:
            self._heart = threading.Thread(target=self._live, name="minikafka-heartbeat", daemon=True)
            self._heart.start()
        deadline = self._cluster.deadline(timeout_ms)
        while True:
            sets = self._poll_once(deadline)
            if sets or deadline.expired:
                return sets

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that are this member's, sorted."""
        return self._positions.assigned

    @property
    def generation(self) -> int:
        """The group's generation that this member is of; -1 for none."""
        return self._membership.generation

    @property
    def member_id(self) -> str:
        """What the coordinator calls this member; empty while it is none."""
        return self._membership.member_id

    def close(self, timeout_ms: int = _GIVE_UP_MS) -> None:
        """Commit (where that is automatic), give the partitions up and leave. A second call does nothing.

        What a listener raises is raised when all is done.
        """
        if self._membership.phase is Phase.CLOSED:
            return
        try:
            self._do(member.Leaving())
        finally:
            # Where a listener has raised an error.
            self._do(member.Revoked())
            self._commits.settle(self._cluster.deadline(timeout_ms))
            self._wake.set()
            if self._heart is not None:
                self._heart.join(timeout_ms / 1000)
            for lane in self._lanes:
                self._cluster.close_lane(lane)

    def __enter__(self) -> GroupConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- positions

    def position(self, partition: TopicPartition) -> int | None:
        """The offset that is read next; None where that is not known yet."""
        self._positions.check([partition])
        return self._positions.known.get(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read ``partition`` from ``offset`` on."""
        if offset < 0:
            raise ValueError(f"{partition}: an offset is 0 or more, not {offset}")
        self._positions.check([partition])
        self._positions.seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read these (all, where none is named) from the first record that is there."""
        self._positions.check(partitions)
        self._positions.reset(partitions or self.assignment, Reset.EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read these (all, where none is named) from the next record that comes."""
        self._positions.check(partitions)
        self._positions.reset(partitions or self.assignment, Reset.LATEST)

    def pause(self, *partitions: TopicPartition) -> None:
        """Give out nothing of these until ``resume``, or until partitions are assigned anew."""
        self._positions.check(partitions)
        self._positions.paused.update(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """End a ``pause``."""
        self._positions.check(partitions)
        self._positions.paused.difference_update(partitions)

    @property
    def paused(self) -> tuple[TopicPartition, ...]:
        """What is paused, sorted."""
        return tuple(sorted(self._positions.paused))

    # --- commits

    def commit_sync(
        self, offsets: Mapping[TopicPartition, Committed] | None = None, *, timeout_ms: int | None = None
    ) -> None:
        """Commit ``offsets`` (the positions, where none are given) and wait until that is done.

        Raises BrokerError: ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID or REBALANCE_IN_PROGRESS when this member's
        partitions may be others' by now; the next poll joins again.
        """
        deadline = self._cluster.deadline(timeout_ms)
        wanted = self._positions.committable() if offsets is None else offsets
        self._commits.sync(self._author(), wanted, deadline)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, Committed] | None = None,
        callback: CommitCallback = log_failure,
    ) -> None:
        """Begin to commit ``offsets`` (the positions, where none are given), in one attempt.

        A later poll, commit or close calls ``callback(offsets, error)``; without one a failure is logged.
        """
        wanted = self._positions.committable() if offsets is None else offsets
        if wanted:
            self._commits.begin(self._author(), wanted, callback, self._cluster.deadline(_STEP_MS))

    def committed(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, Committed]:
        """What the group has committed for these; without those it has nothing for."""
        return committed_offsets(self._coordinator, partitions, self._cluster.deadline(timeout_ms))

    def _author(self) -> Author:
        self._check_open()
        with self._lock:
            generation, member_id = self._membership.generation, self._membership.member_id
            in_group = self._membership.in_group
        if generation == NO_GENERATION or not in_group:
            # Without a generation the coordinator would take it for somebody outside of any group.
            raise BrokerError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"this is no member of group {self.config.group_id!r} at the moment, so it commits nothing: "
                "poll joins again",
            )
        return Author(generation, member_id)

    def _refused(self, generation: int, code: ErrorCode) -> None:
        self._do(member.CommitRefused(generation, code))

    def _commit_in_time(self) -> None:
        """The automatic commit, when it is due."""
        now_ms = self._clock.monotonic_ms()
        if not self.config.auto_commit or now_ms < self._commit_at_ms or self.generation == NO_GENERATION:
            return
        self._commit_at_ms = now_ms + self.config.auto_commit_interval_ms
        news = self._commits.news(self._positions.committable())
        if news:
            self._commits.begin(self._author(), news, log_failure, self._cluster.deadline(_STEP_MS))

    # --- one round of polling

    def _poll_once(self, deadline: Deadline) -> tuple[Fetched, ...]:
        self._commits.settle()
        self._watch_topics(deadline)
        self._do(member.Polled())
        if not self._threads:
            self._tick()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._waiting is not None:
            self._await_coordinator(self._waiting, deadline)
        elif not self._membership.in_group:
            pause_ms = self._membership.pause_ms(self._clock.monotonic_ms())
            self._cluster.waiter.wait(deadline.at_most(pause_ms))
        else:
            self._positions.fill(self._step_deadline(deadline))
            self._commit_in_time()
            return self._fetch(deadline.at_most(_SLICE_MS))
        return ()

    def _fetch(self, timeout_ms: int) -> tuple[Fetched, ...]:
        positions = self._positions
        found = self._fetcher.take(positions.wanted(), timeout_ms)
        # First, as it may raise: then nothing of this was given out.
        for partition in found.out_of_range:
            positions.out_of_range(partition)
        for fetched in found.sets:
            positions.seek(fetched.topic_partition, fetched.next_offset)
        self._fetcher.ask(positions.wanted())
        return found.sets

    def _watch_topics(self, deadline: Deadline) -> None:
        """Notice that a topic has more partitions than were shared, that it has come, or gone."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._watch_at_ms or not self._membership.in_group:
            return
        self._watch_at_ms = now_ms + _WATCH_MS
        try:
            counts = self._count_partitions(self._topics, self._step_deadline(deadline))
        except (NetworkError, RemoteWireError):
            return
        if counts != self._counts:
            logger.info("partitions of the topics are %s, were %s: joining again", counts, self._counts)
            self._step(member.Changed())

    def _count_partitions(
        self, topics: Iterable[str], deadline: Deadline, *, refresh: bool = False
    ) -> dict[str, int]:
        """The numbers of partitions of those topics that are there."""
        known = self._cluster.metadata(
            topics, refresh=refresh, timeout_ms=max(1, deadline.remaining_ms())
        ).topics
        return {name: len(known[name].partitions) for name in topics if known[name].partitions}

    def _step_deadline(self, deadline: Deadline) -> Deadline:
        return self._cluster.deadline(max(_STEP_MS, deadline.remaining_ms()))

    # --- carrying out

    def _step(self, event: member.Event) -> list[member.Effect]:
        with self._lock:
            return self._membership.step(event, self._clock.monotonic_ms())

    def _do(self, event: member.Event) -> None:
        """What ``event`` makes necessary, up to the next question to the coordinator that takes its time."""
        effects = self._step(event)
        while effects:
            answer = self._carry_out(effects.pop(0))
            if answer is not None:
                effects += self._step(answer)

    def _carry_out(self, effect: member.Effect) -> member.Event | None:
        if isinstance(effect, member.Revoke):
            return self._revoke(effect)
        if isinstance(effect, member.Join):
            return self._join(effect)
        if isinstance(effect, member.Share):
            return self._share(effect)
        if isinstance(effect, member.Sync):
            return self._ask(SYNC_GROUP, sync_request(self.config, effect), synced)
        if isinstance(effect, member.Start):
            self._start(effect)
        else:
            self._carry_out_anywhere(effect)
        return None

    def _revoke(self, effect: member.Revoke) -> member.Event:
        if self.config.auto_commit and not effect.lost:
            deadline = self._cluster.deadline(_GIVE_UP_MS)
            self._commits.settle(deadline)  # what fails of it is news again
            news = self._commits.news(self._positions.committable())
            try:
                self._commits.sync(self._author(), news, deadline)
            except MinikafkaError as error:
                log_failure(news, error)
        partitions = self.assignment
        try:
            if self._listener is not None:
                self._listener.revoked(partitions)
        finally:
            self._positions.assign(())
            self._commits.told.clear()
        return member.Revoked()

    def _join(self, effect: member.Join) -> member.Event | None:
        self._waiting = None
        try:
            self._counts = self._count_partitions(self._topics, self._cluster.deadline(_STEP_MS))
        except (NetworkError, RemoteWireError):
            return member.Failed()
        return self._ask(JOIN_GROUP, join_request(self.config, effect, self._topics), joined)

    def _ask(self, api: Any, request: object, take: Callable[[Any], member.Event]) -> member.Event | None:
        """Send a request whose answer waits for other members; ``poll`` takes it when it comes."""
        try:
            reply = self._coordinator.send(api, lambda _: request, self._cluster.deadline(_STEP_MS))
        except MinikafkaError as error:
            return self._not_answered(error)
        patience_ms = self.config.max_poll_interval_ms + _LATE_MS
        self._waiting = _Waiting(reply, take, self._cluster.deadline(patience_ms))
        return None

    def _await_coordinator(self, waiting: _Waiting, deadline: Deadline) -> None:
        if (
            not self._cluster.wait_any([waiting.reply], deadline.remaining_ms())
            and not waiting.deadline.expired
        ):
            return
        self._waiting = None
        try:
            event = waiting.take(waiting.reply.result(waiting.deadline.timeout_ms))
        except (NetworkError, RemoteWireError) as error:
            event = self._not_answered(error)
        self._do(event)

    def _not_answered(self, error: MinikafkaError) -> member.Event:
        """What will not pass by itself is raised by ``poll``."""
        if not worth_a_retry(error):
            self._do(member.Failed())
            raise error
        logger.info("group %s: %s; trying again", self.config.group_id, error)
        return member.Failed()

    def _share(self, effect: member.Share) -> member.Event:
        subscriptions = subscriptions_of(effect)
        topics = sorted({topic for wanted in subscriptions.values() for topic in wanted})
        try:
            counts = self._count_partitions(topics, self._cluster.deadline(_GIVE_UP_MS), refresh=True)
        except (NetworkError, RemoteWireError) as error:
            return self._not_answered(error)
        self._counts = {topic: count for topic, count in counts.items() if topic in self._topics}
        return shared(effect, subscriptions, counts)

    def _start(self, effect: member.Start) -> None:
        partitions = partitions_of(effect.assignment)
        self._positions.assign(partitions)
        self._commit_at_ms = self._clock.monotonic_ms() + self.config.auto_commit_interval_ms
        self._watch_at_ms = 0
        self._wake.set()
        if self._listener is not None:
            self._listener.assigned(partitions)

    # --- heartbeats: on their own thread, but for a simulation

    def _live(self) -> None:
        while self._membership.phase is not Phase.CLOSED:
            self._tick()
            with self._lock:
                idle_ms = self._membership.idle_ms(self._clock.monotonic_ms())
            self._wake.wait(idle_ms / 1000)
            self._wake.clear()

    def _tick(self) -> None:
        for effect in self._step(member.Ticked()):
            self._carry_out_anywhere(effect)

    def _carry_out_anywhere(self, effect: member.Effect) -> None:
        """Effects that touch nothing of the caller's thread."""
        if isinstance(effect, member.Forget):
            self._coordinator.forget()
        elif isinstance(effect, member.Fail):
            self._failure = effect.error
        elif isinstance(effect, member.Leave):
            self._leave(effect)
        elif isinstance(effect, member.Heartbeat):
            for more in self._step(member.Beaten(effect.generation, self._beat(effect))):
                self._carry_out_anywhere(more)

    def _leave(self, effect: member.Leave) -> None:
        if effect.why:
            logger.warning("leaving group %s: %s", self.config.group_id, effect.why)
        request = LeaveGroupRequest(self.config.group_id, effect.member_id)
        deadline = self._cluster.deadline(_STEP_MS)
        try:
            reply = self._coordinator.send(LEAVE_GROUP, lambda _: request, deadline)
            reply.result(max(1, deadline.remaining_ms()))
        except MinikafkaError as error:
            logger.info("group %s was not told that a member leaves: %s", self.config.group_id, error)

    def _beat(self, effect: member.Heartbeat) -> ErrorCode | None:
        """The coordinator's word, None for none."""
        request = HeartbeatRequest(self.config.group_id, effect.generation, effect.member_id)
        deadline = self._cluster.deadline(self.config.session_timeout_ms)
        try:
            reply = self._coordinator.send(HEARTBEAT, lambda _: request, deadline)
            # It may stand behind a JoinGroup that was sent meanwhile: then nobody wants to know any more, and
            # a time-out would close the connection under it.
            while not self._cluster.wait_any([reply], deadline.at_most(_SLICE_MS)):
                if not self._membership.in_group:
                    return None
                if deadline.expired:
                    break
            return ErrorCode.of(reply.result(max(1, deadline.remaining_ms())).error_code)
        except MinikafkaError as error:
            logger.info("group %s: no answer to a heartbeat: %s", self.config.group_id, error)
            return None

    def _check_open(self) -> None:
        if self._membership.phase is Phase.CLOSED:
            raise ValueError("this consumer is closed")

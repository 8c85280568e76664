"""One member of a group: carries out what ``Membership`` decides.

All calls come from one thread, but for the heartbeats: they leave on a thread of their own, so that the
caller may take ``max.poll.interval.ms`` between two calls of ``attend``. With ``threads=False`` there is
none, for a simulation: heartbeats leave in ``attend``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, NetworkError, RemoteWireError
from minikafka.base.ids import TopicPartition
from minikafka.clients.group import membership as member
from minikafka.clients.group.config import GroupConsumerConfig
from minikafka.clients.group.coordinator_client import CoordinatorClient
from minikafka.clients.group.membership import Membership, Phase
from minikafka.clients.group.offsets import Author
from minikafka.clients.group.requests import (
    join_request,
    joined,
    partitions_of,
    shared,
    subscriptions_of,
    sync_request,
    synced,
)
from minikafka.clients.group.subscription import Subscription, check_seen
from minikafka.clients.network.broker_connection import ResponseFuture
from minikafka.clients.network.metadata import TopicMetadata
from minikafka.clients.network.response_errors import is_retriable
from minikafka.clients.network.retry import Deadline
from minikafka.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from minikafka.wire.apis.join_group import JOIN_GROUP
from minikafka.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupRequest
from minikafka.wire.apis.offset_commit import NO_GENERATION
from minikafka.wire.apis.sync_group import SYNC_GROUP

logger = logging.getLogger("minikafka.clients.group")

STEP_MS = 1_000
"""What a poll with less time than this still takes for one question to a broker."""
SLICE_MS = 100
"""How soon a waiting poll notices that it has to join again, or is woken."""
GIVE_UP_MS = 5_000
"""Longest wait for the commit before partitions are given up."""
_WATCH_MS = 1_000
"""How often is looked for topics that are not there."""
_LATE_MS = 5_000
"""How late the answer to JoinGroup may be after the rebalance's time-out."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """JoinGroup or SyncGroup under way; ``take`` makes an event of its answer."""

    reply: ResponseFuture[Any]
    take: Callable[[Any], member.Event]
    deadline: Deadline


class GroupMember:
    """Not thread-safe.

    given: is told the partitions that are this member's from now on.
    taken: is told that they are no more; True: others may have them already. Both are called in ``attend``,
        ``leave`` and ``end``, and may raise.
    """

    def __init__(
        self,
        coordinator: CoordinatorClient,
        config: GroupConsumerConfig,
        given: Callable[[tuple[TopicPartition, ...]], None],
        taken: Callable[[bool], None],
        *,
        threads: bool,
    ) -> None:
        self.topics: tuple[str, ...] = ()
        """Those that are wanted; of a pattern what it matched when it was last looked."""
        self._coordinator = coordinator
        self._cluster = coordinator.cluster
        self._clock = coordinator.cluster.clock
        self._config = config
        self._given = given
        self._taken = taken
        self._threads = threads
        self._wanted = Subscription()
        self._counts: dict[str, int] = {}
        """Partitions of each topic when they were shared."""
        self._watch_at_ms = 0
        self._waiting: _Waiting | None = None
        # Guards what the heartbeats' thread shares with the caller's: these two.
        self._lock = threading.Lock()
        self._membership = Membership(config)
        self._failure: BrokerError | None = None
        self._wake = threading.Event()
        self._heart: threading.Thread | None = None

    @property
    def closed(self) -> bool:
        """Whether it has ended for good."""
        return self._membership.phase is Phase.CLOSED

    @property
    def generation(self) -> int:
        """The group's generation that it is of; -1 for none."""
        return self._membership.generation

    @property
    def member_id(self) -> str:
        """What the coordinator calls it; empty while it is none."""
        return self._membership.member_id

    @property
    def wanted(self) -> Subscription:
        """The subscription."""
        return self._wanted

    def subscribe(self, wanted: Subscription) -> None:
        """Want this from now on, in place of what was before; nothing: leave the group."""
        if wanted == self._wanted:
            return
        self._wanted = wanted
        self.topics = wanted.names
        self._do(member.Changed() if wanted else member.Leaving(for_good=False))

    def attend(self, deadline: Deadline) -> bool:
        """Get on with being a member for a short time; whether it is one, and its partitions can be read.

        Raises BrokerError for what the coordinator refuses for good, and what ``given`` and ``taken`` raise.
        """
        if self._threads and self._heart is None:
            self._heart = threading.Thread(target=self._live, name="minikafka-heartbeat", daemon=True)
            self._heart.start()
        self._watch_topics(deadline)
        self._do(member.Polled())
        if not self._threads:
            self.tick()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._waiting is not None:
            self._await_coordinator(self._waiting, deadline.at_most(SLICE_MS))
        elif not self._membership.in_group:
            pause_ms = self._membership.pause_ms(self._clock.monotonic_ms())
            self._cluster.waiter.wait(deadline.at_most(min(pause_ms, SLICE_MS)))
        else:
            return True
        return False

    def author(self) -> Author:
        """As whom it commits. UNKNOWN_MEMBER_ID while it is no member."""
        with self._lock:
            generation, member_id = self._membership.generation, self._membership.member_id
            in_group = self._membership.in_group
        if generation == NO_GENERATION or not in_group:
            # Without a generation the coordinator would take it for somebody outside of any group.
            raise BrokerError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"this is no member of group {self._config.group_id!r} at the moment, so it commits nothing: "
                "poll joins again",
            )
        return Author(generation, member_id)

    def refused(self, generation: int, code: ErrorCode) -> None:
        """The coordinator has refused a commit of that generation."""
        self._do(member.CommitRefused(generation, code))

    def leave(self) -> None:
        """Give the partitions up and leave the group, for good."""
        self._do(member.Leaving())

    def end(self) -> None:
        """As ``leave``, where that has raised what ``taken`` did."""
        self._do(member.Revoked())

    def stop(self, timeout_ms: int) -> None:
        """End the thread."""
        self._wake.set()
        if self._heart is not None:
            self._heart.join(timeout_ms / 1000)

    def step_deadline(self, deadline: Deadline) -> Deadline:
        """For one question to a broker, also where ``deadline`` leaves no time."""
        return self._cluster.deadline(max(STEP_MS, deadline.remaining_ms()))

    # --- topics

    def _watch_topics(self, deadline: Deadline) -> None:
        """Notice that a topic has more partitions than were shared, that it has come, or gone."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._watch_at_ms or not self._membership.in_group:
            return
        by_name = self._wanted.pattern is None
        self._watch_at_ms = now_ms + (_WATCH_MS if by_name else self._config.metadata_max_age_ms)
        try:
            counts = self._look(self.step_deadline(deadline))
        except (NetworkError, RemoteWireError):
            self._watch_at_ms = now_ms + _WATCH_MS
            return
        if counts != self._counts:
            logger.info("partitions of the topics are %s, were %s: joining again", counts, self._counts)
            self._step(member.Changed())

    def _look(self, deadline: Deadline) -> dict[str, int]:
        """The topics that are wanted now, with their numbers of partitions. TOPIC_AUTHORIZATION_FAILED for
        one that may not be described.
        """
        self.topics = self._wanted.topics(self._cluster, deadline)
        known = self._described(self.topics, deadline)
        for name in self.topics:
            check_seen(known[name])
        return _counts(known, self.topics)

    def _described(
        self, topics: Iterable[str], deadline: Deadline, *, refresh: bool = False
    ) -> Mapping[str, TopicMetadata]:
        timeout_ms = max(1, deadline.remaining_ms())
        return self._cluster.metadata(topics, refresh=refresh, timeout_ms=timeout_ms).topics

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
            self._taken(effect.lost)
            return member.Revoked()
        if isinstance(effect, member.Join):
            return self._join(effect)
        if isinstance(effect, member.Share):
            return self._share(effect)
        if isinstance(effect, member.Sync):
            return self._ask(SYNC_GROUP, sync_request(self._config, effect), synced)
        if isinstance(effect, member.Start):
            self._start(effect)
        else:
            self._carry_out_anywhere(effect)
        return None

    def _join(self, effect: member.Join) -> member.Event | None:
        self._waiting = None
        try:
            self._counts = self._look(self._cluster.deadline(STEP_MS))
        except MinikafkaError as error:
            return self._not_answered(error)
        return self._ask(JOIN_GROUP, join_request(self._config, effect, self.topics), joined)

    def _ask(self, api: Any, request: object, take: Callable[[Any], member.Event]) -> member.Event | None:
        """Send a request whose answer waits for other members; ``attend`` takes it when it comes."""
        try:
            reply = self._coordinator.send(api, lambda _: request, self._cluster.deadline(STEP_MS))
        except MinikafkaError as error:
            return self._not_answered(error)
        patience_ms = self._config.max_poll_interval_ms + _LATE_MS
        self._waiting = _Waiting(reply, take, self._cluster.deadline(patience_ms))
        return None

    def _await_coordinator(self, waiting: _Waiting, timeout_ms: int) -> None:
        if not self._cluster.wait_any([waiting.reply], timeout_ms) and not waiting.deadline.expired:
            return
        self._waiting = None
        try:
            event = waiting.take(waiting.reply.result(waiting.deadline.timeout_ms))
        except (NetworkError, RemoteWireError) as error:
            event = self._not_answered(error)
        self._do(event)

    def _not_answered(self, error: MinikafkaError) -> member.Event:
        """What will not pass by itself is raised by ``attend``."""
        if not is_retriable(error):
            self._do(member.Failed())
            raise error
        logger.info("group %s: %s; trying again", self._config.group_id, error)
        return member.Failed()

    def _share(self, effect: member.Share) -> member.Event:
        subscriptions = subscriptions_of(effect)
        topics = sorted({topic for wanted in subscriptions.values() for topic in wanted})
        try:
            known = self._described(topics, self._cluster.deadline(GIVE_UP_MS), refresh=True)
        except (NetworkError, RemoteWireError) as error:
            return self._not_answered(error)
        counts = _counts(known, topics)
        self._counts = {topic: count for topic, count in counts.items() if topic in self.topics}
        return shared(effect, subscriptions, counts)

    def _start(self, effect: member.Start) -> None:
        self._watch_at_ms = 0
        self._wake.set()
        self._given(partitions_of(effect.assignment))

    # --- heartbeats: on their own thread, but for a simulation

    def _live(self) -> None:
        while not self.closed:
            self.tick()
            with self._lock:
                idle_ms = self._membership.idle_ms(self._clock.monotonic_ms())
            self._wake.wait(idle_ms / 1000)
            self._wake.clear()

    def tick(self) -> None:
        """Time has passed: what the heartbeats' thread does."""
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
            logger.warning("leaving group %s: %s", self._config.group_id, effect.why)
        request = LeaveGroupRequest(self._config.group_id, effect.member_id)
        deadline = self._cluster.deadline(STEP_MS)
        try:
            reply = self._coordinator.send(LEAVE_GROUP, lambda _: request, deadline)
            reply.result(max(1, deadline.remaining_ms()))
        except MinikafkaError as error:
            logger.info("group %s was not told that a member leaves: %s", self._config.group_id, error)

    def _beat(self, effect: member.Heartbeat) -> ErrorCode | None:
        """The coordinator's word, None for none."""
        request = HeartbeatRequest(self._config.group_id, effect.generation, effect.member_id)
        deadline = self._cluster.deadline(self._config.session_timeout_ms)
        try:
            reply = self._coordinator.send(HEARTBEAT, lambda _: request, deadline)
            # It may stand behind a JoinGroup that was sent meanwhile: then nobody wants to know any more, and
            # a time-out would close the connection under it.
            while not self._cluster.wait_any([reply], deadline.at_most(SLICE_MS)):
                if not self._membership.in_group:
                    return None
                if deadline.expired:
                    break
            return ErrorCode.of(reply.result(max(1, deadline.remaining_ms())).error_code)
        except MinikafkaError as error:
            logger.info("group %s: no answer to a heartbeat: %s", self._config.group_id, error)
            return None


def _counts(known: Mapping[str, TopicMetadata], topics: Iterable[str]) -> dict[str, int]:
    """The numbers of partitions of those topics that are there."""
    return {name: len(known[name].partitions) for name in topics if known[name].partitions}

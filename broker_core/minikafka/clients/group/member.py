"""One member of a group: executes the effects of ``Membership``.

It is the same for each kind of member. A ``MemberProtocol`` says what the member subscribes to, and how it
assigns partitions as the leader.

All calls come from one thread. Heartbeats are sent on a second thread, so that the caller may take
``max.poll.interval.ms`` between two calls of ``ensure_active``. With ``threads=False`` there is no second
thread, for simulations: ``ensure_active`` sends the heartbeats.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from minikafka.base.errors import (
    AuthenticationFailed,
    BrokerError,
    ErrorCode,
    MinikafkaError,
    NetworkError,
    RemoteWireError,
)
from minikafka.base.ids import TopicPartition
from minikafka.clients.group import membership
from minikafka.clients.group.config import GroupConsumerConfig
from minikafka.clients.group.coordinator_client import CoordinatorClient
from minikafka.clients.group.membership import Membership, MemberState
from minikafka.clients.group.offsets import Committer
from minikafka.clients.group.requests import (
    assigned_partitions,
    join_completed,
    join_request,
    leave_request,
    sync_completed,
    sync_request,
)
from minikafka.clients.metrics.consumer import CoordinatorMetrics
from minikafka.clients.metrics.sensor import Sensor
from minikafka.clients.network.broker_connection import ResponseFuture
from minikafka.clients.network.response_errors import is_retriable
from minikafka.clients.network.retry import Deadline
from minikafka.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from minikafka.wire.apis.join_group import JOIN_GROUP, JoinGroupRequestProtocol
from minikafka.wire.apis.leave_group import LEAVE_GROUP
from minikafka.wire.apis.offset_commit import NO_GENERATION
from minikafka.wire.apis.sync_group import SYNC_GROUP

logger = logging.getLogger("minikafka.clients.group")

REQUEST_MIN_TIMEOUT_MS = 1_000
"""The minimum time-out of a request, also in a poll with less time."""
POLL_SLICE_MS = 100
"""The interval at which a waiting poll checks for a rejoin or a wakeup."""
REVOKE_TIMEOUT_MS = 5_000
"""Longest wait for the commit before partitions are given up."""
_JOIN_GROUP_TIMEOUT_LAPSE_MS = 5_000
"""The extra time for the JoinGroup response after the rebalance time-out."""


class MemberProtocol(Protocol):
    """The part of a member that depends on what it reads. Used by the member's thread.

    The first two may raise a MinikafkaError; after a retriable one the member joins again.
    """

    def join_protocols(self, generation: int, deadline: Deadline) -> tuple[JoinGroupRequestProtocol, ...]:
        """Return the assignors for JoinGroup, in order of preference, with the member's subscription.

        ``generation``: that in which it got the partitions that it still has.
        """

    def compute_assignment(
        self, effect: membership.ComputeAssignment, deadline: Deadline
    ) -> membership.AssignmentComputed:
        """Return the assignments of all members, as the leader."""

    def has_changed(self, deadline: Deadline) -> bool:
        """Return True if a member of the group must rejoin to get other partitions. Called at each poll."""


@dataclass(frozen=True, slots=True)
class _PendingResponse:
    """A JoinGroup or SyncGroup in flight; ``to_event`` makes an event of its response."""

    reply: ResponseFuture[Any]
    to_event: Callable[[Any], membership.Event]
    deadline: Deadline
    sensor: Sensor


class GroupMember:
    """A group member. Not thread-safe.

    on_assigned: called with the newly assigned partitions.
    on_revoked: called when they are revoked; the argument is True if other members may have them already.
    on_rejoin: called before a member with a cooperative assignor joins again, which keeps its partitions.
        All are called in ``ensure_active``, ``leave`` and ``end``, and may raise.
    """

    def __init__(
        self,
        coordinator: CoordinatorClient,
        config: GroupConsumerConfig,
        protocol: MemberProtocol,
        on_assigned: Callable[[tuple[TopicPartition, ...]], None],
        on_revoked: Callable[[bool], None],
        on_rejoin: Callable[[], None] = lambda: None,
        *,
        threads: bool,
    ) -> None:
        self.last_failure: MinikafkaError | None = None
        """The retriable error of the last request since it has joined; None for none."""
        self.metrics = CoordinatorMetrics(coordinator.cluster.clock)
        self._coordinator = coordinator
        self._cluster = coordinator.cluster
        self._clock = coordinator.cluster.clock
        self._config = config
        self._protocol = protocol
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._on_rejoin = on_rejoin
        self._assigned_generation = NO_GENERATION
        self._threads = threads
        self._pending: _PendingResponse | None = None
        # Guards the state that the heartbeat thread shares with the caller's thread: these two.
        self._lock = threading.Lock()
        self._membership = Membership(config)
        self._failure: BrokerError | None = None
        self._wake = threading.Event()
        self._heartbeat_thread: threading.Thread | None = None

    @property
    def closed(self) -> bool:
        """True after the member has left for good."""
        return self._membership.state is MemberState.CLOSED

    @property
    def generation(self) -> int:
        """The member's generation; -1 for none."""
        return self._membership.generation

    @property
    def member_id(self) -> str:
        """The member id from the coordinator; empty if it is not a member."""
        return self._membership.member_id

    @property
    def is_current(self) -> bool:
        """True for a member of the current generation, as far as is known."""
        with self._lock:
            return self._membership.in_generation and not self._membership.must_rejoin

    @property
    def can_commit(self) -> bool:
        """True for a member that is not waiting for the next generation."""
        with self._lock:
            return self._membership.in_generation

    def rejoin(self, reason: str) -> None:
        """Join again at the next poll; ``reason`` is for the coordinator's log."""
        self._handle(membership.SubscriptionChanged(reason))

    def ensure_active(self, deadline: Deadline) -> bool:
        """Join or keep up the membership for a short time; return whether the partitions can be read.

        With a cooperative assignor they can while it joins again.

        Raises BrokerError for a fatal error of the coordinator, and whatever ``on_assigned`` and
        ``on_revoked`` raise.
        """
        if self._threads and self._heartbeat_thread is None:
            self._heartbeat_thread = threading.Thread(
                target=self._run_heartbeats, name="minikafka-heartbeat", daemon=True
            )
            self._heartbeat_thread.start()
        self._raise_failure()
        if self._membership.in_group and self._protocol.has_changed(self.step_deadline(deadline)):
            self._step(membership.SubscriptionChanged())
        self._handle(membership.Polled())
        if not self._threads:
            self.tick()
            self._raise_failure()
        reads = self._membership.keeps_partitions
        if self._pending is not None:
            self._await_coordinator(self._pending, 0 if reads else deadline.at_most(POLL_SLICE_MS))
            self._raise_failure()
        elif not reads:
            pause_ms = self._membership.pause_ms(self._clock.monotonic_ms())
            self._cluster.waiter.wait(deadline.at_most(min(pause_ms, POLL_SLICE_MS)))
        return reads and self._membership.keeps_partitions

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def committer(self) -> Committer:
        """Return generation and member id for a commit. Raises UNKNOWN_MEMBER_ID if it is not a member."""
        with self._lock:
            generation, member_id = self._membership.generation, self._membership.member_id
            in_generation = self._membership.in_generation
            rebalances = self._membership.keeps_partitions and not self._membership.in_group
        if rebalances:
            raise BrokerError(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"cannot commit while group {self._config.group_id!r} rebalances; poll, then commit again",
            )
        if not in_generation:
            # Without a generation the coordinator would treat it as a client outside of the group.
            raise BrokerError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"cannot commit: not a member of group {self._config.group_id!r} now; poll to rejoin",
            )
        return Committer(generation, member_id, self._config.group_instance_id)

    def on_commit_rejected(self, generation: int, code: ErrorCode) -> None:
        """Handle a commit of ``generation`` that the coordinator rejected."""
        self._handle(membership.CommitRejected(generation, code))

    def leave(self, *, for_good: bool = True) -> None:
        """Revoke the partitions and leave the group."""
        self._handle(membership.Leaving(for_good))

    def end(self) -> None:
        """Finish ``leave`` after ``on_revoked`` has raised an error."""
        self._handle(membership.Revoked())

    def stop(self, timeout_ms: int) -> None:
        """Stop the heartbeat thread."""
        self._wake.set()
        if self._heartbeat_thread is not None:
            self._heartbeat_thread.join(timeout_ms / 1000)

    def step_deadline(self, deadline: Deadline) -> Deadline:
        """Return a deadline for one request, even if ``deadline`` leaves no time."""
        return self._cluster.deadline(max(REQUEST_MIN_TIMEOUT_MS, deadline.remaining_ms()))

    # --- executing effects

    def _step(self, event: membership.Event) -> list[membership.Effect]:
        with self._lock:
            return self._membership.step(event, self._clock.monotonic_ms())

    def _handle(self, event: membership.Event) -> None:
        """Execute the effects of ``event``, up to the next request that waits for other members."""
        effects = self._step(event)
        while effects:
            result = self._execute(effects.pop(0))
            if result is not None:
                effects += self._step(result)

    def _execute(self, effect: membership.Effect) -> membership.Event | None:
        if isinstance(effect, membership.Revoke):
            self._on_revoked(effect.lost)
            return membership.Revoked()
        if isinstance(effect, membership.PrepareRejoin):
            self._on_rejoin()
            return membership.Revoked()
        if isinstance(effect, membership.SendJoinGroup):
            return self._join(effect)
        if isinstance(effect, membership.ComputeAssignment):
            return self._compute_assignment(effect)
        if isinstance(effect, membership.SendSyncGroup):
            sync = sync_request(self._config, effect)
            return self._send_request(SYNC_GROUP, lambda _: sync, sync_completed, self.metrics.syncs)
        if isinstance(effect, membership.StartReading):
            self._start(effect)
        else:
            self._execute_on_any_thread(effect)
        return None

    def _join(self, effect: membership.SendJoinGroup) -> membership.Event | None:
        self._pending = None
        self.metrics.begin_rebalance()
        try:
            protocols = self._protocol.join_protocols(
                self._assigned_generation, self._cluster.deadline(REQUEST_MIN_TIMEOUT_MS)
            )
        except MinikafkaError as error:
            return self._on_request_failure(error)
        return self._send_request(
            JOIN_GROUP,
            lambda version: join_request(self._config, effect, protocols, version),
            join_completed,
            self.metrics.joins,
        )

    def _send_request(
        self,
        api: Any,
        request: Callable[[int], object],
        to_event: Callable[[Any], membership.Event],
        sensor: Sensor,
    ) -> membership.Event | None:
        """Send a request whose response waits for other members; ``ensure_active`` handles the response."""
        try:
            reply = self._coordinator.send(api, request, self._cluster.deadline(REQUEST_MIN_TIMEOUT_MS))
        except MinikafkaError as error:
            return self._on_request_failure(error)
        timeout_ms = self._config.max_poll_interval_ms + _JOIN_GROUP_TIMEOUT_LAPSE_MS
        self._pending = _PendingResponse(reply, to_event, self._cluster.deadline(timeout_ms), sensor)
        return None

    def _await_coordinator(self, pending: _PendingResponse, timeout_ms: int) -> None:
        if not self._cluster.wait_any([pending.reply], timeout_ms) and not pending.deadline.expired:
            return
        self._pending = None
        try:
            response = pending.reply.result(pending.deadline.timeout_ms)
            if response.error_code == ErrorCode.NONE:  # the first one of a new member is refused
                self.metrics.record(pending.sensor, pending.reply.latency_ms)
            event = pending.to_event(response)
        except (NetworkError, RemoteWireError, AuthenticationFailed) as error:
            event = self._on_request_failure(error)
        self._handle(event)

    def _on_request_failure(self, error: MinikafkaError) -> membership.Event:
        """Handle a failed request. Raises the error if it is not retriable."""
        if not is_retriable(error):
            self._handle(membership.RequestFailed())
            raise error
        logger.info("group %s: request failed; retrying: %s", self._config.group_id, error)
        self.last_failure = error
        return membership.RequestFailed()

    def _compute_assignment(self, effect: membership.ComputeAssignment) -> membership.Event:
        try:
            return self._protocol.compute_assignment(effect, self._cluster.deadline(REVOKE_TIMEOUT_MS))
        except MinikafkaError as error:
            return self._on_request_failure(error)

    def _start(self, effect: membership.StartReading) -> None:
        self._wake.set()
        self.metrics.end_rebalance()
        self.last_failure = None
        self._assigned_generation = self._membership.generation
        self._on_assigned(assigned_partitions(effect.assignment))

    # --- heartbeats: on their own thread, except in simulations

    def _run_heartbeats(self) -> None:
        while not self.closed:
            self.tick()
            with self._lock:
                idle_ms = self._membership.idle_ms(self._clock.monotonic_ms())
            self._wake.wait(idle_ms / 1000)
            self._wake.clear()

    def tick(self) -> None:
        """Send a heartbeat or leave the group if it is due. Called by the heartbeat thread."""
        for effect in self._step(membership.Ticked()):
            self._execute_on_any_thread(effect)

    def _execute_on_any_thread(self, effect: membership.Effect) -> None:
        """Execute an effect that uses no state of the caller's thread."""
        if isinstance(effect, membership.ForgetCoordinator):
            self._coordinator.forget()
        elif isinstance(effect, membership.RaiseError):
            self._failure = effect.error
        elif isinstance(effect, membership.SendLeaveGroup):
            self._leave(effect)
        elif isinstance(effect, membership.SendHeartbeat):
            for more in self._step(
                membership.HeartbeatCompleted(effect.generation, self._send_heartbeat(effect))
            ):
                self._execute_on_any_thread(more)

    def _leave(self, effect: membership.SendLeaveGroup) -> None:
        if effect.why:
            logger.warning("leaving group %s: %s", self._config.group_id, effect.why)
        if self._config.group_instance_id is not None:
            return  # its place is kept for its session time-out, so that it can come back
        request = leave_request(self._config, effect)
        deadline = self._cluster.deadline(REQUEST_MIN_TIMEOUT_MS)
        try:
            reply = self._coordinator.send(LEAVE_GROUP, lambda _: request, deadline)
            reply.result(deadline.remaining_ms())
        except MinikafkaError as error:
            logger.info("group %s: failed to send LeaveGroup: %s", self._config.group_id, error)

    def _send_heartbeat(self, effect: membership.SendHeartbeat) -> ErrorCode | None:
        """Send a heartbeat and return the coordinator's code; None for no response."""
        request = HeartbeatRequest(
            self._config.group_id, effect.generation, effect.member_id, self._config.group_instance_id
        )
        deadline = self._cluster.deadline(self._config.session_timeout_ms)
        try:
            reply = self._coordinator.send(HEARTBEAT, lambda _: request, deadline)
            # It may wait behind a JoinGroup that was sent meanwhile. Then its result is not needed, and a
            # time-out would close the connection of the JoinGroup.
            while not self._cluster.wait_any([reply], deadline.at_most(POLL_SLICE_MS)):
                if not self._membership.in_group:
                    return None
                if deadline.expired:
                    break
            code = ErrorCode.of(reply.result(deadline.timeout_ms).error_code)
            self.metrics.record_heartbeat(reply.latency_ms)
            return code
        except AuthenticationFailed as error:
            self._failure = error  # for the next poll
            return None
        except MinikafkaError as error:
            logger.info("group %s: heartbeat failed: %s", self._config.group_id, error)
            return None

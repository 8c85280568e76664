"""The state machine of a group member: ``step(event, now_ms) -> effects``.

    UNJOINED ── poll ──▶ REVOKING ── revoked ──▶ JOINING ── leader ──▶ ASSIGNING ── assigned ──▶ SYNCING
       ▲  (without partitions: at once) ─────────▲  └──────── not the leader ───────────────────▶ │
       │                                                                                          ▼
       └── rejected, lost, left, or no poll for max.poll.interval.ms ──────────────────────── STABLE

A member that must rejoin (another member joined or left, the subscription changed, the coordinator does not
know it) keeps its state until the next poll, because only a poll may revoke its partitions; it still sends
heartbeats. The poll starts REVOKING, whose effect ``Revoke`` commits the offsets.

With a cooperative assignor (KIP-429) the effect is ``PrepareRejoin``: the member keeps its partitions, and
reads them, until the next assignment says which it gives up. It loses them only with its place in the group.

Effects are executed in order. An event reports the result of each request to the coordinator (SendJoinGroup,
SendSyncGroup, SendHeartbeat), and of Revoke and ComputeAssignment.

Error codes are handled as in Kafka (``AbstractCoordinator`` of 0.10.1) with one exception: a member with an
old generation keeps its id when it rejoins, as later releases do. Otherwise the coordinator would wait for
the old id until its session times out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.clients.group.config import GroupConsumerConfig
from minikafka.clients.network.response_errors import authorization_hint
from minikafka.clients.network.retry import Backoff
from minikafka.wire.apis.offset_commit import NO_GENERATION

NO_MEMBER = ""
MemberRows = tuple[tuple[str, str | None, bytes], ...]
"""Member id, instance id of a static member, subscription."""


class MemberState(Enum):
    """The state of a member."""

    UNJOINED = "not in the group"
    REVOKING = "revoking its partitions"
    JOINING = "waiting for the JoinGroup response"
    ASSIGNING = "computing the assignment, as the leader"
    SYNCING = "waiting for the SyncGroup response"
    STABLE = "a member"
    CLOSED = "closed"


# --- events


@dataclass(frozen=True, slots=True)
class Polled:
    """The caller has polled, so its partitions may be revoked now."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class SubscriptionChanged:
    """The subscription or the partitions of its topics have changed, or ``reason``."""

    reason: str = "the subscription or its topics have changed"


@dataclass(frozen=True, slots=True)
class Revoked:
    """``Revoke`` or ``PrepareRejoin`` was executed."""


@dataclass(frozen=True, slots=True)
class JoinCompleted:
    """The response to ``SendJoinGroup``. Only the leader gets ``members``: id, instance id, subscription.

    ``skip_assignment``: it leads, and all keep what they have.
    """

    code: ErrorCode
    generation: int = NO_GENERATION
    protocol: str = ""
    leader: str = NO_MEMBER
    member_id: str = NO_MEMBER
    members: MemberRows = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class AssignmentComputed:
    """The result of ``ComputeAssignment``: member ids and assignments."""

    shares: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class SyncCompleted:
    """The response to ``SendSyncGroup``."""

    code: ErrorCode
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """A request of ``SendJoinGroup``, ``ComputeAssignment`` or ``SendSyncGroup`` has failed."""


@dataclass(frozen=True, slots=True)
class HeartbeatCompleted:
    """The response to ``SendHeartbeat``; ``code`` None: there was none."""

    generation: int
    code: ErrorCode | None


@dataclass(frozen=True, slots=True)
class CommitRejected:
    """The coordinator has rejected a commit of this generation."""

    generation: int
    code: ErrorCode


@dataclass(frozen=True, slots=True)
class Leaving:
    """The caller leaves the group; ``for_good`` when it closes."""

    for_good: bool = True


Event = (
    Polled
    | Ticked
    | SubscriptionChanged
    | Revoked
    | JoinCompleted
    | AssignmentComputed
    | SyncCompleted
    | RequestFailed
    | HeartbeatCompleted
    | CommitRejected
    | Leaving
)

# --- effects


@dataclass(frozen=True, slots=True)
class Revoke:
    """Commit, call the listener, and stop reading. ``lost``: others may have the partitions already."""

    lost: bool


@dataclass(frozen=True, slots=True)
class PrepareRejoin:
    """Commit, and give up the partitions of topics that are no longer subscribed."""


@dataclass(frozen=True, slots=True)
class SendJoinGroup:
    """Send JoinGroup. ``reason`` is for the coordinator's log."""

    member_id: str
    reason: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class ComputeAssignment:
    """Assign the partitions to ``members`` by the assignor ``protocol``."""

    protocol: str
    members: MemberRows


@dataclass(frozen=True, slots=True)
class SendSyncGroup:
    """Send SyncGroup for an assignment by ``protocol``; ``shares`` is empty unless this is the leader."""

    generation: int
    member_id: str
    protocol: str
    shares: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class StartReading:
    """Start to read the assigned partitions."""

    assignment: bytes


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Send Heartbeat."""

    generation: int
    member_id: str


@dataclass(frozen=True, slots=True)
class SendLeaveGroup:
    """Send LeaveGroup. ``why`` is for the log, empty if the caller leaves."""

    member_id: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class ForgetCoordinator:
    """Look up the coordinator before the next request: it has moved or is not available."""


@dataclass(frozen=True, slots=True)
class RaiseError:
    """Raise an error that is not retriable to the caller."""

    error: BrokerError


Effect = (
    Revoke
    | PrepareRejoin
    | SendJoinGroup
    | ComputeAssignment
    | SendSyncGroup
    | StartReading
    | SendHeartbeat
    | SendLeaveGroup
    | ForgetCoordinator
    | RaiseError
)

COORDINATOR_MOVED_CODES = frozenset(
    {ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR_FOR_GROUP}
)
"""Codes of a broker that is not the coordinator, or if there is none yet."""

REJOIN_CODES = frozenset(
    {ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS}
)
"""Codes of a coordinator for a client that is not a member of the current generation."""

MEMBER_CODES = REJOIN_CODES | COORDINATOR_MOVED_CODES | {ErrorCode.FENCED_INSTANCE_ID}
"""Codes for a commit that are about the member, not about the offsets."""


class Membership:
    """The state machine of one member. Not thread-safe.

    ``state``, ``generation`` and ``member_id`` may be read; NO_GENERATION if it is not a member.
    """

    def __init__(self, config: GroupConsumerConfig) -> None:
        self.state = MemberState.UNJOINED
        self.generation = NO_GENERATION
        self.member_id = NO_MEMBER
        self.must_rejoin = False
        """True if the member rejoins at its next poll."""
        self._config = config
        self._backoff = Backoff(config.retry_backoff_ms, max(config.retry_backoff_ms, 1_000))
        self._failures = 0
        self._has_assignment = False
        """True while the caller has partitions that are not revoked yet."""
        self._is_preparing = False
        """True in REVOKING if ``PrepareRejoin`` is its effect."""
        self._protocol = ""
        self._reason = "a consumer has started"
        self._state_after_revoke: MemberState | None = None
        """The state after its partitions are revoked; None: it rejoins."""
        self._rejoin_at_ms = 0
        self._last_poll_ms = 0
        self._last_heartbeat_ms = 0
        self._next_heartbeat_ms = 0
        self._heartbeat_in_flight = False

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Return the effects of ``event``."""
        if self.state is MemberState.CLOSED:
            return []
        if isinstance(event, Polled):
            return self._on_poll(now_ms)
        if isinstance(event, Ticked):
            return self._on_tick(now_ms)
        if isinstance(event, SubscriptionChanged):
            self._must_rejoin(event.reason)
            return []
        if isinstance(event, Leaving):
            return self._leave(MemberState.CLOSED if event.for_good else MemberState.UNJOINED)
        if isinstance(event, HeartbeatCompleted):
            return self._on_heartbeat(event, now_ms)
        if isinstance(event, CommitRejected):
            return self._on_member_code(event.generation, event.code) if event.code in MEMBER_CODES else []
        return self._on_join_event(event, now_ms)

    @property
    def in_group(self) -> bool:
        """True while it has partitions and sends heartbeats."""
        return self.state in (MemberState.STABLE, MemberState.REVOKING)

    @property
    def in_generation(self) -> bool:
        """True while it is in the group, and the coordinator has not refused its generation."""
        return self.in_group and self.generation != NO_GENERATION

    @property
    def keeps_partitions(self) -> bool:
        """True while it reads its partitions, also during a cooperative rebalance."""
        if self.in_group:
            return True
        return self._has_assignment and self._config.is_cooperative and self.generation != NO_GENERATION

    def pause_ms(self, now_ms: int) -> int:
        """Return the time that a poll has to wait before it may rejoin."""
        return max(0, self._rejoin_at_ms - now_ms) if self.state is MemberState.UNJOINED else 0

    def idle_ms(self, now_ms: int) -> int:
        """Return the time for which ``Ticked`` has no effect, unless another event comes first."""
        if not self.in_generation or self._heartbeat_in_flight:
            return self._config.heartbeat_interval_ms
        due_ms = min(self._next_heartbeat_ms, self._last_poll_ms + self._config.max_poll_interval_ms)
        return max(0, due_ms - now_ms)

    # --- polling and time

    def _on_poll(self, now_ms: int) -> list[Effect]:
        self._last_poll_ms = now_ms
        if self.state is MemberState.REVOKING:
            # The listener has raised an error: its partitions are revoked all the same.
            return self._on_revoked()
        if self.state is MemberState.UNJOINED:
            if now_ms < self._rejoin_at_ms:
                return []
            if self._has_assignment and not self.keeps_partitions:
                return self._revoke(lost=True)
            return self._join()
        if self.state is MemberState.STABLE and self.must_rejoin:
            if self.generation == NO_GENERATION or not self._config.is_cooperative:
                return self._revoke(lost=self.generation == NO_GENERATION)
            self.state, self._is_preparing = MemberState.REVOKING, True
            return [PrepareRejoin()]
        return []

    def _on_tick(self, now_ms: int) -> list[Effect]:
        if not self.in_generation:
            return []
        limit_ms = self._config.max_poll_interval_ms
        if self.state is MemberState.STABLE and now_ms - self._last_poll_ms >= limit_ms:
            why = f"no poll for max.poll.interval.ms={limit_ms}; poll more often, or raise it"
            effects: list[Effect] = [SendLeaveGroup(self.member_id, why)]
            self._reset_generation(NO_MEMBER)
            return effects
        effects = []
        if now_ms - self._last_heartbeat_ms >= self._config.session_timeout_ms:
            # The session is over if the coordinator is alive, which the next heartbeat shows.
            self._last_heartbeat_ms = now_ms
            effects.append(ForgetCoordinator())
        if not self._heartbeat_in_flight and now_ms >= self._next_heartbeat_ms:
            self._heartbeat_in_flight = True
            self._next_heartbeat_ms = now_ms + self._config.heartbeat_interval_ms
            effects.append(SendHeartbeat(self.generation, self.member_id))
        return effects

    def _revoke(self, *, lost: bool) -> list[Effect]:
        self.state, self._is_preparing = MemberState.REVOKING, False
        return [Revoke(lost)]

    def _on_revoked(self) -> list[Effect]:
        if self._is_preparing:
            # The commit may have shown that it is no longer a member.
            return self._revoke(lost=True) if self.generation == NO_GENERATION else self._join()
        self._has_assignment = False
        return (
            self._join()
            if self._state_after_revoke is None
            else self._finish_leaving(self._state_after_revoke)
        )

    def _join(self) -> list[Effect]:
        self.state = MemberState.JOINING
        self.must_rejoin = False
        return [SendJoinGroup(self.member_id, self._reason)]

    def _must_rejoin(self, reason: str) -> None:
        self.must_rejoin = True
        self._reason = reason

    # --- joining

    def _on_join_event(
        self, event: Revoked | JoinCompleted | AssignmentComputed | SyncCompleted | RequestFailed, now_ms: int
    ) -> list[Effect]:
        if isinstance(event, Revoked) and self.state is MemberState.REVOKING:
            return self._on_revoked()
        if isinstance(event, JoinCompleted) and self.state is MemberState.JOINING:
            return self._on_joined(event, now_ms)
        if isinstance(event, AssignmentComputed) and self.state is MemberState.ASSIGNING:
            self.state = MemberState.SYNCING
            return [SendSyncGroup(self.generation, self.member_id, self._protocol, event.shares)]
        if isinstance(event, SyncCompleted) and self.state is MemberState.SYNCING:
            return self._on_synced(event, now_ms)
        if isinstance(event, RequestFailed) and self.state in (
            MemberState.JOINING,
            MemberState.ASSIGNING,
            MemberState.SYNCING,
        ):
            self._back_off(now_ms)
            return [ForgetCoordinator()]
        return []

    def _on_joined(self, event: JoinCompleted, now_ms: int) -> list[Effect]:
        if event.code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = event.member_id
            return [SendJoinGroup(self.member_id, self._reason)]
        if event.code is not ErrorCode.NONE:
            return self._on_rejected(event.code, "join", now_ms)
        self.generation, self.member_id, self._protocol = event.generation, event.member_id, event.protocol
        if event.leader == event.member_id and not event.skip_assignment:
            self.state = MemberState.ASSIGNING
            return [ComputeAssignment(event.protocol, event.members)]
        self.state = MemberState.SYNCING
        return [SendSyncGroup(self.generation, self.member_id, self._protocol, ())]

    def _on_synced(self, event: SyncCompleted, now_ms: int) -> list[Effect]:
        if event.code is not ErrorCode.NONE:
            return self._on_rejected(event.code, "get an assignment of", now_ms)
        self.state = MemberState.STABLE
        self._has_assignment = True
        self._failures = 0
        self._heartbeat_in_flight = False
        self._last_poll_ms = self._last_heartbeat_ms = now_ms
        self._next_heartbeat_ms = now_ms + self._config.heartbeat_interval_ms
        return [StartReading(event.assignment)]

    def _on_rejected(self, code: ErrorCode, what: str, now_ms: int) -> list[Effect]:
        self._reason = f"could not {what} the group: {code.name}"
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._interrupt()
            return []
        if code is ErrorCode.ILLEGAL_GENERATION:
            self._reset_generation(self.member_id)
            return []
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._reset_generation(NO_MEMBER)
            return []
        if code in COORDINATOR_MOVED_CODES or code.is_retriable:
            self._back_off(now_ms)
            return [ForgetCoordinator()] if code in COORDINATOR_MOVED_CODES else []
        # A fenced member keeps its old id: with none it would fence the client that has replaced it.
        self._reset_generation(self.member_id if code is ErrorCode.FENCED_INSTANCE_ID else NO_MEMBER)
        return [
            RaiseError(BrokerError(code, f"cannot {what} group {self._config.group_id!r}{self._hint(code)}"))
        ]

    def _hint(self, code: ErrorCode) -> str:
        if code is ErrorCode.INVALID_SESSION_TIMEOUT:
            return (
                f": session.timeout.ms={self._config.session_timeout_ms} is not between the brokers' "
                "group.min.session.timeout.ms and group.max.session.timeout.ms"
            )
        if code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            return (
                f": no partition.assignment.strategy of {','.join(self._config.assignors)} is supported by "
                "all members, or the members are not consumers"
            )
        if code is ErrorCode.FENCED_INSTANCE_ID:
            return (
                f": another consumer has joined with group.instance.id={self._config.group_instance_id}; "
                "give each consumer its own, and stop this one"
            )
        if code is ErrorCode.GROUP_MAX_SIZE_REACHED:
            return ": it has as many members as the brokers' group.max.size allows"
        return authorization_hint(code, "Read", f"Group:{self._config.group_id}")

    def _back_off(self, now_ms: int) -> None:
        self._interrupt()
        self._failures += 1
        self._rejoin_at_ms = now_ms + self._backoff.delay_ms(self._failures)

    def _interrupt(self) -> None:
        """Give up an attempt to join. A cooperative member still has its partitions."""
        generation = self.generation if self._config.is_cooperative else NO_GENERATION
        self._reset_generation(self.member_id)
        self.generation = generation

    def _reset_generation(self, member_id: str) -> None:
        self.state = MemberState.UNJOINED
        self.generation = NO_GENERATION
        self.member_id = member_id
        self._heartbeat_in_flight = False

    # --- in the group

    def _on_heartbeat(self, event: HeartbeatCompleted, now_ms: int) -> list[Effect]:
        if event.generation == self.generation and self.in_group:
            self._heartbeat_in_flight = False
            if event.code is None or event.code in COORDINATOR_MOVED_CODES:
                self._next_heartbeat_ms = min(self._next_heartbeat_ms, now_ms + self._config.retry_backoff_ms)
                return [ForgetCoordinator()]
            if event.code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
                self._last_heartbeat_ms = now_ms
        return [] if event.code is None else self._on_member_code(event.generation, event.code)

    def _on_member_code(self, generation: int, code: ErrorCode) -> list[Effect]:
        """Handle the coordinator's code for a heartbeat or a commit."""
        if generation != self.generation or not self.in_group:
            return []
        if code in COORDINATOR_MOVED_CODES:
            return [ForgetCoordinator()]
        if code is ErrorCode.NONE or code.is_retriable:
            return []
        self._must_rejoin(f"a heartbeat or a commit was refused: {code.name}")
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            return []
        self.generation = NO_GENERATION
        if code is ErrorCode.ILLEGAL_GENERATION:
            return []
        if code is not ErrorCode.FENCED_INSTANCE_ID:
            self.member_id = NO_MEMBER
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            return []
        detail = f"heartbeat of group {self._config.group_id!r} failed{self._hint(code)}"
        return [RaiseError(BrokerError(code, detail))]

    def _leave(self, next_state: MemberState) -> list[Effect]:
        self._state_after_revoke = next_state
        if self._has_assignment:
            # A commit would wait behind the JoinGroup of a member that joins.
            return self._revoke(lost=not self.in_generation)
        return self._finish_leaving(next_state)

    def _finish_leaving(self, next_state: MemberState) -> list[Effect]:
        effects: list[Effect] = [] if self.member_id == NO_MEMBER else [SendLeaveGroup(self.member_id)]
        self._reset_generation(NO_MEMBER)
        self.state = next_state
        self._state_after_revoke = None
        self.must_rejoin = False
        return effects

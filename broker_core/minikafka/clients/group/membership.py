"""A member's way through a group, as decisions: ``step(event, now_ms) -> effects``.

    OUTSIDE ── poll ──▶ GIVING UP ── revoked ──▶ JOINING ── leader ──▶ SHARING ── shares ──▶ SYNCING
       ▲  (nothing to give up: at once) ─────────▲  └──────── not the leader ───────────────▶ │
       │                                                                                      ▼
       └── refused, lost, left, or silent for max.poll.interval.ms ──────────────────────── MEMBER

A member that must join again (another one came or went, the subscription changed, the coordinator forgot it)
stays where it is until the next poll, because only there may its partitions be taken from it; it goes on
sending heartbeats. Then GIVING UP begins, whose effect ``Revoke`` is where offsets are committed.

Effects are carried out in their order. Those that ask the coordinator (Join, Sync, Heartbeat) are answered by
an event, as are Revoke and Share.

What the codes mean is Kafka's (``AbstractCoordinator`` of 0.10.1), but for one: a member whose generation is
old keeps its id when it joins again, as later releases do. Without it the coordinator would wait for the old
one until its session ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.clients.group.config import GroupConsumerConfig
from minikafka.clients.network.response_errors import authorization_hint
from minikafka.clients.network.retry import Backoff
from minikafka.wire.apis.offset_commit import NO_GENERATION

NO_MEMBER = ""


class Phase(Enum):
    """Where a member stands."""

    OUTSIDE = "not in the group"
    GIVING_UP = "giving up its partitions"
    JOINING = "waiting for the others to join"
    SHARING = "sharing the partitions, as the leader"
    SYNCING = "waiting for its partitions"
    MEMBER = "a member"
    CLOSED = "closed"


# --- events


@dataclass(frozen=True, slots=True)
class Polled:
    """The caller is here: it lives, and its partitions may be taken from it now."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What to share has changed: the subscription, or the partitions of its topics."""


@dataclass(frozen=True, slots=True)
class Revoked:
    """``Revoke`` was carried out."""


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to ``Join``. ``members`` (ids and subscriptions) only reach the leader."""

    code: ErrorCode
    generation: int = NO_GENERATION
    protocol: str = ""
    leader: str = NO_MEMBER
    member_id: str = NO_MEMBER
    members: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Shared:
    """The shares that ``Share`` asked for: member ids and assignments."""

    shares: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Synced:
    """The answer to ``Sync``."""

    code: ErrorCode
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Failed:
    """Nobody answered ``Join``, ``Share`` or ``Sync``."""


@dataclass(frozen=True, slots=True)
class Beaten:
    """The answer to ``Heartbeat``; ``code`` None: there was none."""

    generation: int
    code: ErrorCode | None


@dataclass(frozen=True, slots=True)
class CommitRefused:
    """The coordinator has refused a commit of this generation."""

    generation: int
    code: ErrorCode


@dataclass(frozen=True, slots=True)
class Leaving:
    """The caller wants to be no member any more; ``for_good`` when it closes."""

    for_good: bool = True


Event = (
    Polled | Ticked | Changed | Revoked | Joined | Shared | Synced | Failed | Beaten | CommitRefused | Leaving
)

# --- effects


@dataclass(frozen=True, slots=True)
class Revoke:
    """Commit what was read, tell the listener, and read no more. ``lost``: others may have them already."""

    lost: bool


@dataclass(frozen=True, slots=True)
class Join:
    """Send JoinGroup."""

    member_id: str


@dataclass(frozen=True, slots=True)
class Share:
    """Share the partitions among ``members`` by the assignor ``protocol``."""

    protocol: str
    members: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Sync:
    """Send SyncGroup; ``shares`` is empty but for the leader."""

    generation: int
    member_id: str
    shares: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Start:
    """Read these partitions from now on."""

    assignment: bytes


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Send Heartbeat."""

    generation: int
    member_id: str


@dataclass(frozen=True, slots=True)
class Leave:
    """Send LeaveGroup; nobody waits for its answer. ``why`` is for the log, empty where it was wished."""

    member_id: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Forget:
    """The coordinator is another one, or away: look for it before the next request."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Trying again is useless: tell the caller."""

    error: BrokerError


Effect = Revoke | Join | Share | Sync | Start | Heartbeat | Leave | Forget | Fail

ELSEWHERE = frozenset({ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR_FOR_GROUP})
"""Codes by which a broker says that another one coordinates the group, or none yet."""

OF_MEMBERS = frozenset(
    {ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS}
)
"""Codes by which a coordinator says that whoever asks is no member of the group as it is now."""


class Membership:
    """One member. Not thread-safe.

    ``phase``, ``generation`` and ``member_id`` may be read; NO_GENERATION while it is no member.
    """

    def __init__(self, config: GroupConsumerConfig) -> None:
        self.phase = Phase.OUTSIDE
        self.generation = NO_GENERATION
        self.member_id = NO_MEMBER
        self.must_rejoin = False
        """A member that joins again at its next poll."""
        self._config = config
        self._backoff = Backoff(config.retry_backoff_ms, max(config.retry_backoff_ms, 1_000))
        self._failures = 0
        self._holds = False
        """Partitions were given to the caller and not yet taken from it."""
        self._then: Phase | None = None
        """Where it goes once its partitions are given up, if it does not join again."""
        self._not_before_ms = 0
        self._polled_ms = 0
        self._heard_ms = 0
        self._next_beat_ms = 0
        self._beating = False

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """What is to be done upon ``event``."""
        if self.phase is Phase.CLOSED:
            return []
        if isinstance(event, Polled):
            return self._polled(now_ms)
        if isinstance(event, Ticked):
            return self._ticked(now_ms)
        if isinstance(event, Changed):
            self.must_rejoin = True
            return []
        if isinstance(event, Leaving):
            return self._leave(Phase.CLOSED if event.for_good else Phase.OUTSIDE)
        if isinstance(event, Beaten):
            return self._beaten(event, now_ms)
        if isinstance(event, CommitRefused):
            # Most codes are about the offsets, not about the member.
            known = event.code in ELSEWHERE or event.code in OF_MEMBERS
            return self._heard(event.generation, event.code) if known else []
        return self._on_the_way(event, now_ms)

    @property
    def in_group(self) -> bool:
        """Whether it has partitions, and sends heartbeats for them."""
        return self.phase in (Phase.MEMBER, Phase.GIVING_UP)

    def pause_ms(self, now_ms: int) -> int:
        """How long a poll has to wait before it may join again."""
        return max(0, self._not_before_ms - now_ms) if self.phase is Phase.OUTSIDE else 0

    def idle_ms(self, now_ms: int) -> int:
        """How long a ``Ticked`` does nothing, unless another event comes before."""
        if not self.in_group or self._beating or self.generation == NO_GENERATION:
            return self._config.heartbeat_interval_ms
        due_ms = min(self._next_beat_ms, self._polled_ms + self._config.max_poll_interval_ms)
        return max(0, due_ms - now_ms)

    # --- polling and time

    def _polled(self, now_ms: int) -> list[Effect]:
        self._polled_ms = now_ms
        if self.phase is Phase.GIVING_UP:
            # A listener that raised an error: its partitions are given up all the same.
            return self._given_up()
        if self.phase is Phase.OUTSIDE:
            if now_ms < self._not_before_ms:
                return []
            return self._give_up(lost=True) if self._holds else self._join()
        if self.phase is Phase.MEMBER and self.must_rejoin:
            return self._give_up(lost=self.generation == NO_GENERATION)
        return []

    def _ticked(self, now_ms: int) -> list[Effect]:
        if not self.in_group or self.generation == NO_GENERATION:
            return []
        limit_ms = self._config.max_poll_interval_ms
        if self.phase is Phase.MEMBER and now_ms - self._polled_ms >= limit_ms:
            why = f"nothing was polled for max.poll.interval.ms={limit_ms}"
            effects: list[Effect] = [Leave(self.member_id, why)]
            self._outside(NO_MEMBER)
            return effects
        effects = []
        if now_ms - self._heard_ms >= self._config.session_timeout_ms:
            # The session is over if the coordinator lives. Whether it does, the next heartbeat tells.
            self._heard_ms = now_ms
            effects.append(Forget())
        if not self._beating and now_ms >= self._next_beat_ms:
            self._beating = True
            self._next_beat_ms = now_ms + self._config.heartbeat_interval_ms
            effects.append(Heartbeat(self.generation, self.member_id))
        return effects

    def _give_up(self, *, lost: bool) -> list[Effect]:
        self.phase = Phase.GIVING_UP
        return [Revoke(lost)]

    def _given_up(self) -> list[Effect]:
        self._holds = False
        return self._join() if self._then is None else self._left(self._then)

    def _join(self) -> list[Effect]:
        self.phase = Phase.JOINING
        self.must_rejoin = False
        return [Join(self.member_id)]

    # --- joining

    def _on_the_way(self, event: Revoked | Joined | Shared | Synced | Failed, now_ms: int) -> list[Effect]:
        if isinstance(event, Revoked) and self.phase is Phase.GIVING_UP:
            return self._given_up()
        if isinstance(event, Joined) and self.phase is Phase.JOINING:
            return self._joined(event, now_ms)
        if isinstance(event, Shared) and self.phase is Phase.SHARING:
            self.phase = Phase.SYNCING
            return [Sync(self.generation, self.member_id, event.shares)]
        if isinstance(event, Synced) and self.phase is Phase.SYNCING:
            return self._synced(event, now_ms)
        if isinstance(event, Failed) and self.phase in (Phase.JOINING, Phase.SHARING, Phase.SYNCING):
            self._try_later(now_ms)
            return [Forget()]
        return []

    def _joined(self, event: Joined, now_ms: int) -> list[Effect]:
        if event.code is not ErrorCode.NONE:
            return self._refused(event.code, "join", now_ms)
        self.generation, self.member_id = event.generation, event.member_id
        if event.leader == event.member_id:
            self.phase = Phase.SHARING
            return [Share(event.protocol, event.members)]
        self.phase = Phase.SYNCING
        return [Sync(self.generation, self.member_id, ())]

    def _synced(self, event: Synced, now_ms: int) -> list[Effect]:
        if event.code is not ErrorCode.NONE:
            return self._refused(event.code, "get partitions of", now_ms)
        self.phase = Phase.MEMBER
        self._holds = True
        self._failures = 0
        self._beating = False
        self._polled_ms = self._heard_ms = now_ms
        self._next_beat_ms = now_ms + self._config.heartbeat_interval_ms
        return [Start(event.assignment)]

    def _refused(self, code: ErrorCode, what: str, now_ms: int) -> list[Effect]:
        if code is ErrorCode.REBALANCE_IN_PROGRESS or code is ErrorCode.ILLEGAL_GENERATION:
            self._outside(self.member_id)
            return []
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._outside(NO_MEMBER)
            return []
        if code in ELSEWHERE or code.is_retriable:
            self._try_later(now_ms)
            return [Forget()] if code in ELSEWHERE else []
        self._outside(NO_MEMBER)
        return [Fail(BrokerError(code, f"cannot {what} group {self._config.group_id!r}{self._hint(code)}"))]

    def _hint(self, code: ErrorCode) -> str:
        if code is ErrorCode.INVALID_SESSION_TIMEOUT:
            return (
                f": session.timeout.ms={self._config.session_timeout_ms} is not between the brokers' "
                "group.min.session.timeout.ms and group.max.session.timeout.ms"
            )
        if code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            return (
                f": no partition.assignment.strategy of {','.join(self._config.assignors)} is known to all "
                "of its members, or they are no consumers"
            )
        return authorization_hint(code, "Read", f"Group:{self._config.group_id}")

    def _try_later(self, now_ms: int) -> None:
        self._outside(self.member_id)
        self._failures += 1
        self._not_before_ms = now_ms + self._backoff.delay_ms(self._failures)

    def _outside(self, member_id: str) -> None:
        self.phase = Phase.OUTSIDE
        self.generation = NO_GENERATION
        self.member_id = member_id
        self._beating = False

    # --- being a member

    def _beaten(self, event: Beaten, now_ms: int) -> list[Effect]:
        if event.generation == self.generation and self.in_group:
            self._beating = False
            if event.code is None or event.code in ELSEWHERE:
                self._next_beat_ms = min(self._next_beat_ms, now_ms + self._config.retry_backoff_ms)
                return [Forget()]
            if event.code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
                self._heard_ms = now_ms
        return [] if event.code is None else self._heard(event.generation, event.code)

    def _heard(self, generation: int, code: ErrorCode) -> list[Effect]:
        """What the coordinator says of the membership, in its answer to a heartbeat or a commit."""
        if generation != self.generation or not self.in_group:
            return []
        if code in ELSEWHERE:
            return [Forget()]
        if code is ErrorCode.NONE or code.is_retriable:
            return []
        self.must_rejoin = True
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            return []
        self.generation = NO_GENERATION
        if code is ErrorCode.ILLEGAL_GENERATION:
            return []
        self.member_id = NO_MEMBER
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            return []
        return [Fail(BrokerError(code, f"a heartbeat of group {self._config.group_id!r}{self._hint(code)}"))]

    def _leave(self, then: Phase) -> list[Effect]:
        self._then = then
        if self._holds:
            return self._give_up(lost=self.generation == NO_GENERATION)
        return self._left(then)

    def _left(self, then: Phase) -> list[Effect]:
        effects: list[Effect] = [] if self.member_id == NO_MEMBER else [Leave(self.member_id)]
        self._outside(NO_MEMBER)
        self.phase = then
        self._then = None
        self.must_rejoin = False
        return effects

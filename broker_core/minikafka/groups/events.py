"""The events that a group takes, and the effects that it returns.

All values; the order of effects is the order to perform them. ``request`` stands for a request that waits for
its response: the group keeps it, returns it in exactly one effect, and does not use it otherwise. Times are
milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minikafka.base.errors import ErrorCode
from minikafka.groups.messages import GroupMetadataValue

NO_GENERATION = -1
"""The generation in the response to a refused join."""

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) of each assignment strategy that a member supports, the preferred one first."""


@dataclass(frozen=True, slots=True)
class JoinSettings:
    """The part of a member that each of its joins replaces."""

    protocols: Protocols
    rebalance_timeout_ms: int
    session_timeout_ms: int


# --- events -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """The ids in a request; ``group_instance_id`` is that of a static member. ``reason``: why it leaves."""

    member_id: str
    group_instance_id: str | None = None
    reason: str = ""

    @property
    def is_given(self) -> bool:
        """Return whether the request has one of the ids."""
        return bool(self.member_id) or self.group_instance_id is not None


@dataclass(frozen=True, slots=True)
class Join:
    """A member wants to join the next generation. Joined follows.

    ``member_id`` is empty for a new member; it becomes ``new_member_id`` if it is accepted.
    ``requires_member_id``: a new dynamic member gets its id and must join with it. ``skips_assignment``:
    the client knows that a leader may have to keep the assignment. ``reason`` is the client's, for the log.
    """

    request: Any
    member_id: str
    new_member_id: str
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    group_instance_id: str | None = None
    requires_member_id: bool = False
    skips_assignment: bool = False
    reason: str = ""

    @property
    def settings(self) -> JoinSettings:
        """The part that replaces a member's former one."""
        return JoinSettings(self.protocols, self.rebalance_timeout_ms, self.session_timeout_ms)


@dataclass(frozen=True, slots=True)
class Sync:
    """A member requests its assignment; the leader sends those of all, by member id. Synced follows.

    ``protocol_type`` and ``protocol`` must be those of the group, unless they are None.
    """

    request: Any
    member_id: str
    generation: int
    assignments: Mapping[str, bytes]
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A member is alive. Answered follows."""

    request: Any
    member_id: str
    generation: int
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Leave:
    """Members leave, or an administrator removes static members, by empty member ids. Left follows."""

    request: Any
    members: tuple[MemberIdentity, ...]


@dataclass(frozen=True, slots=True)
class GroupStored:
    """The outcome of StoreGroup: every in-sync replica has its value (NONE), or the write failed."""

    store: StoreGroup
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Tick:
    """A deadline of the group may have passed."""


@dataclass(frozen=True, slots=True)
class Unload:
    """Another broker has become the coordinator of the group."""


Event = Join | Sync | Heartbeat | Leave | GroupStored | Tick | Unload

# --- effects ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Joined:
    """The response to a Join. Only the leader gets ``members``: id, instance id, metadata of the protocol.

    ``skip_assignment``: it leads a generation whose assignment it must keep.
    """

    request: Any
    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class Synced:
    """The response to a Sync."""

    request: Any
    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """The response to a Heartbeat."""

    request: Any
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Left:
    """The response to a Leave: the outcome for each member, or ``error`` for all."""

    request: Any
    error: ErrorCode
    members: tuple[tuple[MemberIdentity, ErrorCode], ...] = ()


@dataclass(frozen=True, slots=True)
class Replacement:
    """A static member that has come back under a new member id in a stable group, and its state before."""

    member_id: str
    old_member_id: str
    old_settings: JoinSettings
    old_leader: str
    skips_assignment: bool


@dataclass(frozen=True, slots=True)
class StoreGroup:
    """Store the group's metadata; one GroupStored follows. ``replacement``: the reason in a stable group."""

    value: GroupMetadataValue
    replacement: Replacement | None = None


@dataclass(frozen=True, slots=True)
class Rebalancing:
    """A rebalance begins; ``reason`` is for the log."""

    reason: str


Effect = Joined | Synced | Answered | Left | StoreGroup | Rebalancing

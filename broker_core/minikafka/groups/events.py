"""The events that a group takes, and the effects that it returns.

All values; the order of effects is the order to perform them. ``request`` stands for a request that waits for
its answer: the group keeps it, gives it back in exactly one effect, and never looks at it. Times are
milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minikafka.base.errors import ErrorCode
from minikafka.groups.messages import GroupMetadataValue

# --- events -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Join:
    """A member wants to be in the next generation. Answered by Joined.

    ``member_id`` is empty for one that is not known yet; it becomes ``new_member_id`` if it is accepted.
    ``protocols``: (name, metadata) of each assignment strategy that it can follow, the preferred one first.
    """

    request: Any
    member_id: str
    new_member_id: str
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Sync:
    """A member asks for its assignment, the leader with those of all, by member id. Answered by Synced."""

    request: Any
    member_id: str
    generation: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A member is alive. Answered by Answered."""

    request: Any
    member_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class Leave:
    """A member goes. Answered by Answered."""

    request: Any
    member_id: str


@dataclass(frozen=True, slots=True)
class Stored:
    """What Store asked for: every in-sync replica has ``value`` (NONE), or it failed."""

    value: GroupMetadataValue
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Tick:
    """A deadline of the group may have come."""


@dataclass(frozen=True, slots=True)
class Unload:
    """Another broker coordinates the group from now on."""


Event = Join | Sync | Heartbeat | Leave | Stored | Tick | Unload

# --- effects ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to a Join. ``members`` (id -> metadata of the chosen protocol) goes to the leader alone."""

    request: Any
    error: ErrorCode
    member_id: str
    generation: int = 0
    protocol: str = ""
    leader: str = ""
    members: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Synced:
    """The answer to a Sync."""

    request: Any
    error: ErrorCode
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a Heartbeat or a Leave."""

    request: Any
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Store:
    """Write the group down; answered by one Stored."""

    value: GroupMetadataValue


Effect = Joined | Synced | Answered | Store

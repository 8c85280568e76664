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

# --- events -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Join:
    """A member wants to join the next generation. Joined follows.

    ``member_id`` is empty for a new member; it becomes ``new_member_id`` if it is accepted. ``protocols``:
    (name, metadata) of each assignment strategy that it supports, the preferred one first.
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
    """A member requests its assignment; the leader sends those of all, by member id. Synced follows."""

    request: Any
    member_id: str
    generation: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A member is alive. Answered follows."""

    request: Any
    member_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class Leave:
    """A member leaves. Answered follows."""

    request: Any
    member_id: str


@dataclass(frozen=True, slots=True)
class GroupStored:
    """The outcome of StoreGroup: every in-sync replica has ``value`` (NONE), or the write failed."""

    value: GroupMetadataValue
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
    """The response to a Join. ``members`` (id, metadata of the chosen protocol) goes only to the leader."""

    request: Any
    error: ErrorCode
    member_id: str
    generation: int = 0
    protocol: str = ""
    leader: str = ""
    members: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Synced:
    """The response to a Sync."""

    request: Any
    error: ErrorCode
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Answered:
    """The response to a Heartbeat or a Leave."""

    request: Any
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class StoreGroup:
    """Store the group's metadata; one GroupStored follows."""

    value: GroupMetadataValue


Effect = Joined | Synced | Answered | StoreGroup

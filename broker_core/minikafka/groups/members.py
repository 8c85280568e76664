"""The members of one group: dynamic and static ones, and members that have an id but have not joined yet.

A static member (KIP-345) names its place in the group by ``group.instance.id``. A client that comes back with
the same name takes the place over under a new member id, with the assignment; the old id is fenced. A pending
member (KIP-394) has an id from the coordinator and must join with it, so that a join whose response is lost
leaves no member behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from minikafka.base.errors import ErrorCode
from minikafka.groups import events
from minikafka.groups.events import JoinSettings, Protocols
from minikafka.groups.messages import MemberMetadataValue

GROUP_BYTES = 2_000
"""Approximate bytes of memory of a group that has had members."""
MEMBER_BYTES = 2_000
"""Approximate bytes of memory of a member, without the strings that its client sends."""
PENDING_MEMBER_BYTES = 300
"""Approximate bytes of memory of a pending member, without its id."""
PROTOCOL_BYTES = 300
"""Approximate bytes of memory of a member's protocol, without its name and metadata."""


@dataclass(frozen=True, slots=True)
class MemberSummary:
    """A member in DescribeGroups; metadata and assignment are empty unless its group is stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class Member:
    """One member. ``awaiting_join`` and ``awaiting_sync`` are its requests that wait for a response."""

    def __init__(
        self,
        member_id: str,
        client: events.Join | MemberMetadataValue,
        settings: JoinSettings,
        deadline_ms: int,
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = client.group_instance_id
        """None for a dynamic member."""
        self.client_id = client.client_id
        self.client_host = client.client_host
        self.settings = settings
        self.assignment = b""
        self.awaiting_join: Any = None
        self.awaiting_sync: Any = None
        self.is_new = True
        self.session_deadline_ms = deadline_ms

    @classmethod
    def restored(cls, value: MemberMetadataValue, protocol: str, now_ms: int) -> Member:
        """Create a member from its stored value, with a new session."""
        settings = JoinSettings(
            ((protocol, value.subscription),), value.rebalance_timeout_ms, value.session_timeout_ms
        )
        member = cls(value.member_id, value, settings, now_ms + value.session_timeout_ms)
        member.assignment = value.assignment
        member.is_new = False
        return member

    @property
    def memory_bytes(self) -> int:
        """Approximate bytes of memory of the member."""
        return MEMBER_BYTES + protocols_bytes(self.settings.protocols) + len(self.assignment)

    def metadata(self, protocol: str) -> bytes:
        """Return its metadata for a protocol, which the leader gets."""
        return next(metadata for name, metadata in self.settings.protocols if name == protocol)

    def renew_session(self, now_ms: int) -> None:
        """Start its session time-out anew."""
        self.session_deadline_ms = now_ms + self.settings.session_timeout_ms

    def has_expired(self, now_ms: int) -> bool:
        """Return whether its session is over; not while its request waits, as it cannot send another then."""
        if self.awaiting_sync is not None or (self.awaiting_join is not None and not self.is_new):
            return False
        return self.session_deadline_ms <= now_ms

    def summary(self, protocol: str | None) -> MemberSummary:
        """Return its description; with ``protocol``, that of a stable group, also its metadata and
        assignment.
        """
        return MemberSummary(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            b"" if protocol is None else self.metadata(protocol),
            b"" if protocol is None else self.assignment,
        )

    def stored_value(self, protocol: str | None, assignment: bytes) -> MemberMetadataValue:
        """Return the value to store, with its metadata for the group's protocol."""
        return MemberMetadataValue(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.settings.rebalance_timeout_ms,
            self.settings.session_timeout_ms,
            self.metadata(protocol or ""),
            assignment,
        )


class GroupMembers:
    """The members of one group by their ids, in the order in which they came; ``len`` is without pending
    ones.
    """

    def __init__(self) -> None:
        self.pending: dict[str, int] = {}
        """Id of a pending member -> the time at which it is forgotten."""
        self.memory_bytes = GROUP_BYTES
        """Approximate bytes of memory of the group with its members."""
        self._by_id: dict[str, Member] = {}
        self._static_ids: dict[str, str] = {}
        """Instance id -> member id."""
        self._protocol_support: Counter[str] = Counter()
        """Protocol -> number of members that support it."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._by_id.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._by_id

    def __getitem__(self, member_id: str) -> Member:
        return self._by_id[member_id]

    def get(self, member_id: str) -> Member | None:
        """Return a member; None if there is none of that id."""
        return self._by_id.get(member_id)

    def static(self, group_instance_id: str | None) -> Member | None:
        """Return the static member of an instance id; None if there is none."""
        if group_instance_id is None or group_instance_id not in self._static_ids:
            return None
        return self._by_id[self._static_ids[group_instance_id]]

    def check(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Return NONE if a request comes from a member, otherwise the error."""
        if group_instance_id is not None:
            current_id = self._static_ids.get(group_instance_id)
            if current_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self._by_id else ErrorCode.UNKNOWN_MEMBER_ID

    # --- changes --------------------------------------------------------------------------------------------

    def add(self, member: Member) -> None:
        """Add a member; it is no longer pending."""
        self.remove_pending(member.member_id)
        self._by_id[member.member_id] = member
        if member.group_instance_id is not None:
            self._static_ids[member.group_instance_id] = member.member_id
        self._count(member, 1)

    def remove(self, member: Member) -> None:
        """Remove a member."""
        del self._by_id[member.member_id]
        if member.group_instance_id is not None:
            del self._static_ids[member.group_instance_id]
        self._count(member, -1)

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member another id."""
        assert member.group_instance_id is not None
        del self._by_id[member.member_id]
        member.member_id = member_id
        self._by_id[member_id] = member
        self._static_ids[member.group_instance_id] = member_id

    def update(self, member: Member, settings: JoinSettings) -> None:
        """Replace a member's protocols and time-outs."""
        self._count(member, -1)
        member.settings = settings
        self._count(member, 1)

    def assign(self, member: Member, assignment: bytes) -> None:
        """Replace a member's assignment."""
        self.memory_bytes += len(assignment) - len(member.assignment)
        member.assignment = assignment

    def add_pending(self, member_id: str, deadline_ms: int) -> None:
        """Add a pending member, which must join before the time."""
        self.pending[member_id] = deadline_ms
        self.memory_bytes += PENDING_MEMBER_BYTES + len(member_id)

    def remove_pending(self, member_id: str) -> bool:
        """Remove a pending member; return whether there was one of that id."""
        if self.pending.pop(member_id, None) is None:
            return False
        self.memory_bytes -= PENDING_MEMBER_BYTES + len(member_id)
        return True

    def clear(self) -> None:
        """Remove all members."""
        self.pending.clear()
        self.memory_bytes = GROUP_BYTES
        self._by_id.clear()
        self._static_ids.clear()
        self._protocol_support.clear()

    def _count(self, member: Member, sign: int) -> None:
        """Add a member's memory and protocols to the totals; subtract them if ``sign`` is -1."""
        self.memory_bytes += sign * member.memory_bytes
        for name in {name for name, _ in member.settings.protocols}:
            self._protocol_support[name] += sign
            if not self._protocol_support[name]:
                del self._protocol_support[name]

    # --- what they have in common ---------------------------------------------------------------------------

    def supports(self, protocols: Protocols) -> bool:
        """Return whether all members support one of ``protocols``."""
        return any(self._protocol_support[name] == len(self) for name, _ in protocols)

    def elect_protocol(self) -> str:
        """Return the protocol with the most votes: each member votes for the first that all support."""
        candidates = {name for name, count in self._protocol_support.items() if count == len(self)}
        votes = Counter(
            next(name for name, _ in member.settings.protocols if name in candidates) for member in self
        )
        return votes.most_common(1)[0][0]

    def longest_rebalance_timeout_ms(self) -> int:
        """Return the longest of the members' rebalance time-outs."""
        return max((member.settings.rebalance_timeout_ms for member in self), default=0)

    def all_joined(self) -> bool:
        """Return whether every member's join waits for the next generation, and no member is pending."""
        return not self.pending and all(member.awaiting_join is not None for member in self)

    def next_deadline_ms(self) -> int | None:
        """Return when the next session expires, also of a pending member; None if there is none."""
        # In line, as each event of a large group looks here.
        soonest_ms = min(self.pending.values()) if self.pending else None
        for member in self._by_id.values():
            if member.awaiting_sync is None and (member.awaiting_join is None or member.is_new):
                deadline_ms = member.session_deadline_ms
                if soonest_ms is None or deadline_ms < soonest_ms:
                    soonest_ms = deadline_ms
        return soonest_ms


def protocols_bytes(protocols: Protocols) -> int:
    """Return the approximate bytes of memory of a member's protocols."""
    return sum(PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in protocols)

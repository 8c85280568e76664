"""A group and those who talk to it, so that a test reads as what was said.

talk = Conversation()
alice, bob = talk.stable("alice", "bob")
talk.heartbeat(alice)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from minikafka.base.errors import ErrorCode
from minikafka.groups import events
from minikafka.groups.group import NO_LIMIT, Group
from minikafka.groups.messages import GroupMetadataValue

SESSION_MS = 10_000
REBALANCE_MS = 60_000


@dataclass
class Member:
    """What a client remembers: who it is, and of which generation."""

    name: str
    protocols: tuple[tuple[str, bytes], ...]
    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


class Request:
    """One request; ``answer`` is the effect that answered it."""

    def __init__(self) -> None:
        self.answer: Any = None

    def __repr__(self) -> str:
        return f"Request({self.answer})"


class Conversation:
    """Steps of one group, with a clock and the answers. What is to be stored is stored at once, unless
    ``holds_stores``.
    """

    def __init__(
        self, *, delay_ms: int = 0, stored: GroupMetadataValue | None = None, max_size: int = NO_LIMIT
    ) -> None:
        self.group = Group("g", initial_rebalance_delay_ms=delay_ms, max_size=max_size)
        if stored is not None:
            self.group.restore(stored, 0)
        self.now_ms = 0
        self.holds_stores = False
        self.to_store: list[events.StoreGroup] = []
        self.stored: list[GroupMetadataValue] = []
        self.reasons: list[str] = []
        self._ids = 0

    # --- what members say -----------------------------------------------------------------------------------

    def member(self, name: str, *protocols: str, metadata: bytes | None = None) -> Member:
        own = metadata if metadata is not None else name.encode()
        return Member(name, tuple((protocol, own) for protocol in protocols or ("range",)))

    def static(self, name: str, *protocols: str) -> Member:
        """A static member whose instance id is ``name``."""
        return replace(self.member(name, *protocols), instance_id=name)

    def join(
        self,
        member: Member,
        *,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        protocol_type: str = "consumer",
        requires_member_id: bool = False,
        skips_assignment: bool = False,
        reason: str = "",
    ) -> Request:
        """Ask to join; what the answer says is remembered (see ``hear``)."""
        self._ids += not member.member_id
        request = Request()
        event = events.Join(
            request=request,
            member_id=member.member_id,
            new_member_id=f"{member.name}-{self._ids}",
            client_id=member.name,
            client_host="/127.0.0.1",
            rebalance_timeout_ms=rebalance_ms,
            session_timeout_ms=session_ms,
            protocol_type=protocol_type,
            protocols=member.protocols,
            group_instance_id=member.instance_id,
            requires_member_id=requires_member_id,
            skips_assignment=skips_assignment,
            reason=reason,
        )
        self.step(event)
        return request

    def sync(self, member: Member, assignments: dict[str, bytes] | None = None, **other: Any) -> Request:
        request = Request()
        named = {"generation": member.generation, "group_instance_id": member.instance_id, **other}
        self.step(events.Sync(request, member.member_id, assignments=assignments or {}, **named))
        return request

    def heartbeat(self, member: Member, **other: int) -> ErrorCode:
        request = Request()
        generation = other.get("generation", member.generation)
        self.step(events.Heartbeat(request, member.member_id, generation, member.instance_id))
        error: ErrorCode = request.answer.error
        return error

    def leave(self, *members: Member, reason: str = "") -> ErrorCode:
        """Leave, all in one request; return the outcome of the last."""
        request = Request()
        identities = tuple(
            events.MemberIdentity(member.member_id, member.instance_id, reason) for member in members
        )
        self.step(events.Leave(request, identities))
        assert request.answer.error is ErrorCode.NONE
        assert tuple(identity for identity, _ in request.answer.members) == identities
        error: ErrorCode = request.answer.members[-1][1]
        return error

    def commit(self, member: Member, **other: int) -> ErrorCode:
        identity = events.MemberIdentity(member.member_id, member.instance_id)
        return self.group.check_commit(identity, other.get("generation", member.generation), self.now_ms)

    def unload(self) -> None:
        self.step(events.Unload())

    # --- time and storage -----------------------------------------------------------------------------------

    def wait(self, milliseconds: int) -> None:
        """Let time pass, with a Tick at each deadline on the way."""
        until_ms = self.now_ms + milliseconds
        while (deadline_ms := self.group.next_deadline_ms()) is not None and deadline_ms <= until_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.step(events.Tick())
        self.now_ms = until_ms

    def store(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """What was held back is stored now, or fails."""
        waiting, self.to_store = self.to_store, []
        for store in waiting:
            if error is ErrorCode.NONE:
                self.stored.append(store.value)
            self.step(events.GroupStored(store, error))

    def step(self, event: events.Event) -> None:
        for effect in self.group.step(event, self.now_ms):
            if isinstance(effect, events.StoreGroup):
                self.to_store.append(effect)
            elif isinstance(effect, events.Rebalancing):
                self.reasons.append(effect.reason)
            else:
                assert effect.request.answer is None, f"answered twice: {effect}"
                effect.request.answer = effect
        if not self.holds_stores:
            self.store()

    # --- whole passages -------------------------------------------------------------------------------------

    def hear(self, member: Member, request: Request) -> events.Joined:
        """The member takes over what the answer to its join says."""
        joined: events.Joined = request.answer
        assert joined is not None, f"{member.name} waits"
        if joined.error is ErrorCode.NONE:
            member.member_id, member.generation = joined.member_id, joined.generation
        return joined

    def rejoin(self, *members: Member) -> list[events.Joined]:
        """All join; the last one's join ends the waiting of the others."""
        requests = [self.join(member) for member in members]
        return [self.hear(member, request) for member, request in zip(members, requests, strict=True)]

    def together(self, *members: Member) -> None:
        """New members come into one generation."""
        for number, new in enumerate(members):
            self.rejoin(new, *members[:number])

    def share(self, *members: Member) -> None:
        """The leader, the first of ``members``, gives everybody a share named after it."""
        shares = {member.member_id: f"share of {member.name}".encode() for member in members}
        leader, *others = members
        requests = [self.sync(leader, shares), *(self.sync(member) for member in others)]
        assert [request.answer.error for request in requests] == [ErrorCode.NONE] * len(members)

    def joined(self, *names: str) -> list[Member]:
        """One generation of these; the first leads."""
        members = [self.member(name) for name in names]
        self.together(*members)
        return members

    def stable(self, *names: str) -> list[Member]:
        """A stable group of these; the first leads."""
        members = self.joined(*names)
        self.share(*members)
        return members


def errors(requests: Iterable[Request]) -> list[str]:
    """What each was answered: an error's name, or ``waits``."""
    return ["waits" if request.answer is None else request.answer.error.name for request in requests]

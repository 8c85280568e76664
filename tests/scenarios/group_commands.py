"""Commands of scenario scripts for groups and their offsets (see ``commands``).

Members have names, ``join g alice``. A member's id and generation, from the broker's responses, are used in
its next requests. Its name is also its metadata for the leader.
"""

from __future__ import annotations

from typing import Any

from minikafka.base.errors import ErrorCode
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.find_coordinator import FindCoordinatorRequest
from minikafka.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from minikafka.wire.apis.list_groups import ListGroupsRequest
from minikafka.wire.apis.offset_commit import (
    DEFAULT_RETENTION,
    NO_GENERATION,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.scenarios.commands import VOCABULARY
from tests.scenarios.script import Duration, Numbers, ScriptError
from tests.scenarios.script_simulation import Lines, Membership, ScriptRequest, ScriptSimulation
from tests.support import requests
from tests.support.requests import Request


def _membership(simulation: ScriptSimulation, group: str, member: str) -> Membership:
    return simulation.members.setdefault((group, member), Membership())


def _outcome(answer: Any) -> Lines:
    return [ErrorCode.of(answer.error_code).name] if answer.error_code else []


@VOCABULARY.command
def coordinator(
    simulation: ScriptSimulation, group: str, *, version: int = 2, transaction: bool = False
) -> ScriptRequest:
    """The coordinator of a group."""

    def show(answer: Any) -> Lines:
        if answer.error_code:
            message = f": {answer.error_message}" * bool(answer.error_message)
            return [ErrorCode.of(answer.error_code).name + message]
        return [f"broker {answer.node_id} at {answer.host}:{answer.port}"]

    return ScriptRequest(
        Request(ApiKey.FIND_COORDINATOR, version, FindCoordinatorRequest(group, int(transaction))), show
    )


@VOCABULARY.command
def loading(simulation: ScriptSimulation, what: str) -> None:
    """``hold``: pause the loading of groups; ``release``: load them."""
    if what not in {"hold", "release"}:
        raise ScriptError(f"loading: expected hold or release, got {what!r}")
    simulation.loading_is_held = what == "hold"


# --- members ------------------------------------------------------------------------------------------------


@VOCABULARY.command
def join(
    simulation: ScriptSimulation,
    group: str,
    member: str,
    *,
    session: Duration = 10_000,
    rebalance: Duration = 60_000,
    protocols: str = "range",
    type_: str = "consumer",
    version: int = 3,
) -> ScriptRequest:
    """Join the next generation; ``protocols`` separated by commas, the preferred one first."""
    known = _membership(simulation, group, member)
    supported = tuple(JoinGroupRequestProtocol(name, member.encode()) for name in protocols.split(","))

    def show(answer: Any) -> Lines:
        if answer.error_code:
            if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                known.member_id = ""
            return _outcome(answer)
        known.member_id, known.generation = answer.member_id, answer.generation_id
        for other in answer.members:
            _membership(simulation, group, other.metadata.decode()).member_id = other.member_id
        leads = answer.leader == answer.member_id
        others = ", ".join(sorted(other.metadata.decode() for other in answer.members))
        role = f"leads {others}" if leads else "follows"
        return [f"generation {answer.generation_id} {answer.protocol_name}: {member} {role}"]

    body = JoinGroupRequest(group, session, rebalance, known.member_id, type_, supported)
    return ScriptRequest(Request(ApiKey.JOIN_GROUP, version, body), show)


@VOCABULARY.command
def sync(
    simulation: ScriptSimulation, group: str, member: str, *, version: int = 2, **shares: str
) -> ScriptRequest:
    """Request the assignment of a member; the leader sends those of all members, as ``alice=0,1``."""
    known = _membership(simulation, group, member)
    assigned = {
        _membership(simulation, group, name).member_id: share.encode() for name, share in shares.items()
    }

    def show(answer: Any) -> Lines:
        return _outcome(answer) or [f"{member} has {answer.assignment.decode() or 'nothing'}"]

    request = requests.sync_group(group, known.generation, known.member_id, assigned)
    return ScriptRequest(request.at(version), show)


@VOCABULARY.command
def heartbeat(simulation: ScriptSimulation, group: str, member: str, *, version: int = 2) -> ScriptRequest:
    """Send a heartbeat of a member."""
    known = _membership(simulation, group, member)
    return ScriptRequest(requests.heartbeat(group, known.generation, known.member_id).at(version), _outcome)


@VOCABULARY.command
def leave(simulation: ScriptSimulation, group: str, member: str, *, version: int = 2) -> ScriptRequest:
    """Leave the group."""
    known = _membership(simulation, group, member)
    return ScriptRequest(requests.leave_group(group, known.member_id).at(version), _outcome)


# --- offsets ------------------------------------------------------------------------------------------------


@VOCABULARY.command
def commit(
    simulation: ScriptSimulation,
    group: str,
    topic: str,
    offset: int,
    *,
    partition: Numbers = (0,),
    member: str = "",
    metadata: str = "",
    retention: Duration = DEFAULT_RETENTION,
    epoch: int = -1,
    version: int = 6,
) -> ScriptRequest:
    """Commit an offset, as a member or from outside the group."""
    known = _membership(simulation, group, member) if member else Membership()
    length, star, text = metadata.rpartition("*")
    metadata = length * int(text) if star else metadata
    parts = tuple(OffsetCommitRequestPartition(index, offset, epoch, -1, metadata) for index in partition)
    body = OffsetCommitRequest(
        group,
        known.generation if member else NO_GENERATION,
        known.member_id,
        retention,
        (OffsetCommitRequestTopic(topic, parts),),
    )
    if version >= 5 and retention != DEFAULT_RETENTION:
        raise ScriptError("commit: only versions 2 to 4 have a retention time")

    def show(answer: Any) -> Lines:
        (row,) = answer.topics
        named = len(row.partitions) > 1
        return [
            f"partition {part.partition_index} " * named + ErrorCode.of(part.error_code).name
            for part in row.partitions
            if part.error_code
        ]

    return ScriptRequest(Request(ApiKey.OFFSET_COMMIT, version, body), show)


@VOCABULARY.command
def committed(
    simulation: ScriptSimulation, group: str, *topics: str, partition: Numbers = (0,), version: int = 5
) -> ScriptRequest:
    """The committed offsets of a group, for some or all topics."""

    def show(answer: Any) -> Lines:
        yield from _outcome(answer)
        for topic in answer.topics:
            for part in topic.partitions:
                offset = part.committed_offset
                epoch = part.committed_leader_epoch
                yield (
                    f"{topic.name}-{part.partition_index} "
                    + (f"offset {offset}" if offset >= 0 else "none")
                    + f" epoch {epoch}" * (epoch >= 0)
                    + f" '{part.metadata}'" * bool(part.metadata)
                    + f" {ErrorCode.of(part.error_code).name}" * bool(part.error_code)
                )
        if not answer.topics and not answer.error_code:
            yield "none"

    request = requests.fetch_offsets(*topics, group=group, partitions=partition)
    return ScriptRequest(request.at(version), show)


# --- administration -----------------------------------------------------------------------------------------


@VOCABULARY.command
def groups(simulation: ScriptSimulation, *, version: int = 2) -> ScriptRequest:
    """The groups of the broker."""

    def show(answer: Any) -> Lines:
        yield from _outcome(answer)
        for group in sorted(answer.groups, key=lambda group: group.group_id):
            yield f"{group.group_id} {group.protocol_type or '(offsets only)'}"
        if not answer.groups and not answer.error_code:
            yield "no groups"

    return ScriptRequest(Request(ApiKey.LIST_GROUPS, version, ListGroupsRequest()), show)


@VOCABULARY.command
def describe_group(simulation: ScriptSimulation, group: str, *, version: int = 2) -> ScriptRequest:
    """The state and members of a group."""

    def show(answer: Any) -> Lines:
        (row,) = answer.groups
        if row.error_code:
            yield ErrorCode.of(row.error_code).name
            return
        yield " ".join(filter(None, (row.group_state, row.protocol_type, row.protocol_data)))
        for member in row.members:
            share = member.member_assignment.decode() or "nothing"
            yield f"{member.member_metadata.decode() or 'a member'} at {member.client_host} has {share}"

    return ScriptRequest(requests.describe_groups(group).at(version), show)


@VOCABULARY.command
def delete_group(simulation: ScriptSimulation, *names: str, version: int = 1) -> ScriptRequest:
    """Delete groups."""

    def show(answer: Any) -> Lines:
        return [
            f"{row.group_id} " * (len(names) > 1) + ErrorCode.of(row.error_code).name
            for row in answer.results
            if row.error_code
        ]

    return ScriptRequest(requests.delete_groups(*names).at(version), show)

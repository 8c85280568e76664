"""The description of a group by its coordinator: state, protocol and members (DescribeGroups)."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from minikafka.base.errors import RemoteWireError
from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.clients.group.coordinator_client import CoordinatorClient
from minikafka.clients.group.requests import assigned_partitions
from minikafka.clients.network.response_errors import raise_for_group
from minikafka.clients.network.retry import Deadline
from minikafka.wire.apis.describe_groups import (
    DESCRIBE_GROUPS,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from minikafka.wire.consumer_protocol import PROTOCOL_TYPE

DEAD = "Dead"
"""The state of a group that does not exist."""
EMPTY = "Empty"
"""The state of a group without members."""


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member; ``host`` as the broker sees it. Only consumers have known partitions, only static members a
    ``group_instance_id``.
    """

    member_id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """The state and the members of a group.

    ``state`` is Kafka's: Stable, PreparingRebalance, AwaitingSync or CompletingRebalance, Empty.
    ``protocol`` is the assignor that the members have agreed on.
    """

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: BrokerAddress
    members: tuple[MemberDescription, ...]


def describe_group(coordinator: CoordinatorClient, deadline: Deadline) -> GroupDescription:
    """Return the description of the coordinator's group; its state is DEAD if there is no such group."""
    group_id = coordinator.group_id

    def take(response: DescribeGroupsResponse) -> DescribedGroup:
        (row,) = response.groups
        raise_for_group(row.error_code, "describing", group_id, "Describe")
        return row

    request = DescribeGroupsRequest((group_id,))
    row = coordinator.call(
        f"describing group {group_id!r}", DESCRIBE_GROUPS, lambda _: request, deadline, take
    )
    return description_of(row, coordinator.address(deadline))


def description_of(row: DescribedGroup, coordinator: BrokerAddress) -> GroupDescription:
    """Return the description in a row of a DescribeGroups response."""
    return GroupDescription(
        group_id=row.group_id,
        state=row.group_state,
        protocol_type=row.protocol_type,
        protocol=row.protocol_data,
        coordinator=coordinator,
        members=tuple(_member(member, row.protocol_type) for member in row.members),
    )


def _member(row: DescribedGroupMember, protocol_type: str) -> MemberDescription:
    partitions: tuple[TopicPartition, ...] = ()
    if protocol_type == PROTOCOL_TYPE:
        # An assignment that cannot be decoded is in another client's own format.
        with contextlib.suppress(RemoteWireError):
            partitions = assigned_partitions(row.member_assignment)
    host = row.client_host.removeprefix("/")
    return MemberDescription(row.member_id, row.client_id, host, partitions, row.group_instance_id)

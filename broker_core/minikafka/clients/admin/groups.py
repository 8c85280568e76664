"""Administration of groups: which there are, who is in them, how far they are behind, and where they go on.

A group is asked about at its coordinator; only the list needs all brokers. Offsets are set as a commit from
outside of the group, which the coordinator takes as long as the group has no members. No API of these
versions removes single offsets (OffsetDelete came with 2.4); deleting a group removes all it has.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError
from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.clients.fetch.list_offsets import LATEST, list_offsets
from minikafka.clients.group.coordinator_client import CoordinatorClient, raise_for_code
from minikafka.clients.group.description import (
    DEAD,
    EMPTY,
    GroupDescription,
    GroupMember,
    describe_group,
    description_of,
)
from minikafka.clients.group.membership import REJOIN_CODES
from minikafka.clients.group.offsets import Committed, Committer, commit, committed_offsets
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.retry import Deadline
from minikafka.wire.apis.delete_groups import DELETE_GROUPS, DeleteGroupsRequest, DeleteGroupsResponse
from minikafka.wire.apis.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest
from minikafka.wire.apis.list_groups import LIST_GROUPS, ListGroupsRequest

_EXPLAIN_TIMEOUT_MS = 2_000


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group as its coordinator lists it. ``protocol_type`` is empty where it only keeps offsets."""

    group_id: str
    protocol_type: str
    coordinator: BrokerAddress


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is in one partition: None where nothing is committed, or the partition is not there."""

    topic_partition: TopicPartition
    committed: Committed | None
    end_offset: int | None
    member: GroupMember | None

    @property
    def lag(self) -> int | None:
        """Messages that the group has not read yet."""
        if self.committed is None or self.end_offset is None:
            return None
        return max(0, self.end_offset - self.committed.offset)


class GroupAdmin:
    """Thread-safe; owns nothing but what ``cluster`` gives it."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    def list_groups(self, *, timeout_ms: int | None = None) -> list[GroupListing]:
        """All groups of all brokers, by name. Raises what goes wrong at any of them: it has groups too."""
        deadline = self._cluster.deadline(timeout_ms)
        brokers = self._cluster.metadata(None, timeout_ms=timeout_ms).brokers.values()
        found = [one for broker in brokers for one in self._list_of(broker, deadline)]
        return sorted(found, key=lambda one: one.group_id)

    def _list_of(self, broker: BrokerAddress, deadline: Deadline) -> list[GroupListing]:
        def attempt() -> list[GroupListing]:
            reply = self._cluster.send(broker.broker_id, LIST_GROUPS, ListGroupsRequest(), deadline=deadline)
            response = reply.result(max(1, deadline.remaining_ms()))
            raise_for_code(response.error_code, f"the groups of {broker}")
            return [GroupListing(one.group_id, one.protocol_type, broker) for one in response.groups]

        return self._cluster.retry(f"listing the groups of {broker}", deadline, attempt)

    def describe_all(self, *, timeout_ms: int | None = None) -> list[GroupDescription]:
        """All groups with their states and members, by name; one request to each broker more than a list."""
        deadline = self._cluster.deadline(timeout_ms)
        coordinated: dict[BrokerAddress, list[str]] = {}
        for one in self.list_groups(timeout_ms=timeout_ms):
            coordinated.setdefault(one.coordinator, []).append(one.group_id)
        found = []
        for broker, names in coordinated.items():
            request = DescribeGroupsRequest(tuple(names))
            response = self._cluster.call(
                broker.broker_id, DESCRIBE_GROUPS, request, timeout_ms=max(1, deadline.remaining_ms())
            )
            # Groups come and go, and move, at any time.
            found += [
                description_of(row, broker)
                for row in response.groups
                if row.error_code == ErrorCode.NONE and row.group_state != DEAD
            ]
        return sorted(found, key=lambda one: one.group_id)

    def describe(self, group_id: str, *, timeout_ms: int | None = None) -> GroupDescription:
        """State and members of a group. GROUP_ID_NOT_FOUND where there is none."""
        found = self.find(group_id, timeout_ms=timeout_ms)
        if found is None:
            raise no_such_group(group_id, self.names(timeout_ms=_EXPLAIN_TIMEOUT_MS))
        return found

    def find(self, group_id: str, *, timeout_ms: int | None = None) -> GroupDescription | None:
        """State and members of a group; None where there is none."""
        deadline = self._cluster.deadline(timeout_ms)
        found = describe_group(CoordinatorClient(self._cluster, group_id), deadline)
        return None if found.state == DEAD else found

    def names(self, *, timeout_ms: int | None = None) -> list[str]:
        """All groups, sorted, for a hint: none where the brokers do not tell."""
        try:
            return [one.group_id for one in self.list_groups(timeout_ms=timeout_ms)]
        except MinikafkaError:
            return []

    def lags(
        self, description: GroupDescription, *, timeout_ms: int | None = None
    ) -> tuple[PartitionLag, ...]:
        """Each partition that the group has an offset of, or that a member reads, sorted."""
        deadline = self._cluster.deadline(timeout_ms)
        committed = self.offsets(description.group_id, timeout_ms=timeout_ms)
        readers = {tp: member for member in description.members for tp in member.partitions}
        wanted = sorted({*committed, *readers})
        ends = self.ends(wanted, timeout_ms=max(1, deadline.remaining_ms()))
        return tuple(PartitionLag(tp, committed.get(tp), ends.get(tp), readers.get(tp)) for tp in wanted)

    def offsets(self, group_id: str, *, timeout_ms: int | None = None) -> dict[TopicPartition, Committed]:
        """All that the group has committed."""
        return committed_offsets(
            CoordinatorClient(self._cluster, group_id), None, self._cluster.deadline(timeout_ms)
        )

    def ends(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Ends of the logs of those partitions that are there and led."""
        deadline = self._cluster.deadline(timeout_ms)
        known = self._cluster.metadata(None, timeout_ms=max(1, deadline.remaining_ms()))
        led = [tp for tp in partitions if known.leader(tp) is not None]
        found = list_offsets(self._cluster, dict.fromkeys(led, LATEST), deadline)
        return {tp: offset for tp, offset in found.items() if offset is not None}

    def check_inactive(self, group_id: str, *, timeout_ms: int | None = None) -> None:
        """NON_EMPTY_GROUP, with what to do, unless the group has no members or is not there at all."""
        found = self.find(group_id, timeout_ms=timeout_ms)
        if found is not None and found.state != EMPTY:
            raise active(group_id, "its offsets cannot be set")

    def set_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> None:
        """Let the group go on there. NON_EMPTY_GROUP while it has members, who would commit over it."""
        deadline = self._cluster.deadline(timeout_ms)
        coordinator = CoordinatorClient(self._cluster, group_id)
        wanted = {tp: Committed(offset) for tp, offset in offsets.items()}
        try:
            commit(coordinator, Committer(), wanted, deadline)
        except BrokerError as error:
            if error.code in REJOIN_CODES:
                raise active(group_id, "its offsets cannot be set") from None
            raise

    def delete_group(self, group_id: str, *, timeout_ms: int | None = None) -> None:
        """Remove a group with its offsets.

        NON_EMPTY_GROUP while it has members, GROUP_ID_NOT_FOUND where there is none, UNSUPPORTED_VERSION from
        brokers before 1.1.
        """
        deadline = self._cluster.deadline(timeout_ms)

        def take(response: DeleteGroupsResponse) -> None:
            (row,) = response.results
            raise_for_code(row.error_code, f"deleting group {group_id!r}")

        request = DeleteGroupsRequest((group_id,))
        coordinator = CoordinatorClient(self._cluster, group_id)
        try:
            coordinator.call(f"deleting group {group_id!r}", DELETE_GROUPS, lambda _: request, deadline, take)
        except BrokerError as error:
            if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                raise no_such_group(group_id, self.names(timeout_ms=_EXPLAIN_TIMEOUT_MS)) from None
            if error.code is ErrorCode.NON_EMPTY_GROUP:
                raise active(group_id, "it cannot be deleted") from None
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                raise BrokerError(
                    error.code, f"{error.detail}; groups are deleted by Kafka 1.1 or newer"
                ) from None
            raise


def no_such_group(group_id: str, names: Iterable[str]) -> BrokerError:
    """GROUP_ID_NOT_FOUND, with those of ``names`` that it may have been meant to be."""
    near = difflib.get_close_matches(group_id, sorted(set(names)))
    hint = f"; there is {' and '.join(map(repr, near))}" if near else ""
    return BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}{hint}")


def active(group_id: str, what: str) -> BrokerError:
    """NON_EMPTY_GROUP, with what cannot be and what to do."""
    return BrokerError(
        ErrorCode.NON_EMPTY_GROUP, f"group {group_id!r} has members: {what} before all of them have stopped"
    )

"""Administration of consumer groups: lists and describes them, computes lag, sets offsets, deletes groups.

Requests about a group go to its coordinator; only the list needs all brokers. Offsets are set as a commit
from outside of the group, which the coordinator accepts while the group has no members. Deleting a group
removes all its offsets; single ones, of topics that it does not consume, can be removed since Kafka 2.4.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from minikafka.base.config.unknown_names import near_matches
from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError
from minikafka.base.ids import BrokerAddress, TopicPartition, numbers_by_topic
from minikafka.clients.fetch.list_offsets import LATEST, list_ends, list_known_offsets
from minikafka.clients.group.coordinator_client import CoordinatorClient
from minikafka.clients.group.description import (
    DEAD,
    EMPTY,
    GroupDescription,
    MemberDescription,
    describe_group,
    description_of,
)
from minikafka.clients.group.membership import REJOIN_CODES
from minikafka.clients.group.offsets import Committed, Committer, commit, committed_offsets
from minikafka.clients.network.arguments import to_topic_partitions
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.response_errors import raise_for_code, raise_for_group
from minikafka.clients.network.retry import Deadline
from minikafka.wire.apis.delete_groups import DELETE_GROUPS, DeleteGroupsRequest, DeleteGroupsResponse
from minikafka.wire.apis.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest
from minikafka.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from minikafka.wire.apis.list_groups import LIST_GROUPS, ListGroupsRequest
from minikafka.wire.apis.offset_delete import (
    OFFSET_DELETE,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

_EXPLAIN_TIMEOUT_MS = 2_000
_SEVERAL_MEMBERS_SINCE = 3
"""The first version of LeaveGroup by which an administrator removes members."""


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group as its coordinator lists it. ``protocol_type`` is empty if it only has offsets."""

    group_id: str
    protocol_type: str
    coordinator: BrokerAddress


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """A group's progress in one partition: None without a committed offset, or without the partition."""

    topic_partition: TopicPartition
    committed: Committed | None
    end_offset: int | None
    member: MemberDescription | None

    @property
    def lag(self) -> int | None:
        """The number of messages that the group has not read yet: see ``lag_of``."""
        return lag_of(None if self.committed is None else self.committed.offset, self.end_offset)


def lag_of(offset: int | None, end_offset: int | None) -> int | None:
    """Return the number of messages from a group's offset to the end of the log.

    None if that is unknown: without one of them, and if the log ends before the offset, because the topic was
    created again or a new leader is behind.
    """
    return None if offset is None or end_offset is None or end_offset < offset else end_offset - offset


def total_lag(lags: Iterable[PartitionLag]) -> int | None:
    """Return the sum of the lags that are known; None if none is."""
    known = [lag.lag for lag in lags if lag.lag is not None]
    return sum(known) if known else None


class GroupAdmin:
    """Administration of groups through brokers. Thread-safe. It owns no connections: ``cluster`` does."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    def list_groups(
        self, *, timeout_ms: int | None = None, failed: list[MinikafkaError] | None = None
    ) -> list[GroupListing]:
        """Return all groups of all brokers, by name. Raises the error of any broker, as it has groups too; or
        adds it to ``failed``, and returns the groups of the others.
        """
        deadline = self._cluster.deadline(timeout_ms)
        brokers = list(self._cluster.metadata(None, timeout_ms=timeout_ms).brokers.values())
        found: list[GroupListing] = []
        for position, broker in enumerate(brokers):
            try:
                if failed is None:
                    found += self._list_of(broker, deadline)
                else:  # a broker that hangs leaves the others their time
                    share_ms = deadline.remaining_ms() // (len(brokers) - position)
                    found += self._list_of(broker, self._cluster.deadline(share_ms))
            except MinikafkaError as error:
                if failed is None:
                    raise
                failed.append(error)
        return sorted(found, key=lambda group: group.group_id)

    def _list_of(self, broker: BrokerAddress, deadline: Deadline) -> list[GroupListing]:
        def attempt() -> list[GroupListing]:
            reply = self._cluster.send(broker.broker_id, LIST_GROUPS, ListGroupsRequest(), deadline=deadline)
            response = reply.result(deadline.remaining_ms())
            raise_for_code(response.error_code, f"listing the groups of {broker}")
            return [GroupListing(group.group_id, group.protocol_type, broker) for group in response.groups]

        return self._cluster.retry(f"listing the groups of {broker}", deadline, attempt)

    def describe_all(
        self,
        *,
        names: Container[str] | None = None,
        timeout_ms: int | None = None,
        failed: list[MinikafkaError] | None = None,
    ) -> list[GroupDescription]:
        """Return all groups with states and members, by name; one more request per broker than a list.

        names: of the groups that are wanted; others are not described. ``failed``: as for ``list_groups``.
        """
        deadline = self._cluster.deadline(timeout_ms)
        coordinated: dict[BrokerAddress, list[str]] = {}
        for group in self.list_groups(timeout_ms=timeout_ms, failed=failed):
            if names is None or group.group_id in names:
                coordinated.setdefault(group.coordinator, []).append(group.group_id)
        found = []
        for broker, group_ids in coordinated.items():
            request = DescribeGroupsRequest(tuple(group_ids))
            try:
                response = self._cluster.call(
                    broker.broker_id, DESCRIBE_GROUPS, request, timeout_ms=deadline.remaining_ms()
                )
            except MinikafkaError as error:
                if failed is None:
                    raise
                failed.append(error)
                continue
            # A group may have been deleted or moved meanwhile.
            found += [
                description_of(row, broker)
                for row in response.groups
                if row.error_code == ErrorCode.NONE and row.group_state != DEAD
            ]
        return sorted(found, key=lambda group: group.group_id)

    def describe(self, group_id: str, *, timeout_ms: int | None = None) -> GroupDescription:
        """Return the state and members of a group. Raises GROUP_ID_NOT_FOUND if it does not exist."""
        found = self.find(group_id, timeout_ms=timeout_ms)
        if found is None:
            raise no_such_group(group_id, self.names(timeout_ms=_EXPLAIN_TIMEOUT_MS))
        return found

    def find(self, group_id: str, *, timeout_ms: int | None = None) -> GroupDescription | None:
        """Return the state and members of a group; None if it does not exist."""
        deadline = self._cluster.deadline(timeout_ms)
        found = describe_group(CoordinatorClient(self._cluster, group_id), deadline)
        return None if found.state == DEAD else found

    def names(self, *, timeout_ms: int | None = None) -> list[str]:
        """Return all group names, sorted, for a hint; empty if a broker does not respond."""
        try:
            return [group.group_id for group in self.list_groups(timeout_ms=timeout_ms)]
        except MinikafkaError:
            return []

    def lags(
        self, description: GroupDescription, *, timeout_ms: int | None = None
    ) -> tuple[PartitionLag, ...]:
        """Return the lag in each partition with a committed offset or a member, sorted."""
        return self.all_lags([description], timeout_ms=timeout_ms)[description.group_id]

    def all_lags(
        self,
        descriptions: Iterable[GroupDescription],
        *,
        timeout_ms: int | None = None,
        failed: list[MinikafkaError] | None = None,
    ) -> dict[str, tuple[PartitionLag, ...]]:
        """Return the lags of groups by their ids, as ``lags``, with one look-up of the ends for all of them.

        ``failed``: takes the errors of brokers instead of raising them; a group whose offsets are not known
        is left out, and an end that is not known is None.
        """
        deadline = self._cluster.deadline(timeout_ms)
        committed: dict[str, dict[TopicPartition, Committed]] = {}
        readers: dict[str, dict[TopicPartition, MemberDescription]] = {}
        for group in descriptions:
            try:
                committed[group.group_id] = self.offsets(group.group_id, timeout_ms=deadline.remaining_ms())
            except MinikafkaError as error:
                if failed is None:
                    raise
                failed.append(error)
                continue
            readers[group.group_id] = {tp: member for member in group.members for tp in member.partitions}
        wanted = {tp for name, offsets in committed.items() for tp in (*offsets, *readers[name])}
        ends: Mapping[TopicPartition, int | None]
        if failed is None:
            ends = self.ends(wanted, timeout_ms=deadline.remaining_ms())
        else:
            ends, error_of_ends = list_known_offsets(self._cluster, dict.fromkeys(wanted, LATEST), deadline)
            failed += [error_of_ends] if error_of_ends is not None else []
        return {
            name: tuple(
                PartitionLag(tp, offsets.get(tp), ends.get(tp), readers[name].get(tp))
                for tp in sorted({*offsets, *readers[name]})
            )
            for name, offsets in committed.items()
        }

    def offsets(self, group_id: str, *, timeout_ms: int | None = None) -> dict[TopicPartition, Committed]:
        """Return all committed offsets of the group."""
        return committed_offsets(
            CoordinatorClient(self._cluster, group_id), None, self._cluster.deadline(timeout_ms)
        )

    def ends(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the end offsets of those partitions that exist and have a leader."""
        return list_ends(self._cluster, partitions, self._cluster.deadline(timeout_ms))

    def check_inactive(self, group_id: str, *, timeout_ms: int | None = None) -> None:
        """Raise NON_EMPTY_GROUP, with what to do, if the group has members."""
        found = self.find(group_id, timeout_ms=timeout_ms)
        if found is not None and found.state != EMPTY:
            raise non_empty_group(group_id, "its offsets cannot be set")

    def set_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> None:
        """Set the group's offsets. Raises NON_EMPTY_GROUP while it has members that could overwrite them."""
        deadline = self._cluster.deadline(timeout_ms)
        coordinator = CoordinatorClient(self._cluster, group_id)
        wanted = {tp: Committed(offset) for tp, offset in offsets.items()}
        try:
            commit(coordinator, Committer(), wanted, deadline)
        except BrokerError as error:
            if error.code in REJOIN_CODES:
                raise non_empty_group(group_id, "its offsets cannot be set") from None
            raise

    def delete_group(self, group_id: str, *, timeout_ms: int | None = None) -> None:
        """Delete a group with its offsets.

        Raises NON_EMPTY_GROUP while it has members, GROUP_ID_NOT_FOUND if it does not exist,
        UNSUPPORTED_VERSION with brokers before 1.1.
        """
        deadline = self._cluster.deadline(timeout_ms)

        def take(response: DeleteGroupsResponse) -> None:
            (row,) = response.results
            raise_for_group(row.error_code, "deleting", group_id, "Delete")

        request = DeleteGroupsRequest((group_id,))
        coordinator = CoordinatorClient(self._cluster, group_id)
        try:
            coordinator.call(f"deleting group {group_id!r}", DELETE_GROUPS, lambda _: request, deadline, take)
        except BrokerError as error:
            if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                raise no_such_group(group_id, self.names(timeout_ms=_EXPLAIN_TIMEOUT_MS)) from None
            if error.code is ErrorCode.NON_EMPTY_GROUP:
                raise non_empty_group(group_id, "it cannot be deleted") from None
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                raise BrokerError(
                    error.code, f"{error.detail}; deleting a group needs Kafka 1.1 or newer"
                ) from None
            raise

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, ErrorCode]:
        """Delete the group's offsets of partitions; return the outcome of each.

        It is GROUP_SUBSCRIBED_TO_TOPIC while a member consumes the topic. Raises NON_EMPTY_GROUP if the group
        has members that are not consumers, GROUP_ID_NOT_FOUND if it does not exist, UNSUPPORTED_VERSION with
        brokers before 2.4.
        """
        topics = tuple(
            OffsetDeleteRequestTopic(topic, tuple(map(OffsetDeleteRequestPartition, numbers)))
            for topic, numbers in numbers_by_topic(to_topic_partitions(partitions)).items()
        )

        def take(response: OffsetDeleteResponse) -> dict[TopicPartition, ErrorCode]:
            raise_for_group(response.error_code, "deleting offsets of", group_id, "Delete")
            return {
                TopicPartition(topic.name, part.partition_index): ErrorCode.of(part.error_code)
                for topic in response.topics
                for part in topic.partitions
            }

        return CoordinatorClient(self._cluster, group_id).call(
            f"deleting offsets of group {group_id!r}",
            OFFSET_DELETE,
            lambda _: OffsetDeleteRequest(group_id, topics),
            self._cluster.deadline(timeout_ms),
            take,
        )

    def remove_static_members(
        self, group_id: str, instance_ids: Iterable[str], *, reason: str = "", timeout_ms: int | None = None
    ) -> dict[str, ErrorCode]:
        """Remove static members, so that the others need not wait for their sessions; return each outcome.

        Raises UNSUPPORTED_VERSION with brokers before 2.4.
        """
        members = tuple(MemberIdentity("", name, reason or None) for name in dict.fromkeys(instance_ids))

        def request(version: int) -> LeaveGroupRequest:
            if version < _SEVERAL_MEMBERS_SINCE:
                raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, "removing members needs Kafka 2.4 or newer")
            return LeaveGroupRequest(group_id, "", members)

        def take(response: LeaveGroupResponse) -> dict[str, ErrorCode]:
            raise_for_group(response.error_code, "removing members of", group_id, "Read")
            return {row.group_instance_id or "": ErrorCode.of(row.error_code) for row in response.members}

        return CoordinatorClient(self._cluster, group_id).call(
            f"removing members of group {group_id!r}",
            LEAVE_GROUP,
            request,
            self._cluster.deadline(timeout_ms),
            take,
        )


def no_such_group(group_id: str, names: Iterable[str]) -> BrokerError:
    """Return GROUP_ID_NOT_FOUND, with similar ``names``."""
    hint = near_matches(group_id, sorted(set(names)))
    return BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}{hint}")


def non_empty_group(group_id: str, what: str) -> BrokerError:
    """Return NON_EMPTY_GROUP with ``what`` has failed and what to do."""
    return BrokerError(
        ErrorCode.NON_EMPTY_GROUP, f"group {group_id!r} has members: {what} before all of them have stopped"
    )

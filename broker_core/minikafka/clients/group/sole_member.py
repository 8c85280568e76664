"""The sole member of a group, for a reader that chooses its partitions and commits its progress.

It joins as a consumer, so that tools list it with its partitions, with an assignor of its own name.
So the coordinator rejects every other consumer that joins, every commit from outside the group, and this
member while the group has others. As one broker decides, one of two that join at the same time is rejected.
A killed member is removed after ``session_timeout_ms``.

There is no thread: the user calls ``hold``, ``commit`` or ``heartbeat`` several times within that time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from minikafka.base.errors import BrokerError, ErrorCode, GroupInUse, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.group.coordinator_client import CoordinatorClient, raise_for_code
from minikafka.clients.group.description import DEAD, EMPTY, GroupDescription, describe_group
from minikafka.clients.group.membership import NO_MEMBER, REJOIN_CODES
from minikafka.clients.group.offsets import Committed, Committer, commit
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.connections import DedicatedConnectionPool
from minikafka.clients.network.retry import Deadline
from minikafka.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from minikafka.wire.apis.join_group import (
    JOIN_GROUP,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from minikafka.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupRequest
from minikafka.wire.apis.offset_commit import NO_GENERATION
from minikafka.wire.apis.sync_group import SYNC_GROUP, SyncGroupRequest, SyncGroupRequestAssignment
from minikafka.wire.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    ConsumerPartitions,
    Subscription,
    encode_assignment,
    encode_subscription,
)

SESSION_TIMEOUT_MS = 10_000
"""The default of Kafka 0.10's consumers, which all brokers allow by default."""

_NAMED = 3
"""The limit of members that an error lists."""


class SoleMember:
    """Holds ``group_id`` for one owner. Not thread-safe.

    owner: a unique name that starts with the group's name and ``_``.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        group_id: str,
        owner: str,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
    ) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._owner = owner
        self._session_timeout_ms = session_timeout_ms
        self._pool = DedicatedConnectionPool()
        self._coordinator = CoordinatorClient(cluster, group_id, self._pool)
        self._member_id = NO_MEMBER
        self._generation = NO_GENERATION
        self._partitions: frozenset[TopicPartition] = frozenset()

    def hold(self, partitions: Collection[TopicPartition], deadline: Deadline) -> None:
        """Join the group as the reader of ``partitions``; does nothing if it is that already.

        Raises GroupInUse with the names of the group's members. Brokers from 0.11 on respond to the first
        member of a group after ``group.initial.rebalance.delay.ms``, three seconds by default.
        """
        wanted = frozenset(partitions)
        if self._generation != NO_GENERATION and wanted == self._partitions:
            return
        while True:
            try:
                join_completed = self._join(wanted, deadline)
                self._generation, self._member_id = join_completed.generation_id, join_completed.member_id
                self._sync(wanted, join_completed.leader, deadline)
            except BrokerError as error:
                if error.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
                    raise GroupInUse(self._group_id, self._holders(deadline)) from None
                if not self._must_rejoin(error) or deadline.expired:
                    raise
            else:
                self._partitions = wanted
                return

    def commit(self, offsets: Mapping[TopicPartition, int], deadline: Deadline) -> None:
        """Commit as the member; joins again if it is no longer one. Raises as ``hold``."""
        committed = {tp: Committed(offset) for tp, offset in offsets.items()}

        def attempt() -> None:
            commit(self._coordinator, Committer(self._generation, self._member_id), committed, deadline)

        self._as_member(attempt, deadline)

    def heartbeat(self, deadline: Deadline) -> None:
        """Send a heartbeat; joins again if this is no longer a member. Raises as ``hold``."""
        what = f"a heartbeat of group {self._group_id!r}"

        def attempt() -> None:
            request = HeartbeatRequest(self._group_id, self._generation, self._member_id)
            self._coordinator.call(
                what,
                HEARTBEAT,
                lambda _: request,
                deadline,
                lambda response: raise_for_code(response.error_code, what),
            )

        self._as_member(attempt, deadline)

    def release(self, deadline: Deadline) -> None:
        """Leave the group and close the connections. Raises the error of a failed LeaveGroup."""
        member_id, self._member_id, self._generation = self._member_id, NO_MEMBER, NO_GENERATION
        try:
            if member_id != NO_MEMBER:
                request = LeaveGroupRequest(self._group_id, member_id)
                self._coordinator.call(
                    f"leaving group {self._group_id!r}",
                    LEAVE_GROUP,
                    lambda _: request,
                    deadline,
                    lambda response: raise_for_code(response.error_code, f"leaving group {self._group_id!r}"),
                )
        finally:
            self._cluster.close_pool(self._pool)

    def _as_member(self, attempt: Callable[[], None], deadline: Deadline) -> None:
        while True:
            self.hold(self._partitions, deadline)
            try:
                return attempt()
            except BrokerError as error:
                if not self._must_rejoin(error) or deadline.expired:
                    raise

    def _join(self, partitions: Iterable[TopicPartition], deadline: Deadline) -> JoinGroupResponse:
        topics = tuple(sorted({tp.topic for tp in partitions}))
        protocol = JoinGroupRequestProtocol(self._owner, encode_subscription(Subscription(topics)))
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._session_timeout_ms,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=(protocol,),
        )

        def take(response: JoinGroupResponse) -> JoinGroupResponse:
            raise_for_code(response.error_code, f"joining group {self._group_id!r}")
            return response

        what = f"joining group {self._group_id!r}"
        return self._coordinator.call(what, JOIN_GROUP, lambda _: request, deadline, take)

    def _sync(self, partitions: Iterable[TopicPartition], leader: str, deadline: Deadline) -> None:
        topics: dict[str, list[int]] = {}
        for tp in sorted(partitions):
            topics.setdefault(tp.topic, []).append(tp.partition)
        rows = tuple(ConsumerPartitions(topic, tuple(numbers)) for topic, numbers in topics.items())
        share = SyncGroupRequestAssignment(self._member_id, encode_assignment(Assignment(rows)))
        # Another leader can only be an earlier attempt of this member whose response was lost; it times out.
        shares = (share,) if leader == self._member_id else ()
        request = SyncGroupRequest(self._group_id, self._generation, self._member_id, shares)
        what = f"synchronizing group {self._group_id!r}"
        self._coordinator.call(
            what,
            SYNC_GROUP,
            lambda _: request,
            deadline,
            lambda response: raise_for_code(response.error_code, what),
        )

    def _must_rejoin(self, error: BrokerError) -> bool:
        """Return True if ``error`` says that this is not a member of the current generation."""
        if error.code not in REJOIN_CODES:
            return False
        self._generation = NO_GENERATION
        if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = NO_MEMBER
        return True

    def _holders(self, deadline: Deadline) -> list[str]:
        try:
            coordinator = CoordinatorClient(self._cluster, self._group_id)
            limit = self._cluster.deadline(max(1, deadline.remaining_ms()))
            found = describe_group(coordinator, limit)
        except MinikafkaError:
            return ["an unknown member"]
        return ["an unknown member"] if found.state == DEAD else describe_members(found)


def describe_members(group: GroupDescription) -> list[str]:
    """Return the names of a group's members: a sole member's owner, or the members' ids; with hosts."""
    if group.state == EMPTY or not group.members:
        return ["a member that has just left"]
    if len(group.members) == 1 and group.protocol.startswith(f"{group.group_id}_"):
        return [f"{group.protocol} at {group.members[0].host.lstrip('/')}"]
    names = [f"consumer {member.member_id} at {member.host.lstrip('/')}" for member in group.members]
    more = len(names) - _NAMED
    return names if more <= 0 else [*names[:_NAMED], f"{more} more"]

"""The sole member of a group, for a reader that chooses its partitions and commits its progress.

It joins as a consumer, so that tools list it with its partitions, with an assignor of its own name.
So the coordinator rejects every other consumer that joins, every commit from outside the group, and this
member while the group has others. As one broker decides, one of two that join at the same time is rejected.
A killed member is removed after ``session_ms``.

There is no thread: the user calls ``hold`` every ``heartbeat_ms``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from minikafka.base.errors import BrokerError, ErrorCode, GroupInUse, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.group.commits import CommitRequestManager
from minikafka.clients.group.config import GroupConsumerConfig
from minikafka.clients.group.coordinator_client import CoordinatorClient
from minikafka.clients.group.description import DEAD, EMPTY, GroupDescription, describe_group
from minikafka.clients.group.member import GroupMember
from minikafka.clients.group.member_subscriptions import MemberSubscription
from minikafka.clients.group.membership import REJOIN_CODES, AssignmentComputed, ComputeAssignment
from minikafka.clients.group.offsets import Committed
from minikafka.clients.group.requests import encoded_assignment, join_protocols
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.connections import DedicatedConnectionPool
from minikafka.clients.network.retry import Deadline, FailedAttempts
from minikafka.wire.apis.join_group import JoinGroupRequestProtocol

JOIN_TIMEOUT_MS = 20_000
"""An earlier member may have to be removed first, after ``session_ms``. Brokers from 0.11 on respond to the
first member of a group after ``group.initial.rebalance.delay.ms``, three seconds by default.
"""
COMMIT_TIMEOUT_MS = 10_000

_NAMED = 3
"""The limit of members that an error lists."""


class _ChosenPartitions:
    """The protocol of a sole member (``MemberProtocol``): the partitions that it chose, and the assignor
    ``owner``, which no other member supports.
    """

    def __init__(self, owner: str) -> None:
        self.partitions: tuple[TopicPartition, ...] = ()
        self._owner = owner

    def join_protocols(self, generation: int, deadline: Deadline) -> tuple[JoinGroupRequestProtocol, ...]:
        topics = tuple(sorted({tp.topic for tp in self.partitions}))
        return join_protocols([self._owner], MemberSubscription(topics))

    def compute_assignment(self, effect: ComputeAssignment, deadline: Deadline) -> AssignmentComputed:
        # More than one member can only be earlier attempts whose responses were lost; they time out.
        return encoded_assignment({member_id: self.partitions for member_id, _, _ in effect.members})

    def has_changed(self, deadline: Deadline) -> bool:
        return False  # ``hold`` says so


class SoleMember:
    """Holds ``group_id`` for one owner. Not thread-safe.

    owner: a unique name that starts with the group's name and ``_``.
    """

    session_ms = 10_000
    """The session timeout: the default of Kafka 0.10's consumers, which all brokers allow by default."""
    heartbeat_ms = 3_000
    """The interval of heartbeats."""

    def __init__(self, cluster: ClusterClient, group_id: str, owner: str) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._pool = DedicatedConnectionPool()
        self._coordinator = CoordinatorClient(cluster, group_id, self._pool)
        self._chosen = _ChosenPartitions(owner)
        config = GroupConsumerConfig(
            group_id,
            session_timeout_ms=self.session_ms,
            heartbeat_interval_ms=self.heartbeat_ms,
            max_poll_interval_ms=self.session_ms,
        )
        self._member = GroupMember(
            self._coordinator, config, self._chosen, lambda _: None, lambda _: None, threads=False
        )
        self._commits = CommitRequestManager(
            self._coordinator, self._member.on_commit_rejected, self._member.metrics
        )

    def hold(self, partitions: Collection[TopicPartition], timeout_ms: int = JOIN_TIMEOUT_MS) -> None:
        """Be the group's reader of ``partitions``: join, join again if this is no longer a member or the
        partitions are others, or send a heartbeat if it is due.

        Raises GroupInUse with the names of the group's members, and NetworkError after ``timeout_ms``.
        """
        self._hold(partitions, self._cluster.deadline(timeout_ms))

    def _hold(self, partitions: Collection[TopicPartition], deadline: Deadline) -> None:
        wanted = tuple(sorted(set(partitions)))
        if wanted != self._chosen.partitions:
            self._chosen.partitions = wanted
            self._member.rejoin("it reads other partitions")
        try:
            while not (self._member.ensure_active(deadline) and self._member.is_current):
                if deadline.expired:
                    failed = FailedAttempts()
                    if self._member.last_failure is not None:
                        failed.add(self._member.last_failure)
                    text = f"joining group {self._group_id!r} failed for {deadline.timeout_ms} ms"
                    raise failed.network_error(text)
        except BrokerError as error:
            if error.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
                raise GroupInUse(self._group_id, self._holders(deadline)) from None
            raise

    def commit(self, offsets: Mapping[TopicPartition, int], timeout_ms: int = COMMIT_TIMEOUT_MS) -> None:
        """Commit as the member; joins again if it is no longer one. Raises as ``hold``."""
        deadline = self._cluster.deadline(timeout_ms)
        committed = {tp: Committed(offset) for tp, offset in offsets.items()}
        while True:
            self._hold(self._chosen.partitions, deadline)
            try:
                return self._commits.commit_sync(self._member.committer(), committed, deadline)
            except BrokerError as error:
                if error.code not in REJOIN_CODES or deadline.expired:
                    raise

    def release(self) -> None:
        """Leave the group for good and close the connections."""
        try:
            self._member.leave()
        finally:
            self._cluster.close_pool(self._pool)

    def _holders(self, deadline: Deadline) -> list[str]:
        try:
            found = describe_group(CoordinatorClient(self._cluster, self._group_id), deadline)
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

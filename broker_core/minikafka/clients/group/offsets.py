"""The committed offsets of a group, which are written and read through its coordinator.

A committed offset is that of the next record to read. Versions from 1 on store them in
``__consumer_offsets``; version 0 of both APIs, which stores them in ZooKeeper, is never used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition, numbers_by_topic, rows_by_topic
from minikafka.clients.group.coordinator_client import CoordinatorClient
from minikafka.clients.group.membership import REJOIN_CODES
from minikafka.clients.network.arguments import to_topic_partitions
from minikafka.clients.network.response_errors import raise_for_code
from minikafka.clients.network.retry import Deadline
from minikafka.wire.apis.offset_commit import (
    DEFAULT_RETENTION,
    NO_GENERATION,
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from minikafka.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

_ALL_OFFSETS_SINCE = 2
"""The first version of OffsetFetch that can return all offsets of a group."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The offset of the next record that a group reads of a partition; ``metadata`` is any text."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class Committer:
    """The sender of a commit: a member of a generation, or (the default) a client outside of the group."""

    generation: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None


STANDALONE_COMMITTER = Committer()


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A group, with the generation and the ids of the member that has read the records (KIP-447), or (the
    default) without: for a consumer that assigns its partitions itself.
    """

    group_id: str
    generation: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None

    @classmethod
    def of(cls, group_id: str, committer: Committer) -> GroupMetadata:
        """Return the group with the generation and ids of a committer."""
        return cls(group_id, committer.generation, committer.member_id, committer.group_instance_id)


Offsets = Mapping[TopicPartition, Committed]


def checked_offsets(offsets: Offsets) -> dict[TopicPartition, Committed]:
    """Return ``offsets`` with partitions as such. Raises TypeError for values that are no Committed."""
    values: list[object] = list(offsets.values())
    for value in values:
        if not isinstance(value, Committed):
            raise TypeError(f"expected a Committed(offset), got {value!r}")
    return dict(zip(to_topic_partitions(offsets), offsets.values(), strict=True))


def commit_request(group_id: str, committer: Committer, offsets: Offsets) -> OffsetCommitRequest:
    """Return the request that commits ``offsets``, with the broker's default retention."""
    topics = rows_by_topic(
        (
            tp,
            OffsetCommitRequestPartition(
                partition_index=tp.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=-1,
                commit_timestamp=DEFAULT_RETENTION,
                committed_metadata=committed.metadata,
            ),
        )
        for tp, committed in offsets.items()
    )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id=committer.generation,
        member_id=committer.member_id,
        group_instance_id=committer.group_instance_id,
        retention_time_ms=DEFAULT_RETENTION,
        topics=tuple(OffsetCommitRequestTopic(name, tuple(parts)) for name, parts in topics.items()),
    )


def check_commit(
    group_id: str, response: OffsetCommitResponse, committer: Committer = STANDALONE_COMMITTER
) -> None:
    """Raise the BrokerError of the first rejected offset."""
    for topic in response.topics:
        for part in topic.partitions:
            code = ErrorCode.of(part.error_code)
            if code is not ErrorCode.NONE:
                tp = TopicPartition(topic.name, part.partition_index)
                raise BrokerError(
                    code, f"committing an offset of {tp} for group {group_id!r}{_hint(code, committer)}"
                )


def _hint(code: ErrorCode, committer: Committer) -> str:
    if code in REJOIN_CODES and committer.generation == NO_GENERATION:
        return ": the group has members, and only they can commit; stop them first"
    if code in REJOIN_CODES:
        return (
            ": the group has rebalanced, and other members may have read these partitions already; if the "
            "cause was a late poll, raise max.poll.interval.ms or do less between two polls"
        )
    if code is ErrorCode.OFFSET_METADATA_TOO_LARGE:
        return ": its metadata is larger than the brokers' offset.metadata.max.bytes"
    return ""


def commit(
    coordinator: CoordinatorClient, committer: Committer, offsets: Offsets, deadline: Deadline
) -> None:
    """Commit ``offsets`` and wait until all in-sync replicas have them.

    Retriable errors are retried until the deadline. Raises the first BrokerError that is not.
    """
    if not offsets:
        return
    group_id = coordinator.group_id
    request = commit_request(group_id, committer, offsets)
    coordinator.call(
        f"committing offsets of group {group_id!r}",
        OFFSET_COMMIT,
        lambda _: request,
        deadline,
        lambda response: check_commit(group_id, response, committer),
    )


def fetch_request(group_id: str, partitions: Iterable[TopicPartition]) -> OffsetFetchRequest:
    """Return the request for the committed offsets of ``partitions``."""
    topics = numbers_by_topic(partitions).items()
    rows = tuple(OffsetFetchRequestTopic(name, tuple(numbers)) for name, numbers in topics)
    return _fetch_request(group_id, rows)


def _fetch_request(group_id: str, topics: tuple[OffsetFetchRequestTopic, ...] | None) -> OffsetFetchRequest:
    """Return the request in every version; offsets of open transactions are waited for (KIP-447)."""
    return OffsetFetchRequest(
        group_id, topics, (OffsetFetchRequestGroup(group_id, topics),), require_stable=True
    )


def committed_offsets(
    coordinator: CoordinatorClient, partitions: Iterable[TopicPartition] | None, deadline: Deadline
) -> dict[TopicPartition, Committed]:
    """Return the committed offsets of ``partitions`` (None: all); partitions without one are left out.

    Brokers before 0.10.2 cannot return all offsets: then every partition of the cluster is requested.
    """
    wanted = None if partitions is None else list(partitions)
    if wanted == []:
        return {}

    def request(version: int) -> OffsetFetchRequest:
        if wanted is None and version >= _ALL_OFFSETS_SINCE:
            return _fetch_request(coordinator.group_id, None)
        named = _all_partitions(coordinator, deadline) if wanted is None else wanted
        return fetch_request(coordinator.group_id, named)

    return coordinator.call(
        f"looking up the offsets of group {coordinator.group_id!r}",
        OFFSET_FETCH,
        request,
        deadline,
        lambda response: _offsets_in(coordinator.group_id, response),
    )


def _offsets_in(group_id: str, response: OffsetFetchResponse) -> dict[TopicPartition, Committed]:
    answer = response.groups[0] if response.groups else response
    raise_for_code(answer.error_code, f"looking up the offsets of group {group_id!r}")
    found = {}
    for topic in answer.topics:
        for part in topic.partitions:
            tp = TopicPartition(topic.name, part.partition_index)
            # 0.10.1 returns this code for a partition that does not exist, in version 1.
            if ErrorCode.of(part.error_code) is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise_for_code(part.error_code, f"looking up the offset of {tp} of group {group_id!r}")
            if part.committed_offset >= 0:
                found[tp] = Committed(part.committed_offset, part.metadata or "")
    return found


def _all_partitions(coordinator: CoordinatorClient, deadline: Deadline) -> list[TopicPartition]:
    topics = coordinator.cluster.metadata(None, timeout_ms=deadline.remaining_ms()).topics
    return [partition.topic_partition for topic in topics.values() for partition in topic.partitions]

"""The partitions of a commit request: those whose offsets can be stored, and those that fail on their own."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.groups.messages import OffsetCommitValue
from minikafka.server.core.broker import Broker

STEP_PARTITIONS = 500
"""Partitions checked in one step."""
PARTITION_BYTES = 500
"""Estimated memory of a partition until it is written and answered."""


class CommittedPartition(Protocol):
    """The offset of a partition in a request, of any of the APIs that commit."""

    @property
    def partition_index(self) -> int: ...
    @property
    def committed_metadata(self) -> str | None: ...


Part = TypeVar("Part", bound=CommittedPartition)
Part_co = TypeVar("Part_co", bound=CommittedPartition, covariant=True)


class CommittedTopic(Protocol[Part_co]):
    """The offsets of a topic in a request."""

    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> Sequence[Part_co]: ...


@dataclass(frozen=True, slots=True)
class CheckedCommits:
    """The partitions of a request that can be committed, and the errors of the others.

    step_bytes: the memory that a step of a large request needs; 0 for a small one, which has one step.
    """

    commits: dict[TopicPartition, OffsetCommitValue]
    errors: dict[TopicPartition, ErrorCode]
    step_bytes: int


def checked_commits(
    broker: Broker, topics: Sequence[CommittedTopic[Part]], value: Callable[[Part], OffsetCommitValue]
) -> Generator[int, None, CheckedCommits]:
    """Check that partitions are known and metadata is not too long, in steps of ``STEP_PARTITIONS``.

    ``value`` returns the record for a partition.
    """
    total = sum(len(topic.partitions) for topic in topics)
    step_bytes = total * PARTITION_BYTES if total > STEP_PARTITIONS else 0
    if step_bytes:
        yield step_bytes
    seen = 0
    errors: dict[TopicPartition, ErrorCode] = {}
    commits: dict[TopicPartition, OffsetCommitValue] = {}
    for topic in topics:
        for part in topic.partitions:
            seen += 1
            if seen % STEP_PARTITIONS == 0:
                yield total * PARTITION_BYTES
            topic_partition = TopicPartition(topic.name, part.partition_index)
            if broker.metadata_cache.leadership(topic_partition) is None:
                errors[topic_partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(part.committed_metadata or "") > broker.config.groups.metadata_max_chars:
                errors[topic_partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                commits[topic_partition] = value(part)
    return CheckedCommits(commits, errors, step_bytes)

"""Offsets of a group, to and from the store that the request's version means: 0 is ZooKeeper's
(``/consumers/GROUP/offsets``), which any broker writes; later ones are kept by the group's coordinator alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.group_offsets import Committed
from minikafka.wire.apis.offset_commit import NO_GENERATION

OF_THE_COORDINATOR = 1
"""The version that the release sends by default."""


@dataclass(frozen=True, slots=True)
class OffsetCommitRequest:
    """Offsets of the next messages to read, by partition (``OffsetCommitRequest``).

    ``generation_id`` and ``consumer_id`` (the member's) are left out where partitions are not divided through
    the group; version 0 has neither.
    """

    group_id: str
    offsets: Mapping[TopicPartition, Committed]
    version: int = OF_THE_COORDINATOR
    generation_id: int = NO_GENERATION
    consumer_id: str = ""


@dataclass(frozen=True, slots=True)
class OffsetCommitResponse:
    """What became of each offset (``OffsetCommitResponse``)."""

    errors: Mapping[TopicPartition, ErrorCode]

    @property
    def has_error(self) -> bool:
        """Whether any was refused."""
        return any(error is not ErrorCode.NONE for error in self.errors.values())


@dataclass(frozen=True, slots=True)
class OffsetFetchRequest:
    """Asks for what a group has committed (``OffsetFetchRequest``)."""

    group_id: str
    partitions: tuple[TopicPartition, ...]
    version: int = OF_THE_COORDINATOR


@dataclass(frozen=True, slots=True)
class OffsetMetadataAndError:
    """An offset with the committer's text (``OffsetMetadataAndError``).

    Where nothing was committed the offset is -1; version 0 then says UNKNOWN_TOPIC_OR_PARTITION, too.
    """

    offset: int
    metadata: str
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class OffsetFetchResponse:
    """What the group has committed for each partition (``OffsetFetchResponse``).

    ``error``, from version 2 on, is the group's.
    """

    offsets: Mapping[TopicPartition, OffsetMetadataAndError]
    error: ErrorCode = ErrorCode.NONE

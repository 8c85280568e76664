"""Offsets of a group, to and from the store that the request's version means: 0 is ZooKeeper's
(``/consumers/GROUP/offsets``), which any broker writes; later ones are kept by the group's coordinator alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.group.offsets import Committed
from minikafka.clients.network.arguments import partitions_given
from minikafka.wire.apis.offset_commit import NO_GENERATION

OF_THE_COORDINATOR = 1
"""The version that the release sends by default."""


@dataclass(frozen=True, slots=True)
class OffsetCommitRequest:
    """Offsets of the next messages to read, by partition (``OffsetCommitRequest``).

    ``generation_id`` and ``consumer_id`` (the member's) are left out where partitions are not divided through
    the group; version 0 has neither. Partitions may be pairs of topic and number; TypeError for what is
    neither, and for offsets that are no Committed.
    """

    group_id: str
    offsets: Mapping[TopicPartition, Committed]
    version: int = OF_THE_COORDINATOR
    generation_id: int = NO_GENERATION
    consumer_id: str = ""

    def __post_init__(self) -> None:
        offsets: Any = self.offsets
        given = offsets.values() if isinstance(offsets, Mapping) else [None]
        if not all(isinstance(one, Committed) for one in given):
            raise TypeError(
                "offsets is a mapping of partitions to Committed (of clients.simple_consumer), as "
                f"{{TopicPartition('flights', 0): Committed(12)}}, not {offsets!r:.100}"
            )
        named = dict(zip(partitions_given(offsets), offsets.values(), strict=True))
        object.__setattr__(self, "offsets", named)


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
    """Asks for what a group has committed (``OffsetFetchRequest``). Partitions may be pairs of topic and
    number; TypeError for what is neither.
    """

    group_id: str
    partitions: tuple[TopicPartition, ...]
    version: int = OF_THE_COORDINATOR

    def __post_init__(self) -> None:
        object.__setattr__(self, "partitions", partitions_given(self.partitions))


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

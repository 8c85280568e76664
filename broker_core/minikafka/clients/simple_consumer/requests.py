"""The requests of the simple consumer and their responses, but for the messages: fetches, committed offsets
and metadata.

The version of an offset request selects the store: version 0 is ZooKeeper's (``/consumers/GROUP/offsets``),
which any broker writes; later versions are kept by the group's coordinator alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.clients.group.offsets import Committed
from minikafka.clients.network.arguments import to_topic_partitions
from minikafka.clients.network.metadata import TopicMetadata
from minikafka.wire.apis.offset_commit import NO_GENERATION
from minikafka.wire.classic import Fetch as FetchRequest

__all__ = [
    "CONSUMER",
    "ConsumerMetadataRequest",
    "ConsumerMetadataResponse",
    "FetchRequest",
    "FetchRequestBuilder",
    "MultiFetchRequest",
    "OffsetCommitRequest",
    "OffsetCommitResponse",
    "OffsetFetchRequest",
    "OffsetFetchResponse",
    "OffsetMetadataAndError",
    "TopicMetadataRequest",
    "TopicMetadataResponse",
]

CONSUMER = -1
"""``replica_id`` of everybody who is not a broker."""


@dataclass(frozen=True, slots=True)
class MultiFetchRequest:
    """Several fetches, answered in their order (``FetchRequest`` of text 004 and the release, which holds
    many partitions; a list of them in the earlier texts).

    max_wait_ms, min_bytes: the broker waits for so many bytes of all partitions together, but no longer.
        Where it does they go out as one request, in which a partition stands once; otherwise each for itself,
        one behind the other.
    replica_id: -1 for a consumer, the id of a follower's broker, -2 for who may see what is not committed.
    version: the version of Fetch to send; None: the newest that both sides know.
    """

    fetches: tuple[FetchRequest, ...]
    max_wait_ms: int = 0
    min_bytes: int = 0
    replica_id: int = CONSUMER
    version: int | None = None

    def __post_init__(self) -> None:
        if self.max_wait_ms < 0 or self.min_bytes < 0:
            raise ValueError(
                f"max_wait_ms {self.max_wait_ms} and min_bytes {self.min_bytes} must be 0 or more"
            )
        places = [TopicPartition(one.topic, one.partition) for one in self.fetches]
        twice = next((one for number, one in enumerate(places) if one in places[:number]), None)
        if self.may_wait and twice is not None:
            raise ValueError(f"{twice} stands twice in a request that waits: ask for it once")

    @property
    def may_wait(self) -> bool:
        """Whether the broker may keep it until there is something."""
        return self.max_wait_ms > 0 and self.min_bytes > 0


class FetchRequestBuilder:
    """Makes a MultiFetchRequest step by step (``FetchRequestBuilder`` of the release).

    The client's id and the correlation id are the consumer's own.
    """

    def __init__(self) -> None:
        self._fetches: list[FetchRequest] = []
        self._max_wait_ms = 0
        self._min_bytes = 0
        self._replica_id = CONSUMER
        self._version: int | None = None

    def add_fetch(self, topic: str, partition: int, offset: int, fetch_size: int) -> FetchRequestBuilder:
        """From ``offset`` on, at most ``fetch_size`` bytes."""
        self._fetches.append(FetchRequest(topic, partition, offset, fetch_size))
        return self

    def max_wait(self, milliseconds: int) -> FetchRequestBuilder:
        """Wait for ``min_bytes`` no longer than that."""
        self._max_wait_ms = milliseconds
        return self

    def min_bytes(self, count: int) -> FetchRequestBuilder:
        """Answer when there are so many bytes, or ``max_wait`` is over."""
        self._min_bytes = count
        return self

    def replica_id(self, replica_id: int) -> FetchRequestBuilder:
        """As another than a consumer."""
        self._replica_id = replica_id
        return self

    def request_version(self, version: int) -> FetchRequestBuilder:
        """In that version of Fetch."""
        self._version = version
        return self

    def build(self) -> MultiFetchRequest:
        """The request so far. ValueError for what cannot be."""
        return MultiFetchRequest(
            tuple(self._fetches), self._max_wait_ms, self._min_bytes, self._replica_id, self._version
        )


COORDINATOR_VERSION = 1
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
    version: int = COORDINATOR_VERSION
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
        named = dict(zip(to_topic_partitions(offsets), offsets.values(), strict=True))
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
    version: int = COORDINATOR_VERSION

    def __post_init__(self) -> None:
        object.__setattr__(self, "partitions", to_topic_partitions(self.partitions))


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


@dataclass(frozen=True, slots=True)
class TopicMetadataRequest:
    """Asks who leads the partitions of ``topics``; of all, where none is named (``TopicMetadataRequest``).

    With ``creates_topics`` a broker that has ``auto.create.topics.enable`` makes those that are not there;
    one before 0.11 does so in any case.
    """

    topics: tuple[str, ...] = ()
    creates_topics: bool = False


@dataclass(frozen=True, slots=True)
class TopicMetadataResponse:
    """The brokers that live, by id, and the topics by name, each with its error
    (``TopicMetadataResponse``).
    """

    brokers: Mapping[int, BrokerAddress]
    topics: Mapping[str, TopicMetadata]


@dataclass(frozen=True, slots=True)
class ConsumerMetadataRequest:
    """Asks who coordinates ``group`` and keeps its offsets (``ConsumerMetadataRequest``; since 0.9
    ``GroupCoordinatorRequest``). The first of a cluster has the topic of offsets made.
    """

    group: str


@dataclass(frozen=True, slots=True)
class ConsumerMetadataResponse:
    """The coordinator, None with an error: GROUP_COORDINATOR_NOT_AVAILABLE where it may be there soon
    (``ConsumerMetadataResponse``).
    """

    coordinator: BrokerAddress | None
    error: ErrorCode

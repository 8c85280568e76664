"""The requests of the simple consumer, for fetches, committed offsets and metadata, and their responses.
(``fetch_response`` has the responses to fetches.)

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
from minikafka.wire.classic import Fetch

FetchRequest = Fetch
"""A fetch of one partition (``FetchRequest``)."""
CONSUMER = -1
"""``replica_id`` of clients that are not brokers."""


@dataclass(frozen=True, slots=True)
class MultiFetchRequest:
    """Several fetches, with results in their order (``FetchRequest`` of text 004 and the release, which holds
    many partitions; a list of them in the earlier texts).

    max_wait_ms, min_bytes: the broker waits until all partitions together have ``min_bytes``, at most
        ``max_wait_ms``. If both are set, the fetches are one request, in which a partition may appear once;
        otherwise each fetch is its own request.
    replica_id: -1 for a consumer, the broker id of a follower, -2 for a reader of uncommitted records.
    version: the version of Fetch to send; None: the newest that both sides support.
    """

    fetches: tuple[FetchRequest, ...]
    max_wait_ms: int = 0
    min_bytes: int = 0
    replica_id: int = CONSUMER
    version: int | None = None

    def __post_init__(self) -> None:
        if self.max_wait_ms < 0 or self.min_bytes < 0:
            raise ValueError(
                f"expected 0 or more, got max_wait_ms={self.max_wait_ms}, min_bytes={self.min_bytes}"
            )
        partitions = [TopicPartition(fetch.topic, fetch.partition) for fetch in self.fetches]
        repeated = next((tp for number, tp in enumerate(partitions) if tp in partitions[:number]), None)
        if self.may_wait and repeated is not None:
            raise ValueError(f"{repeated} is repeated in a request that waits: fetch it once")

    @property
    def may_wait(self) -> bool:
        """True if the broker may hold the request until there is data."""
        return self.max_wait_ms > 0 and self.min_bytes > 0


class FetchRequestBuilder:
    """Builds a MultiFetchRequest (``FetchRequestBuilder`` of the release).

    The client id and the correlation id are those of the consumer.
    """

    def __init__(self) -> None:
        self._fetches: list[FetchRequest] = []
        self._max_wait_ms = 0
        self._min_bytes = 0
        self._replica_id = CONSUMER
        self._version: int | None = None

    def add_fetch(self, topic: str, partition: int, offset: int, fetch_size: int) -> FetchRequestBuilder:
        """Add a fetch of a partition from ``offset``, of at most ``fetch_size`` bytes."""
        self._fetches.append(FetchRequest(topic, partition, offset, fetch_size))
        return self

    def max_wait(self, milliseconds: int) -> FetchRequestBuilder:
        """Set the longest time that the broker waits for ``min_bytes``."""
        self._max_wait_ms = milliseconds
        return self

    def min_bytes(self, count: int) -> FetchRequestBuilder:
        """Set the number of bytes for which the broker waits, at most for ``max_wait``."""
        self._min_bytes = count
        return self

    def replica_id(self, replica_id: int) -> FetchRequestBuilder:
        """Fetch as this replica instead of as a consumer."""
        self._replica_id = replica_id
        return self

    def request_version(self, version: int) -> FetchRequestBuilder:
        """Send this version of Fetch."""
        self._version = version
        return self

    def build(self) -> MultiFetchRequest:
        """Return the request. Raises ValueError for an invalid one."""
        return MultiFetchRequest(
            tuple(self._fetches), self._max_wait_ms, self._min_bytes, self._replica_id, self._version
        )


COORDINATOR_VERSION = 1
"""The version that the release sends by default; offsets are kept by the coordinator."""


@dataclass(frozen=True, slots=True)
class OffsetCommitRequest:
    """Commits offsets of the next messages to read, by partition (``OffsetCommitRequest``).

    ``generation_id`` and ``consumer_id`` (the member's) are omitted if the group does not assign partitions;
    version 0 has neither. Partitions may be pairs of topic and number; raises TypeError for anything else,
    and for offsets that are not Committed.
    """

    group_id: str
    offsets: Mapping[TopicPartition, Committed]
    version: int = COORDINATOR_VERSION
    generation_id: int = NO_GENERATION
    consumer_id: str = ""

    def __post_init__(self) -> None:
        offsets: Any = self.offsets
        given = offsets.values() if isinstance(offsets, Mapping) else [None]
        if not all(isinstance(offset, Committed) for offset in given):
            raise TypeError(
                "offsets: expected a mapping of partitions to Committed (of clients.simple_consumer), as "
                f"{{TopicPartition('flights', 0): Committed(12)}}, got {offsets!r:.100}"
            )
        named = dict(zip(to_topic_partitions(offsets), offsets.values(), strict=True))
        object.__setattr__(self, "offsets", named)


@dataclass(frozen=True, slots=True)
class OffsetCommitResponse:
    """The result for each offset (``OffsetCommitResponse``)."""

    errors: Mapping[TopicPartition, ErrorCode]

    @property
    def has_error(self) -> bool:
        """True if any offset was refused."""
        return any(error is not ErrorCode.NONE for error in self.errors.values())


@dataclass(frozen=True, slots=True)
class OffsetFetchRequest:
    """Fetches the committed offsets of a group (``OffsetFetchRequest``). Partitions may be pairs of topic and
    number; raises TypeError for anything else.
    """

    group_id: str
    partitions: tuple[TopicPartition, ...]
    version: int = COORDINATOR_VERSION

    def __post_init__(self) -> None:
        object.__setattr__(self, "partitions", to_topic_partitions(self.partitions))


@dataclass(frozen=True, slots=True)
class OffsetMetadataAndError:
    """An offset with the committer's metadata (``OffsetMetadataAndError``).

    If nothing is committed, the offset is -1; version 0 then also has UNKNOWN_TOPIC_OR_PARTITION.
    """

    offset: int
    metadata: str
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class OffsetFetchResponse:
    """The committed offset of each partition (``OffsetFetchResponse``).

    ``error``, from version 2 on, is that of the group.
    """

    offsets: Mapping[TopicPartition, OffsetMetadataAndError]
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class TopicMetadataRequest:
    """Requests the leaders of the partitions of ``topics``, or of all topics if empty
    (``TopicMetadataRequest``).

    With ``creates_topics`` a broker with ``auto.create.topics.enable`` creates missing topics; one before
    0.11 does so in any case.
    """

    topics: tuple[str, ...] = ()
    creates_topics: bool = False


@dataclass(frozen=True, slots=True)
class TopicMetadataResponse:
    """The live brokers by id, and the topics by name, each with its error (``TopicMetadataResponse``)."""

    brokers: Mapping[int, BrokerAddress]
    topics: Mapping[str, TopicMetadata]


@dataclass(frozen=True, slots=True)
class ConsumerMetadataRequest:
    """Requests the coordinator of ``group``, which keeps its offsets (``ConsumerMetadataRequest``; since 0.9
    ``GroupCoordinatorRequest``). The first request of a cluster creates the topic of offsets.
    """

    group: str


@dataclass(frozen=True, slots=True)
class ConsumerMetadataResponse:
    """The coordinator, or None with an error: GROUP_COORDINATOR_NOT_AVAILABLE if it may be available soon
    (``ConsumerMetadataResponse``).
    """

    coordinator: BrokerAddress | None
    error: ErrorCode

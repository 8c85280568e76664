"""APIs of the protocol: their keys, versions, requests and responses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, Protocol, TypeVar

from minikafka.base.errors import LocalWireError, RemoteWireError
from minikafka.base.files import Buffer
from minikafka.base.ids import TopicPartition
from minikafka.wire import schema
from minikafka.wire.frame_parts import Part

RESPONSE_BYTES_MAX = 256 << 20
"""The largest response to anything but a fetch: the metadata of a million partitions."""

Request = TypeVar("Request")
Response = TypeVar("Response")


class PartitionRow(Protocol):
    """The values of one partition in a request or response."""

    @property
    def index(self) -> int:
        """The number of the partition."""


Row_co = TypeVar("Row_co", bound=PartitionRow, covariant=True)


class TopicRows(Protocol[Row_co]):
    """The partitions of one topic in a request or response."""

    @property
    def name(self) -> str:
        """The topic."""

    @property
    def partitions(self) -> Sequence[Row_co]:
        """Its partitions."""


def partitions_of(topics: Sequence[TopicRows[Row_co]]) -> Iterator[tuple[TopicPartition, Row_co]]:
    """Yield the partitions of all ``topics`` of a request or response."""
    for topic in topics:
        for partition in topic.partitions:
            yield TopicPartition(topic.name, partition.index), partition


class ApiKey(IntEnum):
    """The numbers of Kafka's APIs in request headers (int16): all of 2.1, and IncrementalAlterConfigs."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44


@dataclass(frozen=True, eq=False)
class Api(Generic[Request, Response]):
    """The request and response of one API, in all versions from ``min_version`` to ``max_version``."""

    key: ApiKey
    name: str
    min_version: int
    max_version: int
    request: type[Request]
    response: type[Response]
    max_elements: int = schema.MAX_ELEMENTS
    """The limit of elements in all arrays of a request together."""
    response_bytes: Callable[[int, Request], int] | None = None
    """Takes the version and the request; returns the size limit of the response, if the request sets one."""

    def supports(self, version: int) -> bool:
        """Return whether ``version`` is supported."""
        return self.min_version <= version <= self.max_version

    def response_bytes_max(self, version: int, request: Request) -> int:
        """Return the size limit of the response; a larger one is rejected."""
        if self.response_bytes is None:
            return RESPONSE_BYTES_MAX
        return self.response_bytes(version, request)

    def decode_request(self, version: int, body: Buffer) -> Request:
        """Decode ``body``, which follows the header.

        Raises RemoteWireError unless it fits exactly, or for more than ``max_elements`` elements.
        """
        if not self.supports(version):
            raise RemoteWireError(self._unsupported(version))
        return schema.decode(self.request, version, body, self.max_elements)

    def decode_response(self, version: int, body: Buffer) -> Response:
        """Decode ``body``, which follows the header. Raises RemoteWireError unless it fits exactly."""
        self._check_own(version)
        return schema.decode(self.response, version, body, schema.MAX_RESPONSE_ELEMENTS)

    def encode_request(self, version: int, request: Request) -> list[Part]:
        """Return the parts after the request header. Raises LocalWireError when a value does not fit."""
        self._check_own(version)
        return schema.encode(self.request, version, request)

    def encode_response(self, version: int, response: Response) -> list[Part]:
        """Return the parts after the correlation id. Raises LocalWireError when a value does not fit."""
        self._check_own(version)
        return schema.encode(self.response, version, response)

    def _check_own(self, version: int) -> None:
        if not self.supports(version):
            raise LocalWireError(self._unsupported(version))

    def _unsupported(self, version: int) -> str:
        supported = f"{self.min_version} to {self.max_version}"
        return f"{self.name} version {version} is not supported: expected {supported}"

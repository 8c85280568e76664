"""APIs of the protocol: their keys, versions, requests and responses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, Protocol, TypeVar

from minikafka.base.errors import LocalWireError, RemoteWireError
from minikafka.base.files import Buffer
from minikafka.base.ids import TopicPartition
from minikafka.wire import schema
from minikafka.wire.frame_parts import Part

RESPONSE_BYTES_MAX = 256 << 20
"""The largest response to anything but a fetch: the metadata of a million partitions."""

NO_OPERATIONS = -(1 << 31)
"""The authorized operations of a topic, a group or the cluster that were not requested."""

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
    """The numbers of Kafka's APIs in request headers (int16): all of 2.1, and newer ones that are served; and
    of minikafka's own, far from Kafka's and from those of vendors (10000 and on).
    """

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
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    COPY_BATCHES = 27979  # "mk"


NEVER = 1 << 15
"""A version above all others."""

FLEXIBLE_SINCE: dict[int, int] = {
    ApiKey.PRODUCE: 9,
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 6,
    ApiKey.METADATA: 9,
    ApiKey.LEADER_AND_ISR: 4,
    ApiKey.STOP_REPLICA: 2,
    ApiKey.UPDATE_METADATA: 6,
    ApiKey.CONTROLLED_SHUTDOWN: 3,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 6,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.JOIN_GROUP: 6,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 4,
    ApiKey.SYNC_GROUP: 4,
    ApiKey.DESCRIBE_GROUPS: 5,
    ApiKey.LIST_GROUPS: 3,
    ApiKey.API_VERSIONS: 3,
    ApiKey.CREATE_TOPICS: 5,
    ApiKey.DELETE_TOPICS: 4,
    ApiKey.DELETE_RECORDS: 2,
    ApiKey.INIT_PRODUCER_ID: 2,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 3,
    ApiKey.END_TXN: 3,
    ApiKey.WRITE_TXN_MARKERS: 1,
    ApiKey.TXN_OFFSET_COMMIT: 3,
    ApiKey.DESCRIBE_ACLS: 2,
    ApiKey.CREATE_ACLS: 2,
    ApiKey.DELETE_ACLS: 2,
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.ALTER_CONFIGS: 2,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 2,
    ApiKey.DESCRIBE_LOG_DIRS: 2,
    ApiKey.SASL_AUTHENTICATE: 2,
    ApiKey.CREATE_PARTITIONS: 2,
    ApiKey.DELETE_GROUPS: 2,
    ApiKey.ELECT_LEADERS: 2,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: 0,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: 1,
    ApiKey.ALTER_CLIENT_QUOTAS: 1,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 0,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 0,
    ApiKey.DESCRIBE_CLUSTER: 0,
    ApiKey.DESCRIBE_PRODUCERS: 0,
    ApiKey.DESCRIBE_TRANSACTIONS: 0,
    ApiKey.LIST_TRANSACTIONS: 0,
    ApiKey.COPY_BATCHES: 0,
}
"""API -> its first flexible version (KIP-482), in which the headers have tagged fields too. It is here, and
not in the APIs' modules, because a header is read before its API is known. SaslHandshake has no such version.
"""


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

    is_flexible: dict[int, bool] = field(init=False, repr=False)
    """All supported versions -> whether they have compact lengths and tagged fields."""

    def __post_init__(self) -> None:
        first, versions = FLEXIBLE_SINCE.get(self.key, NEVER), range(self.min_version, self.max_version + 1)
        object.__setattr__(self, "is_flexible", {version: version >= first for version in versions})

    def has_tagged_response_header(self, version: int) -> bool:
        """Return whether tagged fields follow the correlation id of a response.

        They do in flexible versions, except those of ApiVersions: a client must be able to read its response
        before it knows the broker's versions.
        """
        return self.is_flexible[version] and self.key != ApiKey.API_VERSIONS

    def supports(self, version: int) -> bool:
        """Return whether ``version`` is supported."""
        return version in self.is_flexible

    def response_bytes_max(self, version: int, request: Request) -> int:
        """Return the size limit of the response; a larger one is rejected."""
        if self.response_bytes is None:
            return RESPONSE_BYTES_MAX
        return self.response_bytes(version, request)

    def decode_request(self, version: int, body: Buffer) -> Request:
        """Decode ``body``, which follows the header.

        Bytes behind the request are ignored, as Kafka ignores them: librdkafka 2.16 leaves three behind a
        Metadata request for all topics, and one behind changes of SCRAM users, kafka-go 0.4 one behind
        requests of ACLs. Raises RemoteWireError if it is invalid, or for more than ``max_elements`` elements.
        """
        flexible = self.is_flexible.get(version)
        if flexible is None:
            raise RemoteWireError(self._unsupported(version))
        return schema.decode_prefix(self.request, version, body, self.max_elements, flexible)[0]

    def decode_response(self, version: int, body: Buffer) -> Response:
        """Decode ``body``, which follows the header. Raises RemoteWireError unless it fits exactly."""
        return schema.decode(
            self.response, version, body, schema.MAX_RESPONSE_ELEMENTS, self._own_form(version)
        )

    def encode_request(self, version: int, request: Request) -> list[Part]:
        """Return the parts after the request header. Raises LocalWireError when a value does not fit."""
        return schema.encode(self.request, version, request, self._own_form(version))

    def encode_response(self, version: int, response: Response) -> list[Part]:
        """Return the parts after the header. Raises LocalWireError when a value does not fit."""
        return schema.encode(self.response, version, response, self._own_form(version))

    def _own_form(self, version: int) -> bool:
        """Return whether ``version``, which this side has chosen, is flexible."""
        flexible = self.is_flexible.get(version)
        if flexible is None:
            raise LocalWireError(self._unsupported(version))
        return flexible

    def _unsupported(self, version: int) -> str:
        supported = f"{self.min_version} to {self.max_version}"
        return f"{self.name} version {version} is not supported: expected {supported}"

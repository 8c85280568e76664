"""The connection of a simple consumer to its broker (the texts' ``BlockingChannel``), with either the texts'
protocol or Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from minikafka.base.clock import SystemClock
from minikafka.base.errors import BrokerError, ErrorCode, NetworkError, RemoteWireError
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.stats import FetchRequestAndResponseStats
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.metrics.connections import BOOTSTRAP_NODE, ConnectionReadings, connection_metrics
from minikafka.clients.metrics.consumer import PREFIX
from minikafka.clients.metrics.registry import Metrics
from minikafka.clients.network.broker_connection import BrokerConnection, ConnectionConfig, ResponseFuture
from minikafka.clients.network.retry import Deadline, EventWaiter
from minikafka.clients.simple_consumer.fetch_response import UNKNOWN_HIGH_WATERMARK, FetchedMessages
from minikafka.clients.simple_consumer.requests import FetchRequest, MultiFetchRequest
from minikafka.net.interfaces import Connection, Connector
from minikafka.wire import classic
from minikafka.wire.api import Api, partitions_of
from minikafka.wire.apis import fetch as fetching
from minikafka.wire.apis import list_offsets as listing
from minikafka.wire.frame_parts import buffer_of

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

_UNKNOWN = -1
_SEGMENT_OFFSETS_VERSION = 0
"""The version of ListOffsets that returns several offsets: those of segments."""


class BlockingChannel(Protocol):
    """One connection to one broker, opened when it is first needed. Not thread-safe.

    Raises NetworkError and RemoteWireError; BrokerError UNSUPPORTED_VERSION for requests that the protocol
    does not have.
    """

    def connect(self) -> None:
        """Connect, unless connected."""

    def close(self) -> None:
        """Close the connection."""

    def metrics(self) -> Metrics:
        """Return the metrics of the connection; none with the texts' protocol. Thread-safe."""

    def fetch(self, request: MultiFetchRequest) -> list[FetchedMessages]:
        """Return the messages of each fetch, in their order."""

    def offsets(self, tp: TopicPartition, time_ms: int, max_count: int) -> tuple[ErrorCode, list[int]]:
        """Return offsets of segments before a time, the latest first."""

    def earliest_or_latest(self, tp: TopicPartition, time_ms: int, replica_id: int) -> tuple[ErrorCode, int]:
        """Return the first offset, or the last, as ``replica_id`` sees the log."""

    def request(
        self, api: Api[RequestT, ResponseT], request: Callable[[int], RequestT], version: int | None = None
    ) -> ResponseT:
        """Return the response to a request of Kafka's protocol, sent in ``version``, or else in the newest
        version that both sides support.
        """


class ClassicChannel:
    """The texts' compact protocol: fetches and offsets only."""

    def __init__(
        self, host: str, port: int, connector: Connector, stats: FetchRequestAndResponseStats
    ) -> None:
        self._host = host
        self._port = port
        self._connector = connector
        self._clock = SystemClock()
        self._stats = stats
        self._connection: Connection | None = None

    def connect(self) -> None:
        self._open()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def metrics(self) -> Metrics:
        return {}

    def fetch(self, request: MultiFetchRequest) -> list[FetchedMessages]:
        if request.may_wait or request.version is not None:
            raise _not_classic("fetch that waits or has a version")
        start_ms = self._clock.monotonic_ms()
        if len(request.fetches) == 1:
            responses = [classic.decode_message_set_send(self._send(request.fetches[0]))]
        else:
            frame = self._send(classic.MultiFetch(request.fetches))
            _, responses = classic.decode_multi_message_set_send(frame)
            if len(responses) != len(request.fetches):
                raise RemoteWireError(f"expected {len(request.fetches)} message sets, got {len(responses)}")
        found = [
            FetchedMessages(fetch, classic.error_of(response.error_code), buffer_of(response.messages))
            for fetch, response in zip(request.fetches, responses, strict=True)
        ]
        self._stats.record_fetch(
            self._host,
            self._port,
            request_ms=self._clock.monotonic_ms() - start_ms,
            response_bytes=sum(fetched.size_bytes for fetched in found),
            throttle_ms=0,
        )
        return found

    def offsets(self, tp: TopicPartition, time_ms: int, max_count: int) -> tuple[ErrorCode, list[int]]:
        request = classic.Offsets(tp.topic, tp.partition, time_ms, max_count)
        code, offsets = classic.decode_offsets(self._send(request))
        return classic.error_of(code), offsets

    def earliest_or_latest(self, tp: TopicPartition, time_ms: int, replica_id: int) -> tuple[ErrorCode, int]:
        error, offsets = self.offsets(tp, time_ms, 1)
        return error, offsets[0] if offsets else _UNKNOWN

    def request(
        self, api: Api[RequestT, ResponseT], request: Callable[[int], RequestT], version: int | None = None
    ) -> ResponseT:
        raise _not_classic(api.name)

    def _open(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = self._connector.connect(self._host, self._port)
        return self._connection

    def _send(self, request: classic.Request) -> memoryview:
        return self._open().request(classic.encode_request(request)).result()


class KafkaChannel:
    """Kafka's protocol, for brokers since 0.10."""

    def __init__(
        self,
        host: str,
        port: int,
        connector: Connector,
        stats: FetchRequestAndResponseStats,
        request_timeout_ms: int,
        why_closed: Callable[[str, int], str | None] | None,
        isolation: IsolationLevel,
    ) -> None:
        self._host = host
        self._port = port
        self._stats = stats
        self._isolation = isolation
        self._timeout_ms = request_timeout_ms
        self._clock = SystemClock()
        config = ConnectionConfig(
            connector, self._clock, EventWaiter(), stats.client_id, request_timeout_ms, why_closed=why_closed
        )
        self._connection = BrokerConnection(f"the broker at {host}:{port}", host, port, config)

    def connect(self) -> None:
        self._connection.connect(Deadline(self._clock, self._timeout_ms))

    def close(self) -> None:
        self._connection.disconnect()

    def metrics(self) -> Metrics:
        node, now_ms = self._connection.metrics, self._clock.monotonic_ms()
        readings = ConnectionReadings([node], int(self._connection.connected), now_ms)
        return connection_metrics(PREFIX, readings, [(BOOTSTRAP_NODE, node)], now_ms)

    def fetch(self, request: MultiFetchRequest) -> list[FetchedMessages]:
        # One request for each fetch, unless the broker waits for data of all: the first message of a response
        # may be larger than requested, and leave no room for the other fetches.
        groups = [request.fetches] if request.may_wait else [(fetch,) for fetch in request.fetches]
        start_ms = self._clock.monotonic_ms()
        pending = [(group, self._fetch(request, group)) for group in groups]
        return [
            found
            for group, reply in pending
            for found in self._process(group, reply.result(self._timeout_ms + request.max_wait_ms), start_ms)
        ]

    def offsets(self, tp: TopicPartition, time_ms: int, max_count: int) -> tuple[ErrorCode, list[int]]:
        request = listing.offsets_request({tp: time_ms}, max_num_offsets=max_count)
        response = self.request(listing.LIST_OFFSETS, lambda _: request, _SEGMENT_OFFSETS_VERSION)
        ((_, part),) = partitions_of(response.topics)
        return ErrorCode.of(part.error_code), list(part.offsets)

    def earliest_or_latest(self, tp: TopicPartition, time_ms: int, replica_id: int) -> tuple[ErrorCode, int]:
        request = listing.offsets_request(
            {tp: time_ms}, replica_id=replica_id, isolation_level=self._isolation
        )
        response = self.request(listing.LIST_OFFSETS, lambda _: request)
        ((_, part),) = partitions_of(response.topics)
        return ErrorCode.of(part.error_code), part.offsets[0] if part.offsets else part.offset

    def request(
        self, api: Api[RequestT, ResponseT], request: Callable[[int], RequestT], version: int | None = None
    ) -> ResponseT:
        return self._send(api, request, version, self._timeout_ms).result(self._timeout_ms)

    def _send(
        self,
        api: Api[RequestT, ResponseT],
        request: Callable[[int], RequestT],
        version: int | None,
        timeout_ms: int,
        newest: int | None = None,
    ) -> ResponseFuture[ResponseT]:
        def build(spoken: int) -> RequestT:
            if version is not None and spoken != version:
                raise BrokerError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"{api.name} {version} is not supported: {self._connection.name} and this client support "
                    f"versions up to {spoken}",
                )
            return request(spoken)

        limits = [limit for limit in (version, newest) if limit is not None]
        return self._connection.send(api, build, Deadline(self._clock, timeout_ms), min(limits, default=None))

    def _fetch(
        self, request: MultiFetchRequest, fetches: Sequence[FetchRequest]
    ) -> ResponseFuture[fetching.FetchResponse]:
        committed = self._isolation is IsolationLevel.READ_COMMITTED
        if committed and request.version is not None and request.version < fetching.ISOLATION_SINCE:
            raise BrokerError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Fetch {request.version} has no isolation level: read_committed needs version "
                f"{fetching.ISOLATION_SINCE} or newer",
            )
        fetch_request = fetching.consumer_request(
            {
                TopicPartition(fetch.topic, fetch.partition): fetching.consumer_partition(
                    fetch.partition, fetch.offset, fetch.max_size
                )
                for fetch in fetches
            },
            max_bytes=min(fetching.NO_LIMIT, sum(fetch.max_size for fetch in fetches)),
            min_bytes=request.min_bytes,
            max_wait_ms=request.max_wait_ms,
            isolation_level=self._isolation,
            replica_id=request.replica_id,
        )
        timeout_ms = self._timeout_ms + request.max_wait_ms
        return self._send(
            fetching.FETCH, lambda _: fetch_request, request.version, timeout_ms, fetching.NAMES_UNTIL
        )

    def _process(
        self, fetches: Sequence[FetchRequest], response: fetching.FetchResponse, start_ms: int
    ) -> Iterator[FetchedMessages]:
        parts = dict(partitions_of(response.topics))
        self._stats.record_fetch(
            self._host,
            self._port,
            request_ms=self._clock.monotonic_ms() - start_ms,
            response_bytes=sum(len(buffer_of(part.records)) for part in parts.values()),
            throttle_ms=response.throttle_time_ms,
        )
        for fetch in fetches:
            tp = TopicPartition(fetch.topic, fetch.partition)
            part = parts.get(tp)
            if part is None:  # newer brokers, for a client above its quota
                raise NetworkError(f"{self._connection.name} left {tp} out of its response")
            committed = self._isolation is IsolationLevel.READ_COMMITTED
            yield FetchedMessages(
                fetch,
                ErrorCode.of(part.error_code),
                buffer_of(part.records),
                part.high_watermark,
                part.last_stable_offset if committed else UNKNOWN_HIGH_WATERMARK,
                part.aborted_transactions or (),
            )


def _not_classic(request: str) -> BrokerError:
    return BrokerError(
        ErrorCode.UNSUPPORTED_VERSION,
        f"the classic protocol has no {request}: use a Kafka listener, without classic=True",
    )

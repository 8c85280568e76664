"""The low-level consumer of the reference texts: one broker, no state, the offset named in every request.

    with SimpleConsumer("localhost", 9092) as consumer:
        for message in consumer.fetch(FetchRequest("t", 0, offset=0, max_size=1 << 20)):
            print(message.offset, message.value)

It asks the broker that it was given, and looks for no leader. With ``classic=True`` it speaks the texts' own
protocol (``minikafka.wire.classic``) to a CLASSIC listener; otherwise today's, to any broker from Kafka 0.10
on. A connection that breaks is made again once for each call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Protocol, TypeVar

from minikafka.base.clock import SystemClock
from minikafka.base.errors import BrokerError, ErrorCode, NetworkError, RemoteWireError
from minikafka.base.files import Buffer
from minikafka.base.ids import TopicPartition
from minikafka.clients.links import BrokerLink, LinkConfig, Reply
from minikafka.clients.retry import Deadline, EventWaiter
from minikafka.net.connection import SocketConnector
from minikafka.net.port import Connection, Connector
from minikafka.records.message_set import StoredRecord
from minikafka.records.stream import MessageSet
from minikafka.wire import classic
from minikafka.wire.apis import fetch as fetching
from minikafka.wire.apis import list_offsets as listing
from minikafka.wire.classic import Fetch as FetchRequest
from minikafka.wire.keys import ApiKey
from minikafka.wire.parts import buffer_of

__all__ = ["EARLIEST_TIME", "LATEST_TIME", "FetchRequest", "FetchedMessages", "SimpleConsumer"]

LATEST_TIME = classic.LATEST
EARLIEST_TIME = classic.EARLIEST
_CONSUMER = -1
_UNKNOWN = -1

Result = TypeVar("Result")


class FetchedMessages:
    """What came of one fetch: its messages by iterating, any number of times.

    ``error`` is the broker's; iterating raises it as BrokerError, as it does CORRUPT_MESSAGE for damage. A
    message that is cut off at the end, as the size of the fetch may do, is left out.
    """

    def __init__(self, request: FetchRequest, error: ErrorCode, data: Buffer) -> None:
        self.request = request
        self.error = error
        self._set = MessageSet(data)

    @property
    def size_bytes(self) -> int:
        """All that came."""
        return self._set.size_bytes

    @property
    def valid_bytes(self) -> int:
        """Without the cut-off last message. None of some: ask again with a larger ``max_size``."""
        return self._set.valid_bytes

    def __iter__(self) -> Iterator[StoredRecord]:
        if self.error is not ErrorCode.NONE:
            asked = self.request
            raise BrokerError(self.error, f"fetching {asked.topic}-{asked.partition} from {asked.offset}")
        # A compressed set also has the messages before the one that was asked for.
        return (record for record in self._set if record.offset >= self.request.offset and not record.control)


class _Wire(Protocol):
    """How the broker is asked."""

    def fetch(self, requests: Sequence[FetchRequest]) -> list[FetchedMessages]: ...

    def offsets(self, topic: str, partition: int, time_ms: int, max_count: int) -> list[int]: ...

    def close(self) -> None: ...


class SimpleConsumer:
    """A connection to one broker, made when it is first needed. Threads may share it, and take turns.

    All calls raise NetworkError when the broker cannot be reached or does not answer in time, and
    RemoteWireError for senseless bytes.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        classic: bool = False,
        client_id: str = "minikafka",
        request_timeout_ms: int = 30_000,
        connector: Connector | None = None,
    ) -> None:
        connector = connector or SocketConnector(request_timeout_ms=request_timeout_ms)
        self._lock = threading.Lock()
        self._other = "a Kafka listener: leave classic=True out" if classic else "CLASSIC: give classic=True"
        self._understood = False
        self._wire: _Wire
        if classic:
            self._wire = _Classic(host, port, connector)
        else:
            self._wire = _Today(host, port, connector, client_id, request_timeout_ms)

    def fetch(self, request: FetchRequest) -> FetchedMessages:
        """Messages of one partition, those that are there: nobody waits for more."""
        (found,) = self.multifetch([request])
        return found

    def multifetch(self, requests: Sequence[FetchRequest]) -> list[FetchedMessages]:
        """What each request gives, in their order; an error is that of its partition alone."""
        return self._twice(lambda: self._wire.fetch(requests))

    def get_offsets_before(self, topic: str, partition: int, time_ms: int, max_num_offsets: int) -> list[int]:
        """Up to so many offsets of segments last written before ``time_ms``, the latest first
        (``getOffsetsBefore``). LATEST_TIME also gives the log's end, EARLIEST_TIME its start alone.

        BrokerError with the broker's code; UNSUPPORTED_VERSION for Kafka 4, which no longer tells them.
        """
        return self._twice(lambda: self._wire.offsets(topic, partition, time_ms, max_num_offsets))

    def close(self) -> None:
        """Close the connection. A later call makes a new one."""
        with self._lock:
            self._wire.close()

    def __enter__(self) -> SimpleConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _twice(self, ask: Callable[[], Result]) -> Result:
        with self._lock:
            try:
                found = ask()
            except NetworkError:
                self._wire.close()
                found = self._again(ask)
            self._understood = True
            return found

    def _again(self, ask: Callable[[], Result]) -> Result:
        try:
            return ask()
        except NetworkError as error:
            # So ends who says what a listener cannot read.
            if self._understood or "closed the connection" not in str(error):
                raise
            raise NetworkError(f"{error}; is this port {self._other}?") from None


class _Classic:
    def __init__(self, host: str, port: int, connector: Connector) -> None:
        self._host = host
        self._port = port
        self._connector = connector
        self._connection: Connection | None = None

    def fetch(self, requests: Sequence[FetchRequest]) -> list[FetchedMessages]:
        if len(requests) == 1:
            answers = [classic.decode_message_set_send(self._ask(requests[0]))]
        else:
            frame = self._ask(classic.MultiFetch(tuple(requests)))
            _, answers = classic.decode_multi_message_set_send(frame)
            if len(answers) != len(requests):
                raise RemoteWireError(f"{len(answers)} sets came for {len(requests)} requests")
        return [
            FetchedMessages(request, classic.error_of(answer.error_code), buffer_of(answer.messages))
            for request, answer in zip(requests, answers, strict=True)
        ]

    def offsets(self, topic: str, partition: int, time_ms: int, max_count: int) -> list[int]:
        code, offsets = classic.decode_offsets(
            self._ask(classic.Offsets(topic, partition, time_ms, max_count))
        )
        _check(classic.error_of(code), topic, partition)
        return offsets

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _ask(self, request: classic.Request) -> memoryview:
        if self._connection is None or self._connection.closed:
            self._connection = self._connector.connect(self._host, self._port)
        return self._connection.request(classic.encode_request(request)).result()


class _Today:
    def __init__(
        self, host: str, port: int, connector: Connector, client_id: str, request_timeout_ms: int
    ) -> None:
        self._timeout_ms = request_timeout_ms
        self._clock = SystemClock()
        config = LinkConfig(
            connector,
            self._clock,
            EventWaiter(),
            client_id,
            request_timeout_ms,
            newest_versions={ApiKey.LIST_OFFSETS: 0},
        )
        self._link = BrokerLink(f"the broker at {host}:{port}", host, port, config)

    def fetch(self, requests: Sequence[FetchRequest]) -> list[FetchedMessages]:
        deadline = Deadline(self._clock, self._timeout_ms)
        replies = [self._send(request, deadline) for request in requests]
        found = []
        for request, reply in zip(requests, replies, strict=True):
            parts = [part for topic in reply.result().topics for part in topic.partitions]
            if not parts:  # newer brokers, for a client above its quota
                raise NetworkError(f"{self._link.name} left {request.topic}-{request.partition} out")
            part = parts[0]
            found.append(FetchedMessages(request, ErrorCode.of(part.error_code), buffer_of(part.records)))
        return found

    def _send(self, request: FetchRequest, deadline: Deadline) -> Reply[fetching.FetchResponse]:
        return self._link.send(fetching.FETCH, lambda _: _fetch(request), deadline)

    def offsets(self, topic: str, partition: int, time_ms: int, max_count: int) -> list[int]:
        asked = listing.ListOffsetsPartition(partition, _UNKNOWN, time_ms, max_count)
        request = listing.ListOffsetsRequest(
            _CONSUMER, fetching.READ_UNCOMMITTED, (listing.ListOffsetsTopic(topic, (asked,)),)
        )
        reply = self._link.send(
            listing.LIST_OFFSETS, lambda _: request, Deadline(self._clock, self._timeout_ms)
        )
        part = reply.result().topics[0].partitions[0]
        _check(ErrorCode.of(part.error_code), topic, partition)
        return list(part.offsets)

    def close(self) -> None:
        self._link.drop()


def _fetch(asked: FetchRequest) -> fetching.FetchRequest:
    position = {TopicPartition(asked.topic, asked.partition): asked.offset}
    return fetching.consumer_request(position, partition_max_bytes=asked.max_size, max_bytes=asked.max_size)


def _check(error: ErrorCode, topic: str, partition: int) -> None:
    if error is not ErrorCode.NONE:
        raise BrokerError(error, f"asking for the offsets of {topic}-{partition}")

"""``SimpleConsumer``: calls, one at a time, over one connection to one broker."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TypeVar, overload

from minikafka.base.endpoints import SecurityProtocol
from minikafka.base.errors import (
    BrokerError,
    ConfigError,
    ErrorCode,
    MinikafkaError,
    NetworkError,
    PeerClosed,
)
from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.clients.common_client_configs import PROTOCOL, ClientSecurity
from minikafka.clients.consumer.metrics import fetch_metrics
from minikafka.clients.consumer.stats import (
    FetchRequestAndResponseStatsRegistry,
    acquire_stats,
    release_stats,
)
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.group.coordinator_client import find_request, found_coordinator
from minikafka.clients.group.offsets import Committer, commit_request, fetch_request
from minikafka.clients.metrics.registry import Metrics, merged_groups
from minikafka.clients.network.arguments import to_topic_partitions
from minikafka.clients.network.metadata import from_response
from minikafka.clients.simple_consumer.channels import BlockingChannel, ClassicChannel, KafkaChannel
from minikafka.clients.simple_consumer.fetch_response import (
    FetchedMessages,
    MessageIterator,
    MultiFetchResponse,
)
from minikafka.clients.simple_consumer.requests import (
    CONSUMER,
    ConsumerMetadataRequest,
    ConsumerMetadataResponse,
    FetchRequest,
    MultiFetchRequest,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetMetadataAndError,
    TopicMetadataRequest,
    TopicMetadataResponse,
)
from minikafka.net.interfaces import Connector
from minikafka.wire import classic as compact
from minikafka.wire.apis.find_coordinator import FIND_COORDINATOR
from minikafka.wire.apis.metadata import METADATA, MetadataRequest, metadata_request
from minikafka.wire.apis.offset_commit import OFFSET_COMMIT
from minikafka.wire.apis.offset_fetch import OFFSET_FETCH

LATEST_TIME = compact.LATEST
EARLIEST_TIME = compact.EARLIEST
DEFAULT_MAX_BUFFER_SIZE = 64 << 20

Result = TypeVar("Result")


class SimpleConsumer:
    """A connection to one broker (``SimpleConsumer``, with its ``BlockingChannel``).

    The first call connects; a call reconnects once if that breaks. Threads may share it: one call runs
    at a time. All calls raise NetworkError if the broker cannot be reached or does not answer in time,
    RemoteWireError for an invalid response, and BrokerError UNSUPPORTED_VERSION for a request that the
    protocol does not have: with ``classic`` all except fetches and offsets.

    With the ``isolation`` READ_COMMITTED fetches have no messages of open or aborted transactions, and the
    end of a log is its last stable offset, the start of the first open transaction. Needs a Kafka listener.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        classic: bool = False,
        client_id: str = "minikafka",
        request_timeout_ms: int = 30_000,
        security: ClientSecurity | None = None,
        connector: Connector | None = None,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> None:
        security = security or ClientSecurity()
        if not isinstance(isolation, IsolationLevel):
            raise TypeError(f"isolation: expected an IsolationLevel, got {isolation!r}")
        if classic and isolation is not IsolationLevel.READ_UNCOMMITTED:
            allowed = "must be READ_UNCOMMITTED with classic=True: classic listeners have no isolation level"
            raise ConfigError("isolation", isolation.name, allowed)
        if classic and security.protocol is not SecurityProtocol.PLAINTEXT:
            allowed = "must be PLAINTEXT with classic=True: classic listeners have neither TLS nor SASL"
            raise ConfigError(PROTOCOL, security.protocol.name, allowed)
        # Asked over a socket, so not of brokers that another connector reaches.
        why_closed = (
            functools.partial(security.why_closed, client_id=client_id) if connector is None else None
        )
        connector = connector or security.connector(
            client_id=client_id, request_timeout_ms=request_timeout_ms
        )
        self._lock = threading.Lock()
        self._protocol_hint = (
            "if the port is a Kafka listener, omit classic=True"
            if classic
            else "if the port is a CLASSIC listener, pass classic=True"
        )
        self._has_answered = False
        acquire_stats(client_id)
        weakref.finalize(self, release_stats, client_id).atexit = False
        self.stats = FetchRequestAndResponseStatsRegistry.get(client_id)
        """The fetch metrics of this client id, over all its consumers."""
        self._channel: BlockingChannel
        if classic:
            self._channel = ClassicChannel(host, port, connector, self.stats)
        else:
            self._channel = KafkaChannel(
                host, port, connector, self.stats, request_timeout_ms, why_closed, isolation
            )

    # --- the connection

    def connect(self) -> None:
        """Connect now (``connect``). Every call connects if needed."""
        with self._lock:
            self._channel.connect()

    def disconnect(self) -> None:
        """Close the connection (``disconnect``). A later call opens a new one."""
        with self._lock:
            self._channel.close()

    def close(self) -> None:
        """Close the connection: another name of ``disconnect``."""
        self.disconnect()

    def __enter__(self) -> SimpleConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def metrics(self) -> Metrics:
        """Return the numbers of ``stats`` and of the connection under the names of Kafka's newer clients:
        group -> name -> value. Thread-safe.
        """
        return merged_groups(fetch_metrics(self.stats), self._channel.metrics())

    # --- messages

    @overload
    def fetch(self, request: FetchRequest) -> FetchedMessages: ...

    @overload
    def fetch(self, request: MultiFetchRequest) -> MultiFetchResponse: ...

    def fetch(self, request: FetchRequest | MultiFetchRequest) -> FetchedMessages | MultiFetchResponse:
        """Fetch messages of one partition, or of several with a MultiFetchRequest (``fetch``).

        Only a MultiFetchRequest can wait for messages; otherwise the response has those that are present.
        """
        if isinstance(request, MultiFetchRequest):
            return self.multifetch(request)
        (found,) = self.multifetch([request])
        return found

    def multifetch(self, requests: Sequence[FetchRequest] | MultiFetchRequest) -> MultiFetchResponse:
        """Return the messages of each request, in their order (``multifetch``). An error concerns only its
        partition.
        """
        request = requests if isinstance(requests, MultiFetchRequest) else MultiFetchRequest(tuple(requests))
        found = self._with_reconnect(lambda: self._channel.fetch(request))
        for messages in found:
            messages.find_log_range = functools.partial(
                self._log_range, TopicPartition(messages.request.topic, messages.request.partition)
            )
        return MultiFetchResponse(found)

    def iterator(
        self, request: FetchRequest, *, max_buffer_size: int = DEFAULT_MAX_BUFFER_SIZE
    ) -> MessageIterator:
        """Return an iterator over all messages from ``request.offset`` to the end of the log, in reads of
        ``request.max_size`` bytes.

        For a larger message the read is retried with the size doubled until it fits, up to
        ``max_buffer_size`` bytes ("Reads" in the texts).
        """
        return MessageIterator(self.fetch, request, max_buffer_size)

    # --- offsets of the log

    def get_offsets_before(self, topic: str, partition: int, time_ms: int, max_num_offsets: int) -> list[int]:
        """Return offsets of segments last written before ``time_ms``, the latest first, at most
        ``max_num_offsets`` (``getOffsetsBefore``). LATEST_TIME also returns the log's end, EARLIEST_TIME only
        its start.

        Raises BrokerError with the broker's code; UNSUPPORTED_VERSION for Kafka 4, which no longer returns
        them.
        """
        tp = TopicPartition(topic, partition)
        error, offsets = self._with_reconnect(lambda: self._channel.offsets(tp, time_ms, max_num_offsets))
        _check(error, tp)
        return offsets

    def earliest_or_latest_offset(
        self,
        topic_partition: TopicPartition | tuple[str, int],
        earliest_or_latest: int,
        consumer_id: int = CONSUMER,
    ) -> int:
        """Return the start or the end of a log (``earliestOrLatestOffset``): EARLIEST_TIME or LATEST_TIME.

        ``consumer_id``: -1 for a consumer, which sees replicated messages (with READ_COMMITTED up to the last
        stable offset); the broker id of a follower, which sees all. (For a CLASSIC listener every client is a
        consumer.) Raises BrokerError with the broker's code; TypeError unless the partition is a
        TopicPartition or a pair.
        """
        (tp,) = to_topic_partitions([topic_partition])
        if earliest_or_latest not in (EARLIEST_TIME, LATEST_TIME):
            raise ValueError(
                f"expected {EARLIEST_TIME} (EARLIEST_TIME) or {LATEST_TIME} (LATEST_TIME), got "
                f"{earliest_or_latest}"
            )
        error, offset = self._with_reconnect(
            lambda: self._channel.earliest_or_latest(tp, earliest_or_latest, consumer_id)
        )
        _check(error, tp)
        return offset

    # --- the cluster

    @overload
    def send(self, request: TopicMetadataRequest) -> TopicMetadataResponse: ...

    @overload
    def send(self, request: ConsumerMetadataRequest) -> ConsumerMetadataResponse: ...

    def send(
        self, request: TopicMetadataRequest | ConsumerMetadataRequest
    ) -> TopicMetadataResponse | ConsumerMetadataResponse:
        """Request the leaders of topics' partitions, or the coordinator of a group (``send``)."""
        if isinstance(request, ConsumerMetadataRequest):
            return self._coordinator(request)
        version = 0

        def metadata(spoken: int) -> MetadataRequest:
            nonlocal version
            version = spoken
            return metadata_request(request.topics or None, request.creates_topics)

        response = self._with_reconnect(lambda: self._channel.request(METADATA, metadata))
        found = from_response(response, 0, request.topics, version)
        return TopicMetadataResponse(found.brokers, found.topics)

    def _coordinator(self, request: ConsumerMetadataRequest) -> ConsumerMetadataResponse:
        find = find_request(request.group)
        response = self._with_reconnect(lambda: self._channel.request(FIND_COORDINATOR, lambda _: find))
        found = found_coordinator(response)
        error = ErrorCode.of(found.error_code)
        if error is not ErrorCode.NONE:
            return ConsumerMetadataResponse(None, error)
        return ConsumerMetadataResponse(BrokerAddress(found.node_id, found.host, found.port), error)

    # --- offsets of groups

    def commit_offsets(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        """Commit offsets of a group (``commitOffsets``): to ZooKeeper in version 0, with any broker; from 1
        on to the offset manager, the group's coordinator. Another broker answers NOT_COORDINATOR_FOR_GROUP.
        """
        committer = Committer(request.generation_id, request.consumer_id)
        commit = commit_request(request.group_id, committer, request.offsets)
        response = self._with_reconnect(
            lambda: self._channel.request(OFFSET_COMMIT, lambda _: commit, request.version)
        )
        return OffsetCommitResponse(
            {
                TopicPartition(topic.name, part.partition_index): ErrorCode.of(part.error_code)
                for topic in response.topics
                for part in topic.partitions
            }
        )

    def fetch_offsets(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        """Fetch the committed offsets of a group (``fetchOffsets``): from ZooKeeper in version 0, from the
        offset manager from 1 on.
        """
        fetch = fetch_request(request.group_id, request.partitions)
        response = self._with_reconnect(
            lambda: self._channel.request(OFFSET_FETCH, lambda _: fetch, request.version)
        )
        return OffsetFetchResponse(
            {
                TopicPartition(topic.name, part.partition_index): OffsetMetadataAndError(
                    part.committed_offset, part.metadata or "", ErrorCode.of(part.error_code)
                )
                for topic in response.topics
                for part in topic.partitions
            },
            ErrorCode.of(response.error_code),
        )

    # --- inside

    def _log_range(self, tp: TopicPartition) -> tuple[int, int] | None:
        """Return the start and the end of a log; None if the broker does not return them."""
        try:
            return (
                self.earliest_or_latest_offset(tp, EARLIEST_TIME),
                self.earliest_or_latest_offset(tp, LATEST_TIME),
            )
        except MinikafkaError:
            return None

    def _with_reconnect(self, call: Callable[[], Result]) -> Result:
        with self._lock:
            try:
                found = call()
            except NetworkError:
                self._channel.close()
                found = self._retry(call)
            self._has_answered = True
            return found

    def _retry(self, call: Callable[[], Result]) -> Result:
        try:
            return call()
        except NetworkError as error:
            # A listener closes connections whose bytes it cannot parse.
            if self._has_answered or not _is_closed_by_peer(error):
                raise
            raise NetworkError(error.detail, error.peer, self._protocol_hint) from None


def _is_closed_by_peer(error: BaseException | None) -> bool:
    """Return True if ``error`` or one of its causes is PeerClosed."""
    while error is not None and not isinstance(error, PeerClosed):
        error = error.__cause__
    return error is not None


def _check(error: ErrorCode, tp: TopicPartition) -> None:
    if error is not ErrorCode.NONE:
        raise BrokerError(error, f"looking up offsets of {tp}")

"""ListOffsets: the start and end of logs, and the first offset at or after a timestamp.

All partitions of one leader go in one request, and the requests to all leaders are in flight together.
Partitions whose leader has moved, or did not respond, are requested again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, NetworkError, RemoteWireError
from minikafka.base.ids import TopicPartition
from minikafka.base.text import first_of
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.network.broker_connection import ResponseFuture
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.metadata import ClusterMetadata
from minikafka.clients.network.response_errors import is_retriable
from minikafka.clients.network.retry import Deadline
from minikafka.wire.api import partitions_of
from minikafka.wire.apis.list_offsets import (
    EARLIEST,
    LATEST,
    LIST_OFFSETS,
    ListOffsetsRequest,
    ListOffsetsResponse,
    found_offset,
    offsets_request,
)

__all__ = ["EARLIEST", "LATEST", "list_ends", "list_known_offsets", "list_offsets"]


def list_offsets(
    cluster: ClusterClient,
    timestamps: Mapping[TopicPartition, int],
    deadline: Deadline,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    *,
    creates_topics: bool | None = None,
) -> dict[TopicPartition, int | None]:
    """Return the offset of each partition: EARLIEST, LATEST, or of the first message at or after a timestamp
    (ms since the epoch).

    The offset is None if no message is that late. LATEST is the high watermark, one past the last message
    that consumers see. With READ_COMMITTED it is the last stable offset, the start of the first open
    transaction, and no timestamp finds a message from there on. BrokerError names the partition:
    UNKNOWN_TOPIC_OR_PARTITION, UNSUPPORTED_VERSION (a timestamp, with a broker before 0.10.1),
    UNSUPPORTED_FOR_MESSAGE_FORMAT (a timestamp, in a log of messages without one). ``creates_topics`` is that
    of ``ClusterClient.metadata``.
    """
    for tp, time in timestamps.items():
        if time < EARLIEST:
            raise ValueError(f"{tp}: expected ms since the epoch, {EARLIEST} or {LATEST}, got {time}")
    lookup = _OffsetLookup(cluster, dict(timestamps), deadline, isolation, creates_topics)
    cluster.retry(f"listing the offsets of {first_of(list(timestamps), 3)}", deadline, lookup.run)
    return {tp: lookup.found[tp] for tp in timestamps}


def list_ends(
    cluster: ClusterClient,
    partitions: Iterable[TopicPartition],
    deadline: Deadline,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """Return the ends, as LATEST, of those partitions that exist and have a leader. Raises as
    ``list_offsets``.
    """
    wanted = list(partitions)

    def look() -> dict[TopicPartition, int | None]:
        known = cluster.metadata(None, timeout_ms=deadline.remaining_ms())
        led = [tp for tp in wanted if known.leader(tp) is not None]
        return list_offsets(cluster, dict.fromkeys(led, LATEST), deadline, isolation)

    try:
        found = look()
    except BrokerError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        found = look()  # brokers may still describe a topic that is being deleted
    return {tp: offset for tp, offset in found.items() if offset is not None}


def list_known_offsets(
    cluster: ClusterClient,
    timestamps: Mapping[TopicPartition, int],
    deadline: Deadline,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> tuple[dict[TopicPartition, int | None], MinikafkaError | None]:
    """Return the offsets, as ``list_offsets``, of those partitions whose leaders answer before the deadline,
    and the error of the others.

    Uses the leaders that are known already, and does not look for those of partitions without one.
    """
    known = cluster.metadata(
        {tp.topic for tp in timestamps}, timeout_ms=deadline.remaining_ms(), creates_topics=False
    )
    led = {tp: time for tp, time in timestamps.items() if known.leader(tp) is not None}
    lookup = _OffsetLookup(cluster, dict(led), deadline, isolation, creates_topics=False)
    try:
        cluster.retry(f"listing the offsets of {first_of(list(led), 3)}", deadline, lookup.run)
    except MinikafkaError as error:
        return lookup.found, error
    if len(led) < len(timestamps):
        return lookup.found, known.no_leader_error([tp for tp in timestamps if tp not in led])
    return lookup.found, None


class _OffsetLookup:
    """The pending and the found offsets of one look-up; ``run`` is one round over all leaders."""

    def __init__(
        self,
        cluster: ClusterClient,
        pending: dict[TopicPartition, int],
        deadline: Deadline,
        isolation: IsolationLevel,
        creates_topics: bool | None,
    ) -> None:
        self.found: dict[TopicPartition, int | None] = {}
        self._cluster = cluster
        self._pending = pending
        self._deadline = deadline
        self._isolation = isolation
        self._creates_topics = creates_topics
        self._leader_epoch: Callable[[TopicPartition], int] = ClusterMetadata().leader_epoch

    def run(self) -> None:
        """Request all pending offsets. Raises a retriable error if some are still pending afterwards."""
        problem: MinikafkaError | None = None
        replies: list[tuple[list[TopicPartition], ResponseFuture[ListOffsetsResponse], int]] = []
        for broker_id, partitions in self._by_leader().items():
            try:
                reply = self._send(broker_id, partitions)
            except (NetworkError, RemoteWireError) as error:
                problem = self._defer(partitions, error)
            else:
                # Now, as the time-outs of responses count from their requests.
                timeout_ms = self._deadline.at_most(self._cluster.request_timeout_ms)
                replies.append((partitions, reply, timeout_ms))
        for partitions, reply, timeout_ms in replies:
            try:
                response = reply.result(timeout_ms)
            except (NetworkError, RemoteWireError) as error:
                problem = self._defer(partitions, error)
            else:
                problem = self._handle_response(response, reply.version) or problem
        if problem is not None:
            raise problem
        if self._pending:
            raise NetworkError(f"no offsets in the response for {first_of(list(self._pending), 3)}")

    def _by_leader(self) -> dict[int, list[TopicPartition]]:
        cluster = self._cluster
        metadata = cluster.metadata(
            {tp.topic for tp in self._pending},
            timeout_ms=self._deadline.remaining_ms(),
            caller_timeout_ms=self._deadline.timeout_ms,
            creates_topics=self._creates_topics,
        )
        self._leader_epoch = metadata.leader_epoch
        groups: dict[int, list[TopicPartition]] = {}
        for tp in self._pending:
            try:
                leader = metadata.require_leader(tp)
            except BrokerError:
                cluster.invalidate(tp.topic)
                raise
            groups.setdefault(leader.broker_id, []).append(tp)
        return groups

    def _send(self, broker_id: int, partitions: list[TopicPartition]) -> ResponseFuture[ListOffsetsResponse]:
        timestamps = {tp: self._pending[tp] for tp in partitions}
        request = offsets_request(timestamps, self._leader_epoch, isolation_level=self._isolation)

        def build(version: int) -> ListOffsetsRequest:
            timed = next((tp for tp, timestamp in timestamps.items() if timestamp >= 0), None)
            if version == 0 and timed is not None:
                raise BrokerError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"broker {broker_id} cannot look up offsets by timestamp ({timed}); this needs Kafka "
                    "0.10.1 or newer",
                )
            return request

        return self._cluster.connection(broker_id).send(LIST_OFFSETS, build, self._deadline)

    def _defer(self, partitions: list[TopicPartition], error: MinikafkaError) -> MinikafkaError:
        for tp in partitions:
            self._cluster.invalidate(tp.topic)
        return error

    def _handle_response(self, response: ListOffsetsResponse, version: int) -> MinikafkaError | None:
        problem: MinikafkaError | None = None
        for tp, result in partitions_of(response.topics):
            code = ErrorCode.of(result.error_code)
            if code is not ErrorCode.NONE:
                error = BrokerError(code, f"offsets of {tp}")
                if not is_retriable(error):
                    raise error
                problem = self._defer([tp], error)
            elif tp in self._pending:
                del self._pending[tp]
                self.found[tp] = found_offset(result, version)
        return problem

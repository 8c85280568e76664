"""Fetches the messages of one partition between two offsets, as raw message sets.

    for data in RangeFetcher(cluster, tp, 1_000, 5_000):
        columns = decode(data, 1_000, 5_000)

The sets come in order and cover the range. The first may begin before ``start_offset`` and the last may end
after ``end_offset``, because a compressed message is sent whole; the decoder selects the range. The next
request is in flight while the caller works on a set. This module never looks at single records: a kernel
finds the end of a set.

End of the range
    The range is complete when a set's last offset is ``end_offset - 1`` or more. It is also complete when a
    response is empty although the high watermark was at ``end_offset`` or beyond before the request:
    compaction has removed the last records of the range. The high watermark of the empty response itself
    proves nothing: 0.10.1 looks it up after reading the log, and records may be appended in between.
A message that does not fit
    Fetch 0 to 2 cut the first message off at the limit. Its header contains its size, and the next request
    asks for that much. Fetch 3 always sends the first message whole.
A control record of a transaction
    It has an offset and no row: the decoder skips it. (Brokers that have control records know Fetch 4.)
Read committed
    The broker sends nothing from the last stable offset on, which takes the place of the high watermark, and
    lists the aborted transactions. Their batches are cut out of the sets, which may leave a set empty;
    ``next_offset`` skips them. If no transaction was aborted no batch is looked at.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from minikafka.base.errors import (
    BrokerError,
    ErrorCode,
    MinikafkaError,
    NetworkError,
    OffsetOutOfRange,
    RemoteWireError,
)
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.fetch_response import fetch_error, records_of, whole_entries
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.fetch.list_offsets import EARLIEST, LATEST, list_offsets
from minikafka.clients.fetch.prefetch import prefetched
from minikafka.clients.network.broker_connection import ResponseFuture
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.connections import ConnectionPool
from minikafka.clients.network.response_errors import is_retriable
from minikafka.clients.network.retry import Deadline, FailedAttempts
from minikafka.records.format.batch import MAGIC as BATCH_MAGIC
from minikafka.records.kernels.layout import CODEC_MASK, MAGIC_AT, MESSAGE_ATTRIBUTES_AT, SIZE_AT
from minikafka.records.scan.scan import ScanResult
from minikafka.wire.apis.fetch import (
    FETCH,
    LARGEST_MESSAGE_BYTES,
    FetchPartitionResponse,
    FetchResponse,
    consumer_request,
)

__all__ = ["DEFAULT_MAX_BYTES", "RangeFetcher", "check_readable", "log_reaches", "prefetched"]

DEFAULT_MAX_BYTES = 1 << 20
"""Kafka's ``max.partition.fetch.bytes``."""

_LARGEST_FETCH = (1 << 31) - 1
_PROBE_BYTES = 1
"""The limit of bytes for a fetch whose error code alone is of interest."""
_RANGE_TIMEOUT_MS = 5_000
_EMPTY_PAUSE_MS = 10


class RangeFetcher:
    """An iterator of message sets (memoryviews of private memory). Not thread-safe, except ``stop``.

    ``timeout_ms`` bounds the wait for each next set. Raises OffsetOutOfRange with the log's range,
    BrokerError for an error that is not retriable, NetworkError with the failed attempts when no set came in
    time. ``unretried_codes`` are retriable codes that are raised at once, for the caller to handle. With the
    ``isolation`` READ_COMMITTED the sets are without batches of aborted transactions, and the iterator waits
    until the ``last_stable_offset`` reaches ``end_offset``.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        topic_partition: TopicPartition,
        start_offset: int,
        end_offset: int,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        min_bytes: int = 1,
        max_wait_ms: int = 500,
        timeout_ms: int = 120_000,
        pool: ConnectionPool = ConnectionPool.FETCH,
        unretried_codes: Container[ErrorCode] = (),
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> None:
        if start_offset < 0:
            raise ValueError(f"start_offset must be a real offset, not {start_offset}")
        self.topic_partition = topic_partition
        self.next_offset = start_offset
        self.end_offset = end_offset
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        """From the last response; None with READ_UNCOMMITTED, or if the broker has no transactions."""
        self._cluster = cluster
        self._max_bytes = max_bytes
        self._fetch_bytes = max_bytes
        self._min_bytes = min_bytes
        self._max_wait_ms = max_wait_ms
        self._timeout_ms = timeout_ms
        self._pool = pool
        self._unretried_codes = unretried_codes
        self._isolation = isolation
        self._pending_fetch: tuple[ResponseFuture[FetchResponse], int, int] | None = None
        """The future response, the time of its request (monotonic ms), and the broker's id."""
        self._fetched_from = -1
        self._covering_broker: int | None = None
        """The broker whose last response could have covered all of the range."""
        self._stopped = False
        self._finished = False

    def __iter__(self) -> Iterator[memoryview]:
        return self

    def __next__(self) -> memoryview:
        deadline = self._cluster.deadline(self._timeout_ms)
        failed = FailedAttempts()
        while not self._stopped and not self._finished and self.next_offset < self.end_offset:
            before = self.next_offset
            try:
                data = self._handle_response(self._receive(deadline))
            except (NetworkError, RemoteWireError, BrokerError) as error:
                self._pending_fetch = self._covering_broker = None
                if not _is_transient(error) or (
                    isinstance(error, BrokerError) and error.code in self._unretried_codes
                ):
                    raise
                self._cluster.invalidate(self.topic_partition.topic)
                failed.add(str(error))
                self._back_off(deadline, failed, error)
                continue
            if data is not None:
                self._send_next_fetch()
                return data
            if self.next_offset > before:
                # The response had nothing of the range: the wait for the next set starts again.
                deadline, failed = self._cluster.deadline(self._timeout_ms), FailedAttempts()
            elif deadline.expired and not self._finished:
                raise self._timeout_error(failed, None)
        raise StopIteration

    def probe(self) -> None:
        """Fetch once, only to raise the error of the response, without a retry."""
        part = self._receive(self._cluster.deadline())
        code = ErrorCode.of(part.error_code)
        if code is not ErrorCode.NONE:
            raise fetch_error(code, self.topic_partition, self.next_offset)

    def stop(self) -> None:
        """End the iteration at the next opportunity. Thread-safe."""
        self._stopped = True

    def _receive(self, deadline: Deadline) -> FetchPartitionResponse:
        """Return the response to the request in flight, or to a new one."""
        if self._pending_fetch is None:
            leader = self._cluster.leader(self.topic_partition, deadline.remaining_ms())
            self._pending_fetch = self._send_fetch(leader.broker_id, deadline)
        (reply, sent_ms, self._fetched_from), self._pending_fetch = self._pending_fetch, None
        # The time-out counts from the request, which may be long before the caller asks for the next set.
        age_ms = self._cluster.clock.monotonic_ms() - sent_ms
        response_timeout_ms = self._max_wait_ms + self._cluster.request_timeout_ms
        response = reply.result(age_ms + max(1, deadline.at_most(response_timeout_ms)))
        for topic in response.topics:
            for part in topic.partitions:
                if (topic.name, part.index) == self.topic_partition:
                    return part
        # A broker that throttles this client responds without the partition.
        raise NetworkError(f"no {self.topic_partition} in the response of its leader")

    def _send_fetch(
        self, broker_id: int, deadline: Deadline
    ) -> tuple[ResponseFuture[FetchResponse], int, int]:
        request = consumer_request(
            {self.topic_partition: self.next_offset},
            partition_max_bytes=self._fetch_bytes,
            max_bytes=self._fetch_bytes,
            min_bytes=self._min_bytes,
            max_wait_ms=self._max_wait_ms,
            isolation_level=self._isolation,
        )
        reply = self._cluster.send(broker_id, FETCH, request, pool=self._pool, deadline=deadline)
        return reply, self._cluster.clock.monotonic_ms(), broker_id

    def _send_next_fetch(self) -> None:
        """Send the next request before the caller works on this set. A failure is left to the next round."""
        leader = self._cluster.known_leader(self.topic_partition)
        if self.next_offset >= self.end_offset or leader is None:
            return
        try:
            self._pending_fetch = self._send_fetch(leader, self._cluster.deadline())
        except MinikafkaError:
            self._pending_fetch = None

    def _handle_response(self, part: FetchPartitionResponse) -> memoryview | None:
        """Return the complete messages of a response, or None if it has none of the range."""
        code = ErrorCode.of(part.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            raise self._out_of_range_error()
        if code is not ErrorCode.NONE:
            raise fetch_error(code, self.topic_partition, self.next_offset)
        self.high_watermark = part.high_watermark
        readable = part.high_watermark
        if self._isolation is IsolationLevel.READ_COMMITTED and part.last_stable_offset >= 0:
            self.last_stable_offset = readable = part.last_stable_offset
        covers, previous_covering_broker = readable >= self.end_offset, self._covering_broker
        self._covering_broker = self._fetched_from if covers else None
        data = records_of(part)
        if not data:
            # Each request is sent after the previous response, so that its read covered all of the range.
            self._finished = covers and previous_covering_broker == self._fetched_from
            if not covers:
                # Brokers wait before an empty response; this avoids a busy loop with one that does not.
                self._cluster.waiter.wait(_EMPTY_PAUSE_MS)
            return None
        whole, found = whole_entries(part)
        if found.valid_bytes == 0:
            self._grow_fetch(found)
            return None
        if found.next_offset <= self.next_offset:
            raise BrokerError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{self.topic_partition}, fetched from offset {self.next_offset}: the response ends at "
                f"{found.next_offset}, before it",
            )
        self._fetch_bytes = self._max_bytes
        self.next_offset = found.next_offset
        return None if _starts_after(data, self.end_offset) else whole or None

    def _grow_fetch(self, found: ScanResult) -> None:
        """Raise the fetch size so that the cut-off first message fits. Raises CORRUPT_MESSAGE for damage."""
        allowed, problem = max(LARGEST_MESSAGE_BYTES, self._max_bytes), found.problem
        if found.wanted_bytes > allowed:
            problem = f"message size {found.wanted_bytes} exceeds the limit of {allowed} bytes"
        if not found.incomplete or found.wanted_bytes > allowed:
            raise BrokerError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{self.topic_partition}, fetched from offset {self.next_offset}: {problem}",
            )
        self._fetch_bytes = max(found.wanted_bytes, min(2 * self._fetch_bytes, _LARGEST_FETCH))

    def _out_of_range_error(self) -> MinikafkaError:
        tp, offset = self.topic_partition, self.next_offset
        deadline = self._cluster.deadline(_RANGE_TIMEOUT_MS)
        try:
            start = list_offsets(self._cluster, {tp: EARLIEST}, deadline)[tp]
            end = list_offsets(self._cluster, {tp: LATEST}, deadline)[tp]
        except MinikafkaError as error:
            start = end = None
            why = f": {error}"
        else:
            why = ""
        if start is None or end is None:
            # Not known to be deleted: another fetch shows that, or that the whole topic is.
            return NetworkError(
                f"{tp}: offset {offset} is out of range, and the log's range cannot be looked up{why}"
            )
        if start <= offset <= end:
            # A new leader that is still behind, or one that has moved on since: the log has this offset.
            return NetworkError(f"{tp}: offset {offset} was out of range, but the log has {start} to {end}")
        return OffsetOutOfRange(offset, start, end)

    def _back_off(self, deadline: Deadline, failed: FailedAttempts, error: MinikafkaError) -> None:
        delay_ms = self._cluster.backoff.delay_ms(failed.count)
        if delay_ms >= deadline.remaining_ms():
            raise self._timeout_error(failed, error) from error
        self._cluster.waiter.wait(delay_ms)

    def _timeout_error(self, failed: FailedAttempts, error: MinikafkaError | None) -> MinikafkaError:
        known = "" if self.high_watermark is None else f"; high watermark {self.high_watermark}"
        stable = self.last_stable_offset
        if stable is not None and stable < min(self.high_watermark or 0, self.end_offset):
            known += f", last stable offset {stable}, where a transaction is open"
        failures = f"; {failed}" if failed.count else ""
        text = (
            f"no messages of {self.topic_partition} from offset {self.next_offset} "
            f"within {self._timeout_ms} ms (wanted up to {self.end_offset}{known}){failures}"
        )
        return BrokerError(error.code, text) if isinstance(error, BrokerError) else NetworkError(text)


def check_readable(cluster: ClusterClient, topic_partition: TopicPartition, offset: int) -> None:
    """Raise the BrokerError of a fetch that can never succeed, such as of a topic without Read permission.

    For readers that wait for messages without fetching: ListOffsets needs only the permission to describe
    the topic. Retriable errors, such as an unavailable leader, are not raised.
    """
    fetcher = RangeFetcher(
        cluster,
        topic_partition,
        offset,
        offset + 1,
        max_bytes=_PROBE_BYTES,
        max_wait_ms=0,
        pool=ConnectionPool.CONTROL,
    )
    try:
        fetcher.probe()
    except (NetworkError, RemoteWireError):
        return
    except BrokerError as error:
        if not _is_transient(error):
            raise


def log_reaches(cluster: ClusterClient, topic_partition: TopicPartition, offset: int) -> bool:
    """Return whether the leader's log ends at ``offset`` or later, even if its high watermark does not.

    ``list_offsets`` gives the high watermark, which may lag behind a new leader's log until its followers
    have fetched. A fetch, however, is OFFSET_OUT_OF_RANGE only where the log itself does not reach, in all
    versions. Also False where ``offset`` is below the log's start. Raises as ``list_offsets``.
    """
    fetcher = RangeFetcher(
        cluster,
        topic_partition,
        offset,
        offset + 1,
        max_bytes=_PROBE_BYTES,
        max_wait_ms=0,
        pool=ConnectionPool.CONTROL,
    )

    def attempt() -> bool:
        try:
            fetcher.probe()
        except (NetworkError, RemoteWireError, BrokerError) as error:
            if isinstance(error, BrokerError) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                return False
            cluster.invalidate(topic_partition.topic)
            raise
        return True

    what = f"checking that the log of {topic_partition} reaches offset {offset}"
    return cluster.retry(what, cluster.deadline(), attempt)


def _is_transient(error: MinikafkaError) -> bool:
    # Kafka retries this code of a produce request; data that reads as damaged is so in the next fetch, too.
    damaged = isinstance(error, BrokerError) and error.code is ErrorCode.CORRUPT_MESSAGE
    return is_retriable(error) and not damaged


def _starts_after(data: memoryview, end_offset: int) -> bool:
    """Return True if the first message is after the range. A compressed one may hold earlier messages."""
    compressed = data[MAGIC_AT] < BATCH_MAGIC and data[MESSAGE_ATTRIBUTES_AT] & CODEC_MASK
    return not compressed and int.from_bytes(data[:SIZE_AT], "big", signed=True) >= end_offset

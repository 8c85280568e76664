"""Fetches the messages of one partition between two offsets, as raw message sets.

    for data in RangeFetcher(cluster, tp, 1_000, 5_000):
        columns = decode(data, 1_000, 5_000)

The sets come in order and cover the range. The first may begin before ``start_offset`` and the last may end
after ``end_offset``, because a compressed message is sent whole; the decoder selects the range. The next
request is in flight while the caller works on a set. This module never looks at single records: a kernel
finds the end of a set. There is no session with the broker: each request is for another position, and so
would name the partition all the same.

End of the range
    The range is complete when a set's last offset is ``end_offset - 1`` or more. It is also complete when a
    response is empty although the high watermark was at ``end_offset`` or beyond before the request:
    compaction has removed the last records of the range. The high watermark of the empty response itself
    proves nothing: 0.10.1 looks it up after reading the log, and records may be appended in between. With
    READ_COMMITTED the last stable offset takes the place of the high watermark.
A control record of a transaction
    It has an offset and no row: the decoder skips it. (Brokers that have control records know Fetch 4.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterator
from typing import Any

from minikafka.base.errors import (
    BrokerError,
    ErrorCode,
    MinikafkaError,
    NetworkError,
    OffsetOutOfRange,
    RemoteWireError,
)
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.fetch_session import FetchRequestData, FetchSession
from minikafka.clients.fetch.fetch_state import (
    CompletedFetch,
    FetchSettings,
    FetchStatus,
    fetch_error,
    fetch_status,
)
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.fetch.list_offsets import EARLIEST, LATEST, list_offsets
from minikafka.clients.fetch.prefetch import prefetched
from minikafka.clients.fetch.shared_fetch import FirstFetch
from minikafka.clients.network.broker_connection import ResponseFuture
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.connections import ConnectionPool
from minikafka.clients.network.metadata import LeaderAndEpoch
from minikafka.clients.network.retry import Deadline, FailedAttempts
from minikafka.records.format.batch import MAGIC as BATCH_MAGIC
from minikafka.records.kernels.layout import CODEC_MASK, MAGIC_AT, MESSAGE_ATTRIBUTES_AT, SIZE_AT
from minikafka.wire.api import partitions_of
from minikafka.wire.apis.fetch import (
    FETCH,
    LARGEST_MESSAGE_BYTES,
    NAMES_UNTIL,
    consumer_partition,
    consumer_request,
)

__all__ = ["DEFAULT_MAX_BYTES", "RangeFetcher", "check_readable", "log_reaches", "prefetched"]

DEFAULT_MAX_BYTES = 1 << 20
"""Kafka's ``max.partition.fetch.bytes``."""

_RANGE_TIMEOUT_MS = 5_000
_LONGEST_WAIT_MS = 1_000
"""The longest time without a look at ``stop``: a broker may throttle a client for much longer."""


class RangeFetcher:
    """An iterator of message sets (memoryviews of private memory). Not thread-safe, except ``stop``.

    ``timeout_ms`` bounds the wait for each next set. Raises OffsetOutOfRange with the log's range,
    LogTruncated if what was read is no longer in the log, BrokerError for an error that is not retriable,
    NetworkError with the failed attempts when no set came in time. ``unretried_codes`` are retriable codes
    that are raised at once, for the caller to handle. With the ``isolation`` READ_COMMITTED the sets are
    without batches of aborted transactions, and the iterator waits until the ``last_stable_offset`` reaches
    ``end_offset``. With a ``rack`` the leader may name a follower in it to read from (KIP-392). ``first`` is
    what a ``SharedFetch`` has fetched from ``start_offset`` on.
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
        rack: str = "",
        first: FirstFetch | None = None,
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
        self._timeout_ms = timeout_ms
        self._pool = pool
        self._unretried_codes = unretried_codes
        settings = FetchSettings(
            partition_max_bytes=max_bytes,
            max_bytes=max_bytes,
            message_max_bytes=max(LARGEST_MESSAGE_BYTES, max_bytes),
            min_bytes=min_bytes,
            max_wait_ms=max_wait_ms,
            isolation=isolation,
            retry_backoff=cluster.backoff,
            rack=rack,
        )
        self._session = FetchSession(settings, lambda tp: cluster.topic_id(tp.topic))
        self._first = first
        self._pending: tuple[FetchRequestData, ResponseFuture[Any]] | None = None
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
        error: MinikafkaError | None = None
        while not self._stopped and not self._finished and self.next_offset < self.end_offset:
            before = self.next_offset
            self._wait_until_ready(deadline, failed, error)
            try:
                completed = self._receive(deadline)
                data = None if completed is None else self._handle_fetch(completed)
            except (NetworkError, RemoteWireError, BrokerError) as caught:
                self._covering_broker = None
                if not self._is_retried(caught):
                    raise
                self._cluster.invalidate(self.topic_partition.topic)
                failed.add(caught)
                error = caught
                continue
            if data is not None:
                self._send_next_fetch()
                return data
            if self.next_offset > before:
                # The response had nothing of the range: the wait for the next set starts again.
                deadline, failed = self._cluster.deadline(self._timeout_ms), FailedAttempts()
            elif deadline.expired and not self._finished:
                raise self._timeout_error(failed, None)
            error = None
        raise StopIteration

    def stop(self) -> None:
        """End the iteration at the next opportunity. Thread-safe."""
        self._stopped = True

    def _now_ms(self) -> int:
        return self._cluster.clock.monotonic_ms()

    def _wait_until_ready(
        self, deadline: Deadline, failed: FailedAttempts, error: MinikafkaError | None
    ) -> None:
        """Wait for the end of a back-off, or a part of it. Raises the timeout error if a back-off after
        ``error`` ends after ``deadline``.
        """
        ready_ms = self._session.next_ready_ms(self._now_ms())
        if ready_ms is None:
            return
        delay_ms = ready_ms - self._now_ms()
        if error is not None and delay_ms >= deadline.remaining_ms():
            raise self._timeout_error(failed, error) from error
        self._cluster.waiter.wait(deadline.at_most(min(delay_ms, _LONGEST_WAIT_MS)))

    def _receive(self, deadline: Deadline) -> CompletedFetch | None:
        """Return the result of the request in flight, or of a new one; None before the end of a back-off, for
        a position that was validated, and if the response has named a new leader.
        """
        if self._first is not None:
            first, self._first = self._first, None
            self._fetched_from = first.broker_id
            first.state.use_settings(self._session.settings)
            self._session.adopt(first.state)
            return first.completed
        if self._pending is None:
            self._session.update({self.topic_partition: self.next_offset})
            try:
                leader = self._cluster.leader(self.topic_partition, deadline.remaining_ms())
            except MinikafkaError:
                self._session.back_off([self.topic_partition], self._now_ms())
                raise
            epoch = self._cluster.leader_epoch(self.topic_partition)
            self._send_fetch(LeaderAndEpoch(leader.broker_id, epoch), deadline)
        if self._pending is None:
            return None
        (data, reply), self._pending = self._pending, None
        # The time-out counts from the request, which may be long before the caller asks for the next set.
        age_ms = self._now_ms() - data.sent_ms
        response_timeout_ms = data.max_wait_ms + self._cluster.request_timeout_ms
        try:
            response = reply.result(age_ms + max(1, deadline.at_most(response_timeout_ms)))
        except BaseException:
            self._session.handle_disconnect(data.broker_id, self._now_ms())
            raise
        self._fetched_from = data.broker_id
        found = self._session.handle_response(data.broker_id, response, reply.version, self._now_ms())
        update_leaders = self._cluster.update_leaders
        found = self._session.follow_new_leaders(data.broker_id, found, response, update_leaders)
        return found[0] if found else None

    def _send_fetch(self, leader: LeaderAndEpoch, deadline: Deadline) -> None:
        # A topic that was made again may have the same leader and epoch.
        version = leader, self._cluster.topic_id(self.topic_partition.topic)
        for data in self._session.next_requests(lambda _: leader, version, self._now_ms()):
            broker_id = data.broker_id
            try:
                reply = self._cluster.send(
                    broker_id,
                    data.api,
                    data.request,
                    pool=self._pool,
                    deadline=deadline,
                    newest=data.newest_version,
                )
            except BaseException as error:
                if self._session.skip_validation(broker_id, error):
                    continue
                self._session.handle_disconnect(broker_id, self._now_ms())
                raise
            self._pending = data, reply

    def _send_next_fetch(self) -> None:
        """Send the next request before the caller works on this set. A failure is left to the next round."""
        leader = self._cluster.known_leader_and_epoch(self.topic_partition)
        if self.next_offset >= self.end_offset or leader is None:
            return
        with contextlib.suppress(MinikafkaError):
            self._send_fetch(leader, self._cluster.deadline())

    def _handle_fetch(self, completed: CompletedFetch) -> memoryview | None:
        """Return the complete messages of a response, or None if it has none of the range."""
        if completed.status is FetchStatus.OUT_OF_RANGE:
            error = self._out_of_range_error()
            self._session.update({self.topic_partition: self.next_offset})
            self._session.back_off([self.topic_partition], self._now_ms())
            raise error
        if completed.error is not None:
            raise completed.error
        if completed.status in {FetchStatus.RECORDS, FetchStatus.EMPTY}:
            self._note_end(completed)
        if completed.status is not FetchStatus.RECORDS:
            return None
        self.next_offset = completed.next_offset
        records = completed.records
        return None if not records or _starts_after(records, self.end_offset) else records

    def _note_end(self, completed: CompletedFetch) -> None:
        """Keep the ends that a response gives, and finish after an empty one if they covered the range."""
        self.high_watermark = completed.high_watermark
        self.last_stable_offset = completed.last_stable_offset
        covers, previous_covering_broker = completed.readable_end >= self.end_offset, self._covering_broker
        self._covering_broker = self._fetched_from if covers else None
        if completed.status is FetchStatus.EMPTY:
            # Each request is sent after the previous response, so that its read covered all of the range.
            self._finished = covers and previous_covering_broker == self._fetched_from

    def _is_retried(self, error: MinikafkaError) -> bool:
        return _is_transient(error) and not (
            isinstance(error, BrokerError) and error.code in self._unretried_codes
        )

    def _out_of_range_error(self) -> MinikafkaError:
        tp, offset = self.topic_partition, self.next_offset
        deadline = self._cluster.deadline(_RANGE_TIMEOUT_MS)
        try:
            start = list_offsets(self._cluster, {tp: EARLIEST}, deadline)[tp]
            end = list_offsets(self._cluster, {tp: LATEST}, deadline)[tp]
        except MinikafkaError as error:
            start = end = None
            why = f": {FailedAttempts.of(error)}"
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

    def _timeout_error(self, failed: FailedAttempts, error: MinikafkaError | None) -> MinikafkaError:
        known = "" if self.high_watermark is None else f"; high watermark {self.high_watermark}"
        stable = self.last_stable_offset
        if stable is not None and stable < min(self.high_watermark or 0, self.end_offset):
            known += f", last stable offset {stable}, where a transaction is open"
        text = (
            f"no messages of {self.topic_partition} from offset {self.next_offset} "
            f"within {self._timeout_ms} ms (wanted up to {self.end_offset}{known})"
        )
        return failed.error(text, error)


def check_readable(cluster: ClusterClient, topic_partition: TopicPartition, offset: int) -> None:
    """Raise the BrokerError of a fetch that can never succeed, such as of a topic without Read permission.

    For readers that wait for messages without fetching: ListOffsets needs only the permission to describe
    the topic. Retriable errors, such as an unavailable leader, are not raised.
    """
    try:
        _probe(cluster, topic_partition, offset)
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

    def attempt() -> bool:
        try:
            _probe(cluster, topic_partition, offset)
        except (NetworkError, RemoteWireError, BrokerError) as error:
            if isinstance(error, BrokerError) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                return False
            cluster.invalidate(topic_partition.topic)
            raise
        return True

    what = f"checking that the log of {topic_partition} reaches offset {offset}"
    return cluster.retry(what, cluster.deadline(), attempt)


def _probe(cluster: ClusterClient, topic_partition: TopicPartition, offset: int) -> None:
    """Fetch once, without a retry, and raise the error of the response."""
    leader = cluster.leader(topic_partition)
    epoch = cluster.leader_epoch(topic_partition)
    part = consumer_partition(topic_partition.partition, offset, max_bytes=1, leader_epoch=epoch)
    request = consumer_request({topic_partition: part}, max_bytes=1)
    deadline = cluster.deadline()
    reply = cluster.send(leader.broker_id, FETCH, request, deadline=deadline, newest=NAMES_UNTIL)
    response = reply.result(deadline.remaining_ms())
    found = dict(partitions_of(response.topics)).get(topic_partition)
    if found is None:
        raise NetworkError(f"no {topic_partition} in the response of its leader")
    code = ErrorCode.of(found.error_code)
    if code is not ErrorCode.NONE:
        raise fetch_error(code, topic_partition, offset)


def _is_transient(error: MinikafkaError) -> bool:
    return not isinstance(error, BrokerError) or fetch_status(error.code) is FetchStatus.LEADER_LOST


def _starts_after(data: memoryview, end_offset: int) -> bool:
    """Return True if the first message is after the range. A compressed one may hold earlier messages."""
    compressed = data[MAGIC_AT] < BATCH_MAGIC and data[MESSAGE_ATTRIBUTES_AT] & CODEC_MASK
    return not compressed and int.from_bytes(data[:SIZE_AT], "big", signed=True) >= end_offset

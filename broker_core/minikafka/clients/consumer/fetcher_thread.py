"""The thread that fetches from one broker, and puts records into the queues of the streams.

One request is in flight, for the partitions whose stream has room. It requests half of
``fetch.message.max.bytes`` in all, or ``fetch.max.bytes`` if that is less; the other half is room for what a
stream holds beside its chunks. (A broker sends a larger first message whole. Before Fetch 3 it does not: then
the request is for all of ``fetch.message.max.bytes``.) If a queue has no room, its records wait here, and
nothing more is requested for that stream. So a slow application neither makes memory grow nor delays the
other streams: a request that leaves out a full stream waits at the broker no longer than the stream has
already been full.

A partition that returned data moves to the end of the order, because a broker fills its response from the
first partition on.
"""

from __future__ import annotations

import logging
import mmap
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Protocol

from minikafka.base.clock import Clock
from minikafka.base.errors import (
    BrokerError,
    CorruptMessage,
    ErrorCode,
    MessageSizeTooLarge,
    MinikafkaError,
    NetworkError,
    NoCommittedOffset,
    RemoteWireError,
)
from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.clients.consumer.chunks import INVALID_OFFSET, ChunkQueue, PartitionTopicInfo
from minikafka.clients.consumer.runtime import ShutdownableThread
from minikafka.clients.consumer.stats import FetchRequestAndResponseStatsRegistry
from minikafka.clients.fetch.fetch_response import fetch_error, records_of, whole_entries
from minikafka.clients.fetch.list_offsets import CONSUMER, NO_EPOCH
from minikafka.clients.network.broker_connection import BrokerConnection
from minikafka.clients.network.outage_log import FailureLog
from minikafka.clients.network.response_errors import is_retriable
from minikafka.clients.network.retry import Deadline
from minikafka.wire.apis.fetch import (
    FETCH,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    consumer_request,
)
from minikafka.wire.apis.list_offsets import (
    EARLIEST,
    LATEST,
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

_IDLE_MS = 1_000
"""Longest wait for work; new work wakes the thread."""
_SHORT_WAIT_MS = 5
"""Shortest wait at the broker when a full stream is left out."""
_MAPPED_BYTES = 1 << 16
"""Smallest chunk with its own memory mapping."""
_WHOLE_MESSAGE_SINCE = 3
"""The Fetch version that returns a first message whole, whatever its size."""
_RESETS = {"smallest": EARLIEST, "largest": LATEST}
_NOTHING = memoryview(b"")

logger = logging.getLogger("minikafka.clients")


class FetchConfig(Protocol):
    """The settings of a ``ConsumerConfig`` that fetchers use."""

    @property
    def client_id(self) -> str: ...
    @property
    def socket_timeout_ms(self) -> int: ...
    @property
    def fetch_message_max_bytes(self) -> int: ...
    @property
    def fetch_max_bytes(self) -> int: ...
    @property
    def fetch_min_bytes(self) -> int: ...
    @property
    def fetch_wait_max_ms(self) -> int: ...
    @property
    def refresh_leader_backoff_ms(self) -> int: ...
    @property
    def auto_offset_reset(self) -> str: ...


class Gate:
    """A gate between fetchers and streams: after ``close`` no fetcher can change a stream."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = True

    def close(self) -> None:
        """Close the gate, after the call that is running in ``run_if_open``."""
        with self._lock:
            self._open = False

    def run_if_open(self, act: Callable[[], bool]) -> bool:
        """Return the result of ``act``, which must not wait; False if the gate is closed."""
        with self._lock:
            return self._open and act()


class ConsumerFetcherThread(ShutdownableThread):
    """Fetches partitions that one broker leads (``ConsumerFetcherThread`` of text 004).

    ``on_without_leader`` is called with partitions that this broker no longer leads.
    """

    def __init__(
        self,
        name: str,
        config: FetchConfig,
        broker: BrokerAddress,
        connection: BrokerConnection,
        gate: Gate,
        on_without_leader: Callable[[Iterable[TopicPartition]], None],
        clock: Clock,
        failure_log: FailureLog,
    ) -> None:
        super().__init__(name)
        self._failure_log = failure_log
        self._config = config
        self._broker = broker
        self._connection = connection
        self._gate = gate
        self._on_without_leader = on_without_leader
        self._clock = clock
        self._stats = FetchRequestAndResponseStatsRegistry.get(config.client_id)
        self._lock = threading.Lock()
        self._partitions: OrderedDict[TopicPartition, PartitionTopicInfo] = OrderedDict()
        self._pending_puts: dict[TopicPartition, Callable[[], bool]] = {}
        """Puts into full queues, to be retried."""
        self._failed_partitions: set[TopicPartition] = set()
        """Partitions whose stream got an error, after which nothing is fetched."""
        self._corrupt_offsets: dict[TopicPartition, int] = {}
        """Offsets at which the last response was unreadable. As the write may have been under way, they are
        fetched once more.
        """
        self._full_since_ms: dict[ChunkQueue, int] = {}
        self._truncates_first_message = False
        """True if the broker, by the version of its last response, never returns more than the requested
        bytes.
        """

    # --- partitions

    def add_partitions(self, infos: Iterable[PartitionTopicInfo]) -> None:
        """Start to fetch more partitions."""
        with self._lock:
            for info in infos:
                self._partitions.setdefault(info.topic_partition, info)
        self.wake()

    def remove_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching these partitions, and drop their pending puts."""
        with self._lock:
            for tp in partitions:
                self._partitions.pop(tp, None)
                self._pending_puts.pop(tp, None)
                self._failed_partitions.discard(tp)

    @property
    def partition_count(self) -> int:
        """The number of partitions."""
        return len(self._partitions)

    def initiate_shutdown(self) -> None:
        """Let the thread end soon: cancel the request that it waits for."""
        super().initiate_shutdown()
        self._connection.close()

    # --- fetching

    def do_work(self) -> None:
        """Retry pending puts, send one fetch for the partitions with room, and process its response."""
        self._retry_pending_puts()
        self._initialize_offsets()
        positions, wait_ms = self._next_positions()
        if not positions:
            self.wait_for_work(_IDLE_MS)
            return
        start_ms = self._clock.monotonic_ms()
        try:
            response = self._fetch(positions, wait_ms)
        except (NetworkError, RemoteWireError, BrokerError) as error:
            if self.is_running:
                self._failure_log.record_failure(self.name, error)
                self._return_partitions(
                    tp for tp in list(self._partitions) if tp not in self._failed_partitions
                )
                self.back_off(self._config.refresh_leader_backoff_ms)
            return
        self._failure_log.record_recovery(self.name)
        self._record_stats(response, self._clock.monotonic_ms() - start_ms)
        self._process_response(response, positions)

    def _next_positions(self) -> tuple[dict[TopicPartition, int], int]:
        """Return the positions to fetch, and the longest time in ms that the broker may wait for data."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            infos = [info for tp, info in self._partitions.items() if tp not in self._failed_partitions]
            full = {self._partitions[tp].queue for tp in self._pending_puts if tp in self._partitions}
        full |= {info.queue for info in infos if not info.queue.has_room}
        self._full_since_ms = {queue: self._full_since_ms.get(queue, now_ms) for queue in full}
        wait_ms = self._config.fetch_wait_max_ms
        if full:
            full_for_ms = now_ms - max(self._full_since_ms.values())
            wait_ms = min(wait_ms, max(_SHORT_WAIT_MS, full_for_ms))
        positions = {info.topic_partition: info.fetched_offset for info in infos if info.queue not in full}
        return {tp: offset for tp, offset in positions.items() if offset >= 0}, wait_ms

    def _fetch(self, positions: Mapping[TopicPartition, int], wait_ms: int) -> FetchResponse:
        allowed = self._config.fetch_message_max_bytes

        def request(version: int) -> FetchRequest:
            wanted = allowed if version < _WHOLE_MESSAGE_SINCE else max(1, allowed // 2)
            return consumer_request(
                positions,
                partition_max_bytes=wanted,
                max_bytes=min(wanted, self._config.fetch_max_bytes),
                min_bytes=self._config.fetch_min_bytes,
                max_wait_ms=wait_ms,
            )

        reply = self._connection.send(FETCH, request, self._deadline())
        response = reply.result(wait_ms + self._config.socket_timeout_ms)
        self._truncates_first_message = reply.version < _WHOLE_MESSAGE_SINCE
        return response

    def _deadline(self) -> Deadline:
        return Deadline(self._clock, self._config.socket_timeout_ms)

    def _record_stats(self, response: FetchResponse, request_ms: int) -> None:
        size = sum(len(records_of(part)) for topic in response.topics for part in topic.partitions)
        self._stats.record_fetch(
            self._broker.host,
            self._broker.port,
            request_ms=request_ms,
            response_bytes=size,
            throttle_ms=response.throttle_time_ms,
        )

    def _process_response(self, response: FetchResponse, positions: Mapping[TopicPartition, int]) -> None:
        parts = [
            (TopicPartition(topic.name, part.index), part)
            for topic in response.topics
            for part in topic.partitions
        ]
        out_of_range: list[PartitionTopicInfo] = []
        failed: list[tuple[PartitionTopicInfo, MinikafkaError]] = []
        for tp, part in parts:
            with self._lock:
                info = self._partitions.get(tp)
            if info is None or info.fetched_offset != positions.get(tp):
                continue
            code = ErrorCode.of(part.error_code)
            try:
                if code is ErrorCode.NONE:
                    self.process_partition_data(info, part)
                elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    out_of_range.append(info)
                    continue
                else:
                    raise fetch_error(code, tp, info.fetched_offset)
            except (NetworkError, RemoteWireError, BrokerError) as error:
                failed.append((info, error))
            else:
                self._failure_log.record_recovery(str(tp))
        failed += self.handle_offsets_out_of_range(out_of_range)
        self._handle_failed(failed)

    def _handle_failed(self, failed: Iterable[tuple[PartitionTopicInfo, MinikafkaError]]) -> None:
        """Raise permanent errors in the streams; look up the leaders of the other partitions again."""
        with_errors = []
        for info, error in failed:
            if isinstance(error, BrokerError) and _is_permanent(error):
                self._fail_partition(info, error)
            elif self.is_running:
                self._failure_log.record_failure(str(info.topic_partition), error)
                with_errors.append(info.topic_partition)
        if with_errors:
            self.handle_partitions_with_errors(with_errors)

    # --- responses for one partition

    def process_partition_data(self, info: PartitionTopicInfo, part: FetchPartitionResponse) -> None:
        """Put the records of a response into the stream's queue (``processPartitionData``)."""
        tp, offset = info.topic_partition, info.fetched_offset
        info.high_watermark = part.high_watermark
        if not records_of(part):
            return
        whole, found = whole_entries(part)
        allowed = info.fetch_size
        if self._truncates_first_message and found.wanted_bytes > allowed and not found.valid_bytes:
            self._fail_partition(info, MessageSizeTooLarge(*tp, offset, found.wanted_bytes, allowed))
        elif found.valid_bytes and found.next_offset > offset:
            self._put(info, partial(info.enqueue, _private_copy(whole), found.next_offset))
            self._corrupt_offsets.pop(tp, None)
            with self._lock:
                if tp in self._partitions:
                    self._partitions.move_to_end(tp)
        elif found.incomplete and not found.valid_bytes:
            # The response was full before this partition. The first partition of a request gets all the room.
            with self._lock:
                if tp in self._partitions:
                    self._partitions.move_to_end(tp, last=False)
        elif self._corrupt_offsets.get(tp) != offset:
            self._corrupt_offsets[tp] = offset
        else:
            problem = found.problem or f"the response ends at {found.next_offset}, before it"
            error = CorruptMessage(*tp, offset, offset + 1, problem)
            self._put(info, partial(info.enqueue, _NOTHING, offset + 1, error))

    def handle_offsets_out_of_range(
        self, infos: Collection[PartitionTopicInfo]
    ) -> list[tuple[PartitionTopicInfo, MinikafkaError]]:
        """Move to the offset that ``auto.offset.reset`` selects, or raise the error in the stream
        (``handleOffsetOutOfRange``).

        One request covers all partitions. Return the partitions whose start or end the broker does not
        return, with their errors.
        """
        reset = self._config.auto_offset_reset
        if reset not in _RESETS:
            for info in infos:
                self._fail_partition(info, _no_reset_error(info.topic_partition, info.fetched_offset, reset))
            return []
        found = self._earliest_or_latest_offsets([info.topic_partition for info in infos], _RESETS[reset])
        failed = []
        for info in infos:
            tp, offset = info.topic_partition, info.fetched_offset
            new_offset = found[tp]
            if isinstance(new_offset, MinikafkaError):
                failed.append((info, new_offset))
                continue
            if offset != INVALID_OFFSET:
                logger.warning(
                    "%s: offset %d is out of range, resetting to the %s offset %d",
                    tp,
                    offset,
                    reset,
                    new_offset,
                )
            self._failure_log.record_recovery(str(tp))
            self._put(info, partial(info.reset, new_offset))
        return failed

    def handle_partitions_with_errors(self, partitions: Iterable[TopicPartition]) -> None:
        """Return these partitions to the leader finder (``handlePartitionsWithErrors``)."""
        self._return_partitions(partitions)

    # --- inside

    def _initialize_offsets(self) -> None:
        """Look up the position of partitions without a committed offset."""
        with self._lock:
            unknown = [
                info
                for tp, info in self._partitions.items()
                if info.fetched_offset < 0
                and tp not in self._failed_partitions
                and tp not in self._pending_puts
            ]
        self._handle_failed(self.handle_offsets_out_of_range(unknown))

    def _put(self, info: PartitionTopicInfo, act: Callable[[], bool]) -> None:
        """Run ``act`` now, or later when the stream's queue has room."""
        if not self._gate.run_if_open(act):
            with self._lock:
                if info.topic_partition in self._partitions:
                    self._pending_puts[info.topic_partition] = act

    def _retry_pending_puts(self) -> None:
        for tp, act in list(self._pending_puts.items()):
            if self._gate.run_if_open(act):
                with self._lock:
                    self._pending_puts.pop(tp, None)

    def _fail_partition(self, info: PartitionTopicInfo, error: MinikafkaError) -> None:
        """Raise ``error`` in the stream, and stop fetching the partition."""
        with self._lock:
            self._failed_partitions.add(info.topic_partition)
        self._put(info, partial(info.enqueue, _NOTHING, info.fetched_offset, error))

    def _return_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        partitions = list(partitions)
        self.remove_partitions(partitions)
        self._on_without_leader(partitions)

    def _earliest_or_latest_offsets(
        self, partitions: Collection[TopicPartition], time: int
    ) -> dict[TopicPartition, int | MinikafkaError]:
        """Return the start of each partition's log, or its end for consumers; or the error of the look-up."""
        if not partitions:
            return {}
        missing: MinikafkaError = NetworkError(f"{self._broker} left the partition out of its response")
        found: dict[TopicPartition, int | MinikafkaError] = {}
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for tp in partitions:
            topics.setdefault(tp.topic, []).append(ListOffsetsPartition(tp.partition, NO_EPOCH, time))
        request_topics = tuple(ListOffsetsTopic(topic, tuple(rows)) for topic, rows in topics.items())
        request = ListOffsetsRequest(CONSUMER, 0, request_topics)
        try:
            reply = self._connection.send(LIST_OFFSETS, lambda _: request, self._deadline())
            for topic in reply.result().topics:
                for part in topic.partitions:
                    tp = TopicPartition(topic.name, part.index)
                    code = ErrorCode.of(part.error_code)
                    if code is not ErrorCode.NONE:
                        found[tp] = BrokerError(code, f"looking up the start or end of {tp}")
                    elif reply.version == 0 and part.offsets:
                        found[tp] = part.offsets[0]
                    elif reply.version and part.offset >= 0:
                        found[tp] = part.offset
        except (NetworkError, RemoteWireError, BrokerError) as error:
            missing = error
        return {tp: found.get(tp, missing) for tp in partitions}


def _private_copy(data: memoryview) -> memoryview:
    """Return a copy whose memory is returned to the system when the copy is freed.

    A response's buffer is soon reused; keeping a part of it would keep all of it. Memory freed between live
    pieces would stay with the process.
    """
    if len(data) < _MAPPED_BYTES:
        return memoryview(bytes(data))
    memory = mmap.mmap(-1, len(data))
    memory[:] = data
    return memoryview(memory)


def _no_reset_error(tp: TopicPartition, offset: int, reset: str) -> MinikafkaError:
    hint = f"auto.offset.reset is {reset!r}: set smallest or largest"
    if offset < 0:
        return NoCommittedOffset(f"no offset of {tp} is committed, and {hint}")
    return BrokerError(
        ErrorCode.OFFSET_OUT_OF_RANGE, f"the log of {tp} does not have offset {offset}, and {hint}"
    )


def _is_permanent(error: BrokerError) -> bool:
    """Return whether a retry would fail in the same way. Unknown errors may be temporary."""
    return not is_retriable(error) and error.code is not ErrorCode.UNKNOWN

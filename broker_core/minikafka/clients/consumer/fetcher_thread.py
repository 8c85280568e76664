"""The thread that fetches from one broker, and puts records into the queues of the streams.

A driver of a fetch session (``clients.fetch.fetch_session``) with one broker. A request is for the partitions
whose stream has room, and for half of ``fetch.message.max.bytes`` in all, or ``fetch.max.bytes`` if that is
less; the other half is room for what a stream holds beside its chunks. A larger message is fetched with up to
``fetch.message.max.bytes`` if the broker cuts it off, and is taken whole if the broker sends it whole. If a
queue has no room, its records wait here, and nothing more is requested for that stream. So a slow application
neither makes memory grow nor delays the other streams: a request that leaves out a full stream waits at the
broker no longer than the stream has already been full.
"""

from __future__ import annotations

import logging
import mmap
import threading
from collections.abc import Callable, Collection, Iterable
from functools import partial

from minikafka.base.clock import Clock
from minikafka.base.errors import (
    AuthenticationFailed,
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
from minikafka.clients.consumer.config import ConsumerConfig
from minikafka.clients.consumer.runtime import ShutdownableThread
from minikafka.clients.consumer.stats import FetchRequestAndResponseStatsRegistry
from minikafka.clients.fetch.fetch_session import FetchRequestData, FetchSession
from minikafka.clients.fetch.fetch_state import (
    NO_EPOCHS,
    CompletedFetch,
    FetchSettings,
    FetchStatus,
    PositionEpochs,
    fetch_status,
    records_of,
)
from minikafka.clients.network.broker_connection import BrokerConnection
from minikafka.clients.network.metadata import NO_LEADER_EPOCH, LeaderAndEpoch
from minikafka.clients.network.outage_log import FailureLog
from minikafka.clients.network.retry import Backoff, Deadline
from minikafka.wire.api import partitions_of
from minikafka.wire.apis.fetch import FetchResponse
from minikafka.wire.apis.list_offsets import EARLIEST, LATEST, LIST_OFFSETS, found_offset, offsets_request
from minikafka.wire.fields import ZERO_UUID

_IDLE_MS = 1_000
"""Longest wait for work; new work wakes the thread."""
_SHORT_WAIT_MS = 5
"""Shortest wait at the broker when a full stream is left out."""
_MAPPED_BYTES = 1 << 16
"""Smallest chunk with its own memory mapping."""
_RESETS = {"smallest": EARLIEST, "largest": LATEST}
_NOTHING = memoryview(b"")

logger = logging.getLogger("minikafka.clients")


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
        config: ConsumerConfig,
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
        half = max(1, config.fetch_message_max_bytes // 2)
        self._session = FetchSession(
            FetchSettings(
                partition_max_bytes=half,
                max_bytes=min(half, config.fetch_max_bytes),
                message_max_bytes=config.fetch_message_max_bytes,
                min_bytes=config.fetch_min_bytes,
                max_wait_ms=config.fetch_wait_max_ms,
                retry_backoff=Backoff(0, 0),  # the leader finder pauses
                in_session=True,
            ),
            self._topic_id,
        )
        self._partitions: dict[TopicPartition, PartitionTopicInfo] = {}
        self._additions = 0
        """The number of times that partitions were added, perhaps with another leader epoch."""
        self._pending_puts: dict[TopicPartition, Callable[[], bool]] = {}
        """Puts into full queues, to be retried."""
        self._failed_partitions: set[TopicPartition] = set()
        """Partitions whose stream got an error, after which nothing is fetched."""
        self._full_since_ms: dict[ChunkQueue, int] = {}

    # --- partitions

    def add_partitions(self, infos: Iterable[PartitionTopicInfo]) -> None:
        """Start to fetch more partitions."""
        with self._lock:
            for info in infos:
                self._partitions.setdefault(info.topic_partition, info)
            self._additions += 1
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
        self._session.retain(self._partitions.keys())
        self._session.update(positions, self._epochs)
        now_ms, broker_id = self._clock.monotonic_ms(), self._broker.broker_id
        requests = list(self._session.next_requests(self._leader, self._additions, now_ms, wait_ms))
        if not requests:
            ready_ms = self._session.next_ready_ms(now_ms)
            self.wait_for_work(_IDLE_MS if ready_ms is None else min(_IDLE_MS, ready_ms - now_ms))
        for data in requests:
            try:
                found = self._fetch(data)
            except (NetworkError, RemoteWireError, BrokerError) as error:
                if not self._session.skip_validation(broker_id, error):
                    self._handle_failed_fetch(error)
            else:
                self._failure_log.record_recovery(self.name)
                self._process_response(found)
            finally:
                self._session.handle_disconnect(broker_id, now_ms)  # unless there was a response

    def _handle_failed_fetch(self, error: MinikafkaError) -> None:
        if isinstance(error, AuthenticationFailed):
            for info in list(self._partitions.values()):
                self._fail_partition(info, error)
        elif self.is_running:
            self._failure_log.record_failure(self.name, error)
            self.handle_partitions_with_errors(
                tp for tp in list(self._partitions) if tp not in self._failed_partitions
            )
            self.back_off(self._config.refresh_leader_backoff_ms)

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

    def _fetch(self, data: FetchRequestData) -> list[CompletedFetch]:
        reply = self._connection.send(data.api, lambda _: data.request, self._deadline(), data.newest_version)
        response = reply.result(data.max_wait_ms + self._config.socket_timeout_ms)
        now_ms = self._clock.monotonic_ms()
        if isinstance(response, FetchResponse):
            self._record_stats(response, now_ms - data.sent_ms)
        return self._session.handle_response(data.broker_id, response, reply.version, now_ms)

    def _leader(self, tp: TopicPartition) -> LeaderAndEpoch | None:
        info = self._partitions.get(tp)
        return None if info is None else LeaderAndEpoch(self._broker.broker_id, info.leader_epoch)

    def _topic_id(self, tp: TopicPartition) -> bytes:
        info = self._partitions.get(tp)
        return ZERO_UUID if info is None else info.topic_id

    def _leader_epoch(self, tp: TopicPartition) -> int:
        leader = self._leader(tp)
        return NO_LEADER_EPOCH if leader is None else leader.epoch

    def _epochs(self, tp: TopicPartition) -> PositionEpochs:
        info = self._partitions.get(tp)
        return NO_EPOCHS if info is None else info.epochs

    def _deadline(self) -> Deadline:
        return Deadline(self._clock, self._config.socket_timeout_ms)

    def _record_stats(self, response: FetchResponse, request_ms: int) -> None:
        size = sum(len(records_of(part)) for _, part in partitions_of(response.topics))
        self._stats.record_fetch(
            self._broker.host,
            self._broker.port,
            request_ms=request_ms,
            response_bytes=size,
            throttle_ms=response.throttle_time_ms,
        )

    def _process_response(self, found: Iterable[CompletedFetch]) -> None:
        out_of_range: list[PartitionTopicInfo] = []
        failed: list[tuple[PartitionTopicInfo, MinikafkaError]] = []
        for completed in found:
            with self._lock:
                info = self._partitions.get(completed.topic_partition)
            if info is None or info.fetched_offset != completed.offset:
                continue
            if completed.status is FetchStatus.OUT_OF_RANGE:
                out_of_range.append(info)
            elif completed.status is FetchStatus.TRUNCATED:
                self._handle_truncated(info, completed)
            elif completed.status in {FetchStatus.LEADER_LOST, FetchStatus.FAILED}:
                assert completed.error is not None
                failed.append((info, completed.error))
            else:
                self.process_partition_data(info, completed)
        failed += self.handle_offsets_out_of_range(out_of_range)
        self._handle_failed(failed)

    def _handle_failed(self, failed: Iterable[tuple[PartitionTopicInfo, MinikafkaError]]) -> None:
        """Raise permanent errors in the streams; look up the leaders of the other partitions again."""
        with_errors = []
        for info, error in failed:
            if isinstance(error, BrokerError) and fetch_status(error.code) is FetchStatus.FAILED:
                self._fail_partition(info, error)
            elif self.is_running:
                if not isinstance(error, BrokerError) or error.code is not ErrorCode.FENCED_LEADER_EPOCH:
                    # Every election raises the epoch, also that of a leader that stays.
                    self._failure_log.record_failure(str(info.topic_partition), error)
                with_errors.append(info.topic_partition)
        if with_errors:
            self.handle_partitions_with_errors(with_errors)

    # --- responses for one partition

    def process_partition_data(self, info: PartitionTopicInfo, completed: CompletedFetch) -> None:
        """Put the result of a fetch into the stream's queue (``processPartitionData``)."""
        tp, offset = completed.topic_partition, completed.offset
        self._failure_log.record_recovery(str(tp))
        if completed.high_watermark >= 0:
            info.high_watermark = completed.high_watermark
        if completed.status is FetchStatus.RECORDS:
            records, epochs = _private_copy(completed.records), completed.epochs
            self._put(info, partial(info.enqueue, records, completed.next_offset, epochs=epochs))
        elif completed.status is FetchStatus.TOO_LARGE:
            error = MessageSizeTooLarge(*tp, offset, completed.entry_bytes, info.fetch_size)
            self._fail_partition(info, error)
        elif completed.status is FetchStatus.CORRUPT:
            assert completed.error is not None
            # The error names the place itself.
            problem = completed.error.detail.removeprefix(f"{tp}, fetched from offset {offset}: ")
            damage = CorruptMessage(*tp, offset, offset + 1, problem)
            self._put(info, partial(info.enqueue, _NOTHING, offset + 1, damage))

    def _handle_truncated(self, info: PartitionTopicInfo, completed: CompletedFetch) -> None:
        """Move to the end of what is left of the log before the position; without a valid
        ``auto.offset.reset`` raise the error in the stream.
        """
        assert completed.error is not None
        if self._config.auto_offset_reset not in _RESETS:
            self._fail_partition(info, completed.error)
            return
        logger.warning("%s; continuing at %d", completed.error.detail, completed.next_offset)
        self._put(info, partial(info.reset, completed.next_offset))

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
        partitions = list(partitions)
        self.remove_partitions(partitions)
        self._on_without_leader(partitions)

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

    def _earliest_or_latest_offsets(
        self, partitions: Collection[TopicPartition], time: int
    ) -> dict[TopicPartition, int | MinikafkaError]:
        """Return the start of each partition's log, or its end for consumers; or the error of the look-up."""
        if not partitions:
            return {}
        missing: MinikafkaError = NetworkError(f"{self._broker} left the partition out of its response")
        found: dict[TopicPartition, int | MinikafkaError] = {}
        request = offsets_request(dict.fromkeys(partitions, time), self._leader_epoch)
        try:
            reply = self._connection.send(LIST_OFFSETS, lambda _: request, self._deadline())
            for tp, part in partitions_of(reply.result().topics):
                code, offset = ErrorCode.of(part.error_code), found_offset(part, reply.version)
                if code is not ErrorCode.NONE:
                    found[tp] = BrokerError(code, f"looking up the start or end of {tp}")
                elif offset is not None:
                    found[tp] = offset
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

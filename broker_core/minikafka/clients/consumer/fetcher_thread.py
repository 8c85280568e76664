"""What fetches from one broker for the streams, and puts it into their queues.

One request is under way, for the partitions whose stream has room. It asks for half of
``fetch.message.max.bytes`` in all, which leaves room for what a stream takes beside its chunks, or for
``fetch.max.bytes`` if that is less. (A broker
sends a first message whole that is larger; brokers before Fetch 3 are asked for all of it.) What the queues
have no room for waits here, and for these streams nothing more is asked. So what one application does not
take neither grows nor holds up the others: a request that leaves out a stream waits at the broker no longer
than that stream has been full already.

A partition goes to the end of the order when it gave data, as a broker fills its answer from the first on.
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
from minikafka.clients.consumer.runtime import RetryLog, ShutdownableThread
from minikafka.clients.consumer.stats import FetchRequestAndResponseStatsRegistry
from minikafka.clients.fetch.fetch_response import fetch_error, records_of, whole_entries
from minikafka.clients.fetch.list_offsets import CONSUMER, NO_EPOCH
from minikafka.clients.network.broker_connection import BrokerConnection
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
"""Longest wait for something to do; whatever there is wakes the thread."""
_SHORT_WAIT_MS = 5
"""Shortest wait at the broker when a stream without room is left out."""
_MAPPED_BYTES = 1 << 16
"""Smallest chunk that gets memory of its own from the system."""
_WHOLE_MESSAGE_SINCE = 3
"""The Fetch version that sends a first message whole, whatever its size."""
_RESETS = {"smallest": EARLIEST, "largest": LATEST}
_NOTHING = memoryview(b"")

logger = logging.getLogger("minikafka.clients")


class FetchConfig(Protocol):
    """What fetchers want of a ``ConsumerConfig``."""

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
    """Between fetchers and streams: once it is closed nothing passes, also what is just on its way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = True

    def close(self) -> None:
        """Returns when the last that passed is through."""
        with self._lock:
            self._open = False

    def run_if_open(self, act: Callable[[], bool]) -> bool:
        """What ``act`` returns, which must not wait; False when the gate is closed."""
        with self._lock:
            return self._open and act()


class ConsumerFetcherThread(ShutdownableThread):
    """Fetches partitions that one broker leads (``ConsumerFetcherThread`` of text 004).

    ``on_without_leader`` is called with partitions that this broker no longer leads. ``retry_log`` gets the
    failures.
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
        retry_log: RetryLog,
    ) -> None:
        super().__init__(name)
        self._retry_log = retry_log
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
        """What there was no room for, to be tried again."""
        self._failed_partitions: set[TopicPartition] = set()
        """Those whose stream was given an error, behind which nothing comes."""
        self._corrupt_offsets: dict[TopicPartition, int] = {}
        """Where the last answer could not be read. It may just have been written: it is asked for twice."""
        self._full_since_ms: dict[ChunkQueue, int] = {}
        self._truncates_first_message = False
        """Whether the broker, by its last answer, never sends more than what it was asked for."""

    # --- who has it

    def add_partitions(self, infos: Iterable[PartitionTopicInfo]) -> None:
        """Fetch these from now on, too."""
        with self._lock:
            for info in infos:
                self._partitions.setdefault(info.topic_partition, info)
        self.wake()

    def remove_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch these no more; what there was no room for is forgotten."""
        with self._lock:
            for tp in partitions:
                self._partitions.pop(tp, None)
                self._pending_puts.pop(tp, None)
                self._failed_partitions.discard(tp)

    @property
    def partition_count(self) -> int:
        """How many it has."""
        return len(self._partitions)

    def initiate_shutdown(self) -> None:
        """Let it end soon: what it waits for is cut off."""
        super().initiate_shutdown()
        self._connection.close()

    # --- one turn

    def do_work(self) -> None:
        """Put what waits into the queues, ask for more where there is room, and take the answer in."""
        self._retry_pending_puts()
        self._initialize_offsets()
        positions, wait_ms = self._next_positions()
        if not positions:
            self.wait_for_work(_IDLE_MS)
            return
        begun_ms = self._clock.monotonic_ms()
        try:
            response = self._fetch(positions, wait_ms)
        except (NetworkError, RemoteWireError, BrokerError) as error:
            if self.is_running:
                self._retry_log.record_failure(self.name, error)
                self._return_partitions(
                    tp for tp in list(self._partitions) if tp not in self._failed_partitions
                )
                self.back_off(self._config.refresh_leader_backoff_ms)
            return
        self._retry_log.record_recovery(self.name)
        self._record_stats(response, self._clock.monotonic_ms() - begun_ms)
        self._process_response(response, positions)

    def _next_positions(self) -> tuple[dict[TopicPartition, int], int]:
        """Where to read on, and how long the broker may wait for data."""
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

    def _record_stats(self, response: FetchResponse, took_ms: int) -> None:
        size = sum(len(records_of(part)) for topic in response.topics for part in topic.partitions)
        self._stats.record_fetch(
            self._broker.host,
            self._broker.port,
            request_ms=took_ms,
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
                self._retry_log.record_recovery(str(tp))
        failed += self.handle_offsets_out_of_range(out_of_range)
        self._handle_failed(failed)

    def _handle_failed(self, failed: Iterable[tuple[PartitionTopicInfo, MinikafkaError]]) -> None:
        """Raise in the stream what will stay as it is; of the others, have the leaders looked for again."""
        with_errors = []
        for info, error in failed:
            if isinstance(error, BrokerError) and _is_permanent(error):
                self._fail_partition(info, error)
            elif self.is_running:
                self._retry_log.record_failure(str(info.topic_partition), error)
                with_errors.append(info.topic_partition)
        if with_errors:
            self.handle_partitions_with_errors(with_errors)

    # --- what an answer says of a partition

    def process_partition_data(self, info: PartitionTopicInfo, part: FetchPartitionResponse) -> None:
        """Give the messages of an answer to the stream (``processPartitionData``)."""
        tp, offset = info.topic_partition, info.fetched_offset
        info.high_watermark = part.high_watermark
        if not records_of(part):
            return
        whole, found = whole_entries(part)
        allowed = self._config.fetch_message_max_bytes
        if self._truncates_first_message and found.wanted_bytes > allowed and not found.valid_bytes:
            self._fail_partition(info, MessageSizeTooLarge(*tp, offset, found.wanted_bytes, allowed))
        elif found.valid_bytes and found.next_offset > offset:
            self._put(info, partial(info.enqueue, _private_copy(whole), found.next_offset))
            self._corrupt_offsets.pop(tp, None)
            with self._lock:
                if tp in self._partitions:
                    self._partitions.move_to_end(tp)
        elif found.incomplete and not found.valid_bytes:
            # The answer was full before it: what comes first has all the room.
            with self._lock:
                if tp in self._partitions:
                    self._partitions.move_to_end(tp, last=False)
        elif self._corrupt_offsets.get(tp) != offset:
            self._corrupt_offsets[tp] = offset
        else:
            problem = found.problem or f"what came ends at {found.next_offset}, before it"
            error = CorruptMessage(*tp, offset, offset + 1, problem)
            self._put(info, partial(info.enqueue, _NOTHING, offset + 1, error))

    def handle_offsets_out_of_range(
        self, infos: Collection[PartitionTopicInfo]
    ) -> list[tuple[PartitionTopicInfo, MinikafkaError]]:
        """Go on where ``auto.offset.reset`` says, or raise it in the stream (``handleOffsetOutOfRange``).

        The broker is asked once for all. Returns those whose log's beginning or end it does not tell.
        """
        rule = self._config.auto_offset_reset
        if rule not in _RESETS:
            for info in infos:
                self._fail_partition(info, _no_reset_error(info.topic_partition, info.fetched_offset, rule))
            return []
        found = self._earliest_or_latest_offsets([info.topic_partition for info in infos], _RESETS[rule])
        failed = []
        for info in infos:
            tp, offset = info.topic_partition, info.fetched_offset
            reached = found[tp]
            if isinstance(reached, MinikafkaError):
                failed.append((info, reached))
                continue
            if offset != INVALID_OFFSET:
                logger.warning("%s has no offset %d: going on with the %s one, %d", tp, offset, rule, reached)
            self._retry_log.record_recovery(str(tp))
            self._put(info, partial(info.reset, reached))
        return failed

    def handle_partitions_with_errors(self, partitions: Iterable[TopicPartition]) -> None:
        """Leave these to whoever leads them now (``handlePartitionsWithErrors``)."""
        self._return_partitions(partitions)

    # --- inside

    def _initialize_offsets(self) -> None:
        """Find where to begin those that nobody has read before."""
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
        """Do it now, or when the stream's queue has room."""
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
        """Raise ``error`` in the stream, and fetch the partition no more."""
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
        """Where the logs of partitions begin, or end for consumers; or why the broker does not tell."""
        if not partitions:
            return {}
        unanswered: MinikafkaError = NetworkError(f"{self._broker} did not tell where the log is")
        found: dict[TopicPartition, int | MinikafkaError] = {}
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for tp in partitions:
            topics.setdefault(tp.topic, []).append(ListOffsetsPartition(tp.partition, NO_EPOCH, time))
        asked = tuple(ListOffsetsTopic(topic, tuple(rows)) for topic, rows in topics.items())
        request = ListOffsetsRequest(CONSUMER, 0, asked)
        try:
            reply = self._connection.send(LIST_OFFSETS, lambda _: request, self._deadline())
            for topic in reply.result().topics:
                for part in topic.partitions:
                    tp = TopicPartition(topic.name, part.index)
                    code = ErrorCode.of(part.error_code)
                    if code is not ErrorCode.NONE:
                        found[tp] = BrokerError(code, f"looking up an end of {tp}")
                    elif reply.version == 0 and part.offsets:
                        found[tp] = part.offsets[0]
                    elif reply.version and part.offset >= 0:
                        found[tp] = part.offset
        except (NetworkError, RemoteWireError, BrokerError) as error:
            unanswered = error
        return {tp: found.get(tp, unanswered) for tp in partitions}


def _private_copy(data: memoryview) -> memoryview:
    """A copy, whose memory goes back to the system with it.

    What an answer came in is soon used again; were it kept, a part of an answer would keep all of it, and
    what was freed between pieces that live would stay with the process.
    """
    if len(data) < _MAPPED_BYTES:
        return memoryview(bytes(data))
    memory = mmap.mmap(-1, len(data))
    memory[:] = data
    return memoryview(memory)


def _no_reset_error(tp: TopicPartition, offset: int, rule: str) -> MinikafkaError:
    allowed = f"auto.offset.reset is {rule!r}: smallest or largest would choose one"
    if offset < 0:
        return NoCommittedOffset(f"no offset of {tp} was committed, and {allowed}")
    return BrokerError(
        ErrorCode.OFFSET_OUT_OF_RANGE, f"the log of {tp} does not have offset {offset}, and {allowed}"
    )


def _is_permanent(error: BrokerError) -> bool:
    """Whether it will be the same the next time, too. What we do not know may pass."""
    return not is_retriable(error) and error.code is not ErrorCode.UNKNOWN

"""The markers of ended transactions, sent to the leaders of their partitions until each has its own.

``send`` takes the markers of one transaction. Partitions that this broker leads get theirs at once, without
network. For each other broker there is a queue with a connection: one request is in flight, and the next one
has all markers that wait by then (``TransactionMarkerChannelManager`` of Kafka).

A partition without its marker is tried again after a pause, with the leader of that time: the leader moved,
too few replicas are in sync, or the broker did not answer. So a marker may be written twice, which does no
harm: the transaction stays as it is until all its partitions have theirs.

A partition where a newer epoch of the producer has written (INVALID_PRODUCER_EPOCH) needs no marker: its log
has no open transaction of this epoch, and takes no more batches of it. For the coordinator, no transaction of
a newer epoch begins before this one is complete, so the epoch is that of a stranger with the same producer
id. Kafka stops to send then, and the transactional id can never be used again. TRANSACTION_COORDINATOR_FENCED
is tried again: as a newer coordinator acts, this broker soon hears of it, and ``drop`` ends the sending.

A partition that the metadata cache does not know may be deleted, or this broker may not have heard of it yet.
Only ZooKeeper tells: Kafka takes it for deleted, and a missing marker would hold back the last stable offset
for good.

Threads: ``send`` and ``drop`` are called within a step, everything else outside. The lock here is taken
within steps, so no step runs under it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from minikafka.base.clock import NEVER_MS
from minikafka.base.errors import CoordinationError, CoordinationLost, ErrorCode, SessionExpired
from minikafka.base.ids import BrokerAddress, TopicPartition, numbers_by_topic
from minikafka.base.text import first_of
from minikafka.base.values import fast_value
from minikafka.net.interfaces import Connector
from minikafka.server.coordination.delayed_write import Timer
from minikafka.server.core.broker import Broker
from minikafka.server.inter_broker_connection import InterBrokerConnection, Peer, first_due_ms, step_all
from minikafka.server.transactions.marker_writer import (
    REPLICATION_TIMEOUT_MS,
    EndMarker,
    MarkerResults,
    MarkersWritten,
)
from minikafka.server.workers.work_pool import Steps
from minikafka.transactions.decisions import TxnMarkers
from minikafka.wire.apis.write_txn_markers import (
    WRITE_TXN_MARKERS,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_log = logging.getLogger(__name__)

AppendMarkers = Callable[[Sequence[EndMarker], MarkersWritten], Steps]
"""``MarkerWriter.write``."""

RETRY_MS = 100
"""The pause before the first retry; it doubles up to the next one."""
MAX_RETRY_MS = 1_000
PARTITIONS_PER_REQUEST = 2_000
PARTITIONS_HERE = 50
"""Up to so many markers are appended on the thread that brings them, more in the pool."""
_TIMEOUT_MS = REPLICATION_TIMEOUT_MS + 10_000
"""The limit for a response, which comes once all partitions have a result."""
_VERSION = 1
_RETRIES_REPORTED = 8
"""A partition is reported after so many retries, and then each time that their number has doubled."""

_WRITTEN = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""Results after which a partition needs no marker any more: a log of old messages has no transactions."""

_UNKNOWN_PARTITION = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

Results = Mapping[TopicPartition, int]


class _Sending:
    """The markers of one transaction on their way. Transactions of one producer may have equal markers."""

    __slots__ = ("is_over", "left", "markers")

    def __init__(self, markers: TxnMarkers) -> None:
        self.markers = markers
        self.left = set(markers.partitions)
        """The partitions that need their marker. Nothing is sent to others."""
        self.is_over = False
        """True once nothing more is sent: none is left, or the markers were dropped."""


@fast_value
class _Entry:
    """Partitions that need the marker of one transaction, and how often they were tried."""

    sending: _Sending
    partitions: Sequence[TopicPartition]
    retries: int = 0


class TxnMarkerQueue(InterBrokerConnection):
    """The markers for the partitions that one broker leads, and the connection that sends them."""

    def __init__(self, sender: TransactionMarkerSender, address: BrokerAddress, connector: Connector) -> None:
        broker = sender.broker
        client_id = f"broker-{broker.broker_id}-transactions"
        super().__init__(Peer(address, connector, client_id), broker.clock, _TIMEOUT_MS)
        self._sender = sender
        self._failures = 0
        """Failed requests since the last response."""
        self._is_denied = False
        self.waiting: deque[_Entry] = deque()
        """Changed under the sender's lock, as the next one."""
        self.in_flight: list[_Entry] = []

    def take_all(self) -> list[_Entry]:
        """Remove and return all markers, those in flight too. Called under the sender's lock."""
        entries = [*self.in_flight, *self.waiting]
        self.in_flight = []
        self.waiting.clear()
        return entries

    def take_batch(self) -> list[_Entry]:
        """Move the markers of the next request to ``in_flight``, and return them. Called under the sender's
        lock.

        A response names producers, so each has at most one marker in a request.
        """
        batch: list[_Entry] = []
        later: list[_Entry] = []
        producers: dict[int, _Sending] = {}
        room = PARTITIONS_PER_REQUEST
        while self.waiting and room > 0:
            entry = self.waiting.popleft()
            sending = entry.sending
            if sending.is_over:
                continue
            if producers.setdefault(sending.markers.producer_id, sending) is not sending:
                later.append(entry)
                continue
            partitions = [key for key in entry.partitions if key in sending.left]
            if len(partitions) > room:
                self.waiting.appendleft(_Entry(sending, partitions[room:], entry.retries))
                del partitions[room:]
            if partitions:
                batch.append(_Entry(sending, partitions, entry.retries))
                room -= len(partitions)
        self.waiting.extendleft(reversed(later))
        self.in_flight = batch
        return batch

    def step(self) -> bool:
        if self._is_stranded():
            self._fail("it has left the cluster, or has another address")
            return True
        return super().step()

    def due_ms(self) -> int:
        return 0 if self._is_stranded() else super().due_ms()

    def _is_stranded(self) -> bool:
        """Return whether markers wait for a broker that is gone: they belong to other leaders by now."""
        address = self.peer.address
        has_markers = bool(self.in_flight or self.waiting)
        return has_markers and self._sender.addresses().get(address.broker_id) != address

    def ask(self) -> bool:
        batch = self._sender.next_batch(self)
        if not batch:
            return False
        self.peer.send(WRITE_TXN_MARKERS, _VERSION, _request(batch))
        return True

    def next_ms(self) -> int:
        return 0 if self.waiting else NEVER_MS

    def take(self, response: WriteTxnMarkersResponse) -> None:
        self._failures = 0
        results: dict[int, dict[TopicPartition, int]] = {}
        for row in response.markers:
            codes = results.setdefault(row.producer_id, {})
            for topic in row.topics:
                for part in topic.partitions:
                    codes[TopicPartition(topic.name, part.partition_index)] = part.error_code
        self._check_rights(results.values())
        self._sender.answered(self, results)

    def _check_rights(self, results: Iterable[Results]) -> None:
        denied = any(ErrorCode.CLUSTER_AUTHORIZATION_FAILED in codes.values() for codes in results)
        if denied and not self._is_denied:
            _log.warning(
                "%s denies the markers of transactions, retrying: make this broker a super user there, or "
                "allow it ClusterAction",
                self.peer.address,
            )
        self._is_denied = denied
        if denied:
            self._not_before_ms = self.clock.monotonic_ms() + MAX_RETRY_MS

    def failed(self, reason: str) -> int:
        self._failures += 1
        self._sender.failed(self)
        return _pause_ms(self._failures - 1)


class TransactionMarkerSender:
    """Sends the markers of a broker's transactions.

    ``spawn`` runs a connection on a thread; with None the caller (a simulation) calls ``step``.
    """

    def __init__(
        self,
        broker: Broker,
        connector: Connector,
        spawn: Callable[[InterBrokerConnection, str], None] | None,
        append_markers: AppendMarkers,
    ) -> None:
        """``append_markers``: appends to the partitions that this broker leads."""
        self.broker = broker
        self._connector = connector
        self._spawn = spawn
        self._append_markers = append_markers
        self.written: Callable[[TxnMarkers, Collection[TopicPartition]], None]
        """Called, outside of a step, with the partitions that have their marker or need none. Must be set
        before the first ``send``."""
        self._lock = threading.Lock()
        self._sendings: dict[int, _Sending] = {}
        """All that are not over, by ``id``."""
        self._arrived: list[_Entry] = []
        """Entries that still have to find their leaders."""
        self._queues: dict[int, TxnMarkerQueue] = {}
        """Broker id -> the queue of its markers."""
        self._unknown: list[_Entry] = []
        """Partitions that may be deleted."""
        self._is_checking = False
        """True while a job for ``_unknown`` is queued or runs."""
        self._stopped = False

    def addresses(self) -> Mapping[int, BrokerAddress]:
        """Return the addresses of the live brokers."""
        return self.broker.metadata_cache.addresses(self.broker.config.inter_broker.listener)

    # --- for the coordinator --------------------------------------------------------------------------------

    def send(self, markers: TxnMarkers) -> None:
        """Bring markers to their partitions. Called within a step; they are sent after it."""
        sending = _Sending(markers)
        with self._lock:
            if self._stopped:
                return
            self._sendings[id(sending)] = sending
            self._arrived.append(_Entry(sending, ()))
        self.broker.after(self._send_arrived)

    def drop(self, is_dropped: Callable[[TxnMarkers], bool]) -> None:
        """Stop sending markers that ``is_dropped`` names, as another broker coordinates them. Called within
        a step. Those in flight may still be written.
        """
        with self._lock:
            for sending in list(self._sendings.values()):
                if is_dropped(sending.markers):
                    self._end(sending)

    def partitions_deleted(self, deleted: Iterable[TopicPartition]) -> None:
        """Send nothing more to deleted partitions, as a new topic may have their names: its transactions must
        not get the markers of former ones. Called within a step. They are not reported as written.
        """
        partitions = frozenset(deleted)
        with self._lock:
            for sending in list(self._sendings.values()):
                self._remove(sending, partitions)

    def _remove(self, sending: _Sending, partitions: Collection[TopicPartition]) -> None:
        """Remove partitions that need no marker any more. Called under the lock."""
        sending.left.difference_update(partitions)
        if not sending.left:
            self._end(sending)

    def _end(self, sending: _Sending) -> None:
        """Send nothing more. Called under the lock."""
        sending.is_over = True
        self._sendings.pop(id(sending), None)

    def _send_arrived(self) -> None:
        with self._lock:
            arrived, self._arrived = self._arrived, []
        # Sorted here, outside of the step, as a transaction may have thousands of partitions.
        self._route([_Entry(entry.sending, sorted(entry.sending.markers.partitions)) for entry in arrived])

    # --- leaders --------------------------------------------------------------------------------------------

    def _route(self, entries: Iterable[_Entry]) -> None:
        """Pass markers on to the leaders of their partitions."""
        by_leader: dict[int | None, list[_Entry]] = {}
        for entry in entries:
            if entry.sending.is_over:
                continue
            parts: dict[int | None, list[TopicPartition]] = {}
            for topic_partition in filter(entry.sending.left.__contains__, entry.partitions):
                leadership = self.broker.leadership(topic_partition)
                leader = None if leadership is None else leadership.leader
                parts.setdefault(leader, []).append(topic_partition)
            for leader, partitions in parts.items():
                by_leader.setdefault(leader, []).append(_Entry(entry.sending, partitions, entry.retries))
        unknown, here = by_leader.pop(None, []), by_leader.pop(self.broker.broker_id, [])
        self._retry(self._enqueue(by_leader))
        if unknown:
            self._check_existence(unknown)
        for entry in here:
            self._append_here(entry)

    def _enqueue(self, by_leader: Mapping[int | None, list[_Entry]]) -> list[_Entry]:
        """Append markers to the queues of brokers; return those of brokers that are not there."""
        addresses = self.addresses()
        homeless: list[_Entry] = []
        with self._lock:
            if self._stopped:
                return []
            for broker_id, queue in list(self._queues.items()):
                if addresses.get(broker_id) != queue.peer.address:
                    homeless += self._close(broker_id)
            for leader, entries in by_leader.items():
                address = None if leader is None else addresses.get(leader)
                if address is None:
                    homeless += entries
                else:
                    queue = self._queue_to(address)
                    queue.waiting += entries
                    queue.wake()
        return homeless

    def _queue_to(self, address: BrokerAddress) -> TxnMarkerQueue:
        queue = self._queues.get(address.broker_id)
        if queue is None:
            queue = TxnMarkerQueue(self, address, self._connector)
            self._queues[address.broker_id] = queue
            if self._spawn is not None:
                self._spawn(queue, f"markers-to-{address.broker_id}")
        return queue

    def _close(self, broker_id: int) -> list[_Entry]:
        """Close the queue to a broker, and return its markers."""
        queue = self._queues.pop(broker_id)
        queue.stop()
        return queue.take_all()

    def _append_here(self, entry: _Entry) -> None:
        """Append markers to partitions of this broker."""
        marker = end_marker(entry.sending.markers, entry.partitions)

        def written(results: Sequence[MarkerResults]) -> None:
            self._settle([(entry, results[0])])

        steps = self._append_markers([marker], written)
        if len(entry.partitions) > PARTITIONS_HERE:
            self.broker.pool.submit(steps)
        else:
            for _ in steps:
                pass

    # --- results --------------------------------------------------------------------------------------------

    def next_batch(self, queue: TxnMarkerQueue) -> list[_Entry]:
        """Return the markers of the next request of a queue."""
        with self._lock:
            return queue.take_batch()

    def answered(self, queue: TxnMarkerQueue, results: Mapping[int, Results]) -> None:
        """Process the response to the request in flight: producer id -> results."""
        with self._lock:
            entries, queue.in_flight = queue.in_flight, []
        self._settle([(entry, results.get(entry.sending.markers.producer_id, {})) for entry in entries])

    def failed(self, queue: TxnMarkerQueue) -> None:
        """Look for the leaders again, as a broker cannot be reached: they may have moved."""
        with self._lock:
            entries = queue.take_all()
        self._retry(entries)

    def _settle(self, outcomes: Iterable[tuple[_Entry, Results]]) -> None:
        """Report the partitions that are done, and try the others again."""
        again: list[_Entry] = []
        done: list[tuple[TxnMarkers, list[TopicPartition]]] = []
        for entry, results in outcomes:
            sending = entry.sending
            written: list[TopicPartition] = []
            left: list[TopicPartition] = []
            for topic_partition in filter(sending.left.__contains__, entry.partitions):
                code = results.get(topic_partition, ErrorCode.UNKNOWN)
                if code == ErrorCode.INVALID_PRODUCER_EPOCH:
                    _report_fenced(sending.markers, topic_partition)
                (written if code in _WRITTEN else left).append(topic_partition)
            if sending.is_over:
                continue
            if left:
                again.append(_Entry(sending, left, entry.retries))
                _report(again[-1], results)
            if written:
                with self._lock:
                    self._remove(sending, written)
                done.append((sending.markers, written))
        self._retry(again)
        for markers, partitions in done:
            self.written(markers, partitions)

    def _retry(self, entries: Iterable[_Entry]) -> None:
        """Try markers again, each after its pause."""
        by_pause: dict[int, list[_Entry]] = {}
        for entry in entries:
            if not entry.sending.is_over:
                again = _Entry(entry.sending, entry.partitions, entry.retries + 1)
                by_pause.setdefault(_pause_ms(entry.retries), []).append(again)
        if not by_pause or self._stopped:
            return
        broker = self.broker
        now_ms = broker.clock.monotonic_ms()

        def step() -> None:
            for pause_ms, later in by_pause.items():
                due_ms = now_ms + pause_ms
                broker.wait(Timer(due_ms, partial(self._ring, later)), [], due_ms)

        broker.run(step)

    def _ring(self, entries: list[_Entry], timer: Timer) -> None:
        # A broker that stops ends all waiting before its time.
        if self.broker.clock.monotonic_ms() >= timer.deadline_ms:
            self._route(entries)

    # --- deleted partitions ---------------------------------------------------------------------------------

    def _check_existence(self, entries: list[_Entry]) -> None:
        """Find out from ZooKeeper whether partitions are deleted."""
        with self._lock:
            self._unknown += entries
            if self._is_checking:
                return
            self._is_checking = True
        self.broker.worker.submit(self._look_in_zookeeper)

    def _look_in_zookeeper(self) -> None:
        """Count deleted partitions as written, and try the others again. A job: may be run twice."""
        with self._lock:
            entries = list(self._unknown)
        named = {topic_partition for entry in entries for topic_partition in entry.partitions}
        deleted: Collection[TopicPartition] = ()
        try:
            deleted = self.broker.zk_client.topics.missing(named)
        except (CoordinationLost, SessionExpired):
            raise
        except CoordinationError as error:
            _log.warning("failed to look up %s, retrying: %s", first_of(sorted(named), 3), error)
        with self._lock:
            del self._unknown[: len(entries)]
            self._is_checking = bool(self._unknown)
        if deleted:
            _log.info("no markers for deleted partitions: %s", first_of(sorted(deleted), 3))
        results = {
            topic_partition: ErrorCode.NONE if topic_partition in deleted else _UNKNOWN_PARTITION
            for topic_partition in named
        }
        self._settle([(entry, results) for entry in entries])
        if self._is_checking:
            self.broker.worker.submit(self._look_in_zookeeper)

    # --- connections ----------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Run one step of each connection. Return True if any had work."""
        return step_all(self._queues.values())

    def due_ms(self) -> int:
        """Return the time (monotonic) before which ``step`` has no work if nothing is delivered."""
        return first_due_ms(self._queues.values())

    def stop(self) -> None:
        """Send nothing more. Called before the broker stops to wait (``Broker.stop_waiting``)."""
        with self._lock:
            self._stopped = True
            for broker_id in list(self._queues):
                self._close(broker_id)
            for sending in self._sendings.values():
                sending.is_over = True
            self._sendings.clear()


def end_marker(markers: TxnMarkers, partitions: Sequence[TopicPartition]) -> EndMarker:
    """Return the marker of a transaction for some of its partitions."""
    return EndMarker(
        markers.producer_id,
        markers.producer_epoch,
        markers.coordinator_epoch,
        markers.commit,
        tuple(partitions),
    )


def _request(batch: Sequence[_Entry]) -> WriteTxnMarkersRequest:
    """Return the request with the markers of a batch, one for each transaction."""
    partitions: dict[int, list[TopicPartition]] = {}
    markers: dict[int, TxnMarkers] = {}
    for entry in batch:
        key = id(entry.sending)
        markers[key] = entry.sending.markers
        partitions.setdefault(key, []).extend(entry.partitions)
    return WriteTxnMarkersRequest(
        tuple(
            WritableTxnMarker(
                txn.producer_id,
                txn.producer_epoch,
                txn.commit,
                tuple(
                    WritableTxnMarkerTopic(topic, tuple(numbers))
                    for topic, numbers in numbers_by_topic(partitions[key]).items()
                ),
                txn.coordinator_epoch,
            )
            for key, txn in markers.items()
        )
    )


def _pause_ms(retries: int) -> int:
    """Return the pause before the next attempt, after so many retries."""
    return min(RETRY_MS << min(retries, 10), MAX_RETRY_MS)


def _report_fenced(markers: TxnMarkers, topic_partition: TopicPartition) -> None:
    """Log that somebody else has fenced the producer of a transaction."""
    _log.warning(
        "no marker of transactional id %r for %s: a newer epoch than %d of producer %d wrote there, not "
        "by its coordinator; if the producer is fenced, initialize it again",
        markers.transactional_id,
        topic_partition,
        markers.producer_epoch,
        markers.producer_id,
    )


def _report(entry: _Entry, results: Results) -> None:
    """Log partitions that have been without their marker for long."""
    retries = entry.retries
    if retries < _RETRIES_REPORTED or retries & (retries - 1):
        return
    first = entry.partitions[0]
    code = results.get(first, ErrorCode.UNKNOWN)
    _log.warning(
        "the transaction of %r is not complete after %d retries, retrying: %s of %s",
        entry.sending.markers.transactional_id,
        retries,
        ErrorCode(code).name,
        first_of(entry.partitions, 3),
    )

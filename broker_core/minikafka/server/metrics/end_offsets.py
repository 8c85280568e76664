"""The ends of partitions that other brokers lead, for the lag of groups that this broker coordinates.

They are asked for while a scrape waits, all brokers at the same time, and at most once in ``FRESH_MS``. A
broker that does not answer in time is not asked again before it has; what it said last counts for
``KNOWN_MS``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait

from minikafka.base.errors import MinikafkaError, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.net.interfaces import Connector
from minikafka.server.core.broker import Broker
from minikafka.server.inter_broker_connection import Peer
from minikafka.server.inter_broker_connector import CLIENT_ID
from minikafka.wire.api import partitions_of
from minikafka.wire.apis.list_offsets import LATEST, LIST_OFFSETS, found_offset, offsets_request

_log = logging.getLogger(__name__)

FRESH_MS = 1_000
"""The time for which answers are used again."""
KNOWN_MS = 60_000
"""The time after which an answer does not count any more."""
TIMEOUT_MS = 1_500
"""The longest wait for all brokers together. A scrape usually has ten seconds."""
_THREADS = 8
"""The most brokers that are asked at the same time."""


class EndOffsets:
    """Looks up the ends of partitions, high watermarks, wherever their leaders are. Thread-safe."""

    def __init__(self, broker: Broker, connector: Connector) -> None:
        self._broker = broker
        self._connector = connector
        self._lock = threading.Lock()
        self._peers: dict[int, Peer] = {}
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="end-offsets")
        self._asking: dict[int, Future[Mapping[TopicPartition, int]]] = {}
        """Broker -> the request that it has not answered yet."""
        self._known: dict[TopicPartition, tuple[int, int]] = {}
        """Partition -> its end, and when it was asked for (monotonic ms)."""

    def of(self, committed: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the end of each partition that is known.

        committed: for each the largest offset that is compared with it. An end before that is asked for anew.
        """
        broker, found, elsewhere = self._broker, dict[TopicPartition, int](), dict[TopicPartition, int]()
        for topic_partition, offset in committed.items():
            partition = broker.partitions.get(topic_partition)
            if partition is not None and partition.is_leader:
                found[topic_partition] = partition.high_watermark
            else:
                elsewhere[topic_partition] = offset
        if elsewhere:
            with self._lock:
                self._ask(elsewhere)
                oldest_ms = broker.clock.monotonic_ms() - KNOWN_MS
                self._known = {tp: pair for tp, pair in self._known.items() if pair[1] >= oldest_ms}
                found |= {tp: self._known[tp][0] for tp in elsewhere if tp in self._known}
        return found

    def close(self) -> None:
        """Close the connections."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            for peer in self._peers.values():
                peer.close()

    def _ask(self, committed: Mapping[TopicPartition, int]) -> None:
        now_ms = self._broker.clock.monotonic_ms()
        by_leader: dict[int, list[TopicPartition]] = {}
        metadata = self._broker.metadata_cache
        for topic_partition, offset in committed.items():
            leadership = metadata.leadership(topic_partition)
            if leadership is None:
                self._known.pop(topic_partition, None)
            elif leadership.leader >= 0 and self._is_old(topic_partition, offset, now_ms):
                by_leader.setdefault(leadership.leader, []).append(topic_partition)
        by_leader.pop(self._broker.broker_id, None)
        for leader, asked in by_leader.items():
            if leader not in self._asking:
                self._asking[leader] = self._pool.submit(self._ask_leader, leader, asked)
        wait([self._asking[leader] for leader in by_leader], TIMEOUT_MS / 1000)
        for leader in [leader for leader, future in self._asking.items() if future.done()]:
            try:
                found = self._asking.pop(leader).result()
            except MinikafkaError as error:
                _log.debug("no end offsets from broker %d: %s", leader, error)
            else:
                self._known |= {tp: (end, now_ms) for tp, end in found.items()}

    def _is_old(self, topic_partition: TopicPartition, committed: int, now_ms: int) -> bool:
        end, asked_ms = self._known.get(topic_partition, (-1, 0))
        return end < committed or end < 0 or now_ms - asked_ms >= FRESH_MS

    def _ask_leader(self, leader: int, partitions: list[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the ends that a broker knows. Raises MinikafkaError."""
        peer = self._peer(leader)
        if not peer.negotiated:
            peer.negotiate()
            peer.answer(TIMEOUT_MS)
        version = peer.version(LIST_OFFSETS)
        peer.send(LIST_OFFSETS, version, offsets_request(dict.fromkeys(partitions, LATEST)))
        response = peer.answer(TIMEOUT_MS)
        offsets = {
            tp: found_offset(part, version)
            for tp, part in partitions_of(response.topics)
            if not part.error_code
        }
        return {tp: offset for tp, offset in offsets.items() if offset is not None}

    def _peer(self, broker_id: int) -> Peer:
        """Return the connection to a broker at its present address. Raises NetworkError if it has none."""
        listener = self._broker.config.inter_broker.listener
        address = self._broker.metadata_cache.addresses(listener).get(broker_id)
        if address is None:
            raise NetworkError(f"broker {broker_id} is not alive")
        peer = self._peers.get(broker_id)
        if peer is None or peer.address != address:
            if peer is not None:
                peer.close()
            peer = self._peers[broker_id] = Peer(address, self._connector, CLIENT_ID)
        return peer

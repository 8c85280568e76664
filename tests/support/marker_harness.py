"""A sender of transaction markers on simulated brokers, whose requests to other brokers a test answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

from minikafka.base.errors import ErrorCode, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.net.interfaces import Connection, PendingResponse
from minikafka.server.transactions.marker_writer import EndMarker, MarkersWritten
from minikafka.server.transactions.transaction_marker_sender import TransactionMarkerSender
from minikafka.server.workers.work_pool import Steps
from minikafka.transactions.decisions import TxnMarkers
from minikafka.wire.apis.write_txn_markers import WRITE_TXN_MARKERS, WriteTxnMarkersRequest
from minikafka.wire.frame_parts import Part, join
from minikafka.wire.framing import RequestHeader, response_header
from tests.support import requests
from tests.support.simulation import Simulation
from tests.support.transaction_requests import markers_response

PROPERTIES = {"auto.leader.rebalance.enable": "false", "offsets.topic.num.partitions": "1"}

Codes = Callable[[TopicPartition], ErrorCode]


class SentMarkers:
    """One request to another broker (``net.interfaces.PendingResponse``), which a test may answer."""

    def __init__(self, host: str, request: WriteTxnMarkersRequest, correlation_id: int, version: int) -> None:
        self.host = host
        self.request = request
        self._frame: memoryview | None = None
        self._is_broken = False
        self._header = correlation_id, version

    @property
    def partitions(self) -> list[tuple[int, str]]:
        """Producer id and partition of each marker, in order."""
        return [
            (marker.producer_id, f"{topic.name}-{number}")
            for marker in self.request.markers
            for topic in marker.topics
            for number in topic.partition_indexes
        ]

    def answer(self, codes: Codes) -> None:
        """Answer with a code for each partition."""
        correlation_id, version = self._header
        header = response_header(correlation_id, WRITE_TXN_MARKERS.has_tagged_response_header(version))
        body = WRITE_TXN_MARKERS.encode_response(version, markers_response(self.request, codes))
        self._frame = memoryview(bytearray(join([header, *body])))

    def break_off(self) -> None:
        """Break the connection before the response."""
        self._is_broken = True

    def done(self) -> bool:
        return self._frame is not None or self._is_broken

    def result(self, timeout_ms: int | None = None) -> memoryview:
        if self._frame is None:
            raise NetworkError("connection reset", self.host)
        return self._frame


class _FakeConnection:
    session_end_ms = None
    closed = False

    def __init__(self, peers: MarkerPeers, host: str) -> None:
        self.peer = host
        self._peers = peers

    def request(self, parts: Sequence[Part], max_response_bytes: int | None = None) -> PendingResponse:
        header, body = RequestHeader.decode(memoryview(bytearray(join(parts))))
        assert header.api_key == WRITE_TXN_MARKERS.key
        request = WRITE_TXN_MARKERS.decode_request(header.api_version, body)
        sent = SentMarkers(self.peer, request, header.correlation_id, header.api_version)
        self._peers.sent.append(sent)
        if self._peers.codes is not None:
            sent.answer(self._peers.codes)
        return sent

    def close(self, drain_ms: int = 0) -> None:
        self.closed = True

    def abort(self) -> None:
        self.close()


class MarkerPeers:
    """The connector of the sender. ``codes``: the answer to all requests; None: the test answers."""

    def __init__(self) -> None:
        self.sent: list[SentMarkers] = []
        self.codes: Codes | None = lambda topic_partition: ErrorCode.NONE
        self.refusing = False
        """True to refuse connections."""

    def connect(self, host: str, port: int) -> Connection:
        if self.refusing:
            raise NetworkError("connection refused", host)
        return cast(Connection, _FakeConnection(self, host))

    def wait_any(self, pending: Sequence[PendingResponse], timeout_ms: int) -> bool:
        raise AssertionError("the sender runs without threads")


class MarkerHarness:
    """Three brokers; partition p of topic t is on brokers p % 3 and (p + 1) % 3, and led by the first.

    The sender is that of broker 0. ``written`` are the partitions that it has reported, in order.
    """

    def __init__(self, partitions: int = 3, **properties: str) -> None:
        self.world = Simulation()
        self.world.start_brokers(3, {**PROPERTIES, **properties})
        self.world.move_to_controller()
        replicas = [(p % 3, (p + 1) % 3) for p in range(partitions)]
        assert self.world.call(requests.place_topic("t", *replicas)).topics[0].error_code == 0
        self.world.settle()
        self.peers = MarkerPeers()
        self.written: list[tuple[int, TopicPartition]] = []
        self.local: list[EndMarker] = []
        """The markers for partitions of broker 0."""
        self.local_codes: Codes | None = lambda topic_partition: ErrorCode.NONE
        self.broker = self.world.machine.broker
        self.sender = TransactionMarkerSender(self.broker, self.peers, None, self._append)
        self.sender.written = self._written

    def _append(self, markers: Sequence[EndMarker], done: MarkersWritten) -> Steps:
        self.local += markers
        codes = self.local_codes
        assert codes is not None
        done([{key: codes(key) for key in marker.partitions} for marker in markers])
        yield 0

    def _written(self, markers: TxnMarkers, partitions: Collection[TopicPartition]) -> None:
        self.broker.run(lambda: None)  # it is no step
        self.written += [(markers.producer_id, partition) for partition in partitions]

    def markers(
        self, *partitions: int, producer_id: int = 7, topic: str = "t", coordinator_epoch: int = 5
    ) -> TxnMarkers:
        """The markers of a transaction on partitions of a topic."""
        keys = frozenset(TopicPartition(topic, number) for number in partitions)
        return TxnMarkers(f"id-{producer_id}", producer_id, 3, True, coordinator_epoch, keys)

    def send(self, *markers: TxnMarkers) -> None:
        """Send markers in one step, and do all that needs no time."""

        def step() -> None:
            for txn in markers:
                self.sender.send(txn)

        self.broker.run(step)
        self.settle()

    def drop(self, is_dropped: Callable[[TxnMarkers], bool]) -> None:
        self.broker.run(lambda: self.sender.drop(is_dropped))

    def settle(self) -> None:
        """Do all that needs no time."""
        for _ in range(3):  # a timer of the housekeeper may submit a job, and that may set a timer
            while self.sender.step():
                pass
            self.world.settle()

    def advance(self, ms: int) -> None:
        self.world.clock.advance(ms)
        self.settle()

    def leader(self, partition: int) -> int:
        """The leader of a partition of t as broker 0 knows it."""
        leadership = self.broker.leadership(TopicPartition("t", partition))
        return -1 if leadership is None else leadership.leader

    def end_broker(self, number: int) -> None:
        """Kill a broker, and end its session."""
        machine = self.world.machine_of(number)
        store = machine.store
        machine.kill()
        self.world.zookeeper.expire(store)
        self.world.settle()

    def reported(self, *partitions: int, producer_id: int = 7) -> bool:
        """Return whether exactly these partitions of t were reported."""
        found: list[Any] = sorted(self.written)
        return found == [(producer_id, TopicPartition("t", number)) for number in partitions]

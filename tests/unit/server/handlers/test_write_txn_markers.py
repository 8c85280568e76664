"""WriteTxnMarkers: the response to the markers of a coordinator."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.base.acls import Operation
from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.server.context import RequestContext
from minikafka.server.handlers import write_txn_markers
from minikafka.server.security.authorization import CLUSTER_DENIED, Requester
from minikafka.server.security.transaction_authorizers import TRANSACTION_AUTHORIZERS
from minikafka.server.transactions.marker_writer import MarkerWriter
from minikafka.server.workers.work_pool import Steps
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.write_txn_markers import (
    WRITE_TXN_MARKERS,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from minikafka.wire.framing import RequestHeader, split_response
from tests.support.recorded_exchange import RecordedExchange
from tests.support.simulation import Simulation

E = ErrorCode
UNKNOWN = E.UNKNOWN_TOPIC_OR_PARTITION


Rows = list[tuple[int, list[tuple[str, int]]]]


class Leader:
    """A broker that leads t-0 and t-1."""

    def __init__(self) -> None:
        self.world = Simulation.serving("t", partitions=2)
        self.broker = self.world.machine.broker
        groups: Any = None
        self._writer = MarkerWriter(self.broker, groups)
        self.exchange = RecordedExchange()

    def begin(self, *markers: WritableTxnMarker, version: int = 1) -> Steps:
        """Return the steps of a request."""
        self.exchange.response = None
        header = RequestHeader(int(WRITE_TXN_MARKERS.key), version, 1, "test")
        context = RequestContext(header, WRITE_TXN_MARKERS, self.exchange)
        return write_txn_markers.handle(
            self.world.clock, self._writer, context, WriteTxnMarkersRequest(markers)
        )

    def call(self, *markers: WritableTxnMarker, version: int = 1) -> Rows:
        """Serve a request; return its response, see ``codes``."""
        return self.finish(self.begin(*markers, version=version), version=version)

    def finish(self, steps: Steps, *, version: int = 1) -> Rows:
        """Run the other steps of a request; return its response, see ``codes``."""
        for need_bytes in steps:
            assert need_bytes >= 0
        api = WRITE_TXN_MARKERS
        _, body = split_response(self.exchange.frame, api.has_tagged_response_header(version))
        return codes(api.decode_response(version, body))

    def end_offset(self, number: int) -> int:
        return self.broker.partitions[TopicPartition("t", number)].log.end_offset


def codes(response: WriteTxnMarkersResponse) -> Rows:
    """Return the producer id of each row, with its partitions and their codes."""
    return [
        (
            row.producer_id,
            [
                (f"{topic.name}-{part.partition_index}", part.error_code)
                for topic in row.topics
                for part in topic.partitions
            ],
        )
        for row in response.markers
    ]


def marker(*numbers: int, producer_id: int = 7, epoch: int = 0, topic: str = "t") -> WritableTxnMarker:
    return WritableTxnMarker(producer_id, epoch, False, (WritableTxnMarkerTopic(topic, numbers),), 2)


@pytest.fixture
def leader() -> Leader:
    return Leader()


@pytest.mark.parametrize("version", [0, 1])
def test_each_partition_of_each_marker_has_its_result(leader: Leader, version: int) -> None:
    found = leader.call(
        marker(0, 5), marker(1, producer_id=8), marker(0, producer_id=9, topic="u"), version=version
    )
    assert found == [
        (7, [("t-0", E.NONE), ("t-5", UNKNOWN)]),
        (8, [("t-1", E.NONE)]),
        (9, [("u-0", UNKNOWN)]),
    ]
    assert (leader.end_offset(0), leader.end_offset(1)) == (1, 1)


def test_partition_that_is_named_again_gets_one_marker(leader: Leader) -> None:
    assert leader.call(marker(0, 0)) == [(7, [("t-0", E.NONE), ("t-0", E.NONE)])]
    assert leader.end_offset(0) == 1


def test_markers_of_one_producer_have_their_own_results(leader: Leader) -> None:
    assert leader.call(marker(0, epoch=2), marker(0, epoch=1)) == [
        (7, [("t-0", E.NONE)]),
        (7, [("t-0", E.INVALID_PRODUCER_EPOCH)]),
    ]


def test_marker_without_a_producer_is_invalid(leader: Leader) -> None:
    assert leader.call(marker(0, producer_id=-1), marker(1)) == [
        (-1, [("t-0", E.INVALID_REQUEST)]),
        (7, [("t-1", E.NONE)]),
    ]
    assert leader.end_offset(0) == 0


def test_negative_epoch_is_refused(leader: Leader) -> None:
    assert leader.call(marker(0, epoch=-1)) == [(7, [("t-0", E.INVALID_PRODUCER_EPOCH)])]
    assert leader.end_offset(0) == 0


def test_request_that_its_sender_gave_up_writes_nothing(leader: Leader) -> None:
    leader.exchange.is_abandoned = True
    assert leader.call(marker(0, 1)) == [(7, [("t-0", E.REQUEST_TIMED_OUT), ("t-1", E.REQUEST_TIMED_OUT)])]
    assert leader.end_offset(0) == 0


@pytest.mark.parametrize(
    ("waited_ms", "error", "written"), [(20_000, E.NONE, 1), (20_001, E.REQUEST_TIMED_OUT, 0)]
)
def test_request_that_waited_too_long_writes_nothing(
    leader: Leader, waited_ms: int, error: ErrorCode, written: int
) -> None:
    """Its sender waits for up to 30 s, then sends the markers again."""
    steps = leader.begin(marker(0))
    next(steps)
    leader.world.clock.advance(waited_ms)
    assert leader.finish(steps) == [(7, [("t-0", error)])]
    assert leader.end_offset(0) == written


def test_request_without_markers_has_an_empty_response(leader: Leader) -> None:
    assert leader.call() == []


def refusal(*allowed: Operation) -> WriteTxnMarkersResponse | None:
    """Return the response to a client with these rights on the cluster; None if it may write markers."""
    requester = Requester(
        lambda operation, kind, name: operation in allowed, lambda *_: False, lambda topic_id: None
    )
    authorize = TRANSACTION_AUTHORIZERS[ApiKey.WRITE_TXN_MARKERS]
    result = authorize(requester, 1, WriteTxnMarkersRequest((marker(0, 1), marker(1, producer_id=8))))
    if result is None:
        return None
    assert result.request is None
    found: WriteTxnMarkersResponse = result.answer(None)
    return found


@pytest.mark.parametrize("operation", [Operation.CLUSTER_ACTION, Operation.ALTER])
def test_brokers_and_administrators_may_write_markers(operation: Operation) -> None:
    assert refusal(operation) is None


def test_markers_of_other_clients_are_denied() -> None:
    response = refusal(Operation.DESCRIBE, Operation.IDEMPOTENT_WRITE)
    assert response is not None
    assert codes(response) == [
        (7, [("t-0", CLUSTER_DENIED), ("t-1", CLUSTER_DENIED)]),
        (8, [("t-1", CLUSTER_DENIED)]),
    ]

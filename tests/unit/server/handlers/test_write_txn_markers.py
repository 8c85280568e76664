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


class Leader:
    """A broker that leads t-0 and t-1."""

    def __init__(self) -> None:
        self.world = Simulation.serving("t", partitions=2)
        self.broker = self.world.machine.broker
        groups: Any = None
        self._writer = MarkerWriter(self.broker, groups)

    def call(self, *markers: WritableTxnMarker, version: int = 1) -> list[tuple[int, list[tuple[str, int]]]]:
        """Return the producer id of each row of the response, with its partitions and their codes."""
        api, exchange = WRITE_TXN_MARKERS, RecordedExchange()
        header = RequestHeader(int(api.key), version, 1, "test")
        context = RequestContext(header, api, exchange)
        for need_bytes in write_txn_markers.handle(self._writer, context, WriteTxnMarkersRequest(markers)):
            assert need_bytes >= 0
        _, body = split_response(exchange.frame, api.has_tagged_response_header(version))
        return codes(api.decode_response(version, body))

    def end_offset(self, number: int) -> int:
        return self.broker.partitions[TopicPartition("t", number)].log.end_offset


def codes(response: WriteTxnMarkersResponse) -> list[tuple[int, list[tuple[str, int]]]]:
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

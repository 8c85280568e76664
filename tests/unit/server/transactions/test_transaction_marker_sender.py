"""The markers of transactions on their way: who gets them, when they are sent again, and when no more."""

from __future__ import annotations

import pytest

from minikafka.base.clock import NEVER_MS
from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.server.transactions import transaction_marker_sender
from tests.support import requests
from tests.support.marker_harness import Codes, MarkerHarness

E = ErrorCode


@pytest.fixture
def harness() -> MarkerHarness:
    return MarkerHarness()


def fails(*partitions: int, error: ErrorCode) -> Codes:
    """An error for these partitions, none for others."""
    return lambda key: error if key.partition in partitions else E.NONE


def hosts(harness: MarkerHarness) -> list[str]:
    return [sent.host for sent in harness.peers.sent]


def test_each_leader_gets_the_markers_of_its_partitions(harness: MarkerHarness) -> None:
    harness.send(harness.markers(0, 1, 2))
    assert [marker.partitions for marker in harness.local] == [(TopicPartition("t", 0),)]
    assert [(sent.host, sent.partitions) for sent in harness.peers.sent] == [
        ("machine-1", [(7, "t-1")]),
        ("machine-2", [(7, "t-2")]),
    ]
    assert harness.reported(0, 1, 2)
    assert harness.sender.due_ms() == NEVER_MS


def test_marker_has_the_fields_of_its_transaction(harness: MarkerHarness) -> None:
    harness.send(harness.markers(0, 1))
    (marker,) = harness.peers.sent[0].request.markers
    assert (marker.producer_epoch, marker.transaction_result, marker.coordinator_epoch) == (3, True, 5)
    (local,) = harness.local
    assert (local.producer_id, local.producer_epoch, local.commit, local.coordinator_epoch) == (7, 3, True, 5)


def test_waiting_markers_of_a_broker_share_the_next_request(harness: MarkerHarness) -> None:
    harness.peers.codes = None
    for producer_id in (7, 8, 9):
        harness.send(harness.markers(1, producer_id=producer_id))
    (first,) = harness.peers.sent
    first.answer(fails(error=E.NONE))
    harness.settle()
    assert harness.peers.sent[1].partitions == [(8, "t-1"), (9, "t-1")]
    assert harness.reported(1)


@pytest.mark.parametrize(
    "error",
    [
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.NOT_LEADER_FOR_PARTITION,
        E.NOT_ENOUGH_REPLICAS,
        E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        E.REQUEST_TIMED_OUT,
        E.KAFKA_STORAGE_ERROR,
        E.TRANSACTION_COORDINATOR_FENCED,
        E.UNKNOWN,
    ],
)
@pytest.mark.parametrize("partition", [0, 1])
def test_partition_with_an_error_is_tried_again(
    harness: MarkerHarness, error: ErrorCode, partition: int
) -> None:
    harness.peers.codes = harness.local_codes = fails(partition, error=error)
    harness.send(harness.markers(0, 1))
    assert harness.reported(1 - partition)
    harness.peers.codes = harness.local_codes = fails(error=E.NONE)
    harness.advance(99)
    assert harness.reported(1 - partition)
    harness.advance(1)
    assert harness.reported(0, 1)
    assert len(harness.local) + len(harness.peers.sent) == 3


def test_pauses_between_retries_grow_to_a_second(harness: MarkerHarness) -> None:
    harness.local_codes = fails(0, error=E.NOT_ENOUGH_REPLICAS)
    harness.send(harness.markers(0))
    tried: list[int] = []
    for now_ms in range(0, 4_000, 50):
        if len(harness.local) > len(tried) + 1:
            tried.append(now_ms)
        harness.advance(50)
    assert tried == [100, 300, 700, 1_500, 2_500, 3_500]


def test_retry_looks_up_the_leader_again(harness: MarkerHarness) -> None:
    harness.peers.codes = fails(1, error=E.NOT_LEADER_FOR_PARTITION)
    harness.send(harness.markers(1))
    harness.end_broker(1)
    harness.peers.codes = fails(error=E.NONE)
    harness.advance(100)
    assert harness.leader(1) == 2
    assert hosts(harness) == ["machine-1", "machine-2"]
    assert harness.reported(1)


def test_partition_that_moves_here_needs_no_network(harness: MarkerHarness) -> None:
    harness.peers.codes = fails(2, error=E.NOT_LEADER_FOR_PARTITION)
    harness.send(harness.markers(2))
    harness.end_broker(2)
    harness.advance(100)
    assert [marker.partitions for marker in harness.local] == [(TopicPartition("t", 2),)]
    assert harness.reported(2)


@pytest.mark.parametrize("code", [E.UNSUPPORTED_FOR_MESSAGE_FORMAT, E.UNSUPPORTED_VERSION])
def test_partition_without_transactions_counts_as_written(harness: MarkerHarness, code: ErrorCode) -> None:
    harness.peers.codes = fails(1, error=code)
    harness.send(harness.markers(1))
    assert harness.reported(1)


def test_partition_of_a_newer_producer_counts_as_written(
    harness: MarkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.peers.codes = fails(1, error=E.INVALID_PRODUCER_EPOCH)
    harness.send(harness.markers(1, 2))
    assert harness.reported(1, 2)
    assert "no marker of transactional id 'id-7' for t-1: a newer epoch than 3 of producer 7" in caplog.text


def test_partition_of_a_newer_coordinator_is_tried_until_the_drop(harness: MarkerHarness) -> None:
    harness.peers.codes = fails(1, error=E.TRANSACTION_COORDINATOR_FENCED)
    harness.send(harness.markers(1, 2))
    assert harness.reported(2)
    for _ in range(3):
        harness.advance(1_000)
    sent = len(harness.peers.sent)
    assert sent == 2 + 3
    harness.drop(lambda markers: True)
    harness.advance(5_000)
    assert len(harness.peers.sent) == sent


def test_dropped_markers_are_not_sent_any_more(harness: MarkerHarness) -> None:
    harness.peers.codes = fails(1, error=E.NOT_ENOUGH_REPLICAS)
    harness.send(harness.markers(1), harness.markers(1, producer_id=8))
    harness.drop(lambda markers: markers.producer_id == 7)
    harness.peers.codes = fails(error=E.NONE)
    harness.advance(100)
    assert harness.peers.sent[-1].partitions == [(8, "t-1")]
    assert harness.reported(1, producer_id=8)


def test_response_to_dropped_markers_is_not_reported(harness: MarkerHarness) -> None:
    harness.peers.codes = None
    harness.send(harness.markers(1))
    harness.drop(lambda markers: True)
    harness.peers.sent[0].answer(fails(error=E.NONE))
    harness.settle()
    assert harness.written == []


def test_reloaded_coordinator_sends_equal_markers_anew(harness: MarkerHarness) -> None:
    harness.peers.codes = None
    former, newer = harness.markers(1, 2), harness.markers(1, 2)
    harness.send(former)
    harness.drop(lambda markers: markers is former)
    harness.send(newer)
    for sent in harness.peers.sent[:2]:
        sent.answer(fails(error=E.NONE))
    harness.peers.codes = fails(error=E.NONE)
    harness.settle()
    assert len(harness.peers.sent) == 4
    assert harness.reported(1, 2)


def test_producer_has_at_most_one_marker_in_a_request(harness: MarkerHarness) -> None:
    harness.peers.codes = None
    harness.send(harness.markers(1, producer_id=9))
    harness.send(
        harness.markers(1), harness.markers(1, coordinator_epoch=6), harness.markers(1, producer_id=8)
    )
    harness.peers.codes = fails(error=E.NONE)
    harness.peers.sent[0].answer(harness.peers.codes)
    harness.settle()
    assert [sent.partitions for sent in harness.peers.sent[1:]] == [[(7, "t-1"), (8, "t-1")], [(7, "t-1")]]
    assert [len(sent.request.markers) for sent in harness.peers.sent[1:]] == [2, 1]


def test_refused_connection_is_retried(harness: MarkerHarness) -> None:
    harness.peers.refusing = True
    harness.send(harness.markers(1))
    harness.advance(100)
    harness.peers.refusing = False
    harness.advance(200)
    assert harness.reported(1)


def test_markers_in_flight_are_sent_again_after_a_break(harness: MarkerHarness) -> None:
    harness.peers.codes = None
    harness.send(harness.markers(1))
    harness.send(harness.markers(1, producer_id=8))
    harness.peers.sent[0].break_off()
    harness.settle()
    harness.peers.codes = fails(error=E.NONE)
    harness.advance(100)
    assert harness.peers.sent[-1].partitions == [(7, "t-1"), (8, "t-1")]
    assert len(harness.written) == 2


def test_markers_for_a_dead_broker_go_to_the_next_leader(harness: MarkerHarness) -> None:
    harness.peers.codes = None
    harness.send(harness.markers(1))
    harness.end_broker(1)
    assert harness.sender.due_ms() == 0
    harness.settle()
    harness.peers.codes = fails(error=E.NONE)
    harness.advance(100)
    assert hosts(harness) == ["machine-1", "machine-2"]
    assert harness.reported(1)


def test_partition_without_a_leader_waits_for_one() -> None:
    harness = MarkerHarness()
    harness.end_broker(1)
    harness.end_broker(2)
    assert harness.leader(1) == -1
    harness.send(harness.markers(1))
    assert harness.peers.sent == []
    harness.world.machine_of(2).start({"auto.leader.rebalance.enable": "false"})
    harness.advance(100)
    assert hosts(harness) == ["machine-2"]
    assert harness.reported(1)


def test_partition_of_a_deleted_topic_counts_as_written(harness: MarkerHarness) -> None:
    harness.peers.codes = harness.local_codes = fails(0, 1, error=E.UNKNOWN_TOPIC_OR_PARTITION)
    harness.send(harness.markers(0, 1))
    harness.world.call(requests.delete_topics("t", timeout_ms=1_000))
    harness.advance(1_000)
    assert harness.reported(0, 1)
    assert harness.sender.due_ms() == NEVER_MS


def test_new_topic_does_not_get_the_markers_of_a_former_one(harness: MarkerHarness) -> None:
    """The coordinator has completed the transaction, as its partition was deleted."""
    harness.peers.codes = harness.local_codes = fails(0, 1, error=E.NOT_ENOUGH_REPLICAS)
    harness.send(harness.markers(0, 1), harness.markers(0, producer_id=8))
    sent = len(harness.peers.sent), len(harness.local)
    deleted = [TopicPartition("t", number) for number in range(3)]
    harness.broker.run(lambda: harness.sender.partitions_deleted(deleted))
    harness.advance(1_000)
    assert (len(harness.peers.sent), len(harness.local)) == sent
    assert harness.written == []


def test_deleted_partition_is_left_out_of_a_waiting_request(harness: MarkerHarness) -> None:
    harness.peers.codes = None
    harness.send(harness.markers(1, 2))
    harness.send(harness.markers(1, 2, producer_id=8), harness.markers(2, producer_id=9))
    harness.broker.run(lambda: harness.sender.partitions_deleted([TopicPartition("t", 1)]))
    for sent in harness.peers.sent[:2]:
        sent.answer(fails(error=E.NONE))
    harness.settle()
    assert [sent.partitions for sent in harness.peers.sent[2:]] == [[(8, "t-2"), (9, "t-2")]]
    assert harness.reported(2)


def test_partition_that_is_only_unknown_here_is_not_deleted(harness: MarkerHarness) -> None:
    """Its metadata has not arrived yet."""
    known = harness.broker.metadata_cache
    harness.broker.metadata_cache = known.updated(known.brokers, {}, {})
    harness.broker.metadata_cache.topics.pop("t")  # type: ignore[attr-defined]
    harness.send(harness.markers(1), harness.markers(1, producer_id=8))
    harness.advance(100)
    assert harness.written == []
    harness.broker.metadata_cache = known
    harness.advance(1_000)
    assert harness.peers.sent[-1].partitions == [(7, "t-1"), (8, "t-1")]
    assert len(harness.written) == 2


def test_partition_beyond_those_of_its_topic_counts_as_written(harness: MarkerHarness) -> None:
    """The topic was deleted, and created again with fewer partitions."""
    harness.send(harness.markers(1, 5))
    assert harness.reported(1, 5)


def test_partitions_wait_while_zookeeper_cannot_be_asked(harness: MarkerHarness) -> None:
    store = harness.world.machine.store
    harness.world.zookeeper.suspend(store)
    harness.send(harness.markers(5))
    assert harness.written == []
    harness.world.zookeeper.resume(store)
    harness.advance(1_000)
    assert harness.reported(5)


def test_thousands_of_partitions_are_sent_in_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_marker_sender, "PARTITIONS_PER_REQUEST", 4)
    monkeypatch.setattr(transaction_marker_sender, "PARTITIONS_HERE", 5)
    harness = MarkerHarness(partitions=30)
    harness.send(harness.markers(*range(30)))
    of_first = [sent for sent in harness.peers.sent if sent.host == "machine-1"]
    assert [len(sent.partitions) for sent in of_first] == [4, 4, 2]
    assert harness.reported(*range(30))


def test_broker_that_denies_markers_is_reported_once(
    harness: MarkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.peers.codes = fails(1, error=E.CLUSTER_AUTHORIZATION_FAILED)
    harness.send(harness.markers(1))
    harness.advance(1_000)
    harness.advance(1_000)
    assert caplog.text.count("allow it ClusterAction") == 1
    harness.peers.codes = fails(error=E.NONE)
    harness.advance(1_000)
    assert harness.reported(1)


def test_transaction_that_cannot_complete_is_reported(
    harness: MarkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.local_codes = fails(0, error=E.NOT_ENOUGH_REPLICAS)
    harness.send(harness.markers(0))
    for _ in range(20):
        harness.advance(1_000)
    lines = [line for line in caplog.messages if "is not complete after" in line]
    assert lines == [
        f"the transaction of 'id-7' is not complete after {retries} retries, retrying: NOT_ENOUGH_REPLICAS "
        "of t-0"
        for retries in (8, 16)
    ]


def test_stopped_sender_sends_nothing_more(harness: MarkerHarness) -> None:
    harness.peers.codes = None
    harness.send(harness.markers(1))
    harness.sender.stop()
    harness.send(harness.markers(2))
    harness.peers.sent[0].break_off()
    harness.advance(1_000)
    assert (hosts(harness), harness.written) == (["machine-1"], [])
    assert harness.sender.due_ms() == NEVER_MS


def test_retries_end_when_the_broker_stops_to_wait(harness: MarkerHarness) -> None:
    harness.local_codes = fails(0, error=E.NOT_ENOUGH_REPLICAS)
    harness.send(harness.markers(0))
    harness.broker.stop_waiting()
    assert len(harness.local) == 1

"""``clients/fetch/list_offsets``: offsets of many partitions, requested together by leader."""

from __future__ import annotations

import pytest

from minikafka.base.errors import BrokerError, ErrorCode, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.fetch.list_offsets import EARLIEST, LATEST, list_ends, list_known_offsets, list_offsets
from minikafka.net.memory import Fault
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Record
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.support.broker_harness import SERVED, Answer, BrokerHarness, Later

PARTITIONS = [TopicPartition("t", number) for number in range(6)]
OTHER = TopicPartition("u", 0)


@pytest.fixture
def brokers() -> BrokerHarness:
    brokers = BrokerHarness(3, {"t": 6, "u": 1})
    for tp in PARTITIONS:
        brokers.fill(tp, *[b"v"] * (tp.partition + 1))
    brokers.logs[PARTITIONS[5]].delete_before(2)
    return brokers


def ask(
    brokers: BrokerHarness, wanted: dict[TopicPartition, int], **options: object
) -> dict[TopicPartition, int | None]:
    cluster = brokers.client(**options)
    return list_offsets(cluster, wanted, cluster.deadline(10_000))


def refusing(code: ErrorCode) -> Answer:
    def answer(_: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            0,
            tuple(
                ListOffsetsTopicResponse(
                    t.name, tuple(ListOffsetsPartitionResponse(p.index, int(code)) for p in t.partitions)
                )
                for t in request.topics
            ),
        )

    return answer


@pytest.mark.parametrize("version", [0, 1])
def test_each_leader_gets_one_request_for_all_its_partitions(brokers: BrokerHarness, version: int) -> None:
    newest = {ApiKey.LIST_OFFSETS: version}
    wanted = dict.fromkeys([*PARTITIONS, OTHER], LATEST)
    found = ask(brokers, wanted, newest_versions=newest)
    assert list(found.items()) == [(tp, tp.partition + 1) for tp in PARTITIONS] + [(OTHER, 0)]
    assert ask(brokers, {PARTITIONS[5]: EARLIEST}, newest_versions=newest) == {PARTITIONS[5]: 2}
    first_round = [(b, v) for b, key, v, _ in brokers.requests if key is ApiKey.LIST_OFFSETS][:3]
    assert sorted(first_round) == [(1, version), (2, version), (3, version)]


def test_a_time_gives_the_first_offset_that_is_not_older_or_none(brokers: BrokerHarness) -> None:
    wanted = {PARTITIONS[3]: 1_002, PARTITIONS[0]: 1_001, PARTITIONS[1]: 0}
    assert ask(brokers, wanted) == {PARTITIONS[3]: 2, PARTITIONS[0]: None, PARTITIONS[1]: 0}


def test_all_leaders_are_asked_before_the_first_answer_is_waited_for(brokers: BrokerHarness) -> None:
    cluster = brokers.client()
    cluster.metadata(["t"])
    for broker_id in (1, 2, 3):
        cluster.connection(broker_id).version(LIST_OFFSETS, cluster.deadline())
    # Nothing is delivered before somebody waits, and who waits for broker 1 lets all that was sent be
    # delivered.
    brokers.fault(1, Fault.DROP_RESPONSE)
    with pytest.raises(NetworkError):
        list_offsets(cluster, dict.fromkeys(PARTITIONS, LATEST), cluster.deadline(500))
    assert [b for b, key, _, _ in brokers.requests if key is ApiKey.LIST_OFFSETS] == [1, 2, 3]


def test_moved_leader_is_looked_up_and_only_its_partitions_retried(brokers: BrokerHarness) -> None:
    cluster = brokers.client()
    cluster.metadata(["t"])
    brokers.move_leader(PARTITIONS[1], 3)
    found = list_offsets(cluster, dict.fromkeys(PARTITIONS, LATEST), cluster.deadline())
    assert [found[tp] for tp in PARTITIONS] == [1, 2, 3, 4, 5, 6]
    last = brokers.asked(ApiKey.LIST_OFFSETS)[-1]
    assert [(t.name, [p.index for p in t.partitions]) for t in last.topics] == [("t", [1])]


def test_a_broken_connection_is_tried_again(brokers: BrokerHarness) -> None:
    brokers.fault(2, Fault.CUT_RESPONSE, 2)
    found = ask(brokers, dict.fromkeys(PARTITIONS, LATEST))
    assert len(found) == 6


def test_a_partition_left_out_of_the_answer_is_asked_for_again(brokers: BrokerHarness) -> None:
    brokers.script(ApiKey.LIST_OFFSETS, lambda *_: ListOffsetsResponse(0, ()))
    assert ask(brokers, {PARTITIONS[0]: LATEST}) == {PARTITIONS[0]: 1}


def test_what_does_not_pass_is_told_with_the_partition(brokers: BrokerHarness) -> None:
    brokers.script(ApiKey.LIST_OFFSETS, refusing(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT))
    with pytest.raises(BrokerError, match="offsets of t-0") as caught:
        ask(brokers, {PARTITIONS[0]: 5})
    assert caught.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_a_time_cannot_be_asked_of_a_broker_before_0_10_1(brokers: BrokerHarness) -> None:
    brokers.newest[ApiKey.LIST_OFFSETS] = 0
    with pytest.raises(BrokerError, match=r"cannot look up offsets by timestamp \(t-1\); .*0\.10\.1"):
        ask(brokers, {PARTITIONS[1]: 1_000})


@pytest.mark.parametrize(
    ("tp", "complaint"),
    [(TopicPartition("t", 6), "6 partitions, 0 to 5"), (TopicPartition("x", 0), "topic 'x' is not avail")],
)
def test_unknown_partitions_are_told(brokers: BrokerHarness, tp: TopicPartition, complaint: str) -> None:
    with pytest.raises(BrokerError, match=complaint) as caught:
        ask(brokers, {PARTITIONS[0]: LATEST, tp: LATEST})
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_lasting_failure_ends_with_the_deadline_and_names_the_partitions(brokers: BrokerHarness) -> None:
    brokers.stop(2)
    with pytest.raises(
        (NetworkError, BrokerError), match=r"offsets of t-0, t-1, t-2 and 3 more failed for 10000 ms"
    ):
        ask(brokers, dict.fromkeys(PARTITIONS, LATEST))
    assert brokers.clock.monotonic_ms() <= 10_000


def test_times_before_the_epoch_are_refused(brokers: BrokerHarness) -> None:
    with pytest.raises(ValueError, match="t-0: expected ms since the epoch"):
        ask(brokers, {PARTITIONS[0]: -3})


def test_no_partitions_need_no_request(brokers: BrokerHarness) -> None:
    assert ask(brokers, {}) == {}


def test_latest_committed_offset_is_the_first_open_transaction(brokers: BrokerHarness) -> None:
    batch = build_batch([Record(None, b"v")], producer_id=7, producer_epoch=0, transactional=True)
    brokers.logs[PARTITIONS[5]].append(batch)
    cluster = brokers.client()

    def latest(isolation: IsolationLevel) -> int | None:
        wanted = {PARTITIONS[5]: LATEST}
        return list_offsets(cluster, wanted, cluster.deadline(), isolation)[PARTITIONS[5]]

    assert latest(IsolationLevel.READ_COMMITTED) == 6
    assert latest(IsolationLevel.READ_UNCOMMITTED) == 7
    cluster = brokers.client(newest_versions={ApiKey.LIST_OFFSETS: 1})
    assert latest(IsolationLevel.READ_COMMITTED) == 7


def test_outage_during_a_lookup_is_logged_with_its_whole_timeout(
    brokers: BrokerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    cluster, wanted = brokers.client(), {PARTITIONS[0]: LATEST}
    cluster.metadata(["t"])
    for broker_id in (1, 2, 3):
        brokers.stop(broker_id)
    with pytest.raises(NetworkError, match=r"^listing the offsets of t-0 failed for 30000 ms: broker "):
        list_offsets(cluster, wanted, cluster.deadline())
    assert caplog.messages[0].endswith("Connection refused; retrying, for 30 s in total")


def test_slow_leaders_are_waited_for_together_until_the_deadline(brokers: BrokerHarness) -> None:
    later, cluster = Later(), brokers.client()
    wanted = dict.fromkeys(PARTITIONS[:2], LATEST)
    found = list_offsets(cluster, wanted, cluster.deadline())
    began_ms = brokers.clock.monotonic_ms()

    def slowly(broker_id: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        brokers.advance(6_000)
        return brokers.serve(broker_id, request)

    def slower(broker_id: int, request: ListOffsetsRequest) -> Later:
        def respond() -> None:
            if brokers.clock.monotonic_ms() >= began_ms + 7_000:
                later.give(brokers.serve(broker_id, request))

        brokers.network.on_step(respond)
        return later

    brokers.script(ApiKey.LIST_OFFSETS, slowly, slower)
    assert list_offsets(cluster, wanted, cluster.deadline(10_000)) == found
    assert len(brokers.asked(ApiKey.LIST_OFFSETS)) == 4


def test_partitions_without_leader_and_unknown_topics_have_no_end(brokers: BrokerHarness) -> None:
    brokers.lose_leader(PARTITIONS[1])
    cluster = brokers.client()
    wanted = [*PARTITIONS[:3], TopicPartition("missing", 0), TopicPartition("t", 99)]
    assert list_ends(cluster, wanted, cluster.deadline(10_000)) == {PARTITIONS[0]: 1, PARTITIONS[2]: 3}


def test_a_topic_that_is_deleted_during_the_look_up_has_no_end(brokers: BrokerHarness) -> None:
    def delete(broker_id: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        brokers.delete_topic("u")
        return refusing(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)(broker_id, request)

    brokers.script(ApiKey.LIST_OFFSETS, delete)
    cluster = brokers.client()
    assert list_ends(cluster, [PARTITIONS[0], OTHER], cluster.deadline(10_000)) == {PARTITIONS[0]: 1}


def test_known_offsets_come_without_those_of_a_silent_leader(brokers: BrokerHarness) -> None:
    brokers.always(ApiKey.LIST_OFFSETS, lambda broker, _: None if broker == 2 else SERVED)
    brokers.lose_leader(PARTITIONS[2])
    cluster = brokers.client()
    deadline = cluster.deadline(3_000)
    found, error = list_known_offsets(cluster, dict.fromkeys(PARTITIONS, LATEST), deadline)
    assert found == {PARTITIONS[0]: 1, PARTITIONS[3]: 4, PARTITIONS[5]: 6}
    assert isinstance(error, NetworkError)


def test_known_offsets_come_with_the_error_of_a_lost_leader(brokers: BrokerHarness) -> None:
    brokers.lose_leader(PARTITIONS[2])
    cluster = brokers.client()
    found, error = list_known_offsets(
        cluster, dict.fromkeys(PARTITIONS[2:4], LATEST), cluster.deadline(3_000)
    )
    assert found == {PARTITIONS[3]: 4}
    assert isinstance(error, BrokerError)
    assert error.code is ErrorCode.LEADER_NOT_AVAILABLE


def test_known_offsets_of_all_partitions_come_without_an_error(brokers: BrokerHarness) -> None:
    cluster = brokers.client()
    found, error = list_known_offsets(cluster, {PARTITIONS[0]: LATEST}, cluster.deadline(3_000))
    assert (found, error) == ({PARTITIONS[0]: 1}, None)

"""Idempotent producers, against brokers in memory that check sequence numbers as real ones do."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.base.errors import BrokerError, ErrorCode, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.produce import BatchingConfig, BatchingProducer
from minikafka.clients.produce.partitioner import StickyPartitioner
from minikafka.net.memory import Fault
from minikafka.records.format.batch import BatchHeader, read_header
from minikafka.records.format.message_set import Codec, Record, build_message_set
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from minikafka.wire.apis.produce import ProduceRequest, ProduceResponse
from tests.support.broker_harness import Answer, BrokerHarness, produce_error

A, B = TopicPartition("t", 0), TopicPartition("t", 2)


@pytest.fixture
def brokers() -> BrokerHarness:
    return BrokerHarness(2, {"t": 4})


def producer_of(brokers: BrokerHarness, **settings: Any) -> BatchingProducer:
    return BatchingProducer(
        brokers.client(),
        BatchingConfig(**{"idempotence": True} | settings),
        partitioner=StickyPartitioner(first_turn=0),
        threads=False,
    )


def run(producer: BatchingProducer) -> None:
    while producer.step():
        pass


def headers(brokers: BrokerHarness, tp: TopicPartition = A) -> list[BatchHeader]:
    return [read_header(entry, 0) for entry in brokers.logs[tp].entries]


def stamps(brokers: BrokerHarness, tp: TopicPartition = A) -> list[tuple[int, int, int]]:
    """Id, epoch and first number of each batch that is stored."""
    return [(h.producer_id, h.producer_epoch, h.base_sequence) for h in headers(brokers, tp)]


def appended_and(code: ErrorCode, brokers: BrokerHarness) -> Answer:
    """Append the records, but respond with an error."""

    def answer(broker_id: int, request: ProduceRequest) -> ProduceResponse:
        brokers.serve(broker_id, request)
        return produce_error(code)(broker_id, request)

    return answer


def test_the_batches_of_each_partition_are_numbered_by_their_records(brokers: BrokerHarness) -> None:
    producer = producer_of(brokers)
    for count in (3, 1, 2):
        for number in range(count):
            producer.send("t", b"%d" % number, partition=0)
            producer.send("t", b"%d" % number, partition=2)
        producer.flush()
    producer.close()
    assert stamps(brokers, A) == stamps(brokers, B) == [(0, 0, 0), (0, 0, 3), (0, 0, 4)]
    assert len(brokers.asked(ApiKey.INIT_PRODUCER_ID)) == 1


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_encoded_sets_are_numbered_in_a_copy(brokers: BrokerHarness, codec: Codec) -> None:
    data = build_message_set([Record(None, b"%d" % n) for n in range(5)], magic=2, codec=codec)
    before = bytes(data)
    with producer_of(brokers) as producer:
        sent = [producer.send_encoded(tp, data, 5) for tp in (A, A, B)]
    assert [future.result().offset for future in sent] == [0, 5, 0]
    assert stamps(brokers, A) == [(0, 0, 0), (0, 0, 5)]
    assert stamps(brokers, B) == [(0, 0, 0)]
    assert brokers.logs[A].values() == [b"%d" % n for n in range(5)] * 2
    assert data == before


@pytest.mark.parametrize("fault", [Fault.CUT_RESPONSE, Fault.DROP_RESPONSE])
@pytest.mark.parametrize("ready_made", ["", "sealed", "not sealed"])
def test_batch_appended_before_a_lost_response_is_not_duplicated(
    brokers: BrokerHarness, fault: Fault, ready_made: str
) -> None:
    producer = producer_of(brokers, batch_bytes=100)
    producer.send("t", b"first", partition=0)
    producer.flush()
    brokers.fault(1, fault, 2)
    values = [b"%d" % n for n in range(30)]
    if ready_made:
        sets = [bytearray(build_message_set([Record(None, value)], magic=2)) for value in values]
        sent = [producer.send_encoded(A, data, 1, sealed=ready_made == "sealed") for data in sets]
    else:
        sent = [producer.send("t", value, partition=0) for value in values]
    producer.close()
    assert brokers.logs[A].values() == [b"first", *values]
    assert [future.result().offset for future in sent] == list(range(1, 31))


def test_records_after_an_abort_do_not_take_the_numbers_in_flight(brokers: BrokerHarness) -> None:
    producer = producer_of(brokers)
    producer.send("t", b"first", partition=0)
    producer.flush()
    brokers.fault(1, Fault.DROP_RESPONSE)
    aborted = producer.send("t", b"aborted", partition=0)
    producer.poll()
    producer.abort(NetworkError("aborted"))
    later = producer.send("t", b"later", partition=0)
    producer.close()
    assert brokers.logs[A].values() == [b"first", b"aborted", b"later"]
    assert later.result().offset == 2
    with pytest.raises(NetworkError, match="aborted"):
        aborted.result()


def test_unsealed_set_gets_a_new_id_after_the_topic_is_recreated(brokers: BrokerHarness) -> None:
    brokers.script(ApiKey.PRODUCE, produce_error(ErrorCode.UNKNOWN_PRODUCER_ID))
    data = bytearray(build_message_set([Record(None, b"v")], magic=2))
    with producer_of(brokers) as producer:
        sent = producer.send_encoded(A, data, 1, sealed=False)
    assert sent.result().offset == 0
    assert stamps(brokers) == [(1, 0, 0)]
    assert brokers.logs[A].values() == [b"v"]


def test_a_set_that_is_not_sealed_is_whole_without_numbers_too(brokers: BrokerHarness) -> None:
    data = bytearray(build_message_set([Record(None, b"v")], magic=2))
    data[17:21] = bytes(4)
    with producer_of(brokers, idempotence=False) as producer:
        sent = producer.send_encoded(A, data, 1, sealed=False)
    assert sent.result().offset == 0
    assert stamps(brokers) == [(-1, -1, -1)]


def test_a_code_that_may_follow_an_append_leads_to_no_second_one(brokers: BrokerHarness) -> None:
    codes = [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_FOR_PARTITION]
    brokers.script(ApiKey.PRODUCE, *[appended_and(code, brokers) for code in codes])
    with producer_of(brokers) as producer:
        sent = producer.send("t", b"v", partition=0)
    assert sent.result().offset == 0
    assert brokers.logs[A].values() == [b"v"]


def test_a_moved_leader_gets_the_same_numbers(brokers: BrokerHarness) -> None:
    producer = producer_of(brokers, batch_bytes=100)
    sent = [producer.send("t", b"%d" % n, partition=0) for n in range(30)]
    for _ in range(5):
        producer.step()
    brokers.move_leader(A, 2)
    producer.close()
    assert brokers.logs[A].values() == [b"%d" % n for n in range(30)]
    assert [d.result().offset for d in sent] == list(range(30))
    assert {producer_id for producer_id, _, _ in stamps(brokers)} == {0}


def test_a_batch_that_was_refused_gives_its_numbers_to_the_next(brokers: BrokerHarness) -> None:
    brokers.script(ApiKey.PRODUCE, produce_error(ErrorCode.INVALID_TIMESTAMP))
    with producer_of(brokers) as producer:
        refused = producer.send("t", b"refused", partition=0)
        producer.flush()
        taken = producer.send("t", b"taken", partition=0)
    assert isinstance(refused.error, BrokerError)
    assert taken.result().offset == 0
    assert stamps(brokers) == [(0, 0, 0)]


def test_partition_gets_another_id_after_a_possibly_appended_batch(brokers: BrokerHarness) -> None:
    producer = producer_of(brokers, retries=1)
    producer.send("t", b"before", partition=0)
    producer.send("t", b"before", partition=2)
    producer.flush()
    timed_out = appended_and(ErrorCode.REQUEST_TIMED_OUT, brokers)
    brokers.script(ApiKey.PRODUCE, timed_out, produce_error(ErrorCode.NOT_LEADER_FOR_PARTITION))
    doubtful = producer.send("t", b"doubtful", partition=0)
    producer.flush()
    assert isinstance(doubtful.error, BrokerError)
    sent = [producer.send("t", b"behind", partition=number) for number in (0, 2)]
    producer.close()
    assert [future.error for future in sent] == [None, None]
    assert stamps(brokers, A) == [(0, 0, 0), (0, 0, 1), (1, 0, 0)]
    assert stamps(brokers, B) == [(0, 0, 0), (0, 0, 1)]


def test_batch_that_expires_before_its_retry_may_be_appended(brokers: BrokerHarness) -> None:
    producer = producer_of(brokers, request_timeout_ms=1_000, delivery_timeout_ms=1_000, retry_backoff_ms=300)
    brokers.script(ApiKey.PRODUCE, appended_and(ErrorCode.REQUEST_TIMED_OUT, brokers))
    brokers.script(ApiKey.PRODUCE, *[produce_error(ErrorCode.NOT_LEADER_FOR_PARTITION)] * 9)
    lost = producer.send("t", b"lost", partition=0)
    producer.flush()
    assert lost.error is not None
    brokers._scripts[ApiKey.PRODUCE].clear()
    with producer:
        producer.send("t", b"next", partition=0)
    assert brokers.logs[A].values() == [b"lost", b"next"]
    assert stamps(brokers) == [(0, 0, 0), (1, 0, 0)]


def test_duplicate_sequence_number_counts_as_acknowledged(brokers: BrokerHarness) -> None:
    brokers.script(ApiKey.PRODUCE, produce_error(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
    with producer_of(brokers) as producer:
        sent = producer.send("t", b"v", partition=0)
    assert sent.error is None
    assert sent.result().offset == -1


def test_unknown_producer_restarts_if_the_batch_is_not_in_the_log(brokers: BrokerHarness) -> None:
    producer = producer_of(brokers)
    producer.send("t", b"0", partition=0)
    producer.flush()
    brokers.advance(8 * 24 * 3_600_000)  # transactional.id.expiration.ms is a week
    with producer:
        sent = producer.send("t", b"1", partition=0)
    assert sent.result().offset == 1
    assert stamps(brokers) == [(0, 0, 0), (1, 0, 0)]


def test_possibly_appended_batch_is_resent_after_unknown_producer_id(brokers: BrokerHarness) -> None:
    producer = producer_of(brokers)
    producer.send("t", b"0", partition=0)
    producer.flush()
    # As where the topic was deleted and made anew in between.
    brokers.script(
        ApiKey.PRODUCE,
        produce_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        produce_error(ErrorCode.UNKNOWN_PRODUCER_ID),
    )
    with producer:
        doubtful, behind = (producer.send("t", value, partition=0) for value in (b"1", b"2"))
    assert [doubtful.result().offset, behind.result().offset] == [1, 2]
    assert stamps(brokers)[1][:2] == (1, 0)


def test_sequence_gap_fails_the_batch_and_the_next_gets_another_id(brokers: BrokerHarness) -> None:
    brokers.script(ApiKey.PRODUCE, produce_error(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    with producer_of(brokers, batch_bytes=1) as producer:
        sent = [producer.send("t", b"%d" % n, partition=0) for n in range(3)]
    assert isinstance(sent[0].error, BrokerError)
    assert sent[0].error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert "the leader has lost acknowledged records" in str(sent[0].error)
    assert [d.result().offset for d in sent[1:]] == [0, 1]
    assert stamps(brokers) == [(1, 0, 0), (1, 0, 1)]


def test_a_divided_batch_is_numbered_anew(brokers: BrokerHarness) -> None:
    brokers.script(ApiKey.PRODUCE, *[produce_error(ErrorCode.MESSAGE_TOO_LARGE)] * 2)
    with producer_of(brokers) as producer:
        sent = [producer.send("t", b"%d" % n, partition=0) for n in range(7)]
    assert brokers.logs[A].values() == [b"%d" % n for n in range(7)]
    assert [d.result().offset for d in sent] == list(range(7))
    assert stamps(brokers) == [(0, 0, 0), (0, 0, 1), (0, 0, 3)]


def test_a_batch_that_may_be_in_the_log_is_not_divided(brokers: BrokerHarness) -> None:
    brokers.script(
        ApiKey.PRODUCE,
        appended_and(ErrorCode.REQUEST_TIMED_OUT, brokers),
        produce_error(ErrorCode.MESSAGE_TOO_LARGE),
    )
    with producer_of(brokers) as producer:
        sent = [producer.send("t", b"%d" % n, partition=0) for n in range(2)]
    assert {future.error.code for future in sent if isinstance(future.error, BrokerError)} == {
        ErrorCode.MESSAGE_TOO_LARGE
    }
    assert brokers.logs[A].values() == [b"0", b"1"]


def test_numbers_go_on_at_0_after_the_largest(
    brokers: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minikafka.clients.produce.sequence_numbers._SEQUENCES", 5)
    monkeypatch.setattr("minikafka.log.producers.producer_state._SEQUENCES", 5)
    with producer_of(brokers) as producer:
        for _ in range(4):
            for _ in range(3):
                producer.send("t", b"v", partition=0)
            producer.flush()
    assert [first for _, _, first in stamps(brokers)] == [0, 3, 1, 4]


@pytest.mark.parametrize(
    ("api", "newest"), [(ApiKey.INIT_PRODUCER_ID, None), (ApiKey.PRODUCE, 2), (ApiKey.PRODUCE, 0)]
)
def test_required_idempotence_fails_with_an_older_broker(
    brokers: BrokerHarness, api: ApiKey, newest: int | None
) -> None:
    if newest is None:
        brokers.unknown.add(api)
    else:
        brokers.newest[api] = newest
    with producer_of(brokers) as producer:
        sent = [producer.send("t", b"v", partition=0)]
        producer.flush()
        sent.append(producer.send("t", b"v", partition=0))
    for future in sent:
        assert isinstance(future.error, BrokerError)
        assert future.error.code is ErrorCode.UNSUPPORTED_VERSION
        assert "enable.idempotence=true needs" in str(future.error)
    assert brokers.asked(ApiKey.PRODUCE) == []


@pytest.mark.parametrize(
    ("api", "newest", "magic"),
    [(ApiKey.INIT_PRODUCER_ID, None, 2), (ApiKey.PRODUCE, 2, 1), (ApiKey.PRODUCE, 0, 0)],
)
def test_an_older_broker_gets_plain_messages_where_nothing_is_demanded(
    brokers: BrokerHarness, caplog: pytest.LogCaptureFixture, api: ApiKey, newest: int | None, magic: int
) -> None:
    if newest is None:
        brokers.unknown.add(api)
    else:
        brokers.newest[api] = newest
    with producer_of(brokers, idempotence=None, acks=-1) as producer:
        sent = [producer.send("t", b"v", partition=number) for number in (0, 0, 2)]
    assert [future.result().offset for future in sent] == [0, 1, 0]
    assert brokers.logs[A].entries[0][16] == magic
    if magic == 2:
        assert stamps(brokers) == [(-1, -1, -1)]
    # Older formats have no numbers, so there is nothing to tell.
    warnings = [record.message for record in caplog.records if "idempotence is off" in record.message]
    assert len(warnings) == (magic == 2)


def test_a_set_of_an_older_format_goes_without_numbers_or_not_at_all(brokers: BrokerHarness) -> None:
    old = build_message_set([Record(None, b"old")], magic=1)
    with producer_of(brokers, idempotence=None, acks=-1) as producer:
        producer.send("t", b"new", partition=0)
        producer.send_encoded(B, old, 1)
        producer.send("t", b"newer", partition=0)
    assert brokers.logs[A].values() == [b"new", b"newer"]
    assert brokers.logs[B].values() == [b"old"]
    assert {header.producer_id for header in headers(brokers)} == {0}
    with producer_of(brokers) as producer:
        refused = producer.send_encoded(A, old, 1)
    assert isinstance(refused.error, BrokerError)
    assert "cannot send 1 record for t-0 in format 1" in str(refused.error)


def test_where_nothing_is_said_all_acknowledgements_make_it_idempotent(brokers: BrokerHarness) -> None:
    with producer_of(brokers, idempotence=None, acks=-1) as producer:
        producer.send("t", b"v", partition=0)
    with producer_of(brokers, idempotence=None) as producer:
        producer.send("t", b"v", partition=0)
    with producer_of(brokers, idempotence=False, acks=-1) as producer:
        producer.send("t", b"v", partition=0)
    assert stamps(brokers) == [(0, 0, 0), (-1, -1, -1), (-1, -1, -1)]


def no_id(code: ErrorCode) -> Answer:
    def answer(_: int, request: InitProducerIdRequest) -> InitProducerIdResponse:
        return InitProducerIdResponse(0, int(code), -1, -1)

    return answer


def test_a_producer_id_that_is_not_there_yet_is_asked_for_again(brokers: BrokerHarness) -> None:
    brokers.script(ApiKey.INIT_PRODUCER_ID, *[no_id(ErrorCode.GROUP_LOAD_IN_PROGRESS)] * 3)
    with producer_of(brokers) as producer:
        sent = producer.send("t", b"v", partition=0)
    assert sent.result().offset == 0
    assert len(brokers.asked(ApiKey.INIT_PRODUCER_ID)) == 4


def test_what_waits_in_vain_for_a_producer_id_fails_with_the_reason(brokers: BrokerHarness) -> None:
    brokers.script(ApiKey.INIT_PRODUCER_ID, *[no_id(ErrorCode.GROUP_LOAD_IN_PROGRESS)] * 99)
    with producer_of(brokers, request_timeout_ms=2_000, delivery_timeout_ms=2_000) as producer:
        sent = producer.send("t", b"v", partition=0)
    assert "no producer id: GROUP_LOAD_IN_PROGRESS" in str(sent.error)


def test_who_may_have_no_producer_id_is_told_or_goes_without(
    brokers: BrokerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    forbidden = no_id(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    brokers.script(ApiKey.INIT_PRODUCER_ID, forbidden, forbidden)
    with producer_of(brokers) as producer:
        refused = producer.send("t", b"v", partition=0)
    assert isinstance(refused.error, BrokerError)
    assert refused.error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with producer_of(brokers, idempotence=None, acks=-1) as producer:
        producer.send("t", b"v", partition=0)
    assert stamps(brokers) == [(-1, -1, -1)]
    assert "idempotence is off, retries may duplicate records" in caplog.text


def test_partitions_keep_their_id_while_no_new_one_is_available(brokers: BrokerHarness) -> None:
    producer = producer_of(brokers, request_timeout_ms=5_000, delivery_timeout_ms=5_000)
    producer.send("t", b"0", partition=2)
    producer.flush()
    brokers.script(ApiKey.PRODUCE, produce_error(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    producer.send("t", b"gap", partition=0)
    producer.flush()
    brokers.script(ApiKey.INIT_PRODUCER_ID, *[no_id(ErrorCode.GROUP_LOAD_IN_PROGRESS)] * 999)
    stuck = producer.send("t", b"stuck", partition=0)
    sent = producer.send("t", b"1", partition=2)
    for _ in range(5):
        producer.step()
    assert sent.done
    assert not stuck.done
    producer.close()
    assert stamps(brokers, B) == [(0, 0, 0), (0, 0, 1)]


class TickingClock:
    """The clock of the brokers, which goes on whenever it is read."""

    def __init__(self, brokers: BrokerHarness) -> None:
        self._clock = brokers.clock

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def monotonic_ms(self) -> int:
        self._clock.advance(1)
        return self._clock.monotonic_ms()


@pytest.mark.parametrize("backoff_ms", range(1, 9))
def test_what_becomes_due_during_a_step_is_done(brokers: BrokerHarness, backoff_ms: int) -> None:
    loading = InitProducerIdResponse(0, ErrorCode.GROUP_LOAD_IN_PROGRESS, -1, -1)
    brokers.script(ApiKey.INIT_PRODUCER_ID, *[lambda *_: loading] * 3)
    config = BatchingConfig(idempotence=True, retry_backoff_ms=backoff_ms)
    client = brokers.client(clock=TickingClock(brokers))
    with BatchingProducer(client, config, threads=False) as producer:
        sent = producer.send("t", b"v", partition=0)
        producer.flush(10_000)
        assert sent.result().offset == 0
        assert brokers.clock.monotonic_ms() < 5_000

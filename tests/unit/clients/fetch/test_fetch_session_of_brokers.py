"""A client in the sessions of its brokers (KIP-227), and reading from followers (KIP-392): no network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.fetch_session import SESSION_ERRORS, FetchSession
from minikafka.clients.fetch.fetch_state import (
    EMPTY_PAUSE_MS,
    NO_POSITION,
    CompletedFetch,
    FetchSettings,
    FetchStatus,
)
from minikafka.clients.network.metadata import LeaderAndEpoch
from minikafka.clients.network.retry import Backoff
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Record
from minikafka.wire.apis.fetch import (
    NO_SESSION,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
LEADER, FOLLOWER, ID = 1, 2, 77
SETTINGS = FetchSettings(
    100,
    250,
    1_000,
    max_wait_ms=300,
    retry_backoff=Backoff(50, 50),
    rack="a",
    follower_ms=5_000,
    in_session=True,
)
CUT = bytes(8) + (300).to_bytes(4, "big") + bytes(20)


class Consumer:
    """A client of partitions that broker 1 leads, and the time."""

    def __init__(self, *partitions: TopicPartition) -> None:
        self.session = FetchSession(SETTINGS)
        self.positions = dict.fromkeys(partitions, 0)
        self.now_ms = 1_000

    def send(self, broker_id: int = LEADER) -> FetchRequest | None:
        """The next request, which goes to this broker."""
        self.session.update(dict(self.positions))
        leader = LeaderAndEpoch(LEADER, 4)
        sent = list(self.session.next_requests(lambda _: leader, leader, self.now_ms))
        assert [data.broker_id for data in sent] in ([], [broker_id])
        request = sent[0].request if sent else None
        assert request is None or isinstance(request, FetchRequest)
        return request

    def answer(
        self,
        rows: Mapping[TopicPartition, bytes | ErrorCode | int],
        broker_id: int = LEADER,
        *,
        session_id: int = ID,
        code: ErrorCode = ErrorCode.NONE,
        after_ms: int = 300,
        throttle_time_ms: int = 0,
    ) -> dict[TopicPartition, FetchStatus]:
        """The response: records, errors, or the replica to read from."""
        self.now_ms += after_ms
        parts = tuple(_row(tp, row) for tp, row in rows.items())
        topics = (FetchTopicResponse("t", parts),) if parts else ()
        response = FetchResponse(throttle_time_ms, code, session_id, topics)
        found = self.session.handle_response(broker_id, response, 11, self.now_ms)
        self._follow(found)
        return {completed.topic_partition: completed.status for completed in found}

    def _follow(self, found: list[CompletedFetch]) -> None:
        for completed in found:
            if completed.status is FetchStatus.RECORDS:
                self.positions[completed.topic_partition] = completed.next_offset


def _row(tp: TopicPartition, row: bytes | ErrorCode | int) -> FetchPartitionResponse:
    part = FetchPartitionResponse(tp.partition, 0, 9, 9, 0, None, memoryview(b""))
    if isinstance(row, ErrorCode):
        return replace(part, error_code=row)
    if isinstance(row, bytes):
        return replace(part, records=memoryview(row))
    return replace(part, preferred_read_replica=row)


def records(offset: int = 0) -> bytes:
    return build_batch([Record(None, b"v")], base_offset=offset, leader_epoch=4)


def named(request: FetchRequest | None) -> list[int]:
    assert request is not None
    return [part.index for topic in request.topics for part in topic.partitions]


def begun(*partitions: TopicPartition) -> Consumer:
    """A client in a session that has been answered once."""
    consumer = Consumer(*partitions)
    assert named(consumer.send()) == [tp.partition for tp in partitions]
    consumer.answer(dict.fromkeys(partitions, b""))
    return consumer


def test_a_request_names_only_partitions_whose_position_changes() -> None:
    consumer = begun(T0, T1, T2)
    assert named(consumer.send()) == []
    assert consumer.answer({T1: records()}) == {T1: FetchStatus.RECORDS}
    assert named(consumer.send()) == [1]


def test_a_request_without_news_is_made_of_the_rows_of_the_last_one() -> None:
    consumer = begun(T0, T1)
    positions = dict(consumer.positions)
    leader = LeaderAndEpoch(LEADER, 4)

    def rows() -> Mapping[TopicPartition, FetchPartition]:
        consumer.session.update(positions)
        (data,) = consumer.session.next_requests(lambda _: leader, leader, consumer.now_ms)
        consumer.answer({})
        return data.partitions

    assert rows() is rows()


def test_partitions_without_news_have_no_result() -> None:
    consumer = begun(T0, T1)
    consumer.send()
    assert consumer.answer({}) == {}
    assert consumer.send() is not None


def test_a_partition_that_is_not_wanted_leaves_the_session() -> None:
    consumer = begun(T0, T1)
    del consumer.positions[T1]
    request = consumer.send()
    assert request is not None
    assert [forgotten.partitions for forgotten in request.forgotten_topics] == [(1,)]


def test_after_a_seek_the_response_does_not_count() -> None:
    consumer = begun(T0)
    consumer.send()
    consumer.positions[T0] = 5
    consumer.session.update(dict(consumer.positions))
    assert consumer.answer({T0: records()}) == {}
    consumer.now_ms += EMPTY_PAUSE_MS
    assert named(consumer.send()) == [0]


@pytest.mark.parametrize("code", sorted(SESSION_ERRORS))
def test_a_lost_session_is_begun_anew_without_an_error_of_partitions(code: ErrorCode) -> None:
    consumer = begun(T0, T1)
    consumer.send()
    assert consumer.answer({}, code=code, session_id=NO_SESSION) == {}
    assert consumer.send() is None
    consumer.now_ms += EMPTY_PAUSE_MS
    assert named(consumer.send()) == [0, 1]


def test_after_a_lost_response_all_partitions_are_named() -> None:
    consumer = begun(T0, T1)
    consumer.send()
    consumer.session.handle_disconnect(LEADER, consumer.now_ms)
    consumer.now_ms += 50
    request = consumer.send()
    assert named(request) == [0, 1]
    assert request is not None
    assert (request.session_id, request.session_epoch) == (ID, 0)


def test_a_broker_without_sessions_is_sent_all_partitions_each_time() -> None:
    consumer = Consumer(T0, T1)
    for _ in range(2):
        assert named(consumer.send()) == [0, 1]
        consumer.answer({T0: b"", T1: b""}, session_id=NO_SESSION)


def test_a_message_that_does_not_fit_is_the_first_of_a_new_session() -> None:
    consumer = begun(T0, T1)
    consumer.send()
    assert consumer.answer({T1: CUT}) == {T1: FetchStatus.RETRY}
    assert named(consumer.send()) == [1, 0]


def test_a_broker_that_does_not_wait_is_asked_after_a_pause() -> None:
    consumer = begun(T0)
    consumer.send()
    consumer.answer({}, after_ms=1)
    assert consumer.send() is None
    assert consumer.session.next_ready_ms(consumer.now_ms) == consumer.now_ms + EMPTY_PAUSE_MS
    consumer.now_ms += EMPTY_PAUSE_MS
    assert named(consumer.send()) == []


def test_a_broker_that_throttles_is_asked_later() -> None:
    consumer = begun(T0)
    consumer.send()
    consumer.answer({}, throttle_time_ms=700)
    assert consumer.session.next_ready_ms(consumer.now_ms) == consumer.now_ms + 700


# --- followers ----------------------------------------------------------------------------------------------


def at_follower(tp: TopicPartition = T0) -> Consumer:
    """A client whose leader has named a follower."""
    consumer = begun(tp)
    consumer.send()
    assert consumer.answer({tp: FOLLOWER}) == {tp: FetchStatus.RETRY}
    return consumer


def test_requests_name_the_rack() -> None:
    request = Consumer(T0).send()
    assert request is not None
    assert request.rack_id == "a"


def test_a_partition_is_read_from_the_follower_that_its_leader_names() -> None:
    consumer = at_follower()
    assert named(consumer.send(FOLLOWER)) == [0]
    assert consumer.answer({T0: records()}, FOLLOWER) == {T0: FetchStatus.RECORDS}
    assert named(consumer.send(FOLLOWER)) == [0]


def test_the_leader_is_asked_again_after_a_time() -> None:
    consumer = at_follower()
    consumer.now_ms += 5_000
    assert named(consumer.send(LEADER)) == [0]


def test_out_of_range_at_a_follower_is_for_the_leader_to_decide() -> None:
    consumer = at_follower()
    consumer.send(FOLLOWER)
    out_of_range = {T0: ErrorCode.OFFSET_OUT_OF_RANGE}
    assert consumer.answer(out_of_range, FOLLOWER) == {T0: FetchStatus.RETRY}
    assert named(consumer.send(LEADER)) == [0]
    assert consumer.answer(out_of_range) == {T0: FetchStatus.OUT_OF_RANGE}
    assert consumer.session._states[T0].offset == NO_POSITION


def test_after_an_error_of_a_follower_the_leader_is_asked() -> None:
    consumer = at_follower()
    consumer.send(FOLLOWER)
    consumer.answer({T0: ErrorCode.NOT_LEADER_FOR_PARTITION}, FOLLOWER)
    consumer.now_ms += 50
    assert named(consumer.send(LEADER)) == [0]


def test_after_a_lost_connection_to_a_follower_the_leader_is_asked() -> None:
    consumer = at_follower()
    consumer.send(FOLLOWER)
    consumer.session.handle_disconnect(FOLLOWER, consumer.now_ms)
    consumer.now_ms += 50
    assert named(consumer.send(LEADER)) == [0]

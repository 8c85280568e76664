"""``clients/fetch/fetch_session``: requests to several brokers, and their responses, without a network."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest

from minikafka.base.errors import BrokerError, ErrorCode, LogTruncated
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.fetch_session import FetchRequestData, FetchSession
from minikafka.clients.fetch.fetch_state import CompletedFetch, FetchSettings, FetchStatus, PositionEpochs
from minikafka.clients.network.metadata import LeaderAndEpoch
from minikafka.clients.network.retry import Backoff
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Record, build_message_set
from minikafka.wire.apis.fetch import FETCH, FetchPartitionResponse, FetchResponse, FetchTopicResponse
from minikafka.wire.apis.offset_for_leader_epoch import (
    OFFSET_FOR_LEADER_EPOCH,
    EpochPartition,
    EpochPartitionResponse,
    EpochTopicResponse,
    OffsetForLeaderEpochResponse,
)

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
SETTINGS = FetchSettings(
    partition_max_bytes=100,
    max_bytes=250,
    message_max_bytes=1_000,
    min_bytes=5,
    max_wait_ms=300,
    retry_backoff=Backoff(50, 50),
)
CUT = bytes(8) + (300).to_bytes(4, "big") + bytes(20)


def batch(offset: int, leader_epoch: int, *, count: int = 1) -> bytes:
    """A batch of format 2."""
    return build_batch([Record(None, b"v")] * count, base_offset=offset, leader_epoch=leader_epoch)


class Sessions:
    """A session, the leaders that it is given, and the time."""

    def __init__(self, *partitions: TopicPartition, settings: FetchSettings = SETTINGS) -> None:
        self.session = FetchSession(settings)
        self.leaders: dict[TopicPartition, int] = dict.fromkeys(partitions, 1)
        self.epochs: dict[TopicPartition, int] = {}
        self.positions = dict.fromkeys(partitions, 0)
        self.now_ms = 1_000

    def leader(self, tp: TopicPartition) -> LeaderAndEpoch | None:
        broker_id = self.leaders.get(tp)
        return None if broker_id is None else LeaderAndEpoch(broker_id, self.epochs.get(tp, -1))

    def sent(self) -> list[FetchRequestData]:
        self.session.update(dict(self.positions))
        return list(self.session.next_requests(self.leader, object(), self.now_ms))

    def send(self) -> dict[int, list[TopicPartition]]:
        """Return the partitions of each request, in their order."""
        return {data.broker_id: list(data.partitions) for data in self.sent()}

    def answer(
        self,
        rows: Mapping[TopicPartition, bytes | ErrorCode],
        broker_id: int = 1,
        *,
        version: int = 10,
        after_ms: int = 300,
        throttle_time_ms: int = 0,
        code: ErrorCode = ErrorCode.NONE,
    ) -> list[CompletedFetch]:
        self.now_ms += after_ms
        parts = tuple(
            FetchPartitionResponse(tp.partition, 0, 9, 9, 0, None, memoryview(row))
            if isinstance(row, bytes)
            else FetchPartitionResponse(tp.partition, row, -1, -1, -1, None, None)
            for tp, row in rows.items()
        )
        response = FetchResponse(throttle_time_ms, code, 0, (FetchTopicResponse("t", parts),))
        return self.session.handle_response(broker_id, response, version, self.now_ms)

    def read(self, tp: TopicPartition, offset: int, epoch: int) -> None:
        """Fetch a batch of this epoch from its leader; the position is then behind it."""
        self.epochs[tp], self.positions[tp] = epoch, offset
        self.send()
        self.answer({tp: batch(offset, epoch)}, broker_id=self.leaders[tp])
        self.positions[tp] = offset + 1

    def elect(self, tp: TopicPartition, broker_id: int, epoch: int) -> None:
        self.leaders[tp], self.epochs[tp] = broker_id, epoch

    def answer_epoch(
        self,
        tp: TopicPartition,
        end_offset: int,
        broker_id: int = 2,
        *,
        code: ErrorCode = ErrorCode.NONE,
        version: int = 2,
    ) -> list[CompletedFetch]:
        row = EpochPartitionResponse(code, tp.partition, 3, end_offset)
        response = OffsetForLeaderEpochResponse(0, (EpochTopicResponse(tp.topic, (row,)),))
        return self.session.handle_response(broker_id, response, version, self.now_ms)


def message(offset: int = 0) -> bytes:
    return offset.to_bytes(8, "big") + build_message_set([Record(None, b"v")])[8:]


def statuses(found: list[CompletedFetch]) -> dict[TopicPartition, FetchStatus]:
    return {completed.topic_partition: completed.status for completed in found}


def fetching(*partitions: TopicPartition) -> Sessions:
    """A session that has sent its first requests."""
    sessions = Sessions(*partitions)
    sessions.send()
    return sessions


@pytest.fixture
def sessions() -> Sessions:
    return Sessions(T0)


def test_each_leader_gets_one_request_for_its_partitions() -> None:
    sessions = Sessions(T0, T1, T2)
    sessions.leaders = {T0: 1, T1: 2, T2: 1}
    assert sessions.send() == {1: [T0, T2], 2: [T1]}
    assert sessions.send() == {}
    sessions.answer({T1: b""}, broker_id=2)
    assert sessions.send() == {2: [T1]}


def test_request_has_the_settings_of_the_session() -> None:
    session = FetchSession(SETTINGS)
    session.update({T0: 7})
    (data,) = session.next_requests(lambda _: LeaderAndEpoch(1, -1), 0, 0)
    request = data.request
    assert (request.min_bytes, request.max_bytes, request.max_wait_ms) == (5, 250, 300)
    assert (request.replica_id, request.session_id, request.session_epoch) == (-1, 0, -1)
    (part,) = request.topics[0].partitions
    assert (part.fetch_offset, part.partition_max_bytes, part.current_leader_epoch) == (7, 100, -1)


def test_one_request_may_wait_for_a_shorter_time() -> None:
    session = FetchSession(SETTINGS)
    session.update({T0: 0})
    (data,) = session.next_requests(lambda _: LeaderAndEpoch(1, -1), 0, 0, 20)
    assert data.request.max_wait_ms == 20


def test_partitions_without_leader_or_position_are_left_out() -> None:
    sessions = Sessions(T0, T1, T2)
    del sessions.leaders[T1]
    sessions.positions[T2] = -1
    assert sessions.send() == {1: [T0]}


def test_partitions_with_data_move_to_the_end() -> None:
    sessions = fetching(T0, T1, T2)
    sessions.answer({T0: message(), T1: message(), T2: b""})
    sessions.positions = {T0: 1, T1: 1, T2: 0}
    assert sessions.send() == {1: [T2, T0, T1]}


def test_request_keeps_the_order_across_topics() -> None:
    session, other = FetchSession(SETTINGS), TopicPartition("u", 0)
    session.update({T0: 0, other: 0, T1: 0})
    (data,) = session.next_requests(lambda _: LeaderAndEpoch(1, -1), 0, 0)
    rows = [(topic.name, [part.index for part in topic.partitions]) for topic in data.request.topics]
    # With t's partitions together, those with data could take all the room of each response.
    assert rows == [("t", [0]), ("u", [0]), ("t", [1])]


def test_partition_keeps_its_place_while_it_is_not_fetched() -> None:
    sessions = fetching(T0, T1, T2)
    sessions.answer({T0: message(), T1: b"", T2: b""})
    sessions.positions = {T0: 1, T2: 0}
    assert sessions.send() == {1: [T2, T0]}
    sessions.answer({T2: b"", T0: b""})
    sessions.positions = {T0: 1, T1: 0, T2: 0}
    assert sessions.send() == {1: [T1, T2, T0]}


@pytest.mark.parametrize(("version", "bytes_", "max_bytes"), [(2, 400, 400), (3, 100, 250)])
def test_cut_off_partition_is_fetched_first(version: int, bytes_: int, max_bytes: int) -> None:
    sessions = fetching(T0, T1)
    found = sessions.answer({T0: b"", T1: CUT}, version=version)
    assert statuses(found) == {T0: FetchStatus.EMPTY, T1: FetchStatus.RETRY}
    (data,) = sessions.sent()
    assert list(data.partitions) == [T1, T0]
    # From Fetch 3 on the first partition's first message comes whole, whatever its size.
    assert (data.partitions[T1].partition_max_bytes, data.request.max_bytes) == (bytes_, max_bytes)


def test_first_partition_cut_off_all_the_same_gets_more_room() -> None:
    sessions = fetching(T0, T1)
    sessions.answer({T0: CUT, T1: b""})
    (data,) = sessions.sent()
    assert (data.partitions[T0].partition_max_bytes, data.request.max_bytes) == (400, 400)


def test_leaders_are_asked_for_once_while_their_version_stays() -> None:
    session, asked, times_ms = FetchSession(SETTINGS), [], itertools.count(0, 1_000)

    def leader(tp: TopicPartition) -> LeaderAndEpoch:
        asked.append(tp)
        return LeaderAndEpoch(1 if len(asked) <= 2 else 2, -1)

    def broker(version: int, positions: Mapping[TopicPartition, int]) -> int:
        session.update(positions)
        (data,) = session.next_requests(leader, version, next(times_ms))
        session.handle_response(data.broker_id, FetchResponse(0, 0, 0, ()), 12, data.sent_ms + 300)
        return data.broker_id

    assert [broker(1, {T0: 0, T1: 0}), broker(1, {T0: 0, T1: 7})] == [1, 1]
    assert asked == [T0, T1]
    assert broker(2, {T0: 0, T1: 7}) == 2
    assert asked == [T0, T1, T0, T1]


def test_response_for_another_position_does_not_count() -> None:
    sessions = fetching(T0, T1)
    sessions.positions = {T0: 5}  # a seek, and a pause
    assert sessions.send() == {}
    assert sessions.answer({T0: message(), T1: message()}) == []


def test_of_old_and_new_leader_the_first_response_counts(sessions: Sessions) -> None:
    assert sessions.send() == {1: [T0]}
    sessions.leaders[T0] = 2
    assert sessions.send() == {2: [T0]}
    assert statuses(sessions.answer({T0: message()}, broker_id=2)) == {T0: FetchStatus.RECORDS}
    assert sessions.answer({T0: message()}, broker_id=1) == []


def test_out_of_range_counts_once_and_waits_for_a_position(sessions: Sessions) -> None:
    sessions.send()
    sessions.leaders[T0] = 2
    sessions.send()
    error = ErrorCode.OFFSET_OUT_OF_RANGE
    assert statuses(sessions.answer({T0: error}, broker_id=1)) == {T0: FetchStatus.OUT_OF_RANGE}
    assert sessions.answer({T0: error}, broker_id=2) == []
    assert list(sessions.session.next_requests(sessions.leader, object(), sessions.now_ms)) == []
    sessions.positions[T0] = 4
    assert sessions.send() == {2: [T0]}


def test_lost_leader_delays_its_partition_alone() -> None:
    sessions = fetching(T0, T1)
    found = sessions.answer({T0: ErrorCode.NOT_LEADER_FOR_PARTITION, T1: b""})
    assert statuses(found) == {T0: FetchStatus.LEADER_LOST, T1: FetchStatus.EMPTY}
    assert sessions.session.next_ready_ms(sessions.now_ms) == sessions.now_ms + 50
    sessions.leaders[T0] = 2
    assert sessions.send() == {1: [T1]}
    sessions.now_ms += 50
    assert sessions.send() == {2: [T0]}
    assert sessions.session.next_ready_ms(sessions.now_ms) is None


def test_broken_connection_delays_the_partitions_of_its_request() -> None:
    sessions = Sessions(T0, T1)
    sessions.leaders[T1] = 2
    sessions.send()
    assert list(sessions.session.handle_disconnect(1, sessions.now_ms)) == [T0]
    assert list(sessions.session.handle_disconnect(1, sessions.now_ms)) == []
    assert sessions.send() == {}
    sessions.now_ms += 50
    assert sessions.send() == {1: [T0]}


def test_response_after_a_disconnect_does_not_count(sessions: Sessions) -> None:
    sessions.send()
    sessions.session.handle_disconnect(1, sessions.now_ms)
    assert sessions.answer({T0: message()}) == []


def test_partition_without_a_known_leader_backs_off(sessions: Sessions) -> None:
    sessions.session.update(dict(sessions.positions))
    sessions.session.back_off([T0, T1], sessions.now_ms)
    assert sessions.send() == {}
    sessions.now_ms += 50
    assert sessions.send() == {1: [T0]}


def test_error_of_the_response_is_that_of_all_its_partitions() -> None:
    sessions = fetching(T0, T1)
    found = sessions.answer({}, code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert statuses(found) == dict.fromkeys((T0, T1), FetchStatus.LEADER_LOST)


def test_partitions_left_out_wait_for_the_throttle_time() -> None:
    sessions = fetching(T0, T1)
    found = sessions.answer({T1: b""}, throttle_time_ms=400)
    assert statuses(found) == {T0: FetchStatus.THROTTLED, T1: FetchStatus.EMPTY}
    assert sessions.session.next_ready_ms(sessions.now_ms) == sessions.now_ms + 400


@pytest.mark.parametrize(
    ("rows", "after_ms", "sent"),
    [
        ({T0: b"", T1: b""}, 149, False),
        ({T0: b"", T1: b""}, 150, True),
        ({T0: b"", T1: message()}, 0, True),  # a partition without data does not delay those with data
    ],
)
def test_empty_response_of_a_hasty_broker_pauses(
    rows: dict[TopicPartition, bytes], after_ms: int, sent: bool
) -> None:
    sessions = fetching(T0, T1)
    sessions.answer(rows, after_ms=after_ms)
    sessions.positions[T1] = 1 if rows[T1] else 0
    assert bool(sessions.send()) is sent
    sessions.now_ms += 10
    assert bool(sessions.send()) is not sent


def test_a_partition_that_comes_back_at_its_position_is_fetched() -> None:
    sessions = fetching(T0)
    sessions.answer({T0: b""})
    sessions.session.retain(set())
    assert sessions.send() == {1: [T0]}


def test_forgotten_partition_starts_anew() -> None:
    sessions = fetching(T0, T1)
    sessions.answer({T0: CUT, T1: b""})
    sessions.session.retain({T1})
    (data,) = sessions.sent()
    assert {tp: part.partition_max_bytes for tp, part in data.partitions.items()} == {T1: 100, T0: 100}


# --- leader epochs


def test_requests_name_the_epoch_of_the_leader() -> None:
    sessions = Sessions(T0, T1)
    sessions.epochs = {T0: 4}
    (data,) = sessions.sent()
    assert [part.current_leader_epoch for part in data.partitions.values()] == [4, -1]


def test_first_request_to_a_new_leader_validates_the_position() -> None:
    sessions = Sessions(T0, T1)
    sessions.leaders[T1] = 2
    sessions.read(T0, 7, epoch=3)
    sessions.answer({T1: b""}, broker_id=2)
    sessions.elect(T0, 2, epoch=5)
    (data,) = sessions.sent()
    assert (data.broker_id, data.api, data.max_wait_ms) == (2, OFFSET_FOR_LEADER_EPOCH, 0)
    (topic,) = data.request.topics
    assert (topic.name, topic.partitions) == ("t", (EpochPartition(0, 5, 3),))
    assert sessions.sent() == []
    assert sessions.answer_epoch(T0, 8) == []
    (data,) = sessions.sent()
    assert data.api is FETCH
    assert {tp: part.fetch_offset for tp, part in data.partitions.items()} == {T0: 8, T1: 0}


@pytest.mark.parametrize("epochs", [(3, 3), (5, 3), (-1, 3), (3, -1)])
def test_positions_are_not_validated_without_a_later_epoch(
    sessions: Sessions, epochs: tuple[int, int]
) -> None:
    sessions.read(T0, 7, epoch=epochs[0])
    sessions.elect(T0, 2, epoch=epochs[1])
    (data,) = sessions.sent()
    assert data.api is FETCH


@pytest.mark.parametrize(
    ("entry", "offset"), [(message(), 1), (batch(0, -1), 1)], ids=["magic 1", "no epoch in the batch"]
)
def test_position_after_entries_without_epoch_is_not_validated(
    sessions: Sessions, entry: bytes, offset: int
) -> None:
    sessions.epochs[T0] = 3
    sessions.send()
    sessions.answer({T0: entry})
    sessions.positions[T0] = offset
    sessions.elect(T0, 2, epoch=4)
    (data,) = sessions.sent()
    assert data.api is FETCH


def test_position_has_the_epoch_of_the_last_complete_batch(sessions: Sessions) -> None:
    sessions.epochs[T0] = 3
    sessions.send()
    records = batch(0, 1) + batch(1, 2, count=3) + batch(4, 3)[:-1]
    (completed,) = sessions.answer({T0: records})
    assert (completed.next_offset, completed.epochs) == (4, PositionEpochs(2, 3))


def test_position_behind_the_end_of_its_epoch_is_truncated_until_a_seek(sessions: Sessions) -> None:
    sessions.read(T0, 7, epoch=3)
    sessions.elect(T0, 2, epoch=5)
    for _ in range(2):
        sessions.send()
        (completed,) = sessions.answer_epoch(T0, 6)
        assert (completed.status, completed.offset, completed.next_offset) == (FetchStatus.TRUNCATED, 8, 6)
        assert isinstance(completed.error, LogTruncated)
        error = completed.error
        assert (error.offset, error.epoch, error.end_offset) == (8, 3, 6)
    sessions.positions[T0] = 6
    (data,) = sessions.sent()
    assert (data.api, data.partitions[T0].fetch_offset) == (FETCH, 6)


def test_position_is_valid_if_the_leader_knows_no_end_of_its_epoch(sessions: Sessions) -> None:
    sessions.read(T0, 7, epoch=3)
    sessions.elect(T0, 2, epoch=5)
    sessions.send()
    assert sessions.answer_epoch(T0, -1) == []
    assert sessions.sent()[0].api is FETCH


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ErrorCode.FENCED_LEADER_EPOCH, FetchStatus.LEADER_LOST),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, FetchStatus.LEADER_LOST),
        (ErrorCode.NOT_LEADER_FOR_PARTITION, FetchStatus.LEADER_LOST),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, FetchStatus.FAILED),
    ],
)
def test_error_of_a_validation_is_that_of_a_fetch(
    sessions: Sessions, code: ErrorCode, status: FetchStatus
) -> None:
    sessions.read(T0, 7, epoch=3)
    sessions.elect(T0, 2, epoch=5)
    sessions.send()
    assert statuses(sessions.answer_epoch(T0, -1, code=code)) == {T0: status}
    sessions.now_ms += 50
    assert sessions.sent()[0].api is OFFSET_FOR_LEADER_EPOCH


def test_validation_of_an_earlier_position_does_not_count(sessions: Sessions) -> None:
    sessions.read(T0, 7, epoch=3)
    sessions.elect(T0, 2, epoch=5)
    sessions.send()
    sessions.positions[T0] = 2
    sessions.session.update(dict(sessions.positions))
    assert sessions.answer_epoch(T0, 6) == []


def test_records_of_the_old_leader_are_validated_at_the_new_one(sessions: Sessions) -> None:
    sessions.epochs[T0] = 3
    sessions.send()
    sessions.elect(T0, 2, epoch=5)
    sessions.send()  # at once, as the position has no epoch yet
    sessions.answer({T0: batch(0, 3)}, broker_id=1)
    sessions.positions[T0] = 1
    sessions.answer({T0: b""}, broker_id=2)
    assert sessions.sent()[0].api is OFFSET_FOR_LEADER_EPOCH


def test_paused_partition_keeps_the_epoch_of_its_position(sessions: Sessions) -> None:
    sessions.read(T0, 7, epoch=3)
    positions, sessions.positions = sessions.positions, {}
    assert sessions.send() == {}
    sessions.positions = positions
    sessions.elect(T0, 2, epoch=5)
    assert sessions.sent()[0].api is OFFSET_FOR_LEADER_EPOCH


def test_position_from_another_session_brings_its_epochs(sessions: Sessions) -> None:
    sessions.elect(T0, 2, epoch=5)
    sessions.session.update({T0: 8}, lambda _: PositionEpochs(3, 3))
    (data,) = sessions.session.next_requests(sessions.leader, object(), sessions.now_ms)
    assert data.api is OFFSET_FOR_LEADER_EPOCH


def test_old_version_of_the_validation_validates_nothing(sessions: Sessions) -> None:
    sessions.read(T0, 7, epoch=3)
    sessions.elect(T0, 2, epoch=5)
    sessions.send()
    assert sessions.answer_epoch(T0, 6, version=1) == []
    assert sessions.sent()[0].api is FETCH


def test_broker_without_the_validation_is_fetched_from(sessions: Sessions) -> None:
    sessions.read(T0, 7, epoch=3)
    sessions.elect(T0, 2, epoch=5)
    sessions.send()
    assert not sessions.session.skip_validation(2, OSError())
    unsupported = BrokerError(ErrorCode.UNSUPPORTED_VERSION)
    assert sessions.session.skip_validation(2, unsupported)
    assert sessions.sent()[0].api is FETCH
    assert not sessions.session.skip_validation(2, unsupported)

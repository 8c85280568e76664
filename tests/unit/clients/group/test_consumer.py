"""``clients/group/consumer``: members, brokers and a coordinator in memory, without threads or time."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, NetworkError, NoCommittedOffset
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.group.config import Reset
from minikafka.clients.group.consumer import GroupConsumer
from minikafka.clients.group.offsets import Committed
from minikafka.net.interfaces import PendingResponse
from minikafka.net.memory import Fault, MemoryConnection, MemoryNetwork
from minikafka.records.format.batch import ControlType, build_batch, build_control_batch
from minikafka.records.format.message_set import Codec, Record
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.heartbeat import HeartbeatResponse
from minikafka.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from minikafka.wire.frame_parts import Part
from tests.support.broker_harness import Later, commit_error, fetch_error
from tests.support.group_consumer_harness import T0, T1, T2, T3, GroupHarness, Listener, everything
from tests.support.raising import raising

# Reading.


def test_a_member_reads_every_record_of_its_topics_once(harness: GroupHarness) -> None:
    consumer = harness.consumer()
    assert harness.read(consumer) == Counter(everything())
    assert consumer.assignment == (T0, T1, T2, T3)
    assert [consumer.position(tp) for tp in consumer.assignment] == [5, 5, 5, 5]


def test_sets_are_views_with_their_range_and_decode_to_columns(harness: GroupHarness) -> None:
    consumer = harness.consumer()
    sets = next(sets for _ in range(40) if (sets := consumer.poll(50)))
    fetched = sets[0]
    assert type(fetched.data) is memoryview
    assert (fetched.start_offset, fetched.next_offset, fetched.high_watermark) == (0, 5, 5)
    (columns,) = fetched.columns()
    assert columns.offsets.tolist() == [0, 1, 2, 3, 4]
    assert columns.value_array()[4].as_py() == b"%s-4" % str(fetched.topic_partition).encode()


def test_earlier_records_of_a_compressed_entry_are_skipped(harness: GroupHarness) -> None:
    harness.brokers.fill(T0, b"a", b"b", b"c", codec=Codec.GZIP)
    consumer = harness.member()
    consumer.seek(T0, 6)
    (fetched,) = next(sets for _ in range(40) if (sets := consumer.poll(50)))
    assert [record.value for record in fetched.records()] == [b"b", b"c"]
    assert [columns.offsets.tolist() for columns in fetched.columns()] == [[6, 7]]


def test_a_poll_without_news_takes_the_time_it_was_given(harness: GroupHarness) -> None:
    consumer = harness.member()
    before = harness.brokers.clock.monotonic_ms()
    assert consumer.poll(700) == ()
    assert 700 <= harness.brokers.clock.monotonic_ms() - before <= 720


def test_a_poll_without_time_still_gets_on(harness: GroupHarness) -> None:
    consumer = harness.consumer()
    found = Counter(
        record.value for _ in range(100) for fetched in consumer.poll(0) for record in fetched.records()
    )
    assert found == Counter(everything())


class FarAway:
    """A connector to brokers whose responses take 5 ms."""

    def __init__(self, network: MemoryNetwork) -> None:
        self._network = network
        self.wait_any = network.wait_any

    def connect(self, host: str, port: int) -> MemoryConnection:
        connection = self._network.connect(host, port)
        request = connection.request

        def request_far_away(parts: Sequence[Part], max_response_bytes: int | None = None) -> PendingResponse:
            pending = request(parts, max_response_bytes)
            result = pending.result

            def late_result(timeout_ms: int | None = None) -> memoryview:
                if timeout_ms is not None and timeout_ms < 5 and not pending.settled():
                    connection.close()
                    raise NetworkError(f"no response within {timeout_ms} ms")
                return result(timeout_ms)

            pending.result = late_result  # type: ignore[method-assign]
            return pending

        connection.request = request_far_away  # type: ignore[method-assign]
        return connection


def test_polls_without_time_find_the_new_leader_of_a_distant_cluster(harness: GroupHarness) -> None:
    consumer = harness.bare(connector=FarAway(harness.brokers.network))
    consumer.assign([T0])
    assert sum(harness.read(consumer).values()) == 5
    harness.brokers.move_leader(T0, 3 - harness.brokers.leader(T0))
    harness.brokers.fill(T0, b"from the new leader")
    found = []
    for _ in range(50):
        harness.brokers.advance(100)
        found += [record.value for fetched in consumer.poll(0) for record in fetched.records()]
    assert found == [b"from the new leader"]


@pytest.mark.parametrize("fault", [Fault.CUT_REQUEST, Fault.CUT_RESPONSE])
def test_broken_connections_are_made_again(harness: GroupHarness, fault: Fault) -> None:
    consumer = harness.consumer()
    for broker_id in (1, 2):
        harness.brokers.fault(broker_id, fault, 3)
    assert harness.read(consumer) == Counter(everything())


def test_message_that_an_old_broker_cuts_off_is_read(harness: GroupHarness) -> None:
    large = b"x" * 5_000
    harness.brokers.newest[ApiKey.FETCH] = 2
    harness.brokers.fill(T0, large)
    consumer = harness.consumer(max_partition_fetch_bytes=1_000)
    assert harness.read(consumer) == Counter([*everything(), large])


def test_unexpected_error_of_a_leader_is_logged_once_and_retried(
    harness: GroupHarness, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = harness.bare()
    consumer.assign([T0])
    harness.brokers.script(ApiKey.FETCH, *[fetch_error(ErrorCode.UNKNOWN)] * 3)
    assert harness.read(consumer, rounds=30) == Counter(b"t-0-%d" % number for number in range(5))
    assert caplog.messages == ["UNKNOWN: fetching t-0 from offset 0; retrying"]


@pytest.mark.parametrize("poll_ms", [50, 500, 20_000])
@pytest.mark.parametrize("joined", [True, False])
def test_polls_log_a_warning_while_no_broker_can_be_reached(
    harness: GroupHarness, caplog: pytest.LogCaptureFixture, poll_ms: int, joined: bool
) -> None:
    consumer = harness.member() if joined else harness.consumer()
    for broker_id in (1, 2):
        harness.brokers.stop(broker_id)
    begun_ms = harness.brokers.clock.monotonic_ms()
    while harness.brokers.clock.monotonic_ms() < begun_ms + 10_000:
        assert consumer.poll(poll_ms) == ()
    texts = [record.getMessage() for record in caplog.records if record.name == "minikafka.clients"]
    assert len(texts) == 1
    assert "memory:9001: cannot connect" in texts[0]
    for broker_id in (1, 2):
        harness.brokers.start(broker_id)
    harness.brokers.fill(T2, b"after the outage")
    assert b"after the outage" in harness.read(consumer, rounds=60)


# Sharing.


def test_two_members_share_the_partitions_and_read_each_record_once(harness: GroupHarness) -> None:
    one, other = harness.consumer(), harness.consumer()
    harness.read(one, other)
    assert one.assignment + other.assignment in [(T0, T1, T2, T3), (T2, T3, T0, T1)]
    for tp in (T0, T1, T2, T3):
        harness.brokers.fill(tp, b"new %d" % tp.partition)
    assert harness.read(one, other) == Counter(b"new %d" % number for number in range(4))


def test_members_agree_on_an_assignor_that_all_of_them_have(harness: GroupHarness) -> None:
    one = harness.consumer(assignors=("roundrobin", "range"))
    other = harness.consumer(assignors=("range",))
    harness.read(one, other)
    assert harness.brokers.group("g").protocol_data == "range"
    assert sorted(one.assignment + other.assignment) == [T0, T1, T2, T3]


def test_members_that_join_and_leave_take_and_give_partitions(harness: GroupHarness) -> None:
    listener = Listener()
    one = harness.member(listener)
    two = harness.consumer()
    harness.read(one, two)
    two.close()
    harness.read(one)
    assert one.assignment == (T0, T1, T2, T3)
    assert [what for what, _ in listener.told] == ["assigned", "revoked", "assigned", "revoked", "assigned"]
    assert [len(partitions) for _, partitions in listener.told] == [4, 4, 2, 2, 4]


def test_extra_members_stay_idle_until_a_partition_is_free(harness: GroupHarness) -> None:
    consumers = [harness.consumer() for _ in range(5)]
    harness.read(*consumers)
    assert sorted(len(consumer.assignment) for consumer in consumers) == [0, 1, 1, 1, 1]
    next(consumer for consumer in consumers if consumer.assignment).close()
    left = [consumer for consumer in consumers if consumer.assignment or consumer.member_id]
    harness.read(*left)
    assert sorted(len(consumer.assignment) for consumer in left) == [1, 1, 1, 1]


def test_a_member_that_was_thrown_out_comes_back_as_a_new_one(harness: GroupHarness) -> None:
    listener = Listener()
    consumer = harness.member(listener, heartbeat_interval_ms=100)
    before = consumer.member_id
    harness.brokers.remove_member("g", before)
    harness.read(consumer)
    assert consumer.member_id not in {"", before}
    assert consumer.assignment == (T0, T1, T2, T3)
    assert [what for what, _ in listener.told] == ["assigned", "revoked", "assigned"]


def test_a_new_subscription_is_joined_for(harness: GroupHarness) -> None:
    harness.brokers.add_topic("u", 1)
    consumer = harness.member()
    consumer.subscribe(["u"])
    harness.read(consumer)
    assert consumer.assignment == (TopicPartition("u", 0),)


def test_no_subscription_leaves_the_group(harness: GroupHarness) -> None:
    consumer = harness.member()
    consumer.subscribe([])
    assert harness.brokers.group("g").group_state == "Empty"
    assert consumer.assignment == ()
    with pytest.raises(ValueError, match="subscribe"):
        consumer.poll(10)


def test_new_partitions_are_noticed_and_shared(harness: GroupHarness) -> None:
    consumer = harness.consumer()
    consumer._cluster._metadata.max_age_ms = 2_000
    harness.read(consumer)
    harness.brokers.add_topic("t", 5)
    harness.read(consumer, rounds=60)
    assert len(consumer.assignment) == 5


def test_a_topic_that_comes_later_is_read_then(harness: GroupHarness) -> None:
    consumer = harness.consumer()
    consumer.subscribe(["late", "t"])
    harness.read(consumer)
    late = TopicPartition("late", 0)
    harness.brokers.add_topic("late", 1)
    harness.brokers.fill(late, b"at last")
    assert harness.read(consumer)[b"at last"] == 1


def test_an_unexpected_answer_to_a_heartbeat_is_raised_by_the_poll(harness: GroupHarness) -> None:
    consumer = harness.member(heartbeat_interval_ms=100)
    code = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    harness.brokers.script(ApiKey.HEARTBEAT, lambda *_: HeartbeatResponse(0, code))
    with pytest.raises(BrokerError, match="GROUP_AUTHORIZATION_FAILED: heartbeat of group 'g'"):
        harness.read(consumer)


# The coordinator.


def test_a_coordinator_that_comes_late_is_waited_for(harness: GroupHarness) -> None:
    harness.brokers.move_coordinator(-1)
    consumer = harness.consumer()
    assert harness.read(consumer, rounds=5) == Counter()
    harness.brokers.move_coordinator(2)
    assert harness.read(consumer) == Counter(everything())


@pytest.mark.parametrize("heartbeat_ms", [100, 2_900])  # found by a heartbeat, or by the commit
def test_a_moved_coordinator_is_followed_without_a_rebalance(
    harness: GroupHarness, heartbeat_ms: int
) -> None:
    consumer = harness.member(heartbeat_interval_ms=heartbeat_ms)
    generation = consumer.generation
    harness.brokers.move_coordinator(2)
    harness.read(consumer)
    consumer.commit_sync()
    assert consumer.generation == generation
    assert harness.committed() == dict.fromkeys((T0, T1, T2, T3), 5)


def test_a_coordinator_that_is_cut_off_while_it_joins_is_asked_again(harness: GroupHarness) -> None:
    harness.brokers.script(ApiKey.JOIN_GROUP, lambda *_: Fault.CUT_REQUEST)
    harness.brokers.script(ApiKey.SYNC_GROUP, lambda *_: Fault.CUT_REQUEST)
    assert harness.read(harness.consumer(), rounds=60) == Counter(everything())


# Where it begins.


def test_a_group_goes_on_where_it_has_committed(harness: GroupHarness) -> None:
    one = harness.member()
    one.commit_sync({T0: Committed(3, "half"), T1: Committed(5), T2: Committed(0), T3: Committed(5)})
    one.close()
    other = harness.consumer()
    assert set(harness.read(other)) == {b"t-0-3", b"t-0-4"} | everything(T0, T1, T3)
    assert other.committed([T0, T1])[T0] == Committed(3, "half")


@pytest.mark.parametrize(("reset", "found"), [(Reset.EARLIEST, everything()), (Reset.LATEST, set())])
def test_without_a_commit_the_rule_decides(harness: GroupHarness, reset: Reset, found: set[bytes]) -> None:
    assert set(harness.read(harness.consumer(auto_offset_reset=reset))) == found


def test_read_committed_skips_aborted_and_stops_at_open_records(harness: GroupHarness) -> None:
    log = harness.brokers.logs[T0]

    about = {"producer_id": 7, "producer_epoch": 0}
    log.append(build_batch([Record(None, b"aborted")], **about, transactional=True))
    log.append(build_control_batch(ControlType.ABORT, coordinator_epoch=0, timestamp_ms=0, **about))
    harness.brokers.fill(T0, b"plain", magic=2)
    log.append(build_batch([Record(None, b"open")], **about, transactional=True))
    committed = harness.consumer(isolation=IsolationLevel.READ_COMMITTED)
    assert set(harness.read(committed)) == everything() | {b"plain"}
    assert committed.position(T0) == 8
    committed.close()
    late = harness.consumer(isolation=IsolationLevel.READ_COMMITTED, auto_offset_reset=Reset.LATEST)
    harness.read(late)
    assert late.position(T0) == 8
    late.close()
    assert set(harness.read(harness.consumer())) == everything() | {b"aborted", b"plain", b"open"}


def test_without_a_commit_and_without_a_rule_it_says_so(harness: GroupHarness) -> None:
    consumer = harness.consumer(auto_offset_reset=Reset.NONE)
    with pytest.raises(
        NoCommittedOffset, match=r"group 'g' has no committed offset of t-0.*and 1 more.*seek"
    ):
        harness.read(consumer)


def test_a_listener_may_say_where_to_begin(harness: GroupHarness) -> None:
    listener = Listener()
    consumer = harness.consumer(listener, auto_offset_reset=Reset.NONE)
    listener.then["assigned"] = lambda: [consumer.seek(tp, 4) for tp in consumer.assignment]
    assert set(harness.read(consumer)) == {b"t-%d-4" % number for number in range(4)}


@pytest.mark.parametrize(("committed", "found"), [(2, {b"t-0-3", b"t-0-4"}), (90, {b"t-0-3", b"t-0-4"})])
def test_an_offset_that_the_log_does_not_have_follows_the_rule(
    harness: GroupHarness, committed: int, found: set[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    harness.brokers.commit("g", {T0: committed})
    harness.brokers.logs[T0].delete_before(3)
    assert set(harness.read(harness.consumer())) == found | everything(T0)
    assert f"t-0: offset {committed} is out of range; resetting to earliest" in caplog.text


def test_seeks_count_from_the_next_poll_on(harness: GroupHarness) -> None:
    consumer = harness.member()
    consumer.seek(T1, 2)
    assert set(harness.read(consumer)) == {b"t-1-2", b"t-1-3", b"t-1-4"}
    consumer.seek_to_beginning(T2)
    assert set(harness.read(consumer)) == {b"t-2-%d" % number for number in range(5)}
    consumer.seek_to_beginning()
    consumer.seek_to_end(T0, T1, T2)
    assert set(harness.read(consumer)) == everything(T0, T1, T2)


def test_paused_partitions_give_nothing_until_they_are_resumed(harness: GroupHarness) -> None:
    listener = Listener()
    consumer = harness.consumer(listener)
    listener.then["assigned"] = lambda: consumer.pause(T0, T3)
    assert set(harness.read(consumer)) == everything(T0, T3)
    assert consumer.paused == (T0, T3)
    consumer.resume(T3)
    assert set(harness.read(consumer)) == everything(T0, T1, T2)


@pytest.mark.parametrize(
    "call",
    [
        lambda consumer, tp: consumer.seek(tp, 0),
        lambda consumer, tp: consumer.pause(tp),
        lambda consumer, tp: consumer.resume(tp),
        lambda consumer, tp: consumer.position(tp),
        lambda consumer, tp: consumer.seek_to_end(tp),
    ],
)
def test_another_members_partition_is_no_business_of_this_one(
    harness: GroupHarness, call: Callable[[GroupConsumer, TopicPartition], object]
) -> None:
    consumer = harness.member()
    with pytest.raises(
        ValueError, match=r"u-0 is not assigned to this member; assigned: t-0, t-1, t-2 and 1"
    ):
        call(consumer, TopicPartition("u", 0))


# Commits.


def test_a_commit_without_offsets_commits_the_positions(harness: GroupHarness) -> None:
    harness.member().commit_sync()
    assert harness.committed() == dict.fromkeys((T0, T1, T2, T3), 5)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.GROUP_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR_FOR_GROUP,
        ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    ],
)
def test_a_commit_that_is_waited_for_is_tried_again(harness: GroupHarness, code: ErrorCode) -> None:
    consumer = harness.member()
    harness.brokers.script(ApiKey.OFFSET_COMMIT, *[commit_error(code)] * 3)
    consumer.commit_sync()
    assert harness.committed() == dict.fromkeys((T0, T1, T2, T3), 5)


@pytest.mark.parametrize(
    "code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS]
)
def test_commit_of_a_former_member_fails_and_the_next_poll_rejoins(
    harness: GroupHarness, code: ErrorCode
) -> None:
    consumer = harness.member()
    generation = consumer.generation

    def refused(_: int, request: OffsetCommitRequest) -> OffsetCommitResponse:
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            harness.brokers.remove_member("g", request.member_id)
        return commit_error(code)(_, request)

    harness.brokers.script(ApiKey.OFFSET_COMMIT, refused)
    with pytest.raises(BrokerError, match=rf"{code.name}: .*for group 'g'.*max\.poll\.interval\.ms"):
        consumer.commit_sync()
    assert harness.committed() == {}
    harness.read(consumer)
    assert consumer.generation > generation
    assert consumer.assignment == (T0, T1, T2, T3)


def test_refused_async_commit_of_a_former_member_rejoins(harness: GroupHarness) -> None:
    consumer = harness.member()
    generation = consumer.generation
    harness.brokers.script(ApiKey.OFFSET_COMMIT, commit_error(ErrorCode.ILLEGAL_GENERATION))
    consumer.commit_async()
    harness.read(consumer)
    assert consumer.generation > generation


def test_who_is_outside_of_the_group_commits_nothing(harness: GroupHarness) -> None:
    consumer = harness.member(max_poll_interval_ms=1_000)
    harness.brokers.advance(2_000)
    consumer._member.tick()
    with pytest.raises(BrokerError, match=r"UNKNOWN_MEMBER_ID: cannot commit: not a member of group 'g'"):
        consumer.commit_sync()
    assert harness.committed() == {}


def test_async_commits_call_back_in_order_in_a_later_call(harness: GroupHarness) -> None:
    consumer = harness.member()
    called: list[tuple[dict[TopicPartition, Committed], MinikafkaError | None]] = []
    for offset in (1, 2):
        consumer.commit_async(
            {T0: Committed(offset)}, lambda offsets, error: called.append((dict(offsets), error))
        )
    assert called == []
    consumer.commit_sync({T0: Committed(3)})
    assert called == [({T0: Committed(1)}, None), ({T0: Committed(2)}, None)]
    assert harness.committed() == {T0: 3}


def test_failed_callback_during_revocation_still_revokes_partitions(harness: GroupHarness) -> None:
    listener = Listener()
    consumer = harness.consumer(listener, auto_commit=True)
    assert any(consumer.poll_records(50, 1) for _ in range(40))
    consumer.commit_async({T0: Committed(1)}, raising(KeyError("missing")))
    with pytest.raises(KeyError):
        consumer.unsubscribe()
    assert listener.told[-1] == ("revoked", (T0, T1, T2, T3))
    assert consumer.assignment == ()
    other = TopicPartition("u", 0)
    harness.brokers.add_topic("u", 1)
    harness.brokers.fill(other, b"another")
    consumer.subscribe(["u"])
    assert harness.read(consumer) == Counter([b"another"])


@pytest.mark.parametrize(
    ("partitions", "text"), [([T0], "the offset of t-0"), ([T2, T0, T1], "offsets of t-0 and 2 more")]
)
def test_a_commit_that_failed_and_that_nobody_waits_for_is_logged(
    harness: GroupHarness, caplog: pytest.LogCaptureFixture, partitions: list[TopicPartition], text: str
) -> None:
    consumer = harness.member()
    code = ErrorCode.OFFSET_METADATA_TOO_LARGE
    harness.brokers.script(ApiKey.OFFSET_COMMIT, commit_error(code))
    consumer.commit_async({tp: Committed(1, "x" * 5_000) for tp in partitions})
    harness.read(consumer, rounds=2)
    assert f"failed to commit {text}: OFFSET_METADATA_TOO_LARGE" in caplog.text
    assert "offset.metadata.max.bytes" in caplog.text


def test_commit_without_a_response_tells_the_time_that_was_waited(
    harness: GroupHarness, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = harness.member()
    harness.brokers.always(ApiKey.OFFSET_COMMIT, lambda *_: Later())
    consumer.commit_async({T0: Committed(1)})
    with pytest.raises(NetworkError):
        consumer.commit_sync({T0: Committed(2)}, timeout_ms=5_000)
    assert (
        "the offset of t-0: broker 1 at memory:9001: OffsetCommit: no response within 5000 ms" in caplog.text
    )


def test_positions_are_committed_every_interval_as_far_as_they_have_moved(harness: GroupHarness) -> None:
    consumer = harness.member(auto_commit=True, auto_commit_interval_ms=1_000)
    harness.read(consumer)
    assert harness.committed() == dict.fromkeys((T0, T1, T2, T3), 5)
    harness.brokers.fill(T1, b"new")
    harness.read(consumer)
    last: OffsetCommitRequest = harness.brokers.asked(ApiKey.OFFSET_COMMIT)[-1]
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in last.topics] == [("t", [1])]
    assert harness.committed()[T1] == 6


def test_returned_records_are_committed_before_the_revocation(harness: GroupHarness) -> None:
    listener = Listener()
    one = harness.member(listener, auto_commit=True, auto_commit_interval_ms=600_000)
    listener.then["revoked"] = lambda: committed.append(harness.committed())
    committed: list[dict[TopicPartition, int]] = []
    other = harness.consumer(auto_commit=True)
    assert harness.read(one, other) == Counter()
    assert committed == [dict.fromkeys((T0, T1, T2, T3), 5)]


def test_failed_automatic_commit_is_repeated_before_the_revocation(harness: GroupHarness) -> None:
    consumer = harness.member(auto_commit=True, auto_commit_interval_ms=600_000)
    code = ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE
    harness.brokers.script(ApiKey.OFFSET_COMMIT, commit_error(code))
    consumer._next_auto_commit_ms = 0
    consumer._maybe_auto_commit()
    consumer.close()
    assert harness.committed() == dict.fromkeys((T0, T1, T2, T3), 5)


def test_without_automatic_commits_a_listener_may_commit_what_was_read(harness: GroupHarness) -> None:
    listener = Listener()
    one = harness.member(listener)
    listener.then["revoked"] = one.commit_sync
    assert harness.read(one, harness.consumer()) == Counter()


# The end.


def test_closing_commits_gives_up_and_leaves(harness: GroupHarness) -> None:
    listener = Listener()
    consumer = harness.member(listener, auto_commit=True, auto_commit_interval_ms=600_000)
    consumer.close()
    consumer.close()
    assert harness.committed() == dict.fromkeys((T0, T1, T2, T3), 5)
    assert listener.told[-1] == ("revoked", (T0, T1, T2, T3))
    assert harness.brokers.group("g").group_state == "Empty"
    with pytest.raises(ValueError, match="closed"):
        consumer.poll(0)


def test_listener_error_at_close_is_raised_and_the_group_left(harness: GroupHarness) -> None:
    listener = Listener()
    consumer = harness.member(listener)
    listener.then["revoked"] = lambda: {}["missing"]
    with pytest.raises(KeyError):
        consumer.close()
    assert harness.brokers.group("g").group_state == "Empty"


def test_listener_error_in_a_rebalance_is_raised_and_polls_continue(harness: GroupHarness) -> None:
    listener = Listener()
    consumer = harness.member(listener, heartbeat_interval_ms=100)
    listener.then["revoked"] = lambda: {}["missing"]
    other = harness.consumer()
    other.poll(0)
    with pytest.raises(KeyError):
        harness.read(consumer)
    listener.then.clear()
    harness.read(consumer, other)
    assert sorted(consumer.assignment + other.assignment) == [T0, T1, T2, T3]


def test_who_polls_too_late_has_left_and_says_so(
    harness: GroupHarness, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = harness.member(max_poll_interval_ms=1_000)
    harness.brokers.advance(2_000)
    # What the heartbeats' thread does meanwhile.
    consumer._member.tick()
    assert harness.brokers.group("g").group_state == "Empty"
    assert "leaving group g: no poll for max.poll.interval.ms=1000" in caplog.text
    with caplog.at_level(logging.INFO):
        harness.read(consumer)
    assert consumer.assignment == (T0, T1, T2, T3)

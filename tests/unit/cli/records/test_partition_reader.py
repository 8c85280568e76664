"""``consume``: where it begins, and what it makes of a topic that goes away."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import pytest

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.cli.connection.connect import UNKNOWN_TOPIC_TIMEOUT_MS
from minikafka.cli.records.partition_reader import ReadOptions, read_partitions, read_positions
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.fetch.read_ranges import Anchor, Position, ReadRange
from minikafka.partition.partition import Partition
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import BrokerHarness, fetch_error
from tests.support.transactions import part_of_transaction

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
AT_END = ReadRange(Position(Anchor.END))


def from_offset(offset: int) -> ReadRange:
    return ReadRange(Position(Anchor.OFFSET, offset))


class ReadTopic:
    """Topic t with two partitions, of which one has messages, and a client that reads it."""

    def __init__(self) -> None:
        self.brokers = BrokerHarness(1, {"t": 2})
        self.brokers.fill(T0, b"a", b"b", b"c")
        self.cluster = self.brokers.client(
            creates_topics=False, unknown_topic_timeout_ms=UNKNOWN_TOPIC_TIMEOUT_MS
        )

    def values(self, positions: dict[TopicPartition, int], count: int) -> list[bytes | None]:
        return [record.value for _, record in islice(read_partitions(self.cluster, positions), count)]

    @property
    def partition(self) -> Partition:
        """Partition 1 of its leader."""
        return self.brokers.simulation.machine_of(self.brokers.leader(T1)).broker.partition(T1)

    def while_it_waits(self, change: Callable[[], object]) -> None:
        """Do ``change`` at the first pause."""
        wait = self.brokers.waiter.wait

        def once(milliseconds: int) -> None:
            self.brokers.waiter.wait = wait  # type: ignore[method-assign]
            change()
            wait(milliseconds)

        self.brokers.waiter.wait = once  # type: ignore[method-assign]

    def delete(self) -> None:
        self.brokers.delete_topic("t")


@pytest.fixture
def topic() -> ReadTopic:
    return ReadTopic()


@pytest.mark.parametrize(
    ("where", "positions"),
    [(ReadRange(), {T0: 0, T1: 0}), (AT_END, {T0: 3, T1: 0}), (from_offset(0), {T0: 0, T1: 0})],
)
def test_it_begins_where_it_is_told_without_a_word(
    topic: ReadTopic,
    where: ReadRange,
    positions: dict[TopicPartition, int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert read_positions(topic.cluster, ["t"], where) == (positions, None)
    assert capsys.readouterr() == ("", "")


def test_offset_beyond_the_end_is_reported_with_partitions(
    topic: ReadTopic, capsys: pytest.CaptureFixture[str]
) -> None:
    assert read_positions(topic.cluster, ["t"], from_offset(3)) == ({T0: 3, T1: 0}, None)
    assert capsys.readouterr().err == (
        "minikafka: no offset 3 yet in t-1 (ends at 0): waiting at the end for new messages\n"
    )


def test_many_partitions_are_told_in_one_line(topic: ReadTopic, capsys: pytest.CaptureFixture[str]) -> None:
    topic.brokers.add_topic("many", 20)
    read_positions(topic.cluster, ["many"], from_offset(9))
    err = capsys.readouterr().err
    assert "many-4 (ends at 0) and 15 more: waiting" in err
    assert err.count("\n") == 1


def test_an_offset_that_is_gone_is_told(topic: ReadTopic, capsys: pytest.CaptureFixture[str]) -> None:
    topic.brokers.logs[T0].delete_before(2)
    assert read_positions(topic.cluster, ["t"], from_offset(0)) == ({T0: 2, T1: 0}, None)
    assert "offset 0 was deleted in t-0 (starts at 2): reading from there" in capsys.readouterr().err


def test_a_time_after_all_messages_is_told(topic: ReadTopic, capsys: pytest.CaptureFixture[str]) -> None:
    assert read_positions(topic.cluster, ["t"], ReadRange(Position(Anchor.TIME, 1_001))) == (
        {T0: 1, T1: 0},
        None,
    )
    assert capsys.readouterr().err == (
        "minikafka: no message at or after 1970-01-01T00:00:01.001Z in t-1 (ends at 0): "
        "waiting at the end for new ones\n"
    )


def test_what_comes_later_is_read_too(topic: ReadTopic) -> None:
    topic.while_it_waits(lambda: topic.brokers.fill(T1, b"d"))
    assert topic.values({T0: 1, T1: 0}, 3) == [b"b", b"c", b"d"]


def test_markers_of_transactions_are_not_messages(topic: ReadTopic) -> None:
    topic.partition.append(part_of_transaction(7, 1))
    topic.partition.append_end_marker(7, 0, 0, commit=False)
    topic.brokers.fill(T1, b"after")
    assert topic.values({T1: 0}, 2) == [b"0", b"after"]


def test_read_committed_waits_for_the_end_of_a_transaction(topic: ReadTopic) -> None:
    topic.partition.append(part_of_transaction(7, 1))
    topic.partition.append_end_marker(7, 0, 0, commit=False)
    topic.brokers.fill(T1, b"plain")
    topic.partition.append(part_of_transaction(8, 1))
    topic.while_it_waits(lambda: topic.partition.append_end_marker(8, 0, 0, commit=True))
    committed = IsolationLevel.READ_COMMITTED
    assert read_positions(topic.cluster, ["t"], AT_END, committed) == ({T0: 3, T1: 3}, None)
    found = list(islice(read_partitions(topic.cluster, {T1: 0}, ReadOptions(committed)), 2))
    assert [record.value for _, record in found] == [b"plain", b"0"]
    assert topic.brokers.waiter.waits


def test_who_may_not_read_an_empty_topic_is_told_and_does_not_wait(topic: ReadTopic) -> None:
    topic.brokers.add_topic("empty", 1)
    topic.brokers.script(ApiKey.FETCH, fetch_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(BrokerError, match="not authorized: Read on Topic:empty") as raised:
        topic.values({TopicPartition("empty", 0): 0}, 1)
    assert raised.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_who_loses_the_right_to_read_while_nothing_comes_is_told(topic: ReadTopic) -> None:
    denial = fetch_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic.while_it_waits(lambda: topic.brokers.script(ApiKey.FETCH, denial))
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        topic.values({T0: 3, T1: 0}, 1)


def test_a_leader_that_is_away_while_nothing_comes_is_waited_for(topic: ReadTopic) -> None:
    topic.brokers.script(ApiKey.FETCH, fetch_error(ErrorCode.NOT_LEADER_FOR_PARTITION))
    topic.while_it_waits(lambda: topic.brokers.fill(T1, b"d"))
    assert topic.values({T0: 3, T1: 0}, 1) == [b"d"]


def test_a_topic_that_is_deleted_ends_it_soon_and_stays_deleted(topic: ReadTopic) -> None:
    topic.while_it_waits(topic.delete)
    with pytest.raises(MinikafkaError, match=r"^topic 't' was deleted while it was read$"):
        topic.values({T0: 0, T1: 0}, 99)
    assert topic.brokers.clock.monotonic_ms() <= 2_000
    assert not any(request.allow_auto_topic_creation for request in topic.brokers.asked(ApiKey.METADATA))


def test_a_topic_that_is_deleted_while_messages_are_fetched_ends_it_too(topic: ReadTopic) -> None:
    messages = read_partitions(topic.cluster, {T0: 0, T1: 0})
    topic.brokers.script(ApiKey.FETCH, fetch_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    lookup = topic.brokers.serve

    def look_and_delete(broker_id: int, request: object) -> object:
        answer = lookup(broker_id, request)  # type: ignore[arg-type]
        topic.delete()
        return answer

    topic.brokers.script(ApiKey.LIST_OFFSETS, look_and_delete)
    with pytest.raises(MinikafkaError, match="was deleted while it was read"):
        next(messages)
    assert topic.brokers.clock.monotonic_ms() <= 2_000


def test_a_topic_made_anew_is_told_by_offsets_that_went_back(topic: ReadTopic) -> None:
    def anew() -> None:
        topic.delete()
        topic.brokers.add_topic("t", 2)

    topic.while_it_waits(anew)
    with pytest.raises(
        MinikafkaError, match="deleted and recreated while it was read: t-0 was read to 3 and now ends at 0"
    ):
        topic.values({T0: 0, T1: 0}, 99)
    assert topic.brokers.clock.monotonic_ms() <= 2_000


def test_a_topic_made_anew_with_fewer_partitions_is_told(topic: ReadTopic) -> None:
    def anew() -> None:
        topic.delete()
        topic.brokers.add_topic("t", 1)
        topic.brokers.fill(T0, b"1", b"2", b"3", b"4")

    topic.while_it_waits(anew)
    with pytest.raises(MinikafkaError, match="recreated while it was read: t-1 no longer exists"):
        topic.values({T0: 0, T1: 0}, 99)


def test_a_leader_that_is_behind_for_a_moment_is_waited_for(topic: ReadTopic) -> None:
    topic.brokers.logs[T0].truncate(2)
    topic.while_it_waits(lambda: topic.brokers.fill(T0, b"d", b"e"))
    assert topic.values({T0: 3, T1: 0}, 1) == [b"e"]


def test_a_leader_that_does_not_know_its_partition_yet_is_asked_again(topic: ReadTopic) -> None:
    topic.brokers.script(ApiKey.FETCH, *[fetch_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)] * 3)
    assert topic.values({T0: 0, T1: 0}, 3) == [b"a", b"b", b"c"]


def test_messages_deleted_before_reading_are_skipped(
    topic: ReadTopic, capsys: pytest.CaptureFixture[str]
) -> None:
    topic.brokers.logs[T0].delete_before(2)
    assert topic.values({T0: 0, T1: 0}, 1) == [b"c"]
    assert "offset 0 was deleted in t-0 (starts at 2)" in capsys.readouterr().err


def values_to(topic: ReadTopic, wanted: ReadRange, numbers: set[int] | None = None) -> list[bytes | None]:
    """The values of a read that has an end."""
    positions, ends = read_positions(topic.cluster, ["t"], wanted, numbers=numbers)
    assert ends is not None
    return [record.value for _, record in read_partitions(topic.cluster, positions, ends=ends)]


TO_END = ReadRange(end=Position(Anchor.END))


def test_a_read_with_an_end_ends_there(topic: ReadTopic) -> None:
    topic.brokers.fill(T1, b"d", b"e")
    assert values_to(topic, TO_END) == [b"a", b"b", b"c", b"d", b"e"]
    offsets = ReadRange(Position(Anchor.OFFSET, 1), Position(Anchor.OFFSET, 2))
    assert values_to(topic, offsets) == [b"b", b"e"]


def test_an_empty_range_ends_at_once_and_says_where_nothing_is(
    topic: ReadTopic, capsys: pytest.CaptureFixture[str]
) -> None:
    assert values_to(topic, ReadRange(Position(Anchor.OFFSET, 5), Position(Anchor.END))) == []
    assert capsys.readouterr().err == (
        "minikafka: no offset 5 yet in t-0 (ends at 3), t-1 (ends at 0): nothing to read there\n"
    )


def test_an_end_is_reached_past_records_that_are_deleted_meanwhile(topic: ReadTopic) -> None:
    positions, ends = read_positions(topic.cluster, ["t"], TO_END)
    topic.brokers.logs[T0].delete_before(2)
    assert [record.value for _, record in read_partitions(topic.cluster, positions, ends=ends)] == [b"c"]


def test_only_the_named_partitions_are_read(topic: ReadTopic) -> None:
    topic.brokers.fill(T1, b"d")
    assert values_to(topic, TO_END, {1}) == [b"d"]
    with pytest.raises(BrokerError, match="t-2: topic 't' has 2 partitions, 0 to 1"):
        values_to(topic, TO_END, {0, 2})


def test_several_topics_are_read_and_each_is_watched(topic: ReadTopic) -> None:
    topic.brokers.add_topic("u", 1)
    topic.brokers.fill(TopicPartition("u", 0), b"x")
    positions, _ = read_positions(topic.cluster, ["t", "u"], ReadRange())
    messages = read_partitions(topic.cluster, positions)
    assert [record.value for _, record in islice(messages, 4)] == [b"a", b"b", b"c", b"x"]
    topic.while_it_waits(lambda: topic.brokers.delete_topic("u"))
    with pytest.raises(MinikafkaError, match="topic 'u' was deleted while it was read"):
        next(messages)


def test_markers_of_transactions_are_read_when_asked_for(topic: ReadTopic) -> None:
    topic.partition.append(part_of_transaction(7, 1))
    topic.partition.append_end_marker(7, 0, 0, commit=False)
    found = list(islice(read_partitions(topic.cluster, {T1: 0}, ReadOptions(whole=True, control=True)), 2))
    assert [getattr(record, "control", None) for _, record in found] == [False, True]


def test_whole_records_alone_have_no_markers(topic: ReadTopic) -> None:
    topic.partition.append(part_of_transaction(7, 1))
    topic.partition.append_end_marker(7, 0, 0, commit=False)
    topic.brokers.fill(T1, b"d")
    found = list(islice(read_partitions(topic.cluster, {T1: 0}, ReadOptions(whole=True)), 2))
    assert [(getattr(record, "producer_id", None), record.offset) for _, record in found] == [(7, 0), (-1, 2)]


def test_a_wait_behind_an_open_transaction_is_told_once(
    topic: ReadTopic, capsys: pytest.CaptureFixture[str]
) -> None:
    topic.partition.append(part_of_transaction(7, 1))
    committed = ReadOptions(IsolationLevel.READ_COMMITTED)
    topic.while_it_waits(lambda: topic.brokers.fill(T0, b"d"))
    messages = read_partitions(topic.cluster, {T0: 3, T1: 0}, committed)
    assert next(messages)[1].value == b"d"
    told = (
        "minikafka: an open transaction holds back messages of t-1 (which ends at 1): waiting for its end; "
        "`minikafka txn describe-producers --topic t --partition 1` shows its producer, "
        "`minikafka txn find-hanging --topic t --partition 1` whether nobody will end it\n"
    )
    assert capsys.readouterr().err == told
    topic.while_it_waits(lambda: topic.brokers.fill(T0, b"e"))
    topic.brokers.clock.advance(20_000)
    assert next(messages)[1].value == b"e"
    assert capsys.readouterr().err == ""


def test_a_damaged_set_is_told_with_its_partition_and_offset(topic: ReadTopic) -> None:
    topic.brokers.damage(1, lambda data: data[:-1] + bytes([data[-1] ^ 1]))
    messages = read_partitions(topic.cluster, {T0: 0, T1: 0})
    with pytest.raises(BrokerError, match="CORRUPT_MESSAGE: t-0 at offset 1: "):
        list(messages)

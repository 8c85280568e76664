"""``consume --group`` on brokers in memory."""

from __future__ import annotations

import contextlib
import itertools

import pytest

from minikafka.base.errors import ErrorCode, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.cli.records.group_reader import GroupReader
from minikafka.clients.consumer.topic_filter import Blacklist, TopicFilter, Whitelist
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.group.config import Reset
from minikafka.clients.network.cluster import ClusterClient
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import BrokerHarness, commit_error
from tests.support.transactions import part_of_transaction

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def client(brokers: BrokerHarness) -> ClusterClient:
    return brokers.client(creates_topics=False, unknown_topic_timeout_ms=100)


def read(member: GroupReader, count: int) -> list[bytes | None]:
    found = []
    for tp, record in itertools.islice(member.messages(), count):
        found.append(record.value)
        member.shown(tp, record)
    return found


def follower(brokers: BrokerHarness, reset: Reset = Reset.EARLIEST) -> GroupReader:
    return GroupReader(client(brokers), ("t",), "g", reset, threads=False)


def offsets_of(brokers: BrokerHarness) -> dict[TopicPartition, int]:
    return brokers.committed("g")


def test_exactly_what_was_shown_is_committed_and_the_group_is_left(brokers: BrokerHarness) -> None:
    with follower(brokers) as member:
        assert sorted(read(member, 5)) == [b"0-2", b"0-3", b"0-4", b"1-0", b"1-1"]
    assert offsets_of(brokers) == {T0: 5, T1: 2}
    assert brokers.group("g").group_state == "Empty"
    with follower(brokers) as member:
        assert read(member, 3) == [b"1-2", b"1-3", b"1-4"]


def test_a_member_that_was_given_nothing_keeps_its_place_for_the_next(brokers: BrokerHarness) -> None:
    with follower(brokers, Reset.LATEST) as member:
        read(member, 3)
        messages = member.messages()
        brokers.fill(T0, b"0-5")
        next(messages)  # what is printed last may not be said to be
    assert offsets_of(brokers) == {T0: 5, T1: 5}
    brokers.fill(T1, b"1-5")
    with follower(brokers, Reset.LATEST) as member:
        assert sorted(read(member, 2)) == [b"0-5", b"1-5"]


def test_where_a_member_starts_is_kept_before_anything_is_printed(brokers: BrokerHarness) -> None:
    with follower(brokers) as member:
        next(member.messages())
    assert offsets_of(brokers) == {T0: 2, T1: 0}


def test_what_was_given_and_not_shown_comes_again(brokers: BrokerHarness) -> None:
    with follower(brokers) as member:
        messages = member.messages()
        tp, record = next(messages)
        member.shown(tp, record)
        next(messages)
        messages.close()
    assert offsets_of(brokers)[tp] == record.offset + 1


def test_what_was_shown_is_committed_while_it_goes_on(brokers: BrokerHarness) -> None:
    with follower(brokers) as member:
        messages = member.messages()
        for _ in range(8):
            member.shown(*next(messages))
        brokers.fill(T1, b"1-5")
        next(messages)
        assert offsets_of(brokers) == {T0: 5, T1: 5}


def test_a_commit_that_is_refused_is_told_and_does_not_end_it(
    brokers: BrokerHarness, capfd: pytest.CaptureFixture[str]
) -> None:
    code = ErrorCode.REBALANCE_IN_PROGRESS
    brokers.script(ApiKey.OFFSET_COMMIT, commit_error(code))
    with follower(brokers) as member:
        read(member, 8)
    assert (
        "failed to commit offsets; printed messages will be read again: REBALANCE_IN_PROGRESS"
        in capfd.readouterr().err
    )
    assert brokers.group("g").group_state == "Empty"


def test_messages_lost_with_closed_output_are_read_again(brokers: BrokerHarness) -> None:
    with contextlib.suppress(BrokenPipeError), follower(brokers) as member:
        read(member, 3)
        raise BrokenPipeError
    assert offsets_of(brokers) == {T0: 2, T1: 0}
    assert brokers.group("g").group_state == "Empty"


def test_a_topic_that_is_not_there_is_told_before_the_group_is_joined(brokers: BrokerHarness) -> None:
    with pytest.raises(MinikafkaError, match="there is no topic 'u'"):
        GroupReader(client(brokers), ("u",), "g", Reset.EARLIEST, threads=False).__enter__()
    assert brokers.asked(ApiKey.JOIN_GROUP) == []


@pytest.mark.parametrize(
    ("wanted", "topics"),
    [
        (Whitelist("t|u.*"), {"t", "u1", "u2"}),
        (Blacklist("t,u1"), {"u2", "v"}),
        (Blacklist("u"), {"t", "u1", "u2", "v"}),
    ],
)
def test_all_topics_that_a_filter_chooses_are_read(
    brokers: BrokerHarness, wanted: TopicFilter, topics: set[str]
) -> None:
    for name in ("u1", "u2", "v"):
        brokers.add_topic(name, 1)
        brokers.fill(TopicPartition(name, 0), b"x")
    with GroupReader(client(brokers), wanted, "all", Reset.EARLIEST, threads=False) as member:
        count = sum(10 if name == "t" else 1 for name in topics)
        assert {tp.topic for tp, _ in itertools.islice(member.messages(), count)} == topics
    assert {tp.topic for tp in brokers.committed("all")} == topics


def test_a_filter_that_chooses_nothing_yet_is_told(
    brokers: BrokerHarness, capfd: pytest.CaptureFixture[str]
) -> None:
    with GroupReader(client(brokers), Whitelist("x.*"), "all", Reset.EARLIEST, threads=False):
        pass
    assert capfd.readouterr().err == "minikafka: no topic matches x.* yet; waiting for one\n"


def test_a_member_at_an_open_transaction_says_so_once(
    brokers: BrokerHarness, capfd: pytest.CaptureFixture[str]
) -> None:
    partition = brokers.simulation.machine_of(brokers.leader(T1)).broker.partition(T1)
    partition.append(part_of_transaction(7, 1))
    committed = IsolationLevel.READ_COMMITTED
    reader = GroupReader(
        client(brokers), ("t",), "g", Reset.EARLIEST, isolation=committed, to_end=True, threads=False
    )
    with reader as member:
        assert len(list(member.messages())) == 8
    told = "minikafka: an open transaction holds back messages of t-1 (which ends at 6): ending before it; "
    assert capfd.readouterr().err.count(told) == 1


def test_a_topic_that_is_deleted_ends_it(brokers: BrokerHarness) -> None:
    with follower(brokers) as member:
        read(member, 8)
        brokers.delete_topic("t")
        with pytest.raises(MinikafkaError, match=r"^topic 't' was deleted while it was read$"):
            read(member, 1)

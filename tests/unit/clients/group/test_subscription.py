"""``clients/group/consumer``: manual assignment, patterns, wakeups, and the ends of logs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from minikafka.base.errors import BrokerError, ConfigError, ErrorCode, Wakeup
from minikafka.base.ids import TopicPartition
from minikafka.clients.group.consumer import Committed, GroupConsumer, GroupConsumerConfig
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.metadata import MetadataTopic
from tests.support.group_consumer_harness import T0, T1, T2, T3, GroupHarness, Listener, everything

LATE = TopicPartition("late-1", 0)


# Partitions that are assigned by hand.


def test_assigned_partitions_are_read_without_a_group(harness: GroupHarness) -> None:
    listener = Listener()
    consumer = harness.bare(listener)
    consumer.assign([T2, T0])
    assert consumer.assignment == (T0, T2)
    assert set(harness.read(consumer)) == everything(T1, T3)
    assert (consumer.generation, consumer.member_id, listener.told) == (-1, "", [])
    assert harness.asked(ApiKey.JOIN_GROUP) == harness.asked(ApiKey.HEARTBEAT) == 0


def test_their_offsets_are_committed_to_the_group_all_the_same(harness: GroupHarness) -> None:
    one = harness.bare()
    one.assign([T0, T1])
    harness.read(one)
    one.commit_sync({T0: Committed(3)})
    one.close()
    other = harness.bare()
    other.assign([T0])
    assert set(harness.read(other)) == {b"t-0-3", b"t-0-4"}
    (request,) = harness.brokers.asked(ApiKey.OFFSET_COMMIT)
    assert (request.generation_id, request.member_id) == (-1, "")


def test_they_are_committed_in_time_and_at_the_end(harness: GroupHarness) -> None:
    consumer = harness.bare(auto_commit=True, auto_commit_interval_ms=1_000)
    consumer.assign([T0])
    harness.read(consumer, rounds=40)
    assert harness.committed() == {T0: 5}
    harness.brokers.fill(T0, b"more")
    while consumer.position(T0) == 5:
        consumer.poll(50)
    consumer.close()
    assert harness.committed() == {T0: 6}


def test_a_commit_by_hand_is_refused_while_the_group_has_members(harness: GroupHarness) -> None:
    harness.member()
    consumer = harness.bare()
    consumer.assign([T0])
    harness.read(consumer)
    with pytest.raises(BrokerError, match="the group has members, and only they can commit") as raised:
        consumer.commit_sync()
    assert raised.value.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.committed() == {}


def test_partitions_that_stay_assigned_go_on_where_they_are(harness: GroupHarness) -> None:
    consumer = harness.bare(auto_commit=True)
    consumer.assign([T0, T1])
    harness.read(consumer)
    consumer.pause(T0)
    consumer.assign([T0, T2])
    assert (consumer.position(T0), consumer.position(T2), consumer.paused) == (5, None, (T0,))
    assert harness.committed() == {T0: 5, T1: 5}
    harness.brokers.fill(T0, b"paused")
    assert set(harness.read(consumer)) == everything(T0, T1, T3)
    consumer.resume(T0)
    assert set(harness.read(consumer)) == {b"paused"}


def test_only_one_of_assign_and_subscribe_at_a_time(harness: GroupHarness) -> None:
    consumer = harness.bare()
    with pytest.raises(ValueError, match="subscribe to topics or assign partitions first"):
        consumer.poll(0)
    consumer.assign([T0])
    with pytest.raises(ValueError, match="manually assigned partitions; unsubscribe first"):
        consumer.subscribe(["t"])
    consumer.unsubscribe()
    assert consumer.assignment == ()
    consumer.subscribe(["t"])
    with pytest.raises(ValueError, match="with a subscription; unsubscribe first"):
        consumer.assign([T0])
    assert set(harness.read(consumer)) == everything()
    consumer.unsubscribe()
    assert harness.brokers.group("g").group_state == "Empty"
    consumer.assign([T1])
    assert set(harness.read(consumer)) == everything(T0, T2, T3)


def test_partitions_may_be_given_as_pairs(harness: GroupHarness) -> None:
    consumer = harness.bare()
    pair: Any = ("t", 2)
    consumer.assign([pair])
    assert consumer.assignment == (T2,)
    assert type(consumer.assignment[0]) is TopicPartition
    consumer.seek(pair, 3)
    assert consumer.position(pair) == 3
    assert harness.read(consumer) == Counter([b"t-2-3", b"t-2-4"])
    consumer.pause(pair)
    assert consumer.paused == (T2,)
    consumer.resume(pair)
    consumer.commit_sync({pair: Committed(4)})
    assert consumer.committed([pair]) == {T2: Committed(4)}
    assert consumer.end_offsets([pair]) == {T2: 5}
    assert consumer.offsets_for_times({pair: 1_001}) == {T2: 1}


@pytest.mark.parametrize(
    ("do", "message"),
    [
        (lambda consumer: consumer.assign(["t"]), r"expected a TopicPartition\(topic, number\), got 't'"),
        (
            lambda consumer: consumer.assign([("t", "2")]),
            r"expected a TopicPartition\(.*\), got \('t', '2'\)",
        ),
        (lambda consumer: consumer.assign([("t", 2, 5)]), r"got \('t', 2, 5\)"),
        (
            lambda consumer: consumer.assign("t"),
            r"expected an iterable of TopicPartition\(topic, number\), got 't'",
        ),
        (lambda consumer: consumer.assign(T2), "expected an iterable of .* got TopicPartition"),
        (lambda consumer: consumer.assign(2), "expected an iterable of .* got 2"),
        (lambda consumer: consumer.seek("t", 2), "expected a TopicPartition"),
        (lambda consumer: consumer.seek_to_end(["t"]), r"expected a TopicPartition\(.*\), got \['t'\]"),
        (lambda consumer: consumer.beginning_offsets(["t"]), "expected a TopicPartition"),
        (lambda consumer: consumer.offsets_for_times({"t": 5}), "expected a TopicPartition"),
        (lambda consumer: consumer.committed(["t"]), "expected a TopicPartition"),
        (lambda consumer: consumer.commit_sync({T2: 5}), r"expected a Committed\(offset\), got 5"),
    ],
)
def test_what_names_no_partitions_is_refused_with_what_does(
    harness: GroupHarness, do: Callable[[Any], object], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        do(harness.bare())


# Patterns.


def test_pattern_matches_whole_names_also_of_later_topics(harness: GroupHarness) -> None:
    harness.brokers.add_topic("t2", 1)
    consumer = harness.bare(metadata_max_age_ms=1_000)
    consumer.subscribe(pattern="t|late-[0-9]+")
    assert set(harness.read(consumer)) == everything()
    assert consumer.subscription == ("t",)
    harness.brokers.add_topic(LATE.topic, 1)
    harness.brokers.fill(LATE, b"at last")
    assert b"at last" in harness.read(consumer, rounds=60)
    assert (consumer.subscription, consumer.assignment) == (("late-1", "t"), (LATE, T0, T1, T2, T3))


def test_a_pattern_that_finds_nothing_yet_waits_for_a_topic(harness: GroupHarness) -> None:
    consumer = harness.bare(metadata_max_age_ms=1_000)
    consumer.subscribe(pattern=re.compile("late.*", re.IGNORECASE))
    assert harness.read(consumer) == {}
    harness.brokers.add_topic(LATE.topic, 1)
    harness.brokers.fill(LATE, b"at last")
    assert set(harness.read(consumer, rounds=60)) == {b"at last"}


@pytest.mark.parametrize("excluded", [True, False])
def test_pattern_finds_internal_topics_only_if_configured(harness: GroupHarness, excluded: bool) -> None:
    harness.brokers.add_topic("__consumer_offsets", 1)
    consumer = harness.bare(exclude_internal_topics=excluded)
    consumer.subscribe(pattern=".*")
    harness.read(consumer)
    assert consumer.subscription == (("t",) if excluded else ("__consumer_offsets", "t"))
    consumer.subscribe(["__consumer_offsets"])
    harness.read(consumer)
    assert consumer.assignment == (TopicPartition("__consumer_offsets", 0),)


def test_a_topic_that_is_gone_is_no_longer_matched(harness: GroupHarness) -> None:
    harness.brokers.add_topic(LATE.topic, 1)
    consumer = harness.bare(metadata_max_age_ms=1_000)
    consumer.subscribe(pattern="t|late.*")
    harness.read(consumer)
    assert consumer.subscription == ("late-1", "t")
    harness.brokers.delete_topic(LATE.topic)
    harness.read(consumer, rounds=60)
    assert (consumer.subscription, consumer.assignment) == (("t",), (T0, T1, T2, T3))


@pytest.mark.parametrize(
    ("subscribe", "problem"),
    [
        (lambda consumer: consumer.subscribe("t"), r"subscribe\(\['t'\]\)"),
        (lambda consumer: consumer.subscribe(["t"], pattern="t"), "expected topics or a pattern, got both"),
        (
            lambda consumer: consumer.subscribe(pattern="fli("),
            r"pattern='fli\(': invalid Python regular expression: missing \), unterminated",
        ),
        (lambda consumer: consumer.subscribe(["a b"]), "INVALID_TOPIC"),
    ],
)
def test_what_cannot_be_subscribed_to_is_refused(
    harness: GroupHarness, subscribe: Callable[[GroupConsumer], object], problem: str
) -> None:
    consumer = harness.member()
    with pytest.raises((ValueError, TypeError, ConfigError, BrokerError), match=problem):
        subscribe(consumer)
    assert consumer.subscription == ("t",)


def test_a_listener_can_come_with_the_subscription(harness: GroupHarness) -> None:
    listener = Listener()
    consumer = harness.bare()
    consumer.subscribe(["t"], listener=listener)
    harness.read(consumer)
    assert listener.told == [("assigned", (T0, T1, T2, T3))]


# Being woken.


def test_a_poll_that_is_woken_raises_and_the_next_one_goes_on(harness: GroupHarness) -> None:
    consumer = harness.consumer()
    consumer.wakeup()
    before_ms = harness.brokers.clock.monotonic_ms()
    with pytest.raises(Wakeup):
        consumer.poll(60_000)
    assert harness.brokers.clock.monotonic_ms() == before_ms
    assert set(harness.read(consumer)) == everything()


@pytest.mark.parametrize("joins", [True, False])
def test_a_poll_that_waits_is_woken_within_a_tenth_of_a_second(harness: GroupHarness, joins: bool) -> None:
    consumer = harness.bare()
    if joins:
        other = harness.member()
        consumer.subscribe(["t"])
        assert other.assignment  # and does not poll, so that the new one waits for it to join again
    else:
        consumer.assign([T0])
        harness.read(consumer)
    clock = harness.brokers.clock
    advance, woken_ms = clock.advance, clock.monotonic_ms() + 500

    def advancing(milliseconds: int) -> None:
        advance(milliseconds)
        if clock.monotonic_ms() >= woken_ms:
            consumer.wakeup()

    clock.advance = advancing  # type: ignore[method-assign]
    with pytest.raises(Wakeup):
        consumer.poll(600_000)
    assert woken_ms <= clock.monotonic_ms() <= woken_ms + 110


# What logs hold.


def test_logs_have_beginnings_ends_and_times(harness: GroupHarness) -> None:
    harness.brokers.logs[T0].delete_before(2)
    consumer = harness.bare()
    assert consumer.beginning_offsets([T0, T1]) == {T0: 2, T1: 0}
    assert consumer.end_offsets([T0, T1]) == {T0: 5, T1: 5}
    times = {T0: 0, T1: 1_003, T2: 1_005}
    assert consumer.offsets_for_times(times) == {T0: 2, T1: 3, T2: None}
    with pytest.raises(ValueError, match="t-0: expected ms since the epoch, 0 or more, got -1"):
        consumer.offsets_for_times({T0: -1})


@pytest.mark.parametrize("times", [{T0: "2020-01-01"}, {T0: None}, {T0: 1.5}, [T0]])
def test_a_time_that_is_no_number_of_ms_is_refused(harness: GroupHarness, times: Any) -> None:
    with pytest.raises(TypeError, match="ms since the epoch, got"):
        harness.bare().offsets_for_times(times)


@pytest.mark.parametrize("newest", [3, 5])
@pytest.mark.parametrize(
    "ask",
    [
        lambda consumer: consumer.partitions_for("nope"),
        lambda consumer: consumer.beginning_offsets([TopicPartition("nope", 0)]),
        lambda consumer: consumer.end_offsets([TopicPartition("nope", 0)]),
        lambda consumer: consumer.offsets_for_times({TopicPartition("nope", 0): 5}),
    ],
)
def test_questions_about_topics_make_none(
    harness: GroupHarness, ask: Callable[[GroupConsumer], object], newest: int
) -> None:
    harness.brokers.newest[ApiKey.METADATA] = newest
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        ask(harness.bare())
    asked = harness.brokers.asked(ApiKey.METADATA)
    assert asked
    assert all(request.topics is None or not request.allow_auto_topic_creation for request in asked)
    assert newest > 3 or {request.topics for request in asked} == {None}


def test_topics_and_partitions_are_told(harness: GroupHarness) -> None:
    harness.brokers.add_topic("__consumer_offsets", 1)
    harness.brokers.add_topic("u", 1)
    consumer = harness.bare()
    assert consumer.topics() == ("t", "u")
    assert consumer.partitions_for("t") == (T0, T1, T2, T3)
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        consumer.partitions_for("nothing")


# What a consumer is made of.


class ListenerWithoutRevoked:
    """A listener that lacks a method."""

    def assigned(self, partitions: object) -> None:
        """Nothing."""


@pytest.mark.parametrize("listener", [ListenerWithoutRevoked(), Listener, lambda partitions: None])
def test_a_listener_that_lacks_its_methods_is_refused_at_once(harness: GroupHarness, listener: Any) -> None:
    consumer = harness.bare()
    text = r"with the methods assigned\(partitions\) and revoked\(partitions\), got"
    with pytest.raises(TypeError, match=text):
        consumer.subscribe(["t"], listener=listener)
    assert consumer.subscription == ()
    with pytest.raises(TypeError, match=text):
        harness.bare(listener)


def test_an_address_is_no_cluster() -> None:
    cluster: Any = "127.0.0.1:9092"
    with pytest.raises(TypeError, match=r'expected a ClusterClient\("host:port"\), got \'127.0.0.1:9092\''):
        GroupConsumer(cluster, GroupConsumerConfig("g"))


def test_settings_may_be_a_dict_of_properties_and_nothing_else(harness: GroupHarness) -> None:
    cluster = harness.brokers.client()
    properties = {"group.id": "a", "enable.auto.commit": "false"}
    with GroupConsumer(cluster, properties, threads=False) as consumer:
        assert consumer.config == GroupConsumerConfig("a", auto_commit=False)
    name: Any = "a"
    with pytest.raises(
        TypeError, match=r"a GroupConsumerConfig\(\"a-group\"\) or a dict of properties, got 'a'"
    ):
        GroupConsumer(cluster, name)


# Topics and partitions that are not there, or may not be seen.


def test_an_assigned_partition_that_is_not_there_is_warned_of_once(
    harness: GroupHarness, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = harness.bare()
    consumer.assign([T0, TopicPartition("t", 9), TopicPartition("nope", 0)])
    consumer.seek(TopicPartition("t", 9), 0)
    for _ in range(30):
        consumer.poll(50)
    assert [record.getMessage() for record in caplog.records if "assigned" in record.getMessage()] == [
        "nope-0 is assigned, but there is no topic 'nope'",
        "t-9 is assigned, but topic 't' has 4 partitions, 0 to 3",
    ]
    consumer.assign([T0, TopicPartition("t", 9)])
    harness.read(consumer)
    assert caplog.text.count("t-9 is assigned") == 1


@pytest.mark.parametrize(
    "reads", [lambda consumer: consumer.subscribe(["t"]), lambda consumer: consumer.assign([T0])]
)
def test_a_topic_that_may_not_be_described_is_an_error_until_it_may(
    harness: GroupHarness, reads: Callable[[GroupConsumer], None]
) -> None:
    consumer = harness.bare()
    reads(consumer)
    refused = MetadataTopic(int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), "t", False, ())
    serve = harness.brokers.serve
    harness.brokers.always(ApiKey.METADATA, lambda *asked: replace(serve(*asked), topics=(refused,)))
    for _ in range(2):
        with pytest.raises(BrokerError, match="'t' cannot be read; not authorized: Describe on Topic:t"):
            consumer.poll(2_000)
    harness.brokers.always(ApiKey.METADATA, None)
    assert everything(T1, T2, T3) <= set(harness.read(consumer, rounds=40))

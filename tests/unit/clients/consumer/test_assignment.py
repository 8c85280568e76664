"""``clients/consumer/assignment``: thread ids, registrations in the form that 0.10.1.1 wrote, and rebalance
plans.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from minikafka.base.errors import ConfigError, CoordinationError
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.assignment import (
    AssignmentContext,
    ConsumerThreadId,
    RangeAssignor,
    RebalancePlan,
    StaticTopicCount,
    TopicCount,
    WildcardTopicCount,
    construct_topic_count,
    list_topics,
    make_registration,
    make_thread_id,
    rebalance_plan,
)
from minikafka.clients.consumer.topic_filter import Blacklist, Whitelist
from minikafka.registry.consumer_session import PartitionOwner
from minikafka.registry.consumers import CONSUMER
from minikafka.registry.memory import MemoryStore, MemoryZooKeeper

DATA = Path(__file__).parents[3] / "data"
RECORDED = DATA / "zookeeper" / "03-old-consumers-running.json"
FILTERS = json.loads((DATA / "consumer-filters.json").read_text(encoding="utf-8"))["registrations"]
"""The registrations of 0.10.1.1's own classes for filters, with two streams; null if they refuse
the filter.
"""


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    return {path: node["data"] for path, node in json.loads(RECORDED.read_text()).items()}


@pytest.fixture
def store(recorded: dict[str, Any]) -> MemoryStore:
    """ZooKeeper with the znodes of the release's consumers: two in one group, and one with a whitelist."""
    store = MemoryZooKeeper().connect()
    for path, data in sorted(recorded.items()):
        if path != "/" and store.exists(path) is None:
            store.create(path, (data or "").encode(), make_parents=True)
    return store


def topic_count_in(data: bytes) -> TopicCount:
    path = "/consumers/g/ids/c"
    return construct_topic_count(CONSUMER.decode(data, path), path, True, list)


def threads(consumer: str, count: int) -> tuple[ConsumerThreadId, ...]:
    return tuple(ConsumerThreadId(consumer, number) for number in range(count))


def names(topic_count: TopicCount) -> dict[str, list[str]]:
    return {
        topic: list(map(str, ids)) for topic, ids in topic_count.get_consumer_thread_ids_per_topic().items()
    }


def registered(store: MemoryStore, group: str, consumer: str) -> TopicCount:
    path = f"/consumers/{group}/ids/{consumer}"
    return construct_topic_count(
        CONSUMER.decode(store.read(path)[0], path), path, True, lambda: list_topics(store)
    )


def test_recorded_static_registration_is_read(store: MemoryStore) -> None:
    found = registered(store, "old-group", "old-group_c1")
    assert found == StaticTopicCount("old-group_c1", {"orders": 2})
    assert names(found) == {"orders": ["old-group_c1-0", "old-group_c1-1"]}


def test_recorded_whitelist_registration_is_read(store: MemoryStore) -> None:
    found = registered(store, "white-group", "white-group_w1")
    assert (found.pattern, found.get_topic_count_map()) == ("white_list", {"ord.*|pay.*": 1})
    assert names(found) == {"orders": ["white-group_w1-0"], "payments": ["white-group_w1-0"]}


@pytest.mark.parametrize(
    ("path", "mine"),
    [
        ("/consumers/old-group/ids/old-group_c1", StaticTopicCount("old-group_c1", {"orders": 2})),
        ("/consumers/old-group/ids/old-group_c2", StaticTopicCount("old-group_c2", {"orders": 1})),
        (
            "/consumers/white-group/ids/white-group_w1",
            WildcardTopicCount("white-group_w1", Whitelist("ord.*,pay.*"), 1, True, list),
        ),
    ],
)
def test_registration_equals_that_of_the_release(
    path: str, mine: TopicCount, recorded: dict[str, Any]
) -> None:
    timestamp = int(json.loads(recorded[path])["timestamp"])
    assert make_registration(mine, timestamp).to_json() == recorded[path].encode()


def test_later_topic_is_read_if_the_filter_allows_it(store: MemoryStore) -> None:
    found = registered(store, "white-group", "white-group_w1")
    for topic in ("pay-back", "other"):
        store.create(f"/brokers/topics/{topic}")
    assert sorted(found.get_consumer_thread_ids_per_topic()) == ["orders", "pay-back", "payments"]


def test_blacklist_excludes_matches_and_internal_topics() -> None:
    def read(exclude: bool) -> list[str]:
        topics = ["__consumer_offsets", "orders", "payments"]
        found = WildcardTopicCount("c", Blacklist("pay.*"), 2, exclude, lambda: topics)
        assert found.pattern == "black_list"
        return sorted(found.get_consumer_thread_ids_per_topic())

    assert read(True) == ["orders"]
    assert read(False) == ["__consumer_offsets", "orders"]


def test_pattern_with_json_escapes_round_trips() -> None:
    mine = WildcardTopicCount("c", Whitelist(r'a\.b|"\d"+x'), 1, True, list)
    again = topic_count_in(make_registration(mine, 1).to_json())
    assert again == mine


@pytest.mark.parametrize("recorded", FILTERS, ids=lambda row: f"{row['pattern']} {row['filter']}")
def test_filter_registration_equals_the_releases_and_round_trips(recorded: dict[str, Any]) -> None:
    kind = {"white_list": Whitelist, "black_list": Blacklist}[recorded["pattern"]]
    if recorded["znode"] is None:
        with pytest.raises(ConfigError):
            kind(recorded["filter"])
        return
    mine = WildcardTopicCount("c", kind(recorded["filter"]), 2, True, list)
    theirs = recorded["znode"].encode()
    assert make_registration(mine, 1795241013937).to_json() == theirs
    assert topic_count_in(theirs) == mine


def test_filter_without_topics_selects_nothing() -> None:
    store = MemoryZooKeeper().connect()
    data = make_registration(WildcardTopicCount("c", Whitelist(".*"), 1, True, list), 1).to_json()
    store.create("/consumers/g/ids/c", data, make_parents=True)
    assert registered(store, "g", "c").get_consumer_thread_ids_per_topic() == {}


@pytest.mark.parametrize("pattern", ["static", "something"])
def test_unknown_pattern_and_empty_subscription_are_static(pattern: str) -> None:
    data = {"version": 1, "subscription": {"a": 1}, "pattern": pattern, "timestamp": "1"}
    assert topic_count_in(json.dumps(data).encode()) == StaticTopicCount("c", {"a": 1})
    empty = json.dumps({**data, "subscription": {}, "pattern": "white_list"}).encode()
    assert topic_count_in(empty) == StaticTopicCount("c", {})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not json",
        b"[]",
        b'{"version":1,"pattern":"static","timestamp":"1"}',
        b'{"version":1,"subscription":{"a":1},"timestamp":"1"}',
        b'{"version":1,"subscription":{"a":0},"pattern":"static","timestamp":"1"}',
        b'{"version":1,"subscription":{"a":true},"pattern":"static","timestamp":"1"}',
        b'{"version":1,"subscription":{"(":1},"pattern":"white_list","timestamp":"1"}',
        b'{"version":1,"subscription":{"a":-1},"pattern":"black_list","timestamp":"1"}',
    ],
)
def test_error_for_an_invalid_registration_names_its_path(data: bytes) -> None:
    with pytest.raises(CoordinationError, match=r"^/consumers/g/ids/c"):
        topic_count_in(data)


@pytest.mark.parametrize("streams", [0, -1, True, "2"])
def test_topic_without_a_stream_is_refused(streams: Any) -> None:
    with pytest.raises(ConfigError, match="streams"):
        StaticTopicCount("c", {"a": streams})
    with pytest.raises(ConfigError, match="streams"):
        WildcardTopicCount("c", Whitelist("a"), streams, True, list)


def test_threads_are_numbered_after_their_consumer() -> None:
    assert make_thread_id("g_c", 3) == "g_c-3"
    assert StaticTopicCount("c", {"a": 2}).get_consumer_thread_ids_per_topic() == {"a": threads("c", 2)}


def test_text_of_a_thread_is_its_consumer_and_number() -> None:
    assert str(ConsumerThreadId("g_host-1-abc", 2)) == "g_host-1-abc-2"


def test_threads_sort_by_name_so_ten_precedes_two() -> None:
    threads = [ConsumerThreadId("c1", number) for number in range(12)] + [ConsumerThreadId("c10", 0)]
    ordered = sorted(threads)
    assert ordered == sorted(threads, key=str)
    assert [thread.thread_id for thread in ordered if thread.consumer == "c1"] == [
        0,
        1,
        10,
        11,
        2,
        3,
        4,
        5,
        6,
        7,
        8,
        9,
    ]
    assert ConsumerThreadId("c1", 11) > ConsumerThreadId("c1", 10)


def test_threads_sort_by_utf_16_units_as_in_java() -> None:
    above, below = ConsumerThreadId("\uffee", 0), ConsumerThreadId("\U0001f600", 0)
    assert below < above


T0, T1, T2, T3 = (TopicPartition("t", number) for number in range(4))
MINE, OTHERS = 1, 2


def plan(
    consumers: dict[str, int], owners: dict[TopicPartition, PartitionOwner], partitions: int = 4
) -> RebalancePlan:
    context = AssignmentContext.of(
        "g", "a", {name: {"t": threads} for name, threads in consumers.items()}, {"t": range(partitions)}
    )
    return rebalance_plan(context, RangeAssignor(), owners, MINE)


def test_first_consumer_of_a_group_claims_all_partitions() -> None:
    found = plan({"a": 1}, {})
    assert (found.release, found.claim) == ((), (T0, T1, T2, T3))
    assert {str(thread) for thread in found.my_assignment.values()} == {"a-0"}
    assert not found.is_unchanged


def test_owner_of_its_assignment_has_nothing_to_do() -> None:
    owners = {tp: PartitionOwner("a-0", MINE) for tp in (T0, T1)}
    owners |= {tp: PartitionOwner("b-0", OTHERS) for tp in (T2, T3)}
    assert plan({"a": 1, "b": 1}, owners).is_unchanged


def test_partition_of_another_consumer_is_released() -> None:
    found = plan({"a": 1, "b": 1}, {tp: PartitionOwner("a-0", MINE) for tp in (T0, T1, T2, T3)})
    assert (found.release, found.claim) == ((T2, T3), ())


def test_partition_held_by_another_consumer_is_claimed() -> None:
    found = plan({"a": 1}, {T0: PartitionOwner("a-0", MINE), T1: PartitionOwner("b-0", OTHERS)}, partitions=2)
    assert (found.release, found.claim) == ((), (T1,))


def test_partition_moving_between_own_threads_is_reowned() -> None:
    found = plan({"a": 2}, {T0: PartitionOwner("a-0", MINE), T1: PartitionOwner("a-0", MINE)}, partitions=2)
    assert (found.release, found.claim) == ((T1,), (T1,))


@pytest.mark.parametrize("partitions", [0, 2])
def test_ownership_from_a_lost_response_is_seen(partitions: int) -> None:
    found = plan({"a": 1}, {T3: PartitionOwner("a-0", MINE)}, partitions)
    assert T3 in found.release
    assert len(found.my_assignment) == partitions


def test_owner_of_an_earlier_session_is_another_consumer() -> None:
    found = plan({"a": 1}, {T0: PartitionOwner("a-0", OTHERS)}, partitions=1)
    assert (found.release, found.claim) == ((), (T0,))


def test_thread_beyond_the_partitions_gets_nothing() -> None:
    context = AssignmentContext.of("g", "b", {"a": {"t": 2}, "b": {"t": 1}}, {"t": [0, 1]})
    found = rebalance_plan(context, RangeAssignor(), {}, MINE)
    assert dict(found.my_assignment) == {}
    assert found.is_unchanged

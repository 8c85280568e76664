"""``clients/consumer/assignment``: the texts' examples, the cases of 0.10.1's ``PartitionAssignorTest``, and
the recorded owners.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from minikafka.base.errors import ConfigError, CoordinationError, NoNode
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.assignment import (
    AssignmentContext,
    Owners,
    RangeAssignor,
    RoundRobinAssignor,
    StaticTopicCount,
    TopicCount,
    WildcardTopicCount,
    create_assignor,
    make_registration,
)
from minikafka.clients.consumer.topic_filter import Whitelist
from minikafka.records.format.hashes import string_hash
from minikafka.registry.memory import MemoryStore, MemoryZooKeeper
from minikafka.registry.topics import TopicAssignment

DATA = Path(__file__).parents[3] / "data"
RECORDED = DATA / "zookeeper" / "03-old-consumers-running.json"
OWNERS = DATA / "consumer-owners.json"
"""Groups in ZooKeeper, and the owners that 0.10.1.1's own assignors find in them; null where they refuse."""


def context(
    consumers: Mapping[str, Mapping[str, int]], partitions: Mapping[str, int], me: str = ""
) -> AssignmentContext:
    counts = {topic: range(count) for topic, count in partitions.items()}
    return AssignmentContext.of("g", me or min(consumers), consumers, counts)


def by_thread(owners: Owners) -> dict[str, list[str]]:
    """Return thread to its partitions, as texts."""
    found: dict[str, list[str]] = {}
    for partitions in owners.values():
        for tp, thread in partitions.items():
            found.setdefault(str(thread), []).append(str(tp))
    return found


def owner_texts(owners: Owners) -> dict[str, str]:
    """Return ``TOPIC/PARTITION`` to the text of its owner."""
    return {
        f"{tp.topic}/{tp.partition}": str(thread) for share in owners.values() for tp, thread in share.items()
    }


ONE_AND_TWO_THREADS = {"c1": {"t": 1}, "c2": {"t": 2}}


def test_range_gives_the_remainder_to_the_first_thread() -> None:
    assert by_thread(RangeAssignor().assign(context(ONE_AND_TWO_THREADS, {"t": 10}))) == {
        "c1-0": ["t-0", "t-1", "t-2", "t-3"],
        "c2-0": ["t-4", "t-5", "t-6"],
        "c2-1": ["t-7", "t-8", "t-9"],
    }


def test_range_gives_a_remainder_of_two_to_the_first_two() -> None:
    assert by_thread(RangeAssignor().assign(context(ONE_AND_TWO_THREADS, {"t": 11}))) == {
        "c1-0": ["t-0", "t-1", "t-2", "t-3"],
        "c2-0": ["t-4", "t-5", "t-6", "t-7"],
        "c2-1": ["t-8", "t-9", "t-10"],
    }


def test_range_divides_five_partitions_among_four_threads() -> None:
    owners = RangeAssignor().assign(context({"C1": {"t": 2}, "C2": {"t": 2}}, {"t": 5}))
    assert by_thread(owners) == {"C1-0": ["t-0", "t-1"], "C1-1": ["t-2"], "C2-0": ["t-3"], "C2-1": ["t-4"]}


def test_range_orders_threads_by_name() -> None:
    owners = RangeAssignor().assign(context({"c": {"t": 11}}, {"t": 11}))
    assert [by_thread(owners)[f"c-{n}"] for n in (0, 1, 10, 2)] == [["t-0"], ["t-1"], ["t-2"], ["t-3"]]


def test_range_divides_each_topic_among_its_own_readers() -> None:
    consumers = {"a": {"t": 1, "u": 1}, "b": {"u": 2}}
    assert by_thread(RangeAssignor().assign(context(consumers, {"t": 2, "u": 3}))) == {
        "a-0": ["t-0", "t-1", "u-0"],
        "b-0": ["u-1"],
        "b-1": ["u-2"],
    }


def test_range_logs_its_own_idle_threads(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        owners = RangeAssignor().assign(context({"a": {"t": 1}, "b": {"t": 3}}, {"t": 2}, me="b"))
    assert by_thread(owners) == {"a-0": ["t-0"], "b-0": ["t-1"]}
    assert [record.getMessage() for record in caplog.records] == [
        "no partition of topic 't' is assigned to {b-1, b-2}"
    ]


@pytest.mark.parametrize("assignor", [RangeAssignor(), RoundRobinAssignor()])
def test_missing_topic_is_logged(
    assignor: RangeAssignor | RoundRobinAssignor, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assignor.assign(context({"a": {"missing": 2}}, {}, me="a"))
    assert caplog.messages == ["topic 'missing' does not exist yet"]


def test_every_consumer_has_an_entry_without_partitions() -> None:
    consumers = {"a": {"missing": 1}, "b": {"other": 1}}
    assert RangeAssignor().assign(context(consumers, {"other": 1})) == {"a": {}, "b": {}}


def test_roundrobin_orders_partitions_by_javas_hash() -> None:
    owners = RoundRobinAssignor().assign(context({"c1": {"t": 2}, "c2": {"t": 2}}, {"t": 10}))
    order = sorted(range(10), key=lambda number: string_hash(f"[t,{number}]"))
    ring = ["c1-0", "c1-1", "c2-0", "c2-1"]
    found = {tp.partition: str(thread) for share in owners.values() for tp, thread in share.items()}
    assert found == {number: ring[turn % 4] for turn, number in enumerate(order)}
    assert sorted(map(len, by_thread(owners).values())) == [2, 2, 3, 3]


def test_roundrobin_compares_hashes_with_their_sign() -> None:
    # [orders,0] to [orders,9] have negative hashes, [orders,10] and [orders,11] positive ones.
    owners = RoundRobinAssignor().assign(context({"c": {"orders": 12}}, {"orders": 12}))
    assert by_thread(owners)["c-0"] == ["orders-0"]
    assert by_thread(owners)["c-9"] == ["orders-11"]


def test_roundrobin_orders_equal_hashes_by_partition() -> None:
    assert string_hash("[Aa,0]") == string_hash("[BB,0]")
    owners = RoundRobinAssignor().assign(context({"c": {"BB": 2, "Aa": 2}}, {"BB": 1, "Aa": 1}))
    assert by_thread(owners) == {"c-0": ["Aa-0"], "c-1": ["BB-0"]}


@pytest.mark.parametrize(
    "consumers",
    [{"c1": {"t": 1, "u": 1}, "c2": {"t": 1}}, {"c1": {"t": 1, "u": 2}}, {"c1": {"t": 1}, "c2": {"u": 1}}],
    ids=["another topic", "another number of streams", "nothing in common"],
)
def test_roundrobin_refuses_topics_read_by_different_threads(consumers: dict[str, dict[str, int]]) -> None:
    with pytest.raises(ConfigError) as refusal:
        RoundRobinAssignor().assign(context(consumers, {"t": 2, "u": 2}))
    text = str(refusal.value)
    for topic in ("t", "u"):
        threads = sorted(
            f"{name}-{n}" for name, count in consumers.items() for n in range(count.get(topic, 0))
        )
        assert f"topic {topic!r}" in text
        assert "{" + ", ".join(threads) + "}" in text


def test_roundrobin_allows_different_numbers_of_streams() -> None:
    owners = RoundRobinAssignor().assign(
        context({"a": {"t": 1, "u": 1}, "b": {"t": 2, "u": 2}}, {"t": 3, "u": 3})
    )
    assert sorted(map(len, by_thread(owners).values())) == [2, 2, 2]


def test_assignor_is_created_by_its_name() -> None:
    assert isinstance(create_assignor("range"), RangeAssignor)
    assert isinstance(create_assignor("roundrobin"), RoundRobinAssignor)
    with pytest.raises(ConfigError, match=r"strategy='sticky': must be one of range, roundrobin"):
        create_assignor("sticky")


# --- from ZooKeeper


def group(consumers: Mapping[str, TopicCount], topics: Mapping[str, int]) -> MemoryStore:
    """Return a ZooKeeper with the group ``g``."""
    store = MemoryZooKeeper().connect()
    for topic, count in topics.items():
        assignment = TopicAssignment(dict.fromkeys(range(count), (0,))).to_json()
        store.create(f"/brokers/topics/{topic}", assignment, make_parents=True)
    for consumer, topic_count in consumers.items():
        data = make_registration(topic_count, 1).to_json()
        store.create(f"/consumers/g/ids/{consumer}", data, make_parents=True)
    return store


def test_recorded_group_gets_the_recorded_owners() -> None:
    recorded = json.loads(RECORDED.read_text())
    store = MemoryZooKeeper().connect()
    for path, node in sorted(recorded.items()):
        if path != "/" and store.exists(path) is None:
            store.create(path, (node["data"] or "").encode(), make_parents=True)
    for name, consumer in [("old-group", "old-group_c2"), ("white-group", "white-group_w1")]:
        owners = RangeAssignor().assign(AssignmentContext(name, consumer, True, store))
        parent = f"/consumers/{name}/owners/"
        assert owner_texts(owners) == {
            path.removeprefix(parent): node["data"]
            for path, node in recorded.items()
            if path.startswith(parent) and node["ephemeral"]
        }


def test_random_groups_get_the_owners_of_the_release() -> None:
    refused = 0
    for recorded in json.loads(OWNERS.read_text())["groups"]:
        store = MemoryZooKeeper().connect()
        for path, data in recorded["znodes"].items():
            store.create(path, data.encode(), make_parents=True)
        for run in recorded["runs"]:
            ctx = AssignmentContext("g", run["consumer"], run["exclude"], store)
            try:
                owners = create_assignor(run["strategy"]).assign(ctx)
            except ConfigError:
                assert run["owners"] is None
                refused += 1
                continue
            assert owner_texts(owners) == run["owners"]
    assert refused


def test_context_has_consumers_threads_and_partitions_of_own_topics() -> None:
    store = group(
        {
            "w": WildcardTopicCount("w", Whitelist("t.*"), 1, True, list),
            "s": StaticTopicCount("s", {"t2": 2, "u": 1}),
        },
        {"t1": 2, "t2": 3, "u": 1},
    )
    ctx = AssignmentContext("g", "w", True, store)
    assert ctx.consumers == ("s", "w")
    assert {topic: list(map(str, threads)) for topic, threads in ctx.my_topic_thread_ids.items()} == {
        "t1": ["w-0"],
        "t2": ["w-0"],
    }
    assert {topic: list(map(str, threads)) for topic, threads in ctx.consumers_for_topic.items()} == {
        "t1": ["w-0"],
        "t2": ["s-0", "s-1", "w-0"],
        "u": ["s-0"],
    }
    assert ctx.partitions_for_topic == {"t1": (0, 1), "t2": (0, 1, 2)}
    assert RangeAssignor().assign(ctx)["w"] == {
        TopicPartition("t1", 0): ctx.my_topic_thread_ids["t1"][0],
        TopicPartition("t1", 1): ctx.my_topic_thread_ids["t1"][0],
        TopicPartition("t2", 2): ctx.my_topic_thread_ids["t2"][0],
    }


def test_missing_topic_has_no_partitions() -> None:
    store = group({"s": StaticTopicCount("s", {"later": 1})}, {})
    assert AssignmentContext("g", "s", True, store).partitions_for_topic == {"later": ()}


def test_context_requires_a_registration() -> None:
    with pytest.raises(NoNode, match="'other' is not registered"):
        AssignmentContext("g", "other", True, group({"s": StaticTopicCount("s", {"t": 1})}, {}))
    with pytest.raises(NoNode):
        AssignmentContext("none", "s", True, group({}, {}))


def test_error_for_an_invalid_registration_names_its_consumer() -> None:
    store = group({"s": StaticTopicCount("s", {"t": 1})}, {})
    store.create("/consumers/g/ids/odd", b"{}")
    with pytest.raises(CoordinationError, match="/consumers/g/ids/odd"):
        AssignmentContext("g", "s", True, store)

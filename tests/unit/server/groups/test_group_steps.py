"""Requests about many groups or offsets: what is answered, and where that is done."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.server.groups import checked_commits
from minikafka.server.handlers import describe_groups, offset_fetch
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.list_groups import ListGroupsRequest
from minikafka.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.support import requests
from tests.support.requests import Request
from tests.support.simulation import Simulation
from tests.unit.server.handlers.test_produce import HoldingPool
from tests.unit.server.test_dispatch import dispatched

PARTITIONS = 30


@pytest.fixture
def world() -> Simulation:
    """A broker with two topics, where group g has committed all partitions of both."""
    world = Simulation.serving(properties={"offsets.topic.num.partitions": "1"})
    while world.call(requests.find_coordinator()).error_code:
        world.settle()
    for name in ("b", "a"):
        world.create_topic(name, partitions=PARTITIONS)
    answer = world.call(commit("b", "a"))
    assert {part.error_code for topic in answer.topics for part in topic.partitions} == {0}
    return world


def commit(*names: str) -> Request:
    offsets = {number: 100 + number for number in reversed(range(PARTITIONS))}
    return requests.commit_offsets(*names, offsets=offsets)


def pooled(world: Simulation) -> Any:
    """The jobs that the pool is given from now on."""
    pool = world.machine.broker.pool = HoldingPool()  # type: ignore[assignment]
    return pool


def test_all_offsets_of_a_group_are_told_in_order(world: Simulation) -> None:
    topics = world.call(requests.fetch_offsets()).topics
    assert [topic.name for topic in topics] == ["a", "b"]
    for topic in topics:
        assert [part.partition_index for part in topic.partitions] == list(range(PARTITIONS))
        assert [part.committed_offset for part in topic.partitions] == list(range(100, 100 + PARTITIONS))


def test_steps_of_any_size_tell_the_same(world: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    before = world.call(requests.fetch_offsets())
    monkeypatch.setattr(offset_fetch, "STEP_ROWS", 1)
    monkeypatch.setattr(checked_commits, "STEP_PARTITIONS", 1)
    assert world.call(commit("a", "b")).topics[0].partitions[0].error_code == 0
    assert world.call(requests.fetch_offsets()) == before
    named = (OffsetFetchRequestTopic("a", (3, 99)), OffsetFetchRequestTopic("nope", (0,)))
    answer = world.call(Request(ApiKey.OFFSET_FETCH, 2, OffsetFetchRequest("g", named)))
    assert [part.committed_offset for topic in answer.topics for part in topic.partitions] == [103, -1, -1]


def test_many_offsets_of_a_short_request_are_told_from_the_pool(
    world: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_fetch, "ROW_BYTES", 1 << 20)
    pool = pooled(world)
    asked = dispatched(world, requests.fetch_offsets())
    assert (len(pool.jobs), asked.answered) == (1, False)


def test_a_group_that_is_named_twice_is_described_once(world: Simulation) -> None:
    answer = world.call(requests.describe_groups("g", "x", "g"))
    assert [group.group_id for group in answer.groups] == ["g", "x"]


def test_a_long_description_of_groups_is_encoded_in_the_pool(
    world: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(describe_groups, "ROW_BYTES", 100 << 20)
    pool = pooled(world)
    dispatched(world, requests.describe_groups("g"))
    assert len(pool.jobs) == 1


def test_each_of_many_groups_is_deleted(world: Simulation) -> None:
    answer = world.call(requests.delete_groups("g", "x", "g"))
    assert [(result.group_id, result.error_code) for result in answer.results] == [
        ("g", 0),
        ("x", ErrorCode.GROUP_ID_NOT_FOUND),
    ]


def test_records_are_deleted_in_the_pool_as_each_partition_is_flushed(world: Simulation) -> None:
    request = requests.delete_records("a", partitions=(0, 99))
    answer = world.call(request)
    assert [part.error_code for part in answer.topics[0].partitions] == [
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    pool = pooled(world)
    dispatched(world, request)
    assert len(pool.jobs) == 1


def test_groups_are_listed_in_the_pool(world: Simulation) -> None:
    request = Request(ApiKey.LIST_GROUPS, 0, ListGroupsRequest())
    assert [group.group_id for group in world.call(request).groups] == ["g"]
    pool = pooled(world)
    assert not dispatched(world, request).answered
    assert len(pool.jobs) == 1

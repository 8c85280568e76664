"""The cost of planning and reading for the brokers, in requests and connections."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.range_fetcher import RangeFetcher
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce import BatchingProducer
from minikafka.records.format.message_set import Record, build_message_set
from minikafka.wire.api import ApiKey
from pyspark_minikafka.offsets import StreamOffset
from pyspark_minikafka.options.options import Mode, source_options
from pyspark_minikafka.planning.lookup import ClusterLookup
from pyspark_minikafka.planning.planner import Planner
from tests.support.broker_harness import BrokerHarness

BROKERS = 3


def brokers_with(partitions: int) -> BrokerHarness:
    brokers = BrokerHarness(BROKERS, {"t": partitions})
    for number in range(partitions):
        last = build_message_set([Record(None, b"v")], base_offset=999 + number)
        brokers.logs[TopicPartition("t", number)].copy(last)
    return brokers


def planner(brokers: BrokerHarness, mode: Mode, **given: str) -> Planner:
    options = source_options({"subscribe": "t", **given}, mode)
    lookup = ClusterLookup(brokers.client(creates_topics=False, one_connection=True), options, brokers.clock)
    return Planner(
        options, lookup, warn=pytest.fail, pause=brokers.waiter.wait, now_ms=brokers.clock.now_ms, cores=2
    )


def requests(brokers: BrokerHarness) -> Counter[tuple[ApiKey, int]]:
    """Return the number of requests by API and broker."""
    return Counter((key, broker_id) for broker_id, key, _, _ in brokers.requests)


@pytest.mark.parametrize("partitions", [3, 1_000])
def test_batch_planning_sends_one_request_per_broker_and_end(partitions: int) -> None:
    brokers = brokers_with(partitions)
    assert len(planner(brokers, Mode.BATCH).batch()) == partitions
    asked = requests(brokers)
    assert {broker_id: asked[ApiKey.LIST_OFFSETS, broker_id] for broker_id in (1, 2, 3)} == {1: 2, 2: 2, 3: 2}
    assert len(brokers.asked(ApiKey.METADATA)) == 1


@pytest.mark.parametrize("partitions", [3, 1_000])
def test_offsets_that_the_user_names_are_checked_with_as_few_questions(partitions: int) -> None:
    brokers = brokers_with(partitions)
    starting = json.dumps({"t": {str(number): 7 for number in range(partitions)}})
    plan = planner(brokers, Mode.BATCH, startingoffsets=starting)
    assert {task.start for task in plan.batch()} == {7}
    assert [requests(brokers)[ApiKey.LIST_OFFSETS, broker_id] for broker_id in (1, 2, 3)] == [3, 3, 3]


@pytest.mark.parametrize("partitions", [3, 1_000])
def test_a_micro_batch_is_planned_with_one_question_a_broker(partitions: int) -> None:
    brokers = brokers_with(partitions)
    plan = planner(brokers, Mode.STREAM, startingoffsets="earliest")
    start = plan.initial()
    brokers.requests.clear()
    ends = plan.available(start.positions)
    assert len(plan.stream(start, StreamOffset(ends, batch_start=start.positions))) == partitions
    asked = requests(brokers)
    assert [asked[ApiKey.LIST_OFFSETS, broker_id] for broker_id in (1, 2, 3)] == [1, 1, 1]
    assert sum(asked.values()) == BROKERS


def test_planning_moves_no_records() -> None:
    brokers = brokers_with(12)
    planner(brokers, Mode.BATCH).batch()
    assert not brokers.asked(ApiKey.FETCH)


def test_several_tasks_of_a_worker_use_one_connection_to_each_leader() -> None:
    brokers = BrokerHarness(BROKERS, {"t": 6})
    client = brokers.client(creates_topics=False, one_connection=True)
    for number in range(6):
        write(brokers.client(), number)
    brokers.requests.clear()
    for number in range(6):
        assert b"".join(map(bytes, RangeFetcher(client, TopicPartition("t", number), 0, 1)))
    assert {broker_id for broker_id, key, _, _ in brokers.requests if key is ApiKey.FETCH} == {1, 2, 3}
    # Each connection begins by asking for the versions.
    assert sorted(b for b, key, _, _ in brokers.requests if key is ApiKey.API_VERSIONS) == [1, 2, 3]


def write(cluster: ClusterClient, partition: int) -> None:
    with BatchingProducer(cluster) as producer:
        producer.send("t", b"v", partition=partition).result()
    cluster.close()

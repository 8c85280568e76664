"""Fetch sessions, which name each partition only once. The test plays the follower, or the consumer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.records.format.message_set import Record, build_message_set, iterate
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.fetch import (
    FINAL_EPOCH,
    NEW_SESSION_EPOCH,
    NO_SESSION,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from minikafka.wire.frame_parts import buffer_of
from tests.support import requests
from tests.support.requests import Request
from tests.support.simulation import Client, Simulation

FOLLOWER = 1
PARTITIONS = 3
VERSION = 10


class Follower:
    """A fake follower: sends fetches to the leader, machine 0, as broker 1."""

    replica_id = FOLLOWER

    def __init__(self, simulation: Simulation) -> None:
        self.client = Client(simulation.network, "machine-0")
        self.session_id, self.epoch = NO_SESSION, NEW_SESSION_EPOCH

    def ask(self, offsets: dict[int, int], **more: Any) -> dict[int, FetchPartitionResponse]:
        """Fetch partitions from offsets on; return the responses by partition."""
        response = self.call(offsets, **more)
        assert response.error_code == ErrorCode.NONE
        self.session_id = response.session_id
        self.epoch += 1
        return {part.index: part for topic in response.topics for part in topic.partitions}

    def call(
        self,
        offsets: dict[int, int],
        *,
        forget: tuple[int, ...] = (),
        max_bytes: int = 1 << 20,
        wait_ms: int = 0,
    ) -> FetchResponse:
        """Return the whole response."""
        request = self.request(offsets, forget=forget, max_bytes=max_bytes, wait_ms=wait_ms)
        answer: FetchResponse = self.client.call(request)
        return answer

    def request(
        self,
        offsets: dict[int, int],
        *,
        forget: tuple[int, ...] = (),
        max_bytes: int = 1 << 20,
        wait_ms: int = 0,
    ) -> Request:
        parts = tuple(FetchPartition(index, -1, offset, 0, 1 << 20) for index, offset in offsets.items())
        body = FetchRequest(
            self.replica_id,
            wait_ms,
            1,
            max_bytes,
            0,
            self.session_id,
            self.epoch,
            (FetchTopic("t", parts),) if parts else (),
            (ForgottenTopic("t", forget),) if forget else (),
        )
        return Request(ApiKey.FETCH, VERSION, body)


class Consumer(Follower):
    """A consumer of a topic that broker 0 alone has."""

    replica_id = -1


def values(part: FetchPartitionResponse) -> list[bytes | None]:
    return [record.value for record in iterate(buffer_of(part.records))]


def write(client: Client, value: bytes) -> None:
    """Produce without waiting for the follower."""
    client.call(requests.produce("t", build_message_set([Record(None, value, 0)]), acks=1))


@pytest.fixture
def simulation() -> Simulation:
    """Broker 0 leads all partitions. Broker 1, which has replicas of them, is dead but still in the ISR."""
    made = Simulation.serving()
    made.machine_of(FOLLOWER).start()
    made.call(requests.place_topic("t", *[(0, FOLLOWER)] * PARTITIONS))
    made.machine_of(FOLLOWER).kill()
    made.settle()
    return made


def test_session_returns_partitions_with_new_data(simulation: Simulation) -> None:
    follower = Follower(simulation)
    assert sorted(follower.ask({0: 0, 1: 0, 2: 0})) == [0, 1, 2]
    assert follower.ask({}) == {}
    write(simulation, b"a")
    assert values(follower.ask({})[0]) == [b"a"]


def test_data_that_the_follower_did_not_append_is_sent_again(simulation: Simulation) -> None:
    follower = Follower(simulation)
    write(simulation, b"a")
    follower.ask({0: 0, 1: 0, 2: 0})
    assert values(follower.ask({})[0]) == [b"a"]
    behind = follower.ask({0: 1})
    assert 0 not in behind or values(behind[0]) == []


def test_waiting_follower_is_answered_after_a_write(simulation: Simulation) -> None:
    follower = Follower(simulation)
    follower.ask({0: 0, 1: 0, 2: 0})
    began_ms = simulation.clock.monotonic_ms()
    other = simulation.another_client()
    follower.client.begin(
        Request(ApiKey.FETCH, VERSION, FetchRequest(FOLLOWER, 500, 1, 1 << 20, 0, follower.session_id, 1, ()))
    )
    assert not follower.client.answered()
    write(other, b"a")
    answer = follower.client.finish()
    assert [part.index for topic in answer.topics for part in topic.partitions] == [0]
    assert simulation.clock.monotonic_ms() - began_ms < 500


def test_follower_whose_fetch_commits_hears_of_the_next_write(simulation: Simulation) -> None:
    follower = Follower(simulation)
    write(simulation, b"a")
    follower.ask({0: 0, 1: 0, 2: 0})
    follower.client.begin(follower.request({0: 1}, wait_ms=500))
    assert not follower.client.answered()
    write(simulation.another_client(), b"b")
    answer = follower.client.finish()
    assert values(answer.topics[0].partitions[0]) == [b"b"]


def test_a_forgotten_partition_is_not_answered_any_more(simulation: Simulation) -> None:
    follower = Follower(simulation)
    follower.ask({0: 0, 1: 0, 2: 0})
    follower.ask({}, forget=(0,))
    write(simulation, b"a")
    assert follower.ask({}) == {}


def test_data_beyond_the_limit_comes_with_the_next_response(simulation: Simulation) -> None:
    follower = Follower(simulation)
    write(simulation, b"a" * 1000)
    first = follower.ask({0: 0, 1: 0, 2: 0}, max_bytes=100)
    assert values(first[0]) == [b"a" * 1000]
    assert 0 in follower.ask({})


def test_first_response_has_every_partition_and_error(simulation: Simulation) -> None:
    answer = Follower(simulation).ask({0: 0, 7: 0})
    assert (answer[0].error_code, answer[7].error_code) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_session_reports_a_deleted_partition(simulation: Simulation) -> None:
    follower = Follower(simulation)
    follower.ask({0: 0, 1: 0, 2: 0})
    simulation.call(requests.delete_topics("t"))
    simulation.settle()
    assert {part.error_code for part in follower.ask({}).values()} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_partition_named_again_at_its_offset_gets_a_full_response(simulation: Simulation) -> None:
    follower = Follower(simulation)
    write(simulation, b"a")
    follower.ask({0: 0, 1: 0, 2: 0})
    first = follower.ask({0: 1})
    # It has restarted its fetcher, and may have dropped earlier responses.
    again = follower.ask({0: 1})
    assert [part.high_watermark for part in (*first.values(), *again.values())] == [1, 1]
    assert follower.ask({}) == {}


def test_unknown_session_or_epoch_is_refused(simulation: Simulation) -> None:
    follower = Follower(simulation)
    follower.ask({0: 0})
    follower.epoch += 1
    assert follower.call({}).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    follower.session_id += 1
    assert follower.call({}).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_an_unused_session_hears_of_a_partition_once(simulation: Simulation) -> None:
    waiting, partition = simulation.machine.broker.purgatory, TopicPartition("t", 0)
    before = waiting.tickets_of(partition)
    Follower(simulation).ask({0: 0, 1: 0, 2: 0})
    assert len(waiting.tickets_of(partition)) == len(before) + 1
    write(simulation, b"a")
    assert waiting.tickets_of(partition) == before


def test_a_session_outlives_its_connection(simulation: Simulation) -> None:
    follower = Follower(simulation)
    follower.ask({0: 0, 1: 0, 2: 0})
    follower.client.go_to(follower.client.port)
    write(simulation, b"a")
    assert values(follower.ask({})[0]) == [b"a"]


def test_sessionless_fetch_gets_all_partitions(simulation: Simulation) -> None:
    follower = Follower(simulation)
    follower.epoch = FINAL_EPOCH
    for _ in range(2):
        answer = follower.call({0: 0, 1: 0, 2: 0})
        assert [part.index for topic in answer.topics for part in topic.partitions] == [0, 1, 2]
        assert answer.session_id == NO_SESSION


def test_idle_session_keeps_the_follower_in_sync(simulation: Simulation) -> None:
    follower = Follower(simulation)
    follower.ask({0: 0, 1: 0, 2: 0})
    for _ in range(60):
        follower.ask({}, wait_ms=500)
        simulation.settle()
    leadership = simulation.machine.broker.partitions[TopicPartition("t", 0)].leadership
    assert leadership is not None
    assert FOLLOWER in leadership.isr
    simulation.clock.advance(20_000)
    simulation.settle()
    simulation.settle()
    leadership = simulation.machine.broker.partitions[TopicPartition("t", 0)].leadership
    assert leadership is not None
    assert FOLLOWER not in leadership.isr


@pytest.mark.parametrize("epoch", [NEW_SESSION_EPOCH, FINAL_EPOCH], ids=["in a session", "without one"])
def test_out_of_sync_follower_above_the_rate_gets_nothing(simulation: Simulation, epoch: int) -> None:
    follower = Follower(simulation)
    follower.epoch = epoch
    replication_quotas = simulation.machine.broker.replication_quotas
    replication_quotas.set_rates({"leader.replication.throttled.rate": "100"})
    replication_quotas.set_topic("t", {"leader.replication.throttled.replicas": "0:0"})
    write(simulation, b"x" * 1000)
    simulation.clock.advance(20_000)
    simulation.settle()
    simulation.settle()

    def given(wait_ms: int) -> int:
        topics = follower.call({0: 0}, wait_ms=wait_ms).topics
        follower.epoch += epoch == NEW_SESSION_EPOCH
        return sum(len(buffer_of(part.records)) for topic in topics for part in topic.partitions)

    first = follower.call({0: 0})
    follower.session_id = first.session_id
    follower.epoch += epoch == NEW_SESSION_EPOCH
    assert len(buffer_of(first.topics[0].partitions[0].records)) > 1000
    began_ms = simulation.clock.monotonic_ms()
    assert given(wait_ms=500) == 0
    # It waits for the rate rather than the maximum wait: ten seconds of the rate were used up.
    assert given(wait_ms=60_000) == 0
    assert 9_000 < simulation.clock.monotonic_ms() - began_ms < 12_000
    assert given(wait_ms=500) > 1000


# --- of consumers -------------------------------------------------------------------------------------------


@pytest.fixture
def world() -> Simulation:
    """Broker 0 alone has all partitions."""
    return Simulation.serving("t", partitions=PARTITIONS)


def test_a_consumer_gets_what_has_changed_and_no_more(world: Simulation) -> None:
    consumer = Consumer(world)
    assert sorted(consumer.ask({0: 0, 1: 0, 2: 0})) == [0, 1, 2]
    assert consumer.ask({}) == {}
    write(world, b"a")
    found = consumer.ask({})
    assert (sorted(found), values(found[0])) == ([0], [b"a"])
    assert consumer.ask({0: 1}) == {}


def test_a_waiting_consumer_is_answered_after_a_write(world: Simulation) -> None:
    consumer = Consumer(world)
    consumer.ask({0: 0, 1: 0, 2: 0})
    began_ms = world.clock.monotonic_ms()
    consumer.client.begin(consumer.request({}, wait_ms=500))
    assert not consumer.client.answered()
    write(world.another_client(), b"a")
    answer = consumer.client.finish()
    assert [part.index for topic in answer.topics for part in topic.partitions] == [0]
    assert world.clock.monotonic_ms() - began_ms < 500


def test_a_waiting_consumer_without_news_gets_an_empty_response(world: Simulation) -> None:
    consumer = Consumer(world)
    consumer.ask({0: 0, 1: 0, 2: 0})
    began_ms = world.clock.monotonic_ms()
    assert consumer.ask({}, wait_ms=500) == {}
    assert world.clock.monotonic_ms() - began_ms >= 500


def test_a_partition_that_joins_a_session_is_watched(world: Simulation) -> None:
    consumer = Consumer(world)
    consumer.ask({1: 0})
    assert sorted(consumer.ask({0: 0})) == [0]
    write(world, b"a")
    assert values(consumer.ask({})[0]) == [b"a"]


def test_partitions_with_data_take_turns(world: Simulation) -> None:
    consumer = Consumer(world)
    value = b"a" * 1000
    batch = build_message_set([Record(None, value, 0)])
    world.call(requests.produce("t", batch, partitions=(0, 1, 2)))
    order = []
    found = consumer.ask({0: 0, 1: 0, 2: 0}, max_bytes=100)
    for _ in range(4):
        (number,) = (index for index, part in found.items() if values(part))
        order.append(number)
        found = consumer.ask({}, max_bytes=100)  # the response is not used: it has more of each
    assert order == [0, 1, 2, 0]


def test_an_error_is_returned_until_the_partition_is_forgotten(world: Simulation) -> None:
    consumer = Consumer(world)
    consumer.ask({0: 0, 7: 0})
    for _ in range(2):
        assert consumer.ask({})[7].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert consumer.ask({}, forget=(7,)) == {}


def test_a_session_without_partitions_is_closed(world: Simulation) -> None:
    consumer = Consumer(world)
    consumer.ask({0: 0})
    assert consumer.ask({}, forget=(0,)) == {}
    assert consumer.session_id == NO_SESSION
    assert len(world.machine.broker.fetch_sessions) == 0


@pytest.mark.parametrize("epoch", [NEW_SESSION_EPOCH, FINAL_EPOCH], ids=["for a new one", "for none"])
def test_a_full_fetch_closes_the_session_that_it_names(world: Simulation, epoch: int) -> None:
    consumer = Consumer(world)
    consumer.ask({0: 0})
    closed, consumer.epoch = consumer.session_id, epoch
    consumer.ask({0: 0})
    assert consumer.session_id != closed
    assert len(world.machine.broker.fetch_sessions) == (epoch == NEW_SESSION_EPOCH)


def test_a_wrong_epoch_leaves_the_session_as_it_was(world: Simulation) -> None:
    consumer = Consumer(world)
    consumer.ask({0: 0})
    consumer.epoch = 7
    assert consumer.call({}).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    consumer.epoch = 1
    assert consumer.ask({}) == {}


def test_a_session_of_a_consumer_is_not_one_of_a_follower(world: Simulation) -> None:
    consumer, follower = Consumer(world), Follower(world)
    consumer.ask({0: 0})
    follower.session_id, follower.epoch = consumer.session_id, consumer.epoch
    assert follower.call({}).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_response_that_came_too_late_is_refused(world: Simulation) -> None:
    consumer = Consumer(world)
    consumer.ask({0: 0})
    consumer.client.begin(consumer.request({}, wait_ms=500))
    again = Consumer(world)
    again.session_id, again.epoch = consumer.session_id, consumer.epoch + 1
    assert again.ask({}) == {}
    assert consumer.client.finish().error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_names_that_no_topic_can_have_are_in_no_session(world: Simulation) -> None:
    consumer = Consumer(world)
    asked = consumer.request({0: 0})
    too_long = FetchTopic("t" * 250, asked.body.topics[0].partitions)
    answer = consumer.client.call(replace(asked, body=replace(asked.body, topics=(too_long,))))
    assert answer.session_id == NO_SESSION
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    consumer.ask({0: 0})
    asked = consumer.request({})
    answer = consumer.client.call(replace(asked, body=replace(asked.body, topics=(too_long,))))
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(world.machine.broker.fetch_sessions) == 0


def test_the_next_request_gets_what_an_unanswered_one_had_read(world: Simulation) -> None:
    consumer, again = Consumer(world), Consumer(world)
    consumer.ask({0: 0})
    asked = consumer.request({}, wait_ms=500)
    consumer.client.begin(replace(asked, body=replace(asked.body, min_bytes=10_000)))
    write(world.another_client(), b"a")
    again.session_id, again.epoch = consumer.session_id, consumer.epoch + 1
    assert values(again.ask({})[0]) == [b"a"]


def test_without_slots_a_consumer_gets_no_session_and_a_full_response() -> None:
    world = Simulation.serving(
        "t", partitions=PARTITIONS, properties={"max.incremental.fetch.session.cache.slots": "0"}
    )
    consumer = Consumer(world)
    assert sorted(consumer.ask({0: 0, 1: 0, 2: 0})) == [0, 1, 2]
    assert consumer.session_id == NO_SESSION


def test_no_response_exceeds_the_brokers_limit() -> None:
    world = Simulation.serving("t", partitions=PARTITIONS, properties={"fetch.max.bytes": "1024"})
    batch = build_message_set([Record(None, b"a" * 800, 0)])
    world.call(requests.produce("t", batch, partitions=(0, 1, 2)))
    for epoch in (NEW_SESSION_EPOCH, FINAL_EPOCH):
        consumer = Consumer(world)
        consumer.epoch = epoch
        sizes = [len(buffer_of(part.records)) for part in consumer.ask({0: 0, 1: 0, 2: 0}).values()]
        assert sum(sizes) <= 1024

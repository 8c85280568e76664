"""Fetch sessions of followers, which name each partition only once. The test plays the follower."""

from __future__ import annotations

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
        replica_id: int = FOLLOWER,
        max_bytes: int = 1 << 20,
        wait_ms: int = 0,
    ) -> FetchResponse:
        """Return the whole response."""
        parts = tuple(FetchPartition(index, -1, offset, 0, 1 << 20) for index, offset in offsets.items())
        body = FetchRequest(
            replica_id,
            wait_ms,
            1,
            max_bytes,
            0,
            self.session_id,
            self.epoch,
            (FetchTopic("t", parts),) if parts else (),
            (ForgottenTopic("t", forget),) if forget else (),
        )
        answer: FetchResponse = self.client.call(Request(ApiKey.FETCH, VERSION, body))
        return answer


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


def test_session_ends_with_its_connection(simulation: Simulation) -> None:
    waiting, partition = simulation.machine.broker.purgatory, TopicPartition("t", 0)
    before = waiting.tickets_of(partition)
    follower = Follower(simulation)
    follower.ask({0: 0, 1: 0, 2: 0})
    assert len(waiting.tickets_of(partition)) == len(before) + 1
    follower.client.go_to(follower.client.port)
    del follower
    write(simulation, b"a")
    assert waiting.tickets_of(partition) == before


def test_a_consumer_gets_no_session(simulation: Simulation) -> None:
    follower = Follower(simulation)
    follower.ask({0: 0}, replica_id=-1)
    assert follower.session_id == NO_SESSION


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

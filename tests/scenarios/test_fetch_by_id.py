"""Fetches that name topics by their ids (Fetch 13 and later), without and with a session."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.log.checkpoints.topic_incarnations import TopicIncarnation
from minikafka.records.format.message_set import Record, build_message_set, iterate
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.current_leader import LeaderIdAndEpoch, NodeEndpoint
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
    ReplicaState,
)
from minikafka.wire.fields import ZERO_UUID
from minikafka.wire.frame_parts import buffer_of
from tests.support import requests
from tests.support.requests import Request
from tests.support.simulation import PORT, Client, Simulation

NEWEST = 17
UNKNOWN = bytes(range(16))
FOLLOWER = 1


@pytest.fixture
def world() -> Simulation:
    """Broker 0 has two partitions of a topic."""
    return Simulation.serving("t", partitions=2)


def id_of(world: Simulation, topic: str = "t") -> bytes:
    return world.machine.broker.metadata_cache.topic_ids[topic]


def delete(world: Simulation, topic: str = "t") -> None:
    world.another_client().call(requests.delete_topics(topic))
    world.settle()


def make_again(world: Simulation, topic: str = "t") -> bytes:
    """Delete the topic and create it again; return its new id."""
    delete(world, topic)
    assert world.another_client().create_topic(topic, partitions=2) == 0
    return id_of(world, topic)


def write(world: Simulation, value: bytes, topic: str = "t") -> None:
    records = build_message_set([Record(None, value, 0)])
    world.another_client().call(requests.produce(topic, records, acks=1))


def rows(offsets: dict[int, int], leader_epoch: int = -1) -> tuple[FetchPartition, ...]:
    return tuple(FetchPartition(number, leader_epoch, at, -1, 1 << 20) for number, at in offsets.items())


def by_id(
    *topics: tuple[bytes, dict[int, int]],
    version: int = NEWEST,
    wait_ms: int = 0,
    session: tuple[int, int] = (NO_SESSION, FINAL_EPOCH),
    forget: tuple[tuple[bytes, tuple[int, ...]], ...] = (),
    leader_epoch: int = -1,
) -> Request:
    """A fetch of topic ids and their offsets by partition."""
    named = tuple(FetchTopic("", rows(at, leader_epoch), topic_id=topic_id) for topic_id, at in topics)
    forgotten = tuple(ForgottenTopic("", numbers, topic_id=topic_id) for topic_id, numbers in forget)
    body = FetchRequest(-1, wait_ms, 1, 1 << 24, 0, *session, named, forgotten)
    return Request(ApiKey.FETCH, version, body)


def parts_of(response: FetchResponse) -> dict[tuple[bytes, int], FetchPartitionResponse]:
    assert response.error_code == ErrorCode.NONE
    return {(topic.topic_id, part.index): part for topic in response.topics for part in topic.partitions}


def errors_of(response: FetchResponse) -> dict[tuple[bytes, int], int]:
    return {key: part.error_code for key, part in parts_of(response).items()}


def values(part: FetchPartitionResponse) -> list[bytes | None]:
    assert part.error_code == ErrorCode.NONE
    return [record.value for record in iterate(buffer_of(part.records))]


# --- without a session --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(13, NEWEST + 1))
def test_topic_is_read_by_its_id(world: Simulation, version: int) -> None:
    write(world, b"a")
    known = id_of(world)
    found = parts_of(world.call(by_id((known, {0: 0, 1: 0}), version=version)))
    assert {key: values(part) for key, part in found.items()} == {(known, 0): [b"a"], (known, 1): []}


def test_unknown_ids_are_told_beside_the_records_of_others(world: Simulation) -> None:
    write(world, b"a")
    known, other = id_of(world), UNKNOWN[::-1]
    request = by_id((UNKNOWN, {0: 0, 1: 0}), (known, {0: 0}), (other, {0: 0}), wait_ms=60_000)
    found = parts_of(world.call(request))
    assert values(found.pop((known, 0))) == [b"a"]
    assert set(found) == {(UNKNOWN, 0), (UNKNOWN, 1), (other, 0)}
    for part in found.values():
        offsets = part.high_watermark, part.last_stable_offset, part.log_start_offset
        assert (part.error_code, offsets) == (ErrorCode.UNKNOWN_TOPIC_ID, (-1, -1, -1))
        assert (part.aborted_transactions, bytes(buffer_of(part.records))) == ((), b"")


def test_id_of_a_topic_made_again_is_unknown(world: Simulation) -> None:
    write(world, b"a")
    before = id_of(world)
    after = make_again(world)
    write(world, b"b")
    found = parts_of(world.call(by_id((before, {0: 1}), (after, {0: 0}))))
    assert found[before, 0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert values(found[after, 0]) == [b"b"]


def test_aborted_transactions_beside_errors_are_those_of_kafka(world: Simulation) -> None:
    reader, before = Reader(world), id_of(world)
    reader.ask((before, {0: 0}))
    after = make_again(world)
    found = parts_of(reader.ask((after, {0: 0, 9: 0}), (UNKNOWN, {0: 0})))
    aborted = {key: part.aborted_transactions for key, part in found.items() if part.error_code}
    assert aborted == {(before, 0): None, (after, 9): (), (UNKNOWN, 0): ()}


def test_waiting_fetch_of_a_deleted_topic_is_answered(world: Simulation) -> None:
    known = id_of(world)
    world.begin(by_id((known, {0: 0}), wait_ms=60_000))
    assert not world.answered()
    delete(world)
    assert errors_of(world.finish()) == {(known, 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_partition_twice_by_id_is_an_error(world: Simulation) -> None:
    known = id_of(world)
    found = world.call(by_id((known, {0: 0}), (known, {0: 0})))
    assert {part.error_code for topic in found.topics for part in topic.partitions} == {
        ErrorCode.INVALID_REQUEST
    }


def test_topic_without_id_is_read_by_name_alone() -> None:
    world = Simulation.serving("t", properties={"inter.broker.protocol.version": "2.7"})
    assert "t" not in world.machine.broker.metadata_cache.topic_ids
    write(world, b"a")
    found = world.call(by_id((ZERO_UUID, {0: 0})))
    assert errors_of(found) == {(ZERO_UUID, 0): ErrorCode.UNKNOWN_TOPIC_ID}
    assert values(world.fetch("t", version=12)) == [b"a"]


# --- in a session -------------------------------------------------------------------------------------------


class Reader:
    """A consumer with a session by ids."""

    def __init__(self, world: Simulation) -> None:
        self.client = world.another_client()
        self.session_id, self.epoch = NO_SESSION, NEW_SESSION_EPOCH

    def request(
        self,
        *topics: tuple[bytes, dict[int, int]],
        forget: tuple[tuple[bytes, tuple[int, ...]], ...] = (),
        wait_ms: int = 0,
    ) -> Request:
        session = self.session_id, self.epoch
        return by_id(*topics, session=session, forget=forget, wait_ms=wait_ms)

    def ask(
        self, *topics: tuple[bytes, dict[int, int]], forget: tuple[tuple[bytes, tuple[int, ...]], ...] = ()
    ) -> FetchResponse:
        return self.taken(self.client.call(self.request(*topics, forget=forget)))

    def taken(self, response: FetchResponse) -> FetchResponse:
        """Continue the session behind a response."""
        assert response.error_code == ErrorCode.NONE
        self.session_id = response.session_id
        self.epoch += 1
        return response


def test_session_returns_what_has_changed_by_id(world: Simulation) -> None:
    reader, known = Reader(world), id_of(world)
    assert set(parts_of(reader.ask((known, {0: 0, 1: 0})))) == {(known, 0), (known, 1)}
    assert reader.ask().topics == ()
    reader.client.begin(reader.request(wait_ms=60_000))
    write(world, b"a")
    found = parts_of(reader.taken(reader.client.finish()))
    assert {key: values(part) for key, part in found.items()} == {(known, 0): [b"a"]}


def test_session_reports_a_topic_deleted_and_made_again(world: Simulation) -> None:
    reader, before = Reader(world), id_of(world)
    reader.ask((before, {0: 0, 1: 0}))
    reader.client.begin(reader.request(wait_ms=60_000))
    delete(world)
    gone = errors_of(reader.taken(reader.client.finish()))
    assert set(gone.values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert world.create_topic("t", partitions=2) == 0
    again = errors_of(reader.ask())
    assert again == {
        (before, 0): ErrorCode.INCONSISTENT_TOPIC_ID,
        (before, 1): ErrorCode.INCONSISTENT_TOPIC_ID,
    }


def test_session_has_both_ids_of_a_topic_until_one_is_forgotten(world: Simulation) -> None:
    reader, before = Reader(world), id_of(world)
    reader.ask((before, {0: 5, 1: 0}))
    after = make_again(world)
    write(world, b"b")
    both = parts_of(reader.ask((after, {0: 0})))
    assert values(both.pop((after, 0))) == [b"b"]
    assert {key: part.error_code for key, part in both.items()} == {
        (before, 0): ErrorCode.INCONSISTENT_TOPIC_ID,
        (before, 1): ErrorCode.INCONSISTENT_TOPIC_ID,
    }
    assert reader.ask((after, {0: 1}), forget=((before, (0, 1)),)).topics == ()
    write(world, b"c")
    assert values(parts_of(reader.ask())[after, 0]) == [b"c"]


def test_session_of_unknown_ids_reports_them_each_time(world: Simulation) -> None:
    reader = Reader(world)
    for topics in (((UNKNOWN, {0: 0}),), ()):
        found = errors_of(reader.ask(*topics))
        assert found == {(UNKNOWN, 0): ErrorCode.UNKNOWN_TOPIC_ID}
    last = reader.ask(forget=((UNKNOWN, (0,)),))
    assert (last.topics, last.session_id) == ((), NO_SESSION)


@pytest.mark.parametrize(("begun", "continued"), [(12, 13), (17, 12)])
def test_session_of_names_does_not_continue_by_ids(world: Simulation, begun: int, continued: int) -> None:
    known = id_of(world)
    topic = FetchTopic("t", rows({0: 0}), topic_id=known)
    body = FetchRequest(-1, 0, 1, 1 << 20, 0, NO_SESSION, NEW_SESSION_EPOCH, (topic,))
    session_id = world.call(Request(ApiKey.FETCH, begun, body)).session_id
    assert session_id != NO_SESSION
    more = replace(body, session_id=session_id, session_epoch=1, topics=())
    refused = world.call(Request(ApiKey.FETCH, continued, more))
    assert refused == FetchResponse(0, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, NO_SESSION, ())
    assert world.call(Request(ApiKey.FETCH, begun, more)).session_id == session_id


# --- leaders and followers ----------------------------------------------------------------------------------


@pytest.fixture
def pair() -> Simulation:
    """Broker 0 leads a partition that broker 1 has too, broker 1 another one."""
    made = Simulation()
    made.start_brokers(2, {})
    made.call(requests.place_topic("t", (0, FOLLOWER)))
    made.call(requests.place_topic("other", (FOLLOWER,)))
    made.settle()
    return made


@pytest.mark.parametrize("epoch", [FINAL_EPOCH, NEW_SESSION_EPOCH], ids=["alone", "session"])
@pytest.mark.parametrize("version", [15, 16])
def test_new_leader_and_its_address_are_named_since_16(pair: Simulation, version: int, epoch: int) -> None:
    wanted = id_of(pair, "other"), {0: 0}
    response = pair.call(by_id(wanted, version=version, session=(NO_SESSION, epoch)))
    (part,) = parts_of(response).values()
    assert part.error_code == ErrorCode.NOT_LEADER_FOR_PARTITION
    told = part.current_leader, response.node_endpoints
    if version >= 16:
        address = NodeEndpoint(FOLLOWER, f"machine-{FOLLOWER}", PORT)
        assert told == (LeaderIdAndEpoch(FOLLOWER, 0), (address,))
    else:
        assert told == (LeaderIdAndEpoch(), ())


def test_client_of_an_older_leader_epoch_learns_the_leader(pair: Simulation) -> None:
    pair.machine_of(FOLLOWER).stop()
    pair.settle()
    response = pair.call(by_id((id_of(pair), {0: 0}), leader_epoch=0))
    (part,) = parts_of(response).values()
    assert part.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert part.current_leader == LeaderIdAndEpoch(0, 1)
    assert [endpoint.node_id for endpoint in response.node_endpoints] == [0]


@pytest.mark.parametrize("epoch", [FINAL_EPOCH, NEW_SESSION_EPOCH], ids=["alone", "session"])
def test_follower_is_known_by_its_replica_state(pair: Simulation, epoch: int) -> None:
    partition = pair.machine.broker.partitions[TopicPartition("t", 0)]
    pair.machine_of(FOLLOWER).kill()
    write(pair, b"a")

    def fetched(offset: int) -> FetchPartitionResponse:
        request = by_id((id_of(pair), {0: offset}), session=(NO_SESSION, epoch))
        body = replace(request.body, replica_state=ReplicaState(FOLLOWER, 7))
        (part,) = parts_of(Client(pair.network, pair.host).call(replace(request, body=body))).values()
        return part

    assert values(fetched(0)) == [b"a"]
    assert partition.high_watermark == 0
    fetched(1)
    assert partition.high_watermark == 1


@pytest.mark.parametrize("epoch", [FINAL_EPOCH, NEW_SESSION_EPOCH], ids=["alone", "session"])
def test_fetch_of_an_earlier_topic_does_not_count_for_the_next_ones_log(pair: Simulation, epoch: int) -> None:
    broker, earlier = pair.machine.broker, id_of(pair)
    pair.machine_of(FOLLOWER).kill()
    write(pair, b"a")
    # Its LeaderAndIsr has come, and its UpdateMetadata not yet.
    broker.logs.topic_incarnations.record({TopicPartition("t", 0): TopicIncarnation(None, UNKNOWN)})
    request = by_id((earlier, {0: 1}), session=(NO_SESSION, epoch))
    body = replace(request.body, replica_state=ReplicaState(FOLLOWER, 7))
    refused = errors_of(Client(pair.network, pair.host).call(replace(request, body=body)))
    assert refused == {(earlier, 0): ErrorCode.INCONSISTENT_TOPIC_ID}
    assert broker.partitions[TopicPartition("t", 0)].high_watermark == 0

"""The low-level consumer against a whole broker on one thread, in both protocols."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minikafka.base.errors import BrokerError, ErrorCode, NetworkError, RemoteWireError
from minikafka.clients.simple_consumer import EARLIEST_TIME, LATEST_TIME, FetchRequest, SimpleConsumer
from minikafka.net.memory import Fault, MemoryNetwork
from minikafka.net.port import Exchange
from minikafka.wire import classic
from minikafka.wire.parts import Part
from tests.scenarios.simulation import Simulation

PORTS = {False: 9092, True: 9094}
LISTENERS = {"listeners": "PLAINTEXT://machine-0:9092,CLASSIC://machine-0:9094"}


class World:
    """A broker with one topic, and a consumer of one of the protocols."""

    def __init__(self, classic: bool) -> None:
        self.simulation = Simulation()
        assert self.simulation.machine.start(LISTENERS)
        self.simulation.create_topic("t", partitions=2)
        self.port = PORTS[classic]
        self.consumer = SimpleConsumer(
            "machine-0", self.port, classic=classic, connector=self.simulation.network
        )

    def fetch(self, partition: int, offset: int, max_size: int = 1000) -> list[tuple[int, bytes | None]]:
        found = self.consumer.fetch(FetchRequest("t", partition, offset, max_size))
        return [(message.offset, message.value) for message in found]


@pytest.fixture(params=[False, True], ids=["today", "classic"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    world = World(request.param)
    yield world
    world.consumer.close()


def test_messages_come_from_the_offset_on(world: World) -> None:
    world.simulation.produce("t", b"a", b"b", b"c")
    assert world.fetch(0, 1) == [(1, b"b"), (2, b"c")]
    assert world.fetch(0, 3) == []
    assert world.fetch(1, 0) == []


def test_a_multifetch_gives_each_its_own_messages_or_error_in_order(world: World) -> None:
    world.simulation.produce("t", b"a", b"b")
    asked = [("t", 0, 0), ("t", 0, 1), ("t", 0, 7), ("t", 5, 0), ("t", 1, 0)]
    found = world.consumer.multifetch([FetchRequest(*one, 1000) for one in asked])
    assert [one.error for one in found] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
    ]
    assert [message.value for message in found[0]] == [b"a", b"b"]
    assert [message.value for message in found[1]] == [b"b"]
    assert list(found[4]) == []
    with pytest.raises(BrokerError, match="fetching t-0 from 7") as raised:
        list(found[2])
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_offsets_are_given_with_the_latest_first(world: World) -> None:
    world.simulation.produce("t", b"a", b"b")
    assert world.consumer.get_offsets_before("t", 0, LATEST_TIME, 10) == [2, 0]
    assert world.consumer.get_offsets_before("t", 0, EARLIEST_TIME, 10) == [0]
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        world.consumer.get_offsets_before("other", 0, LATEST_TIME, 1)


def test_a_connection_that_broke_is_made_again(world: World) -> None:
    world.simulation.produce("t", b"a")
    assert world.fetch(0, 0) == [(0, b"a")]
    world.simulation.network.cut("machine-0", world.port)
    assert world.fetch(0, 0) == [(0, b"a")]
    world.consumer.close()
    assert world.fetch(0, 0) == [(0, b"a")]


def test_a_broker_that_is_not_there_is_an_error_with_its_address(world: World) -> None:
    world.simulation.network.inject("machine-0", world.port, Fault.REFUSE, 2)
    with pytest.raises(NetworkError, match=f"machine-0:{world.port}"):
        world.fetch(0, 0)


def test_where_a_classic_answer_holds_a_piece_only_a_larger_size_gets_the_message() -> None:
    world = World(True)
    world.simulation.produce("t", b"x" * 100)
    found = world.consumer.fetch(FetchRequest("t", 0, 0, 50))
    assert (found.size_bytes, found.valid_bytes, list(found)) == (50, 0, [])
    assert [message.value for message in world.consumer.fetch(FetchRequest("t", 0, 0, 200))] == [b"x" * 100]


def answering(parts: list[Part]) -> SimpleConsumer:
    class Fixed:
        def on_request(self, exchange: Exchange, frame: memoryview) -> None:
            exchange.respond(parts)

    network = MemoryNetwork()
    network.listen("a", 1, Fixed())
    return SimpleConsumer("a", 1, classic=True, connector=network)


def test_an_answer_with_another_number_of_sets_is_the_brokers_fault() -> None:
    requests = [FetchRequest("t", 0, 0, 1)] * 3
    with pytest.raises(RemoteWireError, match="0 sets came for 3 requests"):
        answering(classic.encode_multi_message_set_send([])).multifetch(requests)


@pytest.mark.parametrize(
    ("classic", "hint"),
    [(False, "is this port CLASSIC: give classic=True"), (True, "a Kafka listener: leave classic=True out")],
    ids=["today", "classic"],
)
def test_who_speaks_what_the_listener_does_not_is_told_so(classic: bool, hint: str) -> None:
    world = World(classic)
    wrong = PORTS[not classic]
    consumer = SimpleConsumer("machine-0", wrong, classic=classic, connector=world.simulation.network)
    with pytest.raises(NetworkError, match=hint):
        consumer.fetch(FetchRequest("t", 0, 0, 1000))

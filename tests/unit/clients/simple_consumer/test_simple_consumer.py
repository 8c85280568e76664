"""The low-level consumer against a whole broker on one thread, in both protocols."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from minikafka.base.errors import BrokerError, ErrorCode, NetworkError, RemoteWireError
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.stats import (
    FetchRequestAndResponseStatsRegistry,
)
from minikafka.clients.simple_consumer import (
    EARLIEST_TIME,
    LATEST_TIME,
    FetchedMessages,
    FetchRequest,
    FetchRequestBuilder,
    MessageIterator,
    MultiFetchRequest,
    SimpleConsumer,
)
from minikafka.net.interfaces import Exchange
from minikafka.net.memory import Fault, MemoryNetwork
from minikafka.wire import classic
from minikafka.wire.frame_parts import Part
from tests.support.connector_harness import GroupHarness as Connectors
from tests.support.simulation import Simulation

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


@pytest.mark.parametrize("offset", [7, 3])
def test_out_of_range_error_names_the_logs_range(world: World, offset: int) -> None:
    world.simulation.produce("t", b"a", b"b")
    asked = FetchRequest("t", 0, offset, 1000)
    text = f"OFFSET_OUT_OF_RANGE: fetching t-0 from {offset}: the log starts at 0 and ends at 2"
    for raising in (lambda: list(world.consumer.fetch(asked)), lambda: list(world.consumer.iterator(asked))):
        with pytest.raises(BrokerError, match=text):
            raising()
    found = world.consumer.fetch(asked)
    world.simulation.network.inject("machine-0", world.port, Fault.REFUSE, 99)
    world.consumer.disconnect()
    with pytest.raises(BrokerError, match=f"fetching t-0 from {offset}$"):
        found.check()


def test_a_multifetch_response_is_asked_by_topic_and_partition_too(world: World) -> None:
    world.simulation.produce("t", b"a", b"b")
    found = world.consumer.multifetch([FetchRequest("t", 1, 0, 1000), FetchRequest("t", 0, 1, 1000)])
    assert [message.value for message in found.message_set("t", 0)] == [b"b"]
    assert [list(one) for one in found[:1]] == [[]]
    assert found.high_watermark("t", 0) == (2 if world.port == PORTS[False] else -1)
    assert not found.has_error
    assert world.consumer.multifetch([FetchRequest("t", 5, 0, 9)]).has_error
    with pytest.raises(KeyError, match="t-2 was not requested"):
        found.error_code("t", 2)


def test_a_built_request_asks_for_several_at_once(world: World) -> None:
    world.simulation.produce("t", b"a", b"b")
    built = FetchRequestBuilder().add_fetch("t", 0, 1, 1000).add_fetch("t", 1, 0, 1000).build()
    found = world.consumer.fetch(built)
    assert [[message.value for message in one] for one in found] == [[b"b"], []]


def test_a_log_begins_and_ends_somewhere(world: World) -> None:
    world.simulation.produce("t", b"a", b"b")
    place = TopicPartition("t", 0)
    assert world.consumer.earliest_or_latest_offset(place, EARLIEST_TIME) == 0
    assert world.consumer.earliest_or_latest_offset(place, LATEST_TIME, consumer_id=-1) == 2
    with pytest.raises(ValueError, match="got 1700000000000"):
        world.consumer.earliest_or_latest_offset(place, 1_700_000_000_000)
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION: looking up offsets of t-9"):
        world.consumer.earliest_or_latest_offset(TopicPartition("t", 9), LATEST_TIME)


def test_what_fetches_cost_is_counted_by_client_and_broker(world: World) -> None:
    world.simulation.produce("t", b"a", b"b")
    client_id = f"counted-{world.port}"
    consumer = SimpleConsumer(
        "machine-0",
        world.port,
        classic=world.port == PORTS[True],
        client_id=client_id,
        connector=world.simulation.network,
    )
    with consumer:
        found = consumer.fetch(FetchRequest("t", 0, 0, 1000))
        counted = consumer.stats.broker("machine-0", world.port)
        assert (counted.requests.count, counted.response_bytes.count) == (1, 1)
        assert counted.response_bytes.mean == found.size_bytes
    assert FetchRequestAndResponseStatsRegistry.get(client_id) is consumer.stats


def test_stats_outlive_connectors_while_a_simple_consumer_lives() -> None:
    client_id = "stats-of-a-simple-consumer"
    consumer = SimpleConsumer("nowhere", 1, client_id=client_id)
    connector = Connectors(t=1).consumer("a", client_id=client_id).connector
    connector.shutdown()
    assert FetchRequestAndResponseStatsRegistry.get(client_id) is consumer.stats
    del consumer
    gc.collect()
    assert client_id not in FetchRequestAndResponseStatsRegistry._stats


def test_iterator_reads_to_the_end_and_continues_later(world: World) -> None:
    values = [b"%03d" % number for number in range(20)]
    for value in values:
        world.simulation.produce("t", value)
    messages = world.consumer.iterator(FetchRequest("t", 0, 3, 100))
    assert [message.value for message in messages] == values[3:]
    assert list(messages) == []
    world.simulation.produce("t", b"more")
    assert [(message.offset, message.value) for message in messages] == [(20, b"more")]
    assert messages.next_offset == 21


def test_an_iterator_that_is_left_goes_on_behind_the_last_message(world: World) -> None:
    world.simulation.produce("t", b"a", b"b", b"c")
    messages = world.consumer.iterator(FetchRequest("t", 0, 0, 1000))
    assert next(iter(messages)).value == b"a"
    assert [message.value for message in messages] == [b"b", b"c"]


def test_an_iterator_raises_what_the_broker_says(world: World) -> None:
    with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE: fetching t-0 from 7"):
        list(world.consumer.iterator(FetchRequest("t", 0, 7, 100)))


def test_connections_are_made_and_ended_on_demand_too(world: World) -> None:
    world.consumer.connect()
    world.consumer.disconnect()
    world.consumer.disconnect()
    assert world.fetch(0, 0) == []
    world.consumer.disconnect()
    world.simulation.network.inject("machine-0", world.port, Fault.REFUSE, 1)
    with pytest.raises(NetworkError, match=f"machine-0:{world.port}"):
        world.consumer.connect()


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


def test_classic_fetch_of_a_partial_message_needs_a_larger_size() -> None:
    world = World(True)
    world.simulation.produce("t", b"x" * 100)
    found = world.consumer.fetch(FetchRequest("t", 0, 0, 50))
    assert (found.size_bytes, found.valid_bytes, list(found)) == (50, 0, [])
    assert [message.value for message in world.consumer.fetch(FetchRequest("t", 0, 0, 200))] == [b"x" * 100]


def test_an_iterator_doubles_its_buffer_for_a_message_that_does_not_fit() -> None:
    world = World(True)
    world.simulation.produce("t", b"a")
    world.simulation.produce("t", b"x" * 1_000)
    world.simulation.produce("t", b"b")
    messages = world.consumer.iterator(FetchRequest("t", 0, 0, 40))
    sizes = [(message.value, messages.buffer_size) for message in messages]
    assert sizes == [(b"a", 40), (b"x" * 1_000, 1_280), (b"b", 1_280)]
    assert messages.buffer_size == 40


def test_an_iterator_does_not_grow_beyond_its_limit() -> None:
    world = World(True)
    world.simulation.produce("t", b"a")
    world.simulation.produce("t", b"x" * 1_000)
    messages = world.consumer.iterator(FetchRequest("t", 0, 0, 40), max_buffer_size=1_000)
    found = []
    with pytest.raises(
        BrokerError, match="MESSAGE_TOO_LARGE: the message of t-0 at 1 does not fit 1000 byte"
    ):
        found.extend(messages)
    assert messages.next_offset == 1
    with pytest.raises(ValueError, match="expected max_size from 1 to"):
        world.consumer.iterator(FetchRequest("t", 0, 0, 0))


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_reads_grow_in_versions_of_fetch_that_cut_the_first_message_off(version: int) -> None:
    world = World(False)
    world.simulation.produce("t", b"x" * 1_000)
    sizes = []

    def fetch(asked: FetchRequest) -> FetchedMessages:
        sizes.append(asked.max_size)
        return world.consumer.fetch(MultiFetchRequest((asked,), version=version))[0]

    messages = MessageIterator(fetch, FetchRequest("t", 0, 0, 300), 5_000)
    assert [message.value for message in messages] == [b"x" * 1_000]
    assert sizes == ([300, 600, 1_200, 300] if version < 3 else [300, 300])


def test_a_fetch_waits_for_the_bytes_of_all_its_partitions() -> None:
    world = World(False)
    clock = world.simulation.clock
    builder = FetchRequestBuilder().add_fetch("t", 1, 0, 1000).add_fetch("t", 0, 0, 1000)
    before_ms = clock.monotonic_ms()
    assert [list(one) for one in world.consumer.fetch(builder.max_wait(400).min_bytes(1).build())] == [[], []]
    assert 400 <= clock.monotonic_ms() - before_ms < 1_000
    world.simulation.produce("t", b"a")
    found = world.consumer.fetch(builder.max_wait(60_000).build())
    assert [[message.value for message in one] for one in found] == [[], [b"a"]]
    assert clock.monotonic_ms() - before_ms < 2_000


def test_a_request_that_waits_names_a_partition_once() -> None:
    builder = FetchRequestBuilder().add_fetch("t", 0, 0, 9).add_fetch("t", 0, 5, 9).replica_id(-2)
    assert builder.build().replica_id == -2
    with pytest.raises(ValueError, match="t-0 is repeated in a request that waits"):
        builder.max_wait(10).min_bytes(1).build()
    with pytest.raises(ValueError, match=r"expected 0 or more, got .*min_bytes=-1"):
        builder.min_bytes(-1).build()


def test_unsupported_version_is_refused_before_it_is_sent() -> None:
    world = World(False)
    request = FetchRequestBuilder().add_fetch("t", 0, 0, 100).request_version(99).build()
    with pytest.raises(
        BrokerError, match=r"UNSUPPORTED_VERSION: Fetch 99 is not supported: .*machine-0.* versions up to 10"
    ):
        world.consumer.fetch(request)


def answering(parts: list[Part]) -> SimpleConsumer:
    class Fixed:
        def on_request(self, exchange: Exchange, frame: memoryview) -> None:
            exchange.respond(parts)

    network = MemoryNetwork()
    network.listen("a", 1, Fixed())
    return SimpleConsumer("a", 1, classic=True, connector=network)


def test_an_answer_with_another_number_of_sets_is_the_brokers_fault() -> None:
    requests = [FetchRequest("t", 0, 0, 1)] * 3
    with pytest.raises(RemoteWireError, match="expected 3 message sets, got 0"):
        answering(classic.encode_multi_message_set_send([])).multifetch(requests)


@pytest.mark.parametrize(
    ("classic", "hint"),
    [(False, "CLASSIC listener, pass classic=True"), (True, "Kafka listener, omit classic=True")],
    ids=["today", "classic"],
)
def test_who_speaks_what_the_listener_does_not_is_told_so(classic: bool, hint: str) -> None:
    world = World(classic)
    wrong = PORTS[not classic]
    consumer = SimpleConsumer("machine-0", wrong, classic=classic, connector=world.simulation.network)
    with pytest.raises(NetworkError, match=hint):
        consumer.fetch(FetchRequest("t", 0, 0, 1000))

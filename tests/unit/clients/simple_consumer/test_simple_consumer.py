"""The low-level consumer against a whole broker on one thread, in both protocols."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from minikafka.base.errors import BrokerError, ErrorCode, NetworkError, RemoteWireError
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.stats import FetchRequestAndResponseStatsRegistry
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
from tests.support.connector_harness import ZooKeeperGroupHarness
from tests.support.simple_consumer_harness import SimpleConsumerHarness

PORTS = {False: 9092, True: 9094}


@pytest.fixture(params=[False, True], ids=["kafka", "classic"])
def harness(request: pytest.FixtureRequest) -> Iterator[SimpleConsumerHarness]:
    harness = SimpleConsumerHarness(classic=request.param)
    yield harness
    harness.consumer.close()


def test_fetch_returns_messages_from_its_offset(harness: SimpleConsumerHarness) -> None:
    harness.simulation.produce("t", b"a", b"b", b"c")
    assert harness.fetch(0, 1) == [(1, b"b"), (2, b"c")]
    assert harness.fetch(0, 3) == []
    assert harness.fetch(1, 0) == []


def test_multifetch_returns_each_partition_or_its_error_in_order(harness: SimpleConsumerHarness) -> None:
    harness.simulation.produce("t", b"a", b"b")
    fetches = [("t", 0, 0), ("t", 0, 1), ("t", 0, 7), ("t", 5, 0), ("t", 1, 0)]
    found = harness.consumer.multifetch([FetchRequest(*fetch, 1000) for fetch in fetches])
    assert [messages.error for messages in found] == [
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
def test_out_of_range_error_names_the_logs_range(harness: SimpleConsumerHarness, offset: int) -> None:
    harness.simulation.produce("t", b"a", b"b")
    request = FetchRequest("t", 0, offset, 1000)
    text = f"OFFSET_OUT_OF_RANGE: fetching t-0 from {offset}: the log starts at 0 and ends at 2"
    with pytest.raises(BrokerError, match=text):
        list(harness.consumer.fetch(request))
    with pytest.raises(BrokerError, match=text):
        list(harness.consumer.iterator(request))
    found = harness.consumer.fetch(request)
    harness.simulation.network.inject("machine-0", harness.port, Fault.REFUSE, 99)
    harness.consumer.disconnect()
    with pytest.raises(BrokerError, match=f"fetching t-0 from {offset}$"):
        found.check()


def test_multifetch_response_is_read_by_topic_and_partition(harness: SimpleConsumerHarness) -> None:
    harness.simulation.produce("t", b"a", b"b")
    found = harness.consumer.multifetch([FetchRequest("t", 1, 0, 1000), FetchRequest("t", 0, 1, 1000)])
    assert [message.value for message in found.message_set("t", 0)] == [b"b"]
    assert [list(messages) for messages in found[:1]] == [[]]
    assert found.high_watermark("t", 0) == (2 if harness.port == PORTS[False] else -1)
    assert not found.has_error
    assert harness.consumer.multifetch([FetchRequest("t", 5, 0, 9)]).has_error
    with pytest.raises(KeyError, match="t-2 was not requested"):
        found.error_code("t", 2)


def test_built_request_fetches_several_partitions(harness: SimpleConsumerHarness) -> None:
    harness.simulation.produce("t", b"a", b"b")
    built = FetchRequestBuilder().add_fetch("t", 0, 1, 1000).add_fetch("t", 1, 0, 1000).build()
    found = harness.consumer.fetch(built)
    assert [[message.value for message in messages] for messages in found] == [[b"b"], []]


def test_earliest_or_latest_offset_is_the_logs_start_or_end(harness: SimpleConsumerHarness) -> None:
    harness.simulation.produce("t", b"a", b"b")
    partition = TopicPartition("t", 0)
    assert harness.consumer.earliest_or_latest_offset(partition, EARLIEST_TIME) == 0
    assert harness.consumer.earliest_or_latest_offset(partition, LATEST_TIME, consumer_id=-1) == 2
    with pytest.raises(ValueError, match="got 1700000000000"):
        harness.consumer.earliest_or_latest_offset(partition, 1_700_000_000_000)
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION: looking up offsets of t-9"):
        harness.consumer.earliest_or_latest_offset(TopicPartition("t", 9), LATEST_TIME)


def test_fetches_are_counted_by_client_and_broker(harness: SimpleConsumerHarness) -> None:
    harness.simulation.produce("t", b"a", b"b")
    client_id = f"counted-{harness.port}"
    consumer = SimpleConsumer(
        "machine-0",
        harness.port,
        classic=harness.port == PORTS[True],
        client_id=client_id,
        connector=harness.simulation.network,
    )
    with consumer:
        found = consumer.fetch(FetchRequest("t", 0, 0, 1000))
        counted = consumer.stats.broker("machine-0", harness.port)
        assert (counted.requests.count, counted.response_bytes.count) == (1, 1)
        assert counted.response_bytes.mean == found.size_bytes
    assert FetchRequestAndResponseStatsRegistry.get(client_id) is consumer.stats


def test_stats_outlive_connectors_while_a_simple_consumer_lives() -> None:
    client_id = "stats-of-a-simple-consumer"
    consumer = SimpleConsumer("nowhere", 1, client_id=client_id)
    connector = ZooKeeperGroupHarness(t=1).consumer("a", client_id=client_id).connector
    connector.shutdown()
    assert FetchRequestAndResponseStatsRegistry.get(client_id) is consumer.stats
    del consumer
    gc.collect()
    assert client_id not in FetchRequestAndResponseStatsRegistry._stats


def test_iterator_reads_to_the_end_and_continues_later(harness: SimpleConsumerHarness) -> None:
    values = [b"%03d" % number for number in range(20)]
    for value in values:
        harness.simulation.produce("t", value)
    messages = harness.consumer.iterator(FetchRequest("t", 0, 3, 100))
    assert [message.value for message in messages] == values[3:]
    assert list(messages) == []
    harness.simulation.produce("t", b"more")
    assert [(message.offset, message.value) for message in messages] == [(20, b"more")]
    assert messages.next_offset == 21


def test_iterator_continues_after_the_last_message_taken(harness: SimpleConsumerHarness) -> None:
    harness.simulation.produce("t", b"a", b"b", b"c")
    messages = harness.consumer.iterator(FetchRequest("t", 0, 0, 1000))
    assert next(iter(messages)).value == b"a"
    assert [message.value for message in messages] == [b"b", b"c"]


def test_connect_and_disconnect_work_without_a_fetch(harness: SimpleConsumerHarness) -> None:
    harness.consumer.connect()
    harness.consumer.disconnect()
    harness.consumer.disconnect()
    assert harness.fetch(0, 0) == []
    harness.consumer.disconnect()
    harness.simulation.network.inject("machine-0", harness.port, Fault.REFUSE, 1)
    with pytest.raises(NetworkError, match=f"machine-0:{harness.port}"):
        harness.consumer.connect()


def test_offsets_before_a_time_come_latest_first(harness: SimpleConsumerHarness) -> None:
    harness.simulation.produce("t", b"a", b"b")
    assert harness.consumer.get_offsets_before("t", 0, LATEST_TIME, 10) == [2, 0]
    assert harness.consumer.get_offsets_before("t", 0, EARLIEST_TIME, 10) == [0]
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        harness.consumer.get_offsets_before("other", 0, LATEST_TIME, 1)


def test_broken_connection_is_opened_again(harness: SimpleConsumerHarness) -> None:
    harness.simulation.produce("t", b"a")
    assert harness.fetch(0, 0) == [(0, b"a")]
    harness.simulation.network.cut("machine-0", harness.port)
    assert harness.fetch(0, 0) == [(0, b"a")]
    harness.consumer.close()
    assert harness.fetch(0, 0) == [(0, b"a")]


def test_error_of_an_unreachable_broker_has_its_address(harness: SimpleConsumerHarness) -> None:
    harness.simulation.network.inject("machine-0", harness.port, Fault.REFUSE, 2)
    with pytest.raises(NetworkError, match=f"machine-0:{harness.port}"):
        harness.fetch(0, 0)


def test_classic_fetch_of_a_partial_message_needs_a_larger_size() -> None:
    harness = SimpleConsumerHarness(classic=True)
    harness.simulation.produce("t", b"x" * 100)
    found = harness.consumer.fetch(FetchRequest("t", 0, 0, 50))
    assert (found.size_bytes, found.valid_bytes, list(found)) == (50, 0, [])
    assert [message.value for message in harness.consumer.fetch(FetchRequest("t", 0, 0, 200))] == [b"x" * 100]


def test_iterator_doubles_its_buffer_for_a_large_message() -> None:
    harness = SimpleConsumerHarness(classic=True)
    harness.simulation.produce("t", b"a")
    harness.simulation.produce("t", b"x" * 1_000)
    harness.simulation.produce("t", b"b")
    messages = harness.consumer.iterator(FetchRequest("t", 0, 0, 40))
    sizes = [(message.value, messages.buffer_size) for message in messages]
    assert sizes == [(b"a", 40), (b"x" * 1_000, 1_280), (b"b", 1_280)]
    assert messages.buffer_size == 40


def test_iterator_buffer_stays_within_its_limit() -> None:
    harness = SimpleConsumerHarness(classic=True)
    harness.simulation.produce("t", b"a")
    harness.simulation.produce("t", b"x" * 1_000)
    messages = harness.consumer.iterator(FetchRequest("t", 0, 0, 40), max_buffer_size=1_000)
    found = []
    text = "MESSAGE_TOO_LARGE: the message of t-0 at 1 does not fit 1000 bytes: set a larger max_buffer_size"
    with pytest.raises(BrokerError, match=text):
        found.extend(messages)
    assert messages.next_offset == 1
    with pytest.raises(ValueError, match="expected max_size from 1 to"):
        harness.consumer.iterator(FetchRequest("t", 0, 0, 0))


@pytest.mark.parametrize(
    ("version", "asked"),
    [
        (0, [300, 600, 1_200, 300]),  # converted down: the broker does not give the message's size
        (1, [300, 600, 1_200, 300]),
        (2, [300, 1_200, 300]),
        (3, [300, 300]),
    ],
)
def test_reads_grow_where_fetch_cuts_off_the_first_message(version: int, asked: list[int]) -> None:
    harness = SimpleConsumerHarness()
    harness.simulation.produce("t", b"x" * 1_000)
    sizes = []

    def fetch(request: FetchRequest) -> FetchedMessages:
        sizes.append(request.max_size)
        return harness.consumer.fetch(MultiFetchRequest((request,), version=version))[0]

    messages = MessageIterator(fetch, FetchRequest("t", 0, 0, 300), 5_000)
    assert [message.value for message in messages] == [b"x" * 1_000]
    assert sizes == asked


def test_fetch_waits_for_the_bytes_of_all_partitions() -> None:
    harness = SimpleConsumerHarness()
    clock = harness.simulation.clock
    builder = FetchRequestBuilder().add_fetch("t", 1, 0, 1000).add_fetch("t", 0, 0, 1000)
    before_ms = clock.monotonic_ms()
    found = harness.consumer.fetch(builder.max_wait(400).min_bytes(1).build())
    assert [list(messages) for messages in found] == [[], []]
    assert 400 <= clock.monotonic_ms() - before_ms < 1_000
    harness.simulation.produce("t", b"a")
    found = harness.consumer.fetch(builder.max_wait(60_000).build())
    assert [[message.value for message in messages] for messages in found] == [[], [b"a"]]
    assert clock.monotonic_ms() - before_ms < 2_000


def test_waiting_request_fetches_a_partition_once() -> None:
    builder = FetchRequestBuilder().add_fetch("t", 0, 0, 9).add_fetch("t", 0, 5, 9).replica_id(-2)
    assert builder.build().replica_id == -2
    with pytest.raises(ValueError, match="t-0 is repeated in a request that waits"):
        builder.max_wait(10).min_bytes(1).build()
    with pytest.raises(ValueError, match=r"expected 0 or more, got .*min_bytes=-1"):
        builder.min_bytes(-1).build()


@pytest.mark.parametrize("version", [13, 99])
def test_unsupported_version_is_refused_before_it_is_sent(version: int) -> None:
    harness = SimpleConsumerHarness()
    request = FetchRequestBuilder().add_fetch("t", 0, 0, 100).request_version(version).build()
    with pytest.raises(
        BrokerError,
        match=rf"UNSUPPORTED_VERSION: Fetch {version} is not supported: .*machine-0.* versions up to 12",
    ):
        harness.consumer.fetch(request)


def consumer_with_response(parts: list[Part]) -> SimpleConsumer:
    class FixedResponse:
        def on_request(self, exchange: Exchange, frame: memoryview) -> None:
            exchange.respond(parts)

    network = MemoryNetwork()
    network.listen("a", 1, FixedResponse())
    return SimpleConsumer("a", 1, classic=True, connector=network)


def test_wrong_number_of_message_sets_is_a_remote_error() -> None:
    requests = [FetchRequest("t", 0, 0, 1)] * 3
    with pytest.raises(RemoteWireError, match="expected 3 message sets, got 0"):
        consumer_with_response(classic.encode_multi_message_set_send([])).multifetch(requests)


@pytest.mark.parametrize(
    ("classic", "hint"),
    [(False, "CLASSIC listener, pass classic=True"), (True, "Kafka listener, omit classic=True")],
    ids=["kafka", "classic"],
)
def test_error_for_the_wrong_protocol_names_the_option(classic: bool, hint: str) -> None:
    harness = SimpleConsumerHarness(classic=classic)
    wrong_port = PORTS[not classic]
    consumer = SimpleConsumer("machine-0", wrong_port, classic=classic, connector=harness.simulation.network)
    with pytest.raises(NetworkError, match=hint):
        consumer.fetch(FetchRequest("t", 0, 0, 1000))

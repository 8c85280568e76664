"""Consumers read from the replica in their rack (KIP-392): Java's from our brokers, ours from Kafka's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.range_fetcher import RangeFetcher
from minikafka.clients.group.consumer import GroupConsumer, GroupConsumerConfig, Reset
from minikafka.clients.network.cluster import ClusterClient
from minikafka.records.format.message_set import iterate
from tests.interop.releases import KAFKA_3_9
from tests.support.racks import COUNT, TwoRacks, brokers_of, brokers_of_ours

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

RACKS = pytest.mark.parametrize(("rack", "fetched"), [("b", [False, True]), ("a", [True, False])])


@pytest.fixture(scope="module")
def ours() -> Iterator[TwoRacks]:
    KAFKA_3_9.libs()
    with brokers_of_ours() as made:
        yield made


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoRacks]:
    with brokers_of(KAFKA_3_9, tmp_path_factory.mktemp("racks")) as made:
        yield made


@RACKS
def test_javas_consumer_reads_from_our_broker_in_its_rack(
    ours: TwoRacks, rack: str, fetched: list[bool]
) -> None:
    ours.fetched()
    read = KAFKA_3_9.run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", ours.servers, "--topic", ours.topic, "--from-beginning"),
        *("--max-messages", str(COUNT), "--consumer-property", f"client.rack={rack}"),
    )
    assert len(read.out.splitlines()) == COUNT
    assert ours.fetched() == fetched


@RACKS
def test_our_group_consumer_reads_from_kafkas_broker_in_its_rack(
    theirs: TwoRacks, rack: str, fetched: list[bool]
) -> None:
    theirs.fetched()
    config = GroupConsumerConfig(f"in-{rack}", rack=rack, auto_offset_reset=Reset.EARLIEST)
    found = 0
    with ClusterClient(theirs.servers) as client, GroupConsumer(client, config) as consumer:
        consumer.assign([TopicPartition(theirs.topic, 0)])
        while found < COUNT:
            found += len(consumer.poll_records(1_000))
    assert found == COUNT
    assert theirs.fetched() == fetched


@RACKS
def test_a_range_is_read_from_kafkas_broker_in_the_rack(
    theirs: TwoRacks, rack: str, fetched: list[bool]
) -> None:
    theirs.fetched()
    tp = TopicPartition(theirs.topic, 0)
    with ClusterClient(theirs.servers) as client:
        sets = RangeFetcher(client, tp, 0, COUNT, max_bytes=5_000, rack=rack)
        assert [record.offset for data in sets for record in iterate(data)] == list(range(COUNT))
    assert theirs.fetched() == fetched

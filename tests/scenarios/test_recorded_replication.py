"""Recorded requests between brokers of Apache Kafka 0.10.1.1: our broker gives the same responses."""

from __future__ import annotations

import pytest

from minikafka.base.endpoints import addresses_on
from minikafka.base.ids import TopicPartition
from minikafka.records.format.message_set import Record, build_message_set
from minikafka.wire.frame_parts import buffer_of
from tests.scenarios.recordings import decoded, names_of, plain, recorded
from tests.support import requests
from tests.support.requests import produce
from tests.support.simulation import PORT, Client, Simulation

FETCHES = {"01-Fetch-v3#4": (0, 6), "01-Fetch-v3#5": (1, 0), "01-Fetch-v3#6": (1, 10)}
"""A follower's fetch -> the partition of "twice", whose leader has the same number, and the offset."""

FILES = ("04-LeaderAndIsr-v0", "05-StopReplica-v0", "06-UpdateMetadata-v2", "07-ControlledShutdown-v1")
"""The controller's requests to broker 0, and requests to the controller, which is the same broker."""

EXCHANGES = [*FETCHES, *(name for name in names_of("0.10.1.1") if name.partition("#")[0] in FILES)]


@pytest.fixture
def simulation() -> Simulation:
    """Brokers 0 and 1, with the topics of the recording."""
    simulation = Simulation()
    for number in (0, 1):
        assert simulation.machine_of(number).start()
    for topic, replicas in (("wire", ((0,), (0,))), ("twice", ((0, 1), (1, 0)))):
        assert simulation.call(requests.place_topic(topic, *replicas)).topics[0].error_code == 0
    simulation.settle()
    return simulation


def answer_to(simulation: Simulation, name: str, machine: int = 0) -> object:
    exchange = recorded(name)
    connection = simulation.network.connect(simulation.machine_of(machine).host, PORT)
    return plain(decoded(exchange.header, bytes(connection.request([exchange.request]).result())))


def answer_of_kafka(name: str) -> object:
    exchange = recorded(name)
    assert exchange.response is not None
    return plain(decoded(exchange.header, exchange.response))


@pytest.mark.parametrize("name", [name for name in EXCHANGES if name not in FETCHES])
def test_controller_requests_get_kafkas_responses(simulation: Simulation, name: str) -> None:
    assert answer_to(simulation, name) == answer_of_kafka(name)


@pytest.mark.parametrize("name", FETCHES)
def test_follower_fetches_get_kafkas_responses(simulation: Simulation, name: str) -> None:
    partition, offset = FETCHES[name]
    simulation.machine_of(1 - partition).held = True
    client = Client(simulation.network, simulation.machine_of(partition).host)
    given = recorded(name)
    assert given.response is not None
    (answer,) = (part for topic in decoded(given.header, given.response).topics for part in topic.partitions)
    before = build_message_set([Record(None, b"", 0)] * offset) if offset else b""
    for message_set in filter(None, (before, bytes(buffer_of(answer.records)))):
        done = client.call(produce("twice", message_set, partitions=(partition,), acks=1))
        assert done.topics[0].partitions[0].error_code == 0
    assert answer_to(simulation, name, partition) == answer_of_kafka(name)


def test_broker_applies_the_controllers_requests(simulation: Simulation) -> None:
    answer_to(simulation, "04-LeaderAndIsr-v0#2")
    broker = simulation.machine.broker
    roles = [broker.partitions[TopicPartition("twice", index)].is_leader for index in (0, 1)]
    assert roles == [True, False]
    answer_to(simulation, "06-UpdateMetadata-v2#2")
    addresses = addresses_on("PLAINTEXT", broker.metadata_cache.brokers)
    assert {address.port for address in addresses.values()} == {29195, 29196}

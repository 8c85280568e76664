"""How long fetches wait whose consumer has more to read of other partitions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minikafka.records.format.message_set import Record, build_message_set
from minikafka.wire.apis.fetch import FetchResponse
from tests.support import requests
from tests.support.requests import Request
from tests.support.simulation import Client, Simulation

FINISHED, UNFINISHED = 0, 1
MESSAGES = 10
MAX_WAIT_MS = 500


@pytest.fixture
def world() -> Simulation:
    """Two partitions with as many messages each."""
    world = Simulation.serving("t", partitions=2)
    send(world, FINISHED, UNFINISHED)
    return world


def send(world: Simulation, *partitions: int) -> None:
    messages = build_message_set([Record(None, bytes(100), 0)] * MESSAGES)
    world.another_client().call(requests.produce("t", messages, partitions=partitions))


def at_the_end(partition: int, *, offset: int = MESSAGES, min_bytes: int = 1) -> Request:
    """A fetch that finds nothing."""
    return requests.fetch("t", offset, partition=partition, wait_ms=MAX_WAIT_MS, min_bytes=min_bytes)


def gives_a_part(client: Client) -> None:
    """Of one partition ``client`` reads everything, of the other a part."""
    assert client.fetch("t", partition=FINISHED).records
    assert client.fetch("t", partition=UNFINISHED, max_bytes=500).records


def waited_ms(world: Simulation, client: Client, request: Request) -> int:
    """How long a fetch waits for its answer, to the millisecond."""
    began_ms = world.clock.monotonic_ms()
    client.begin(request)
    while not client.answered():
        world.clock.advance(1)
        world.settle()
    answer: FetchResponse = client.finish()
    assert all(part.error_code == 0 for topic in answer.topics for part in topic.partitions)
    return world.clock.monotonic_ms() - began_ms


def test_who_has_more_to_read_of_another_partition_is_answered_soon(world: Simulation) -> None:
    gives_a_part(world)
    assert waited_ms(world, world, at_the_end(FINISHED)) == 5


def test_who_has_read_everything_waits_as_long_as_it_asked_to(world: Simulation) -> None:
    gives_a_part(world)
    assert world.fetch("t", 4, partition=UNFINISHED).records
    assert waited_ms(world, world, at_the_end(FINISHED)) == MAX_WAIT_MS


def test_the_waits_double_and_begin_anew_when_it_has_come_for_more(world: Simulation) -> None:
    gives_a_part(world)
    assert [waited_ms(world, world, at_the_end(FINISHED)) for _ in range(5)] == [5, 5, 10, 20, 40]
    gives_a_part(world)
    assert waited_ms(world, world, at_the_end(FINISHED)) == 5


def test_client_that_does_not_fetch_the_rest_gets_its_full_wait(world: Simulation) -> None:
    gives_a_part(world)
    waits = [waited_ms(world, world, at_the_end(FINISHED)) for _ in range(20)]
    assert waits.index(MAX_WAIT_MS) < 10
    assert set(waits[waits.index(MAX_WAIT_MS) :]) == {MAX_WAIT_MS}


def test_who_has_less_than_it_wants_is_answered_soon_too(world: Simulation) -> None:
    gives_a_part(world)
    assert waited_ms(world, world, at_the_end(FINISHED, offset=MESSAGES - 1, min_bytes=10_000)) == 5


def test_new_messages_are_given_at_once_all_the_same(world: Simulation) -> None:
    gives_a_part(world)
    world.begin(at_the_end(FINISHED))
    send(world, FINISHED)
    assert world.answered()
    assert world.finish().topics[0].partitions[0].records


def test_a_fetch_for_everything_waits_for_as_many_bytes_as_it_wants(world: Simulation) -> None:
    request = at_the_end(FINISHED, min_bytes=1 << 20)
    (topic,) = request.body.topics
    (finished,) = topic.partitions
    unfinished = replace(finished, index=UNFINISHED, fetch_offset=0, partition_max_bytes=500)
    both = replace(topic, partitions=(finished, unfinished))
    request = replace(request, body=replace(request.body, topics=(both,)))
    assert [waited_ms(world, world, request) for _ in range(2)] == [MAX_WAIT_MS] * 2


def test_another_connection_is_not_concerned(world: Simulation) -> None:
    gives_a_part(world)
    assert waited_ms(world, world.another_client(), at_the_end(FINISHED)) == MAX_WAIT_MS


def test_a_replica_waits_as_long_as_it_asked_to(world: Simulation) -> None:
    gives_a_part(world)
    request = at_the_end(FINISHED)
    assert waited_ms(world, world, replace(request, body=replace(request.body, replica_id=7))) == MAX_WAIT_MS


def test_what_a_replica_was_given_keeps_no_consumer_from_waiting(world: Simulation) -> None:
    request = requests.fetch("t", partition=UNFINISHED, max_bytes=500)
    world.call(replace(request, body=replace(request.body, replica_id=7)))
    assert waited_ms(world, world, at_the_end(FINISHED)) == MAX_WAIT_MS


@pytest.mark.parametrize(("version", "given"), [(2, 300), (3, 0), (4, 0), (10, 0)])
def test_message_above_the_limit_is_cut_only_in_old_fetch_versions(
    world: Simulation, version: int, given: int
) -> None:
    large = build_message_set([Record(None, bytes(1000), 0)])
    world.create_topic("large", partitions=2)
    world.call(requests.produce("large", large, partitions=(1,)))
    for _ in range(3):
        world.call(requests.produce("large", build_message_set([Record(None, bytes(50), 0)])))
    request = requests.fetch("large", max_bytes=300, version=version)
    (topic,) = request.body.topics
    (small,) = topic.partitions

    def records_of(*partitions: int) -> dict[int, int]:
        asked = tuple(replace(small, index=partition) for partition in partitions)
        body = replace(request.body, topics=(replace(topic, partitions=asked),))
        (answered,) = world.call(replace(request, body=body)).topics
        return {part.index: len(part.records) for part in answered.partitions}

    found = records_of(0, 1)
    assert found[0] > 0
    assert found[1] == given
    if version > 2:
        assert records_of(1, 0)[1] == len(large)

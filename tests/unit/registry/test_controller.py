"""Requests and notifications to the controller: as 0.10.1.1 wrote them, and invalid ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minikafka.base.errors import CoordinationError
from minikafka.base.ids import TopicPartition
from minikafka.registry import paths
from minikafka.registry.controller import IsrChange, PreferredElection, Reassignments
from minikafka.registry.store import DATA_MAX_BYTES

GOLDEN = Path(__file__).parents[2] / "data" / "zookeeper"
ORDERS = [TopicPartition("orders", 0), TopicPartition("orders", 1)]


def recorded(path: str) -> bytes:
    """Data that the release's tool wrote, before the controller read it."""
    file = GOLDEN / "09-election-and-reassignment-requested-broker-halted.json"
    data = json.loads(file.read_text("utf-8"))[path]["data"]
    assert isinstance(data, str)
    return data.encode()


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        (paths.REASSIGN_PARTITIONS, Reassignments(dict.fromkeys(ORDERS, (0,)))),
        (paths.PREFERRED_ELECTION, PreferredElection(frozenset(ORDERS))),
    ],
)
def test_a_recorded_request_is_read_and_written_alike(
    path: str, asked: Reassignments | PreferredElection
) -> None:
    data = recorded(path)
    assert type(asked).from_json(data) == asked
    assert asked.to_json() == data


def test_isr_change_is_read_and_written_as_by_0_10_1() -> None:
    data = b'{"version":1,"partitions":[{"topic":"a","partition":3},{"topic":"b","partition":0}]}'
    change = IsrChange(frozenset({TopicPartition("b", 0), TopicPartition("a", 3)}))
    assert IsrChange.from_json(data, f"{paths.ISR_CHANGES}/{paths.ISR_CHANGE_PREFIX}0000000000") == change
    assert change.to_json() == data


def test_isr_change_with_a_duplicate_partition_is_read() -> None:
    data = b'{"version":1,"partitions":[{"topic":"a","partition":3},{"topic":"a","partition":3}]}'
    assert IsrChange.from_json(data, "/p") == IsrChange(frozenset({TopicPartition("a", 3)}))


def test_the_key_of_the_texts_example_is_taken_for_the_tools() -> None:
    data = b'{"partition": [{"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 1}]}'
    assert PreferredElection.from_json(data) == PreferredElection(frozenset(ORDERS))


def test_keys_of_later_releases_are_accepted() -> None:
    data = (
        b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}]}'
    )
    assert Reassignments.from_json(data) == Reassignments({TopicPartition("t", 0): (1, 2)})


@pytest.mark.parametrize("replicas", ["null", '"1"', "[]", '["1"]', "[1,1]", "[-1]", "[1.5]", "[4294967296]"])
def test_replicas_that_cannot_be_are_refused(replicas: str) -> None:
    data = b'{"partitions":[{"topic":"t","partition":0,"replicas":%s}]}' % replicas.encode()
    with pytest.raises(CoordinationError, match=r"/admin/reassign_partitions.*replicas"):
        Reassignments.from_json(data)


@pytest.mark.parametrize("kind", [Reassignments, PreferredElection])
def test_a_request_that_names_a_partition_twice_is_refused(
    kind: type[Reassignments | PreferredElection],
) -> None:
    one = '{"topic":"t","partition":0,"replicas":[1]}'
    with pytest.raises(CoordinationError, match="/p: duplicate partition t-0"):
        kind.from_json(f'{{"partitions":[{one},{one}]}}'.encode(), "/p")


def test_reassignment_too_large_for_a_znode_is_refused_with_its_size() -> None:
    asked = Reassignments({TopicPartition("orders", number): (0, 1, 2) for number in range(20_000)})
    refusal = (
        "/admin/reassign_partitions: 20000 partitions are 1108918 bytes, "
        f"the limit of a znode is {DATA_MAX_BYTES}"
    )
    with pytest.raises(CoordinationError, match=refusal):
        asked.to_json()


def test_election_is_refused_only_if_too_large_for_a_znode() -> None:
    def asked(topic: str) -> PreferredElection:
        return PreferredElection(frozenset(TopicPartition(topic, number) for number in range(20_000)))

    assert PreferredElection.from_json(asked("orders").to_json()) == asked("orders")
    with pytest.raises(CoordinationError, match="/admin/preferred_replica_election: 20000 partitions are "):
        asked("orders" * 6).to_json()

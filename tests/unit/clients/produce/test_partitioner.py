"""``clients/produce/partitioner``: keys as in Java's producer, sticky partitions for the rest."""

from __future__ import annotations

import base64
import json
from collections import Counter
from pathlib import Path

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.network.metadata import PartitionMetadata, TopicMetadata
from minikafka.clients.produce.partitioner import StickyPartitioner

RECORDED = Path(__file__).resolve().parents[3] / "data" / "segments" / "murmur2.json"


def topic(*leaders: int, name: str = "t") -> TopicMetadata:
    rows = (PartitionMetadata(TopicPartition(name, n), leader, (), ()) for n, leader in enumerate(leaders))
    return TopicMetadata(name, ErrorCode.NONE, False, tuple(rows))


@pytest.mark.parametrize("partitions", [1, 2, 3, 4, 7, 10, 12, 50, 100])
def test_keys_go_where_javas_default_partitioner_puts_them(partitions: int) -> None:
    described = topic(*[1] * partitions)
    partitioner = StickyPartitioner()
    for case in json.loads(RECORDED.read_text()):
        key = base64.b64decode(case["key"])
        assert partitioner.partition(described, key) == case["partition"][str(partitions)]


def test_a_key_stays_where_it_is_when_its_leader_is_away() -> None:
    partitioner = StickyPartitioner()
    assert partitioner.partition(topic(1, 1, 1, 1), b"a") == partitioner.partition(topic(-1, -1, -1, 1), b"a")


def test_an_empty_key_is_a_key() -> None:
    partitioner = StickyPartitioner(first_turn=1)
    assert partitioner.partition(topic(1, 1), b"") == 275646681 % 2
    assert partitioner.partition(topic(1, 1, 1), b"") == 275646681 % 3


def test_records_without_a_key_change_partition_with_each_batch() -> None:
    partitioner = StickyPartitioner(first_turn=0)
    described = topic(1, 1, 1)
    seen = []
    for _ in range(4):
        seen.append(partitioner.partition_of_new_batch(described))
        seen += [partitioner.partition(described, None) for _ in range(2)]
    assert seen == [0] * 3 + [1] * 3 + [2] * 3 + [0] * 3


def test_the_first_batch_begins_where_the_first_record_was_to_go() -> None:
    partitioner = StickyPartitioner(first_turn=2)
    described = topic(1, 1, 1)
    assert partitioner.partition(described, None) == 2
    assert partitioner.partition_of_new_batch(described) == 2


def test_records_without_a_key_avoid_partitions_without_a_leader() -> None:
    partitioner = StickyPartitioner(first_turn=0)
    described = topic(1, -1, 1, -1)
    seen = Counter(partitioner.partition_of_new_batch(described) for _ in range(10))
    assert seen == {0: 5, 2: 5}


def test_without_any_leader_all_partitions_take_turns() -> None:
    partitioner = StickyPartitioner(first_turn=4)
    assert partitioner.partition(topic(-1, -1, -1), None) == 1


def test_topics_have_turns_of_their_own() -> None:
    partitioner = StickyPartitioner(first_turn=0)
    for _ in range(2):
        partitioner.partition_of_new_batch(topic(1, 1))
    assert partitioner.partition(topic(1, 1), None) == 1
    assert partitioner.partition(topic(1, 1, name="u"), None) == 0


def test_a_leader_that_goes_away_is_noticed_within_a_turn() -> None:
    partitioner = StickyPartitioner(first_turn=0)
    assert partitioner.partition(topic(1, 1), None) == 0
    assert partitioner.partition(topic(-1, 1), None) == 1


def test_producers_begin_in_different_places() -> None:
    described = topic(*[1] * 50)
    assert len({StickyPartitioner().partition(described, None) for _ in range(40)}) > 5

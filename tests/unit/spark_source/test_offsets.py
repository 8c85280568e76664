"""Offset JSON in the peer's form, and what a stream's offset carries beside it."""

from __future__ import annotations

import json

import pytest

from minikafka.base.ids import TopicPartition
from pyspark_minikafka.offsets import BadStreamOffset, StreamOffset, batch_start, to_json

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_offsets_are_written_by_topic_and_by_partition_number() -> None:
    offsets = {TopicPartition("a", 10): 1, A1: 2, B0: 3, TopicPartition("a", 2): 4}
    assert json.dumps(to_json(offsets)) == '{"a": {"1": 2, "2": 4, "10": 1}, "b": {"0": 3}}'


@pytest.mark.parametrize(
    "offset",
    [
        StreamOffset({A0: 1, B0: 2}),
        StreamOffset({A0: 1}, initial=True),
        StreamOffset({A0: 9}, batch_start={A0: 1}),
        StreamOffset({A0: 9}, batch_start={}),
        StreamOffset({}),
    ],
)
def test_a_stream_offset_comes_back_from_its_json(offset: StreamOffset) -> None:
    assert StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


def test_what_an_offset_carries_is_a_key_without_partitions() -> None:
    offset = StreamOffset({A0: 9, A1: 4, B0: 7}, batch_start={A0: 1, A1: 4, B0: 0})
    document = offset.to_json()
    assert json.dumps(document) == (
        '{"a": {"0": 9, "1": 4}, "b": {"0": 7}, "minikafka:start=a:0:1,1:4;b:0:0": {}}'
    )
    # As Spark's own connector reads it, and whoever listens to a query's progress.
    named = {(topic, int(p)): end for topic, partitions in document.items() for p, end in partitions.items()}
    assert named == {("a", 0): 9, ("a", 1): 4, ("b", 0): 7}


def test_what_the_first_offset_carried_before_is_read_for_ever() -> None:
    document = {"a": {"0": 9}, "minikafka:start": {"a": {"0": 1}}}
    assert StreamOffset.from_json(document) == StreamOffset({A0: 9}, batch_start={A0: 1})
    assert StreamOffset.from_json({"a": {"0": 9}, "minikafka:initial": True}).initial


def test_an_offset_of_a_later_batch_is_what_the_peer_writes() -> None:
    assert StreamOffset({A0: 1}).to_json() == {"a": {"0": 1}}


def test_an_offset_that_the_peer_wrote_is_read() -> None:
    assert StreamOffset.from_json(json.loads('{"a":{"1":7,"0":3}}')).positions == {A0: 3, A1: 7}


@pytest.mark.parametrize(
    "document",
    [
        {"a": 3},
        {"a": {"x": 3}},
        {"a": {"0": "x"}},
        {"minikafka:start": 3},
        {"minikafka:start=a": {}},
        {"minikafka:start=a:0:x": {}},
        {"minikafka:start=a:0:1": {"0": 1}},
        {"minikafka:later": {}},
    ],
)
def test_what_is_no_offset_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(BadStreamOffset):
        StreamOffset.from_json(document)


def test_the_first_batch_starts_where_its_end_says() -> None:
    later = StreamOffset({A0: 500}, initial=True)
    assert batch_start(later, StreamOffset({A0: 90}, batch_start={A0: 10})) == {A0: 10}


def test_a_later_batch_starts_at_its_start_whatever_its_end_carries() -> None:
    assert batch_start(StreamOffset({A0: 50}), StreamOffset({A0: 90}, batch_start={A0: 10})) == {A0: 50}

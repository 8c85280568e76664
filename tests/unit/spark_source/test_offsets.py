"""Offset JSON in the peer's form, and what a stream's offset carries beside it."""

from __future__ import annotations

import json

import pytest

from minikafka.base.errors import ConfigError
from minikafka.base.ids import TopicPartition
from pyspark_minikafka.offsets import (
    ALL_EARLIEST,
    ALL_LATEST,
    BadStreamOffset,
    StreamOffset,
    batch_start,
    check_specified,
    parse_bound,
    to_json,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_offsets_are_written_by_topic_and_by_partition_number() -> None:
    offsets = {TopicPartition("a", 10): 1, A1: 2, B0: 3, TopicPartition("a", 2): 4}
    assert json.dumps(to_json(offsets)) == '{"a": {"1": 2, "2": 4, "10": 1}, "b": {"0": 3}}'


@pytest.mark.parametrize(
    ("text", "bound"),
    [("latest", ALL_LATEST), (" Earliest ", ALL_EARLIEST), ("LATEST", ALL_LATEST)],
)
def test_words_are_taken_in_any_case(text: str, bound: object) -> None:
    assert parse_bound("startingOffsets", text) == bound


def test_json_offsets_keep_latest_and_earliest_apart() -> None:
    bound = parse_bound("startingOffsets", '{"a":{"0":23,"1":-2},"b":{"0":-1}}')
    assert bound.offsets == {A0: 23, A1: -2, B0: -1}
    assert bound.mentions(-1) == [B0]
    assert bound.mentions(-2) == [A1]
    assert bound.moves


@pytest.mark.parametrize(
    "text",
    [
        "",
        "newest",
        "[]",
        "{}",
        "7",
        '{"a":{}}',
        '{"a":[0]}',
        '{"a":{"x":1}}',
        '{"a":{"-1":1}}',
        '{"a":{"0":-3}}',
        '{"a":{"0":"1"}}',
        '{"a":{"0":1.5}}',
        '{"a":{"0":true}}',
        '{"a:b":{"0":1}}',
        '{"a":{"0":1},"a":{"0":2}}',
        '{"a":{"0":1,"0":2}}',
        '{"a":"earliest"}',
    ],
)
def test_other_offsets_are_refused_with_the_option_and_its_value(text: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_bound("endingOffsets", text)
    assert refusal.value.name == "endingOffsets"
    assert refusal.value.value == text


def test_specified_offsets_must_name_all_assigned_partitions_and_no_other() -> None:
    bound = parse_bound("startingOffsets", '{"a":{"0":1},"b":{"0":2}}')
    with pytest.raises(ConfigError, match=r"missing a-1, too many b-0"):
        check_specified("startingOffsets", bound, [A0, A1])
    assert check_specified("startingOffsets", bound, [A0, B0]) == {A0: 1, B0: 2}


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


def test_an_offset_of_a_later_batch_is_what_the_peer_writes() -> None:
    assert StreamOffset({A0: 1}).to_json() == {"a": {"0": 1}}


def test_an_offset_that_the_peer_wrote_is_read() -> None:
    assert StreamOffset.from_json(json.loads('{"a":{"1":7,"0":3}}')).positions == {A0: 3, A1: 7}


@pytest.mark.parametrize("document", [{"a": 3}, {"a": {"x": 3}}, {"a": {"0": "x"}}, {"minikafka:start": 3}])
def test_what_is_no_offset_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(BadStreamOffset):
        StreamOffset.from_json(document)


def test_the_first_batch_starts_where_its_end_says() -> None:
    later = StreamOffset({A0: 500}, initial=True)
    assert batch_start(later, StreamOffset({A0: 90}, batch_start={A0: 10})) == {A0: 10}


def test_a_later_batch_starts_at_its_start_whatever_its_end_carries() -> None:
    assert batch_start(StreamOffset({A0: 50}), StreamOffset({A0: 90}, batch_start={A0: 10})) == {A0: 50}


def test_the_extra_keys_can_be_no_topics() -> None:
    for key in StreamOffset({}, initial=True, batch_start={}).to_json():
        with pytest.raises(ConfigError):
            parse_bound("startingOffsets", json.dumps({key: {"0": 1}}))

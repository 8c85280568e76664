"""The start and end of a query: the options, and their precedence."""

from __future__ import annotations

import json

import pytest

from minikafka.base.errors import ConfigError
from minikafka.base.ids import TopicPartition
from pyspark_minikafka.offsets import StreamOffset
from pyspark_minikafka.options.bounds import (
    ALL_EARLIEST,
    ALL_LATEST,
    GroupBound,
    Newest,
    TimeBound,
    ending,
    parse_bound,
    starting,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@pytest.mark.parametrize(
    ("text", "bound"), [("latest", ALL_LATEST), (" Earliest ", ALL_EARLIEST), ("LATEST", ALL_LATEST)]
)
def test_words_are_taken_in_any_case(text: str, bound: object) -> None:
    assert parse_bound("startingOffsets", text) == bound


def test_json_offsets_keep_latest_and_earliest_apart() -> None:
    bound = parse_bound("startingOffsets", '{"a":{"0":23,"1":-2},"b":{"0":-1}}')
    assert bound.offsets == {A0: 23, A1: -2, B0: -1}
    assert bound.mentions(-1) == ["b-0"]
    assert bound.mentions(-2) == ["a-1"]
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
        '{"a":{"4294967296":1}}',
        '{"a":{"\u00b2":1}}',
        '{"a":' * 100_000,
        f'{{"a":{{"{"9" * 5_000}":1}}}}',
        '{"a":{"0":-3}}',
        '{"a":{"0":"1"}}',
        '{"a":{"0":1.5}}',
        '{"a":{"0":true}}',
        '{"a:b":{"0":1}}',
        '{"a":{"0":1},"a":{"0":2}}',
        '{"a":{"0":1,"0":2}}',
        '{"a":"newest"}',
        '{"a":{"0":9223372036854775808}}',
    ],
)
def test_other_offsets_are_refused_with_the_option_and_its_value(text: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_bound("endingOffsets", text)
    assert refusal.value.name == "endingOffsets"
    assert refusal.value.value == text


def test_specified_offsets_must_name_all_assigned_partitions_and_no_other() -> None:
    bound = parse_bound("startingOffsets", '{"a":{"0":1},"b":{"0":2}}')
    with pytest.raises(ConfigError, match=r"missing a-1, unexpected b-0"):
        bound.of([A0, A1])
    assert bound.of([A0, B0]) == {A0: 1, B0: 2}


def test_a_word_stands_for_all_partitions_of_a_topic() -> None:
    bound = parse_bound("startingOffsets", '{"a":"Earliest","b":{"0":7}}')
    assert bound.of([A0, A1, B0]) == {A0: -2, A1: -2, B0: 7}
    assert not bound.moves
    assert parse_bound("startingOffsets", '{"a":"latest"}').moves
    with pytest.raises(ConfigError, match="topics that are not read: \\['a'\\]"):
        bound.of([B0])


def test_the_extra_keys_can_be_no_topics() -> None:
    for key in StreamOffset({}, initial=True, batch_start={}).to_json():
        with pytest.raises(ConfigError):
            parse_bound("startingOffsets", json.dumps({key: {"0": 1}}))


def test_one_moment_wins_over_moments_and_these_over_offsets() -> None:
    given = {
        "startingtimestamp": " 7 ",
        "startingoffsetsbytimestamp": '{"a":{"0":8}}',
        "startingoffsets": '{"a":{"0":9}}',
    }
    assert starting(given, ALL_LATEST) == TimeBound("startingTimestamp", 7, or_latest=False)
    del given["startingtimestamp"]
    wanted = TimeBound("startingOffsetsByTimestamp", None, {A0: 8}, or_latest=False)
    assert starting(given, ALL_LATEST) == wanted
    del given["startingoffsetsbytimestamp"]
    assert starting(given, ALL_LATEST) == parse_bound("startingOffsets", '{"a":{"0":9}}')
    assert starting({}, ALL_LATEST) == ALL_LATEST


def test_start_time_without_a_record_is_an_error_unless_latest() -> None:
    given = {"startingtimestamp": "7", "startingoffsetsbytimestampstrategy": "Latest"}
    assert starting(given, ALL_EARLIEST) == TimeBound("startingTimestamp", 7, or_latest=True)
    assert ending({"endingtimestamp": "7"}, ALL_LATEST) == TimeBound("endingTimestamp", 7, or_latest=True)


def test_moments_must_be_given_for_all_assigned_partitions() -> None:
    bound = starting({"startingoffsetsbytimestamp": '{"a":{"0":8}}'}, ALL_LATEST)
    with pytest.raises(ConfigError, match=r"startingOffsetsByTimestamp.*missing a-1"):
        bound.of([A0, A1])  # type: ignore[union-attr]


def test_the_newest_records_are_a_start() -> None:
    assert starting({"minikafka.last.records": "5"}, ALL_LATEST) == Newest(records=5)
    assert starting({"minikafka.last.duration": "10m"}, ALL_LATEST) == Newest(duration_ms=600_000)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"startingtimestamp": ""}, "startingTimestamp"),
        ({"startingtimestamp": "now"}, "startingTimestamp"),
        ({"startingtimestamp": "-1"}, "startingTimestamp"),
        ({"startingoffsetsbytimestamp": "7"}, "startingOffsetsByTimestamp"),
        ({"startingoffsetsbytimestamp": "{}"}, "startingOffsetsByTimestamp"),
        ({"startingoffsetsbytimestamp": '{"a":{"0":-1}}'}, "startingOffsetsByTimestamp"),
        ({"startingoffsetsbytimestamp": '{"a":"latest"}'}, "startingOffsetsByTimestamp"),
        ({"startingoffsetsbytimestampstrategy": "earliest"}, "startingOffsetsByTimestampStrategy"),
        ({"minikafka.last.records": "0"}, "minikafka.last.records"),
        ({"minikafka.last.duration": "soon"}, "minikafka.last.duration"),
        ({"minikafka.last.duration": "0s"}, "minikafka.last.duration"),
        ({"minikafka.last.records": "5", "minikafka.last.duration": "5m"}, "minikafka.last.records"),
        ({"minikafka.last.records": "5", "startingoffsets": "earliest"}, "minikafka.last.records"),
        ({"minikafka.last.duration": "5m", "startingtimestamp": "1"}, "minikafka.last.duration"),
    ],
)
def test_a_start_that_is_none_is_refused_by_name(given: dict[str, str], name: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        starting(given, ALL_LATEST)
    assert refusal.value.name == name


def test_no_time_at_all_is_no_length_of_time_and_the_refusal_says_so() -> None:
    with pytest.raises(ConfigError, match=r"minikafka\.last\.duration='0s'.* and at least 1 ms"):
        starting({"minikafka.last.duration": "0s"}, ALL_LATEST)


def test_a_group_is_a_start() -> None:
    assert starting({"startingoffsets": " Group: my group "}, ALL_LATEST) == GroupBound("my group")


def test_a_moment_wins_over_a_group() -> None:
    given = {"startingoffsets": "group:g", "startingtimestamp": "7"}
    assert starting(given, ALL_LATEST) == TimeBound("startingTimestamp", 7, or_latest=False)


@pytest.mark.parametrize("value", ["group:", "group:  ", "group:a\nb", "group:" + "x" * 40_000])
def test_a_group_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        starting({"startingoffsets": value}, ALL_LATEST)
    assert (refusal.value.name, refusal.value.value) == ("startingOffsets", value.strip())


def test_no_query_ends_at_a_group() -> None:
    with pytest.raises(ConfigError, match="endingOffsets"):
        ending({"endingoffsets": "group:g"}, ALL_LATEST)

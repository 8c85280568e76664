"""Batch reads: every way to name partitions, every kind of start and end."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from tests.spark.parity.conftest import Source, refused
from tests.spark.parity.records import (
    BESIDE_THE_PEER,
    NEVER,
    SECOND,
    STRATEGIES,
    after_the_last,
    each,
    matrix,
    numbers,
    only_beside_the_peer,
    sent,
    start,
    strategy,
)


@pytest.mark.parametrize(
    ("by", "kind", "fail_on_data_loss"),
    matrix(
        STRATEGIES,
        ("earliest", "offsets", "times", "time"),
        ("true", "false"),
        always=[
            ("assign", "earliest", "false"),
            ("assign", "times", "true"),
            ("subscribe", "offsets", "true"),
            ("subscribePattern", "time", "false"),
        ],
    ),
)
def test_a_batch_reads_what_it_is_told(source: Source, by: str, kind: str, fail_on_data_loss: str) -> None:
    topic = sent(source)
    options, expected = start(kind, topic)
    found = source.values(**strategy(by, topic), **options, failOnDataLoss=fail_on_data_loss)
    assert found == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, range(30)),
        ({"startingTimestamp": SECOND, "endingTimestamp": SECOND + 1_000}, range(10, 20)),
        ({"endingTimestamp": SECOND}, range(10)),
        ({"startingTimestamp": SECOND, "startingOffsets": "earliest"}, range(10, 30)),
        ({"endingTimestamp": NEVER}, range(30)),
    ],
    ids=str,
)
def test_a_batch_ends_where_it_is_told(
    source: Source, options: dict[str, object], expected: Sequence[int]
) -> None:
    assert source.values(subscribe=sent(source), **options) == numbers(expected)


def test_both_ends_may_be_named_for_each_partition(source: Source) -> None:
    topic = sent(source)
    found = source.values(
        subscribe=topic, startingOffsets=each(topic, -2, 3, 0), endingOffsets=each(topic, 1, -1, 2)
    )
    assert found == numbers([0], range(10, 30, 3), [2, 5])
    found = source.values(
        subscribe=topic,
        startingOffsetsByTimestamp=each(topic, SECOND, SECOND, SECOND),
        endingOffsetsByTimestamp=each(topic, SECOND + 1_000, SECOND, NEVER),
    )
    assert found == numbers(range(12, 20, 3), range(11, 30, 3))


def test_offsets_and_times_may_be_mixed(source: Source) -> None:
    topic = sent(source)
    found = source.values(
        subscribe=topic,
        startingOffsetsByTimestamp=each(topic, SECOND, SECOND, SECOND),
        endingOffsets=each(topic, -1, -1, 5),
    )
    assert found == numbers(range(12, 30, 3), range(10, 30, 3), [11, 14])
    found = source.values(
        subscribe=topic,
        startingOffsets=each(topic, 2, -2, 0),
        endingOffsetsByTimestamp=each(topic, SECOND, SECOND, SECOND),
    )
    assert found == numbers([6, 9], [1, 4, 7], [2, 5, 8])


def test_one_time_wins_over_times_and_times_over_offsets(source: Source) -> None:
    topic = sent(source)
    times = {"startingOffsetsByTimestamp": each(topic, SECOND, SECOND, SECOND), "startingOffsets": "earliest"}
    assert source.values(subscribe=topic, **times) == numbers(range(10, 30))
    assert source.values(subscribe=topic, startingTimestamp=SECOND + 1_000, **times) == numbers(range(20, 30))


@pytest.mark.parametrize("option", ["startingTimestamp", "startingOffsetsByTimestamp"])
def test_a_start_after_the_last_record_is_an_error_or_the_end(source: Source, option: str) -> None:
    topic = sent(source)
    late, expected = after_the_last(option, topic)
    refused(lambda: source.values(subscribe=topic, **late), "no offset matched", f"{topic}-")
    assert source.values(subscribe=topic, **late, startingOffsetsByTimestampStrategy="latest") == expected


def test_latest_is_bound_whenever_a_dataframe_runs_and_an_offset_is_not(source: Source) -> None:
    topic = sent(source)
    frame = source.read(subscribe=topic, startingOffsets="earliest", endingOffsets=each(topic, -1, -1, 9))
    assert frame.count() == 29
    source.kafka.produce(topic, ["not read"], 2)
    assert frame.count() == 29
    source.kafka.produce(topic, ["read", "read"], 1)
    assert frame.count() == 31


def test_earliest_is_bound_whenever_a_dataframe_runs(source: Source) -> None:
    topic = sent(source)
    frame = source.read(subscribe=topic)
    assert frame.count() == 30
    source.kafka.trim(topic, 0, 4)
    assert frame.count() == 26


def test_a_dataframe_is_used_twice_in_a_query(source: Source) -> None:
    frame = source.read(subscribe=sent(source))
    assert frame.union(frame).count() == 60
    assert frame.alias("a").join(frame.alias("b"), ["partition", "offset"]).count() == 30


def test_keys_of_options_may_be_written_in_any_case(source: Source) -> None:
    topic = sent(source)
    found = source.values(SUBSCRIBE=topic, STARTINGoffsets=each(topic, 9, 9, -2), EndingOffsets="LATEST")
    assert found == numbers([27], [28], range(2, 30, 3))


def test_one_topic_of_a_pattern_is_as_good_as_several(source: Source) -> None:
    topics = [source.kafka.topic(2, prefix="alike") for _ in range(3)]
    for topic in topics:
        source.kafka.produce(topic, [topic], 1)
    assert source.values(subscribePattern=f"{topics[0]}|{topics[2]}") == sorted([topics[0], topics[2]])
    assert source.values(subscribe=f" {topics[0]} ,, {topics[1]}") == sorted(topics[:2])
    assert source.values(assign=json.dumps({topics[0]: [1], topics[1]: [0]})) == [topics[0]]


def test_a_pattern_that_matches_nothing_gives_nothing(source: Source) -> None:
    assert source.values(subscribePattern="no-such-topic-[0-9]+") == []


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({"minPartitions": 6}, 6),
        ({"maxRecordsPerPartition": 4, "minPartitions": 12}, 9),
        *(
            pytest.param(options, tasks, marks=BESIDE_THE_PEER)
            for options, tasks in [
                ({}, 3),
                ({"minPartitions": 2}, 3),
                ({"minPartitions": 40}, 30),
                ({"maxRecordsPerPartition": 4}, 9),
                ({"maxRecordsPerPartition": 100}, 3),
            ]
        ),
    ],
    ids=str,
)
def test_a_read_has_as_many_tasks_as_it_is_told(
    source: Source, options: dict[str, object], tasks: int
) -> None:
    # Only ours knows the option, by which it has a task for each range.
    frame = source.read(subscribe=sent(source), **{"minikafka.tasks": "partition"}, **options)
    if source.is_peer and "minPartitions" not in options:
        tasks = 3  # connector 4.0.0 looks at maxRecordsPerPartition of a batch only beside minPartitions
    assert frame.rdd.getNumPartitions() == tasks
    assert frame.count() == 30


def test_split_reads_see_what_came_later(source: Source) -> None:
    topic = sent(source)
    frame = source.read(subscribe=topic, minPartitions=6)
    assert frame.rdd.getNumPartitions() == 6
    source.kafka.produce(topic, ["later"], 1)
    assert frame.count() == 31


@only_beside_the_peer
@pytest.mark.parametrize("option", ["groupIdPrefix", "kafka.group.id"])
def test_a_query_may_have_a_group_and_leaves_nothing_in_it(source: Source, option: str) -> None:
    topic = sent(source)
    assert len(source.values(subscribe=topic, **{option: "parity"})) == 30
    assert not [group for group in source.kafka.groups() if group.startswith("parity")]


@only_beside_the_peer
def test_compression_and_sizes_of_fetches_change_no_result(source: Source) -> None:
    topic = sent(source)
    found = source.values(subscribe=topic, kafka__max__partition__fetch__bytes=1, kafka__fetch__min__bytes=1)
    assert found == numbers(range(30))

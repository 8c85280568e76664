"""Options that are refused before any job; our message also names the option."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.clients.admin.admin import NewTopic
from tests.spark.parity.conftest import Source, refused
from tests.spark.parity.records import BESIDE_THE_PEER, NEVER, SECOND, each, sent

Options = dict[str, object]

BOTH: list[tuple[Options, list[str]]] = [
    ({}, ["one of", "options", "subscribe", "subscribePattern", "assign"]),
    ({"subscribe": "t", "subscribePattern": "t.*"}, ["one of", "options", "subscribe", "subscribePattern"]),
    ({"subscribe": "t", "assign": '{"t":[0]}'}, ["one of", "options", "assign", "subscribe"]),
    ({"assign": ""}, ["assign"]),
    ({"assign": "{"}, ["{"]),
    ({"assign": '{"t":0}'}, ['{"t":0}']),
    ({"subscribe": ""}, ["subscribe"]),
    ({"subscribe": " , "}, ["subscribe", " , "]),
    ({"subscribePattern": ""}, ["subscribePattern"]),
    ({"subscribe": "t", "minPartitions": "a"}, ["a"]),
    ({"subscribe": "t", "minPartitions": "1.0"}, ["1.0"]),
    ({"subscribe": "t", "minPartitions": 0}, ["minPartitions"]),
    ({"subscribe": "t", "minPartitions": -1}, ["minPartitions"]),
    ({"subscribe": "t", "maxRecordsPerPartition": 0}, ["maxRecordsPerPartition"]),
    ({"subscribe": "t", "maxRecordsPerPartition": "many"}, ["many"]),
    ({"subscribe": "t", "failOnDataLoss": "maybe"}, ["maybe"]),
    ({"subscribe": "t", "startingOffsets": '{"t":{"0":1}'}, ['{"t":{"0":1}']),
    ({"subscribe": "t", "startingOffsets": "newest"}, ["newest"]),
    ({"subscribe": "t", "startingOffsets": '{"t":{"x":1}}'}, ["x"]),
    ({"subscribe": "t", "startingTimestamp": "now"}, ["now"]),
    ({"subscribe": "t", "startingOffsetsByTimestamp": "now"}, ["now"]),
    ({"subscribe": "t", "startingOffsetsByTimestamp": '{"t":1000}'}, ['{"t":1000}']),
    ({"subscribe": "t", "startingTimestamp": 1, "startingOffsetsByTimestampStrategy": "first"}, ["first"]),
    ({"subscribe": "t", "minOffsetsPerTrigger": 20, "maxOffsetsPerTrigger": 15}, ["20", "15", "higher"]),
    ({"subscribe": "t", "kafka.auto.offset.reset": "latest"}, ["auto.offset.reset", "startingOffsets"]),
    ({"subscribe": "t", "kafka.auto.offset.reset": "none"}, ["auto.offset.reset"]),
    ({"subscribe": "t", "kafka.enable.auto.commit": "true"}, ["enable.auto.commit"]),
    ({"subscribe": "t", "kafka.interceptor.classes": "x"}, ["interceptor.classes"]),
    ({"subscribe": "t", "kafka.key.deserializer": "x"}, ["key.deserializer", "DataFrame operations"]),
    ({"subscribe": "t", "kafka.value.deserializer": "x"}, ["value.deserializer", "DataFrame operations"]),
]
"""Options, and words that both say."""

BATCH: list[tuple[Options, list[str]]] = [
    ({"subscribe": "t", "startingOffsets": "latest"}, ["start", "latest", "batch"]),
    ({"subscribe": "t", "startingOffsets": '{"t":{"0":-1}}'}, ["startingOffsets", "latest", "batch"]),
    ({"subscribe": "t", "endingOffsets": "earliest"}, ["end", "earliest"]),
    ({"subscribe": "t", "endingOffsets": '{"t":{"0":-2}}'}, ["end", "earliest"]),
    ({"subscribe": "t", "endingTimestamp": "soon"}, ["soon"]),
    ({"subscribe": "t", "endingOffsetsByTimestamp": "soon"}, ["soon"]),
]

STREAM: list[tuple[Options, list[str]]] = [
    ({"subscribe": "t", "endingOffsets": "latest"}, ["ending", "stream"]),
    ({"subscribe": "t", "endingOffsetsByTimestamp": '{"t":{"0":1}}'}, ["ending", "stream"]),
    ({"subscribe": "t", "maxOffsetsPerTrigger": "many"}, ["many"]),
    ({"subscribe": "t", "minOffsetsPerTrigger": "few"}, ["few"]),
    ({"subscribe": "t", "maxTriggerDelay": "later"}, ["later"]),
]


BESIDE = [pytest.param(*one, marks=BESIDE_THE_PEER) for number, one in enumerate(BOTH) if number % 7]
"""The pure tests of options have all of them."""


def words_of_ours(source: Source, options: Options, words: list[str]) -> list[str]:
    """Ours says which option it is, whatever it says besides."""
    wrong = [name for name in options if name != "subscribe"]
    return words if source.is_peer or len(wrong) != 1 else [*words, wrong[0]]


@pytest.mark.parametrize(("options", "words"), [*BOTH[::7], *BATCH, *BESIDE], ids=str)
def test_a_batch_is_refused(source: Source, options: Options, words: list[str]) -> None:
    if not options.keys() & {"subscribe", "subscribePattern", "assign"}:
        assert options == {}
    refused(lambda: source.read(**options).count(), *words_of_ours(source, options, words))


@pytest.mark.parametrize(
    ("options", "words"),
    [*STREAM[:2], *(pytest.param(*case, marks=BESIDE_THE_PEER) for case in STREAM[2:] + BOTH)],
    ids=str,
)
def test_a_stream_is_refused(source: Source, options: Options, words: list[str]) -> None:
    # What Spark asks of a stream's source only when it runs is refused there; none of it has read anything.
    refused(
        lambda: source.stream(**options).query.awaitTermination(60), *words_of_ours(source, options, words)
    )


@pytest.mark.parametrize(
    ("first", "last", "words"),
    [
        (("startingOffsets", 1, 1, 1), ("endingOffsets", 0, 0), ["same", "partitions"]),
        (("startingOffsets", 1, 1, 1), ("endingOffsets", 0, 0, 0), ["offset 1", "end", "0"]),
        (
            ("startingOffsetsByTimestamp", SECOND, SECOND, SECOND),
            ("endingOffsetsByTimestamp", SECOND, SECOND),
            ["same", "partitions"],
        ),
        (
            ("startingOffsetsByTimestamp", SECOND, SECOND, SECOND),
            ("endingOffsetsByTimestamp", SECOND - 1_000, SECOND - 1_000, SECOND - 1_000),
            [str(SECOND), str(SECOND - 1_000), "later"],
        ),
    ],
)
def test_ends_that_contradict_each_other_are_refused(
    source: Source, first: tuple[Any, ...], last: tuple[Any, ...], words: list[str]
) -> None:
    topic = sent(source)
    options = {name: each(topic, *values) for name, *values in (first, last)}
    # Connector 4.0.0 notices some of it only when the log is asked, and says it in its own way.
    refused(lambda: source.read(subscribe=topic, **options).count(), *([] if source.is_peer else words))


def test_a_stream_has_no_last_time(source: Source) -> None:
    options = {"subscribe": sent(source), "endingTimestamp": NEVER}
    if source.is_peer:
        assert source.stream(**options).read() == []  # it is ignored without a word
    else:
        query = source.stream(**options).query
        refused(lambda: query.awaitTermination(60), "endingTimestamp", "stream")


def test_a_start_beyond_the_end_that_only_the_log_shows_is_refused(source: Source) -> None:
    topic = sent(source)
    options = {"startingOffsets": each(topic, 7, 7, 7), "endingTimestamp": SECOND}
    refused(lambda: source.read(subscribe=topic, **options).count(), "7", "end", topic)


@pytest.mark.parametrize("named", [{"subscribe": ...}, {"assign": ...}], ids=["subscribe", "assign"])
def test_offsets_must_be_given_for_all_partitions_and_no_other(source: Source, named: Options) -> None:
    topic = sent(source)
    given = {name: topic if name == "subscribe" else f'{{"{topic}":[0,1,2]}}' for name in named}
    for offsets in (each(topic, 0, 0), each(topic, 0, 0, 0, 0)):
        refused(lambda: source.read(**given, startingOffsets=offsets).count(), topic)  # noqa: B023


def test_a_topic_that_is_not_there_is_named(source: Source) -> None:
    name = "never-made"
    limits = {
        "fetchOffset.numRetries": 0,
        "kafka.request.timeout.ms": 3000,
        "kafka.default.api.timeout.ms": 3000,
    }
    refused(lambda: source.read(subscribe=name, **limits).count(), "" if source.is_peer else name)
    assert name not in source.kafka.admin.list_topics()


def test_a_schema_of_the_users_own_is_refused(source: Source) -> None:
    options = source.options({"subscribe": "t"})
    reader = source.spark.read.format(source.format).options(**options).schema("value string")
    refused(lambda: reader.load().count(), "schema")


def test_without_servers_peer_refuses_and_ours_starts_a_cluster(source: Source) -> None:
    reader = source.spark.read.format(source.format).option("subscribe", "t")
    if source.is_peer:
        refused(reader.load, "kafka.bootstrap.servers", "must be specified")
    else:
        # Nothing is started by ``load()``; the tests of the embedded broker show what comes after.
        assert reader.load().columns[0] == "key"


def test_a_wrong_server_is_named(source: Source) -> None:
    options = {"kafka.bootstrap.servers": "nobody", "subscribe": "t"}
    refused(lambda: source.read(**options).count(), "" if source.is_peer else "nobody")


def test_a_deleted_partition_that_was_assigned_is_named(source: Source) -> None:
    topic = source.kafka.topic()
    source.kafka.admin.create_topic(NewTopic(f"{topic}-other", 1))
    limits = {"fetchOffset.numRetries": 0, "kafka.default.api.timeout.ms": 3000}
    wanted = f'{{"{topic}":[0,1]}}'
    refused(lambda: source.read(assign=wanted, **limits).count(), "" if source.is_peer else f"{topic}-1")

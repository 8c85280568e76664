"""The start of a query that another source started, from its checkpoint's files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from minikafka.base.errors import ConfigError
from minikafka.base.ids import TopicPartition
from pyspark_minikafka.checkpoint import spark_checkpoint
from pyspark_minikafka.checkpoint.spark_checkpoint import CheckpointLocation, FirstBatch, Resume, UnknownStart
from pyspark_minikafka.offsets import StreamOffset
from pyspark_minikafka.options.options import Mode, source_options
from pyspark_minikafka.planning.ranges import OffsetRange
from tests.support.spark_cluster import FakeCluster, Planning

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def files(directory: Path, **contents: str) -> str:
    """A checkpoint with these files: ``offsets_0="…"`` is offsets/0. Each is what the connector writes."""
    for name, content in contents.items():
        path = directory / name.replace("_", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return str(directory)


START = '\0v1\n{"t":{"0":7}}'
END = 'v1\n{"batchWatermarkMs":0}\n{"t":{"0":60}}'


def planning(directory: str, **given: str) -> Planning:
    return Planning(FakeCluster(t=[(0, 90)]), Mode.STREAM, **{"minikafka.resume.from": directory, **given})


@pytest.mark.parametrize("option", ["minikafka.resume.from", "checkpointLocation"])
def test_a_first_batch_of_the_peer_begins_where_its_files_say(tmp_path: Path, option: str) -> None:
    directory = files(tmp_path, sources_0_0=START, offsets_0=END)
    found = Planning(
        FakeCluster(t=[(0, 90)]), Mode.STREAM, **{option: directory, "startingOffsets": "earliest"}
    )
    start = StreamOffset({T0: 0}, initial=True)
    assert found.planner.stream(start, StreamOffset({T0: 60})) == (OffsetRange(T0, 7, 60),)


def test_a_query_that_has_no_batch_yet_starts_where_the_peer_would(tmp_path: Path) -> None:
    found = planning(files(tmp_path, sources_0_0=START), startingOffsets="earliest")
    assert found.planner.initial() == StreamOffset({T0: 7}, initial=True)


def test_checkpoint_without_peer_files_leaves_start_to_options(tmp_path: Path) -> None:
    options = {"checkpointLocation": str(tmp_path / "new"), "startingOffsets": "earliest"}
    found = Planning(FakeCluster(t=[(3, 90)]), Mode.STREAM, **options)
    assert found.planner.initial().positions == {T0: 3}


def test_what_was_planned_here_is_replayed_whatever_files_say(tmp_path: Path) -> None:
    found = planning(files(tmp_path, sources_0_0=START, offsets_0=END))
    end = StreamOffset({T0: 60}, batch_start={T0: 50})
    ranges = found.planner.stream(StreamOffset({T0: 90}, initial=True), end)
    assert ranges == (OffsetRange(T0, 50, 60),)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("\0v2\n{}", "version 'v2'; only v1 is supported"),
        ("\0v1", "has version 'v1'"),
        ("\0v1\n{", "'{' is not an offset of a Kafka source"),
        ("", "'' is not an offset"),
        ('\0v1\n{"t":3}', "is not an offset"),
        ("\0v1\n[1]", "is not an offset"),
    ],
)
def test_a_file_that_cannot_be_understood_is_named(tmp_path: Path, content: str, said: str) -> None:
    found = planning(files(tmp_path, sources_0_0=content, offsets_0=END))
    with pytest.raises(UnknownStart, match=re.escape(said)) as refusal:
        found.planner.stream(StreamOffset({T0: 0}, initial=True), StreamOffset({T0: 60}))
    assert f"minikafka.resume.from={tmp_path}" in str(refusal.value)


def test_the_form_of_the_first_connectors_is_read() -> None:
    assert (
        spark_checkpoint.parse_start(b'\0{"t":{"0":7}}')
        == spark_checkpoint.parse_start(START.encode())
        == {T0: 7}
    )


def test_the_ends_of_several_sources_are_told_apart() -> None:
    content = 'v1\n{}\n{"t":{"0":60}}\n-\n{"logOffset":4}\n{"u":{"0":2}}'
    assert spark_checkpoint.parse_ends(content.encode()) == {"0": {T0: 60}, "3": {U0: 2}}
    named = 'v2\n{}\nleft:{"t":{"0":60}}\n1:{"u": {"0": 2}}'
    assert spark_checkpoint.parse_ends(named.encode()) == {"left": {T0: 60}, "1": {U0: 2}}
    with pytest.raises(UnknownStart, match="has version 'v3'"):
        spark_checkpoint.parse_ends(b"v3\n{}\n")


def test_the_end_of_the_batch_shows_which_source_is_meant() -> None:
    first = FirstBatch({"0": {T0: 7}, "1": {T0: 9}}, {"0": {T0: 50}, "1": {T0: 60}})
    assert first.of_first_batch({T0: 60}) == {T0: 9}
    with pytest.raises(UnknownStart, match=r"offsets/0 does not contain the end"):
        first.of_first_batch({T0: 61})


def test_indistinguishable_sources_must_start_at_same_offsets() -> None:
    ends = {"0": {T0: 60}, "1": {T0: 60}}
    assert FirstBatch({"0": {T0: 7}, "1": {T0: 7}}, ends).of_first_batch({T0: 60}) == {T0: 7}
    with pytest.raises(UnknownStart, match="several sources of the query"):
        FirstBatch({"0": {T0: 7}, "1": {T0: 8}}, ends).of_first_batch({T0: 60})
    with pytest.raises(UnknownStart, match=r"sources/1/0 does not exist"):
        FirstBatch({"0": {T0: 7}}, ends).of_first_batch({T0: 60})


@pytest.mark.parametrize(
    ("given", "start"),
    [
        ({"subscribe": "t"}, {T0: 7, T1: 8}),
        ({"subscribe": "t,u"}, None),
        ({"subscribe": "u"}, {U0: 2}),
        ({"subscribe": "v"}, None),
        ({"assign": '{"t":[0,1,2]}'}, {T0: 7, T1: 8}),
        ({"assign": '{"t":[0]}'}, None),
        ({"subscribePattern": "[st]"}, {T0: 7, T1: 8}),
    ],
)
def test_before_there_is_a_batch_the_topics_show_which_source_is_meant(
    given: dict[str, str], start: dict[TopicPartition, int] | None
) -> None:
    reads = spark_checkpoint.reads(source_options(given, Mode.STREAM).strategy)
    first = FirstBatch({"0": {T0: 7, T1: 8}, "1": {U0: 2}})
    if given == {"subscribe": "t,u"}:
        with pytest.raises(UnknownStart, match="several sources of the query"):
            first.before_planning(reads)
    else:
        assert first.before_planning(reads) == start


def test_a_checkpoint_of_another_query_is_not_taken_for_this_ones(tmp_path: Path) -> None:
    directory = files(tmp_path, sources_0_0=START, offsets_0=END, commits_0="v1\n{}")
    with pytest.raises(ConfigError, match="must be the checkpoint of this query, which has another one"):
        planning(directory).planner.initial()
    # What the reader's checkpointLocation names need not be what the writer's does.
    assert Planning(
        FakeCluster(t=[(0, 90)]), Mode.STREAM, checkpointLocation=directory
    ).planner.initial().positions == {T0: 90}


def test_the_checkpoint_must_be_there_and_one_when_the_options_are_read(tmp_path: Path) -> None:
    missing = str(tmp_path / "nowhere")
    for directory, said in (
        (missing, "does not exist"),
        (str(tmp_path), "has neither offsets/ nor sources/"),
    ):
        with pytest.raises(ConfigError, match=said) as refusal:
            source_options({"subscribe": "t", "minikafka.resume.from": directory}, Mode.LOAD)
        assert str(refusal.value).startswith(f"minikafka.resume.from={directory!r}")


def test_a_batch_query_says_that_it_has_no_checkpoint(tmp_path: Path) -> None:
    found = source_options({"subscribe": "t", "minikafka.resume.from": str(tmp_path)}, Mode.BATCH)
    assert found.checkpoint is None
    assert "minikafka.resume.from has no effect on a batch query" in found.warnings


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "file://localhost{}"])
def test_a_directory_may_be_an_address(tmp_path: Path, form: str) -> None:
    directory = files(tmp_path / "with blank%20", sources_0_0=START, offsets_0=END)
    assert spark_checkpoint.read(form.format(directory)) == FirstBatch({"0": {T0: 7}}, {"0": {T0: 60}})


def test_unknown_file_system_is_an_error_or_a_warning() -> None:
    warnings: list[str] = []
    implied = Resume(
        CheckpointLocation("checkpointLocation", "nosuch://host/c"), lambda _: True, warnings.append
    )
    assert implied.initial() is None
    assert "cannot read checkpointLocation=nosuch://host/c" in warnings[0]
    with pytest.raises(UnknownStart, match="cannot read"):
        implied.of_first_batch({T0: 1})
    with pytest.raises(ConfigError, match="cannot be read"):
        spark_checkpoint.check(CheckpointLocation("minikafka.resume.from", "nosuch://host/c"))

"""A checkpoint whose query has read other topics than its options name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minikafka.base.errors import ConfigError
from pyspark_minikafka.checkpoint.subscription import SubscriptionChanged
from pyspark_minikafka.options.options import Mode, source_options
from pyspark_minikafka.reading import stream
from tests.support.spark_cluster import FakeCluster
from tests.unit.spark_source.reading.test_stream import Spark

needs_limits = pytest.mark.skipif(not stream.HAS_LIMITS, reason="Spark before 4.2 has no read limits")
both = pytest.mark.parametrize("limits", [False, pytest.param(True, marks=needs_limits)])
losses = pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
ACCEPT = {"minikafka__changed__topics": "accept"}


def cluster() -> FakeCluster:
    return FakeCluster(a=[(0, 100)], b=[(0, 50)], ab=[(0, 7)])


def run(limits: bool, **given: str) -> Spark:
    return Spark(cluster(), limits=limits, **given)


def goes_on(spark: Spark, last: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[int, int, int]]]:
    """The next batch after ``last``, which is done: its end and its ranges."""
    spark.resume(last)
    end = spark.latest(last)
    return end, spark.ranges(last, end)


@both
@losses
def test_another_topic_is_refused_before_anything_is_read(limits: bool, fail_on_data_loss: str) -> None:
    spark = run(limits, subscribe="b", failOnDataLoss=fail_on_data_loss)
    with pytest.raises(SubscriptionChanged) as refused:
        goes_on(spark, {"a": {"0": 60}})
    said = str(refused.value)
    assert said.startswith("subscribe was changed from a to b after a-0 at offset 60: ")
    for way_out in (
        "subscribe=a,",
        "a,b for all",
        "a new checkpointLocation",
        "minikafka.changed.topics=accept",
    ):
        assert way_out in said
    assert "deleted" not in said
    assert "tart the query again" not in said


@both
@losses
def test_a_batch_that_was_planned_for_another_topic_is_refused(limits: bool, fail_on_data_loss: str) -> None:
    spark = run(limits, subscribe="b", failOnDataLoss=fail_on_data_loss)
    with pytest.raises(SubscriptionChanged, match="subscribe was changed from a to b"):
        spark.ranges({"a": {"0": 60}}, {"a": {"0": 80}})


@both
def test_a_first_batch_that_was_planned_for_another_topic_is_refused(limits: bool) -> None:
    spark = run(limits, subscribe="b")
    with pytest.raises(SubscriptionChanged, match="subscribe was changed from a to b"):
        spark.ranges(None, {"a": {"0": 80}, "minikafka:start": {"a": {"0": 60}}})


@both
def test_accepted_change_finishes_planned_batch_then_reads_topic(limits: bool) -> None:
    spark = run(limits, subscribe="b", **ACCEPT)
    planned = {"a": {"0": 80}}
    assert spark.ranges({"a": {"0": 60}}, planned) == [(0, 60, 80)]
    end = spark.latest(planned)
    assert end == {"b": {"0": 50}}
    assert spark.ranges(planned, end) == [(0, 0, 50)]
    assert goes_on(run(limits, subscribe="b"), end) == (end, [])


@needs_limits
@pytest.mark.parametrize("accepted", [True, False])
def test_available_now_gives_the_same_answer(accepted: bool) -> None:
    spark = run(True, subscribe="b", **(ACCEPT if accepted else {}))
    spark.reader.prepareForTriggerAvailableNow()
    if accepted:
        assert spark.ranges({"a": {"0": 60}}, {"a": {"0": 80}}) == [(0, 60, 80)]
        assert goes_on(spark, {"a": {"0": 80}}) == ({"b": {"0": 50}}, [(0, 0, 50)])
    else:
        with pytest.raises(SubscriptionChanged, match="subscribe was changed from a to b"):
            spark.ranges({"a": {"0": 60}}, {"a": {"0": 80}})


@both
def test_topics_may_be_added(limits: bool) -> None:
    end, ranges = goes_on(run(limits, subscribe="a,b"), {"a": {"0": 60}})
    assert end == {"a": {"0": 100}, "b": {"0": 50}}
    assert ranges == [(0, 60, 100), (0, 0, 50)]


@both
def test_a_topic_less_is_refused_until_it_is_accepted(limits: bool) -> None:
    last = {"a": {"0": 60}, "b": {"0": 20}}
    with pytest.raises(SubscriptionChanged, match="changed from a,b to b after a-0 at offset 60"):
        goes_on(run(limits, subscribe="b", failOnDataLoss="false"), last)
    assert goes_on(run(limits, subscribe="b", **ACCEPT), last) == ({"b": {"0": 50}}, [(0, 20, 50)])


@both
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"assign": '{"b":[0]}'}, 'assign was changed from {"a":[0]} to {"b":[0]}'),
        ({"subscribePattern": "b.*"}, "subscribePattern was changed from one of a to b.*"),
    ],
)
def test_other_ways_to_name_topics_are_looked_at_too(limits: bool, given: dict[str, str], said: str) -> None:
    with pytest.raises(SubscriptionChanged) as refused:
        goes_on(run(limits, **given), {"a": {"0": 60}})
    assert str(refused.value).startswith(said)


@both
def test_another_option_that_reads_the_same_is_no_change(limits: bool) -> None:
    for given in ({"assign": '{"a":[0]}'}, {"subscribePattern": "a"}):
        assert goes_on(run(limits, **given), {"a": {"0": 60}}) == ({"a": {"0": 100}}, [(0, 60, 100)])


@both
def test_where_the_checkpoint_is_known_the_batch_is_named(limits: bool, tmp_path: Path) -> None:
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    for number in (0, 9, 10):
        (offsets / str(number)).write_text("v1\n{}\n")
    spark = run(limits, subscribe="b", checkpointLocation=str(tmp_path))
    with pytest.raises(SubscriptionChanged, match=r"^subscribe was changed from a to b at batch 10: "):
        goes_on(spark, {"a": {"0": 60}})


def test_only_accept_and_refuse_are_words_for_it() -> None:
    given = {"subscribe": "a", "minikafka.changed.topics": "yes", "minikafka.data.dir": "/d"}
    with pytest.raises(ConfigError, match=r"minikafka\.changed\.topics='yes': must be refuse, or accept"):
        source_options(given, Mode.STREAM)

"""The calls of Spark to a stream's source, and the end of a query: lost data, or a stop."""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from minikafka.clients.admin.admin import NewTopic
from minikafka.clients.network.broker_connection import BrokerConnection
from pyspark_minikafka import cache
from pyspark_minikafka.location import Target
from pyspark_minikafka.options.options import Mode, source_options
from pyspark_minikafka.planning.lookup import make_planner
from pyspark_minikafka.reading import stream
from tests.spark.conftest import Kafka
from tests.spark.streams import Streams, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOPS_WITHIN_S = 2.0
GONE_WITHIN_S = 5.0


def recording_source(log: Path, *, hang: bool = False) -> type:
    """The source, whose calls go into a file with the process that they came to; its tasks may hang."""
    from pyspark_minikafka.source import MinikafkaSource

    path = str(log)

    def told(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def tell(*arguments: Any) -> Any:
            answer = call(*arguments)
            shown = answer if isinstance(answer, dict) else None
            with open(path, "a") as file:
                file.write(json.dumps([name, os.getpid(), repr(arguments), shown]) + "\n")
            return answer

        return tell

    class RecordingSource(MinikafkaSource):
        @classmethod
        def name(cls) -> str:
            return "minikafka-recording"

        def streamReader(self, schema: Any) -> Any:  # noqa: N802
            reader: Any = super().streamReader(schema)
            for name in ("initialOffset", "latestOffset", "partitions", "commit"):
                setattr(reader, name, told(name, getattr(reader, name)))
            if hang:
                reader.read = lambda _: iter(hold())
            return reader

    def hold() -> list[Any]:
        told("read", lambda: None)()
        time.sleep(600)
        return []

    return RecordingSource


def calls(log: Path) -> list[tuple[str, int, str, Any]]:
    """Name, process, arguments and the answer if it was an offset."""
    return [tuple(json.loads(line)) for line in log.read_text().splitlines()] if log.exists() else []


def test_spark_calls_start_twice_end_often_and_commits_late(
    streams: Streams, kafka: Kafka, spark: SparkSession, tmp_path: Path
) -> None:
    topic, log = kafka.topic(), tmp_path / "calls"
    spark.dataSource.register(recording_source(log))
    kafka.produce(topic, ["a"])
    running = streams.start(source="minikafka-recording", subscribe=topic, startingOffsets="earliest")
    running.wait_for(1)
    wait_until(lambda: sum(name == "latestOffset" for name, *_ in calls(log)) > 10)
    assert not [name for name, *_ in calls(log) if name == "commit"]
    kafka.produce(topic, ["b"])
    running.wait_for(2)
    running.stop()
    made = calls(log)
    starts = [answer for name, _, _, answer in made if name == "initialOffset"]
    # Once before Spark 4.2.
    assert len(starts) == (2 if stream.HAS_LIMITS else 1)
    assert starts[0] == starts[-1]
    committed = [number for number, call in enumerate(made) if call[0] == "commit"]
    found_next = next(number for number, call in enumerate(made) if call[3] == {topic: {"0": 2}})
    assert len(committed) == 1
    assert committed[0] > found_next
    assert f"{{'{topic}': {{'0': 1}}" in made[committed[0]][2]


def test_a_look_for_new_records_is_one_request_to_each_broker(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic(8)
    options = source_options({"subscribe": topic, "kafka.bootstrap.servers": kafka.servers}, Mode.STREAM)
    planner, requests = make_planner(options, Target(kafka.servers)), []
    known = planner.available({})
    send: Any = BrokerConnection.send

    def counted(link: Any, api: Any, *arguments: Any, **named: Any) -> Any:
        requests.append(api)
        return send(link, api, *arguments, **named)

    monkeypatch.setattr(BrokerConnection, "send", counted)
    for _ in range(5):
        assert planner.available(known) == known
    assert len(requests) == 5
    cache.close_all()


def test_a_topic_that_is_made_anew_during_a_query_is_lost_data(streams: Streams, kafka: Kafka) -> None:
    topic = kafka.topic_with(["a", "b", "c"])
    running = streams.start(
        subscribe=topic,
        startingOffsets="earliest",
        fetchOffset__numRetries="20",
        fetchOffset__retryIntervalMs="100",
    )
    running.wait_for(3)
    kafka.delete(topic)
    kafka.admin.create_topic(NewTopic(topic, 1))
    kafka.produce(topic, ["new"])
    assert f"topic '{topic}' was deleted and created again" in running.failure()


@pytest.mark.parametrize("hangs", [False, True])
def test_a_query_stops_at_once_and_leaves_nothing(
    streams: Streams, kafka: Kafka, spark: SparkSession, tmp_path: Path, hangs: bool
) -> None:
    topic, log = kafka.topic(), tmp_path / "calls"
    spark.dataSource.register(recording_source(log, hang=hangs))
    kafka.produce(topic, ["a"])
    running = streams.start(source="minikafka-recording", subscribe=topic, startingOffsets="earliest")
    last = "read" if hangs else "latestOffset"
    wait_until(lambda: running.values != [] or hangs)
    wait_until(lambda: calls(log) != [] and calls(log)[-1][0] == last)
    pids = {pid for name, pid, *_ in calls(log) if name in ("latestOffset", "read")}
    assert pids
    slowness = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    began = time.monotonic()
    running.query.stop()
    assert time.monotonic() - began < STOPS_WITHIN_S * slowness
    context: Any = spark.sparkContext
    run = running.query.runId

    def left() -> list[str]:
        threads = context._jvm.java.lang.Thread.getAllStackTraces().keySet().toArray()
        names = [thread.getName() for thread in threads]
        return [
            *(f"process {pid}" for pid in pids if psutil.pid_exists(pid)),
            *(n for n in names if run in n),
        ]

    while left() and time.monotonic() - began < GONE_WITHIN_S * slowness:
        time.sleep(0.1)
    assert left() == []

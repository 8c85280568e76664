"""The listener that keeps metrics of queries: lag, rows, reports of tasks, and their text for Prometheus."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import NetworkError
from minikafka.base.exposition import Exposition
from minikafka.base.ids import TopicPartition
from pyspark_minikafka.monitoring import prometheus
from pyspark_minikafka.monitoring.metrics_listener import ENDED_MAX, MetricsListener
from pyspark_minikafka.reading import task_reports

PYTHON_SOURCE = "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@1"


def event(**fields: Any) -> Any:
    return SimpleNamespace(**fields)


class Session:
    """A listener, and the events of Spark that it gets."""

    def __init__(self, *options: dict[str, str], **given: Any) -> None:
        self.clock = ManualClock()
        self.listener = MetricsListener(*options, clock=self.clock, **given)

    def started(self, query: str = "q1", run: str = "r1", name: str | None = "orders") -> None:
        self.listener.onQueryStarted(event(id=query, runId=run, name=name))

    def batch(
        self,
        number: int,
        start: dict[str, int] | None,
        end: dict[str, int],
        latest: dict[str, int],
        *,
        run: str = "r1",
        query: str = "q1",
        name: str | None = "orders",
    ) -> None:
        rows = sum(end.values()) - sum((start or {}).values())
        source = {
            "description": PYTHON_SOURCE,
            "startOffset": None if start is None else {"t": start},
            "endOffset": {"t": end},
            "latestOffset": {"t": latest},
            "numInputRows": rows,
        }
        reported = {
            "id": query,
            "runId": run,
            "name": name,
            "batchId": number,
            "timestamp": "T",
            "inputRowsPerSecond": 2.5,
            "processedRowsPerSecond": 5.0,
            "durationMs": {"addBatch": 1500},
            "sources": [source],
        }
        self.listener.onQueryProgress(event(progress=SimpleNamespace(json=json.dumps(reported))))

    def ended(self, query: str = "q1", run: str = "r1") -> None:
        self.listener.onQueryTerminated(event(id=query, runId=run))

    def report(self, query: str, *ranges: tuple[int, tuple[int, int, int, int, int]]) -> None:
        """A task of a query reports what it has read of partitions of topic t."""
        rows = [(TopicPartition("t", number), totals) for number, totals in ranges]
        for datagram in task_reports.datagrams(self.listener._token, query, rows):
            self.listener._add_report(datagram)

    def text(self) -> str:
        out = Exposition()
        prometheus.add(out, self.listener.metrics())
        return out.encode().decode()


@pytest.fixture
def session() -> Iterator[Session]:
    found = Session()
    yield found
    found.listener.close()


def test_the_three_numbers_are_those_of_sparks_kafka_source(session: Session) -> None:
    session.started()
    session.batch(3, {"0": 0, "1": 0}, {"0": 10, "1": 20}, {"0": 15, "1": 50})
    (source,) = session.listener.metrics()["orders"].sources
    assert source.min_offsets_behind_latest == 5
    assert source.max_offsets_behind_latest == 30
    assert source.avg_offsets_behind_latest == 17.5
    assert [(each.partition, each.lag, each.offsets) for each in source.partitions] == [
        (0, 5, 10),
        (1, 30, 20),
    ]


def test_batches_add_up_and_one_that_is_reported_again_does_not(session: Session) -> None:
    session.batch(0, {"0": 0}, {"0": 10}, {"0": 30})
    for _ in range(2):
        session.batch(1, {"0": 10}, {"0": 30}, {"0": 30})
    found = session.listener.metrics()["orders"]
    assert (found.batch, found.batches, found.rows) == (1, 2, 30)
    assert found.sources[0].partitions[0].offsets == 30
    assert found.durations_ms == {"addBatch": 1500}


def test_reports_of_tasks_are_added_to_their_partitions(session: Session) -> None:
    session.report("q1", (0, (5, 500, 2_000_000_000, 1_000_000_000, 0)))  # before Spark has said anything
    session.started()
    session.batch(0, {"0": 0, "1": 0}, {"0": 10, "1": 3}, {"0": 10, "1": 3})
    session.report("q1", (0, (5, 500, 0, 0, 0)), (1, (3, 9, 0, 0, 2)))
    session.report("", (0, (1, 1, 1, 1, 1)))  # of a batch query
    found = session.listener.metrics()["orders"]
    first, second = found.sources[0].partitions
    assert first.read is not None
    assert (first.read.rows, first.read.bytes_, first.read.fetch_s, first.read.decode_s) == (
        10,
        1_000,
        2.0,
        1.0,
    )
    assert second.read is not None
    assert second.read.skipped == 2
    assert (found.tasks, found.read.rows) == (2, 13)


def test_a_new_run_of_a_query_begins_anew(session: Session) -> None:
    session.started()
    session.batch(0, {"0": 0}, {"0": 10}, {"0": 10})
    session.ended()
    assert not session.listener.metrics()["orders"].is_active
    session.started(run="r2")
    session.batch(1, {"0": 10}, {"0": 11}, {"0": 11}, run="r2")
    session.ended(run="r1")  # Spark tells of it late
    found = session.listener.metrics()["orders"]
    assert (found.is_active, found.rows, found.run_id) == (True, 1, "r2")


def test_only_the_last_queries_that_ended_are_kept(session: Session) -> None:
    for number in range(ENDED_MAX + 5):
        query = f"q{number}"
        session.started(query=query, name=None)
        session.ended(query=query)
    assert list(session.listener.metrics()) == [f"q{number}" for number in range(5, ENDED_MAX + 5)]


def test_partitions_that_are_no_longer_read_are_dropped(session: Session) -> None:
    session.batch(0, {"0": 0, "1": 0}, {"0": 1, "1": 1}, {"0": 1, "1": 1})
    session.report("q1", (0, (1, 1, 0, 0, 0)), (1, (1, 1, 0, 0, 0)))
    session.batch(1, {"0": 1}, {"0": 2}, {"0": 2})
    found = session.listener.metrics()["orders"]
    assert [each.partition for each in found.sources[0].partitions] == [0]
    assert found.read.rows == 1


def test_with_options_the_lag_is_looked_up_for_all_who_ask_within_5_s() -> None:
    asked = []

    def look_up(progress: Any, options: Any, **_: Any) -> Any:
        asked.append(options)
        if len(asked) == 2:
            raise NetworkError("no broker")
        return progress

    session = Session({"subscribe": "t"}, look_up=look_up)
    session.batch(0, {"0": 0}, {"0": 1}, {"0": 9})
    for _ in range(3):
        session.listener.metrics()
    assert len(asked) == 1
    session.clock.advance(5_000)
    assert session.listener.metrics()["orders"].sources[0].max_offsets_behind_latest == 8
    session.ended()
    session.clock.advance(5_000)
    session.listener.metrics()
    assert len(asked) == 2


def test_one_time_limit_holds_for_the_look_ups_of_all_queries() -> None:
    limits: list[int] = []

    def look_up(*_: Any, timeout_ms: int, **__: Any) -> Any:
        limits.append(timeout_ms)
        clock.advance(1_500)
        raise NetworkError("no broker")

    session = Session({"subscribe": "t"}, look_up=look_up)
    clock = session.clock
    for query in ("q1", "q2", "q3"):
        session.batch(0, {"0": 0}, {"0": 1}, {"0": 9}, query=query, name=query)
    found = session.listener.metrics()
    assert limits == [2_000, 500]
    assert [each.sources[0].max_offsets_behind_latest for each in found.values()] == [8, 8, 8]


def test_those_who_ask_at_once_share_a_look_up() -> None:
    asked: list[Any] = []
    entered, release = threading.Event(), threading.Event()

    def look_up(progress: Any, *_: Any, **__: Any) -> Any:
        asked.append(progress)
        entered.set()
        release.wait(10)
        return progress

    session = Session({"subscribe": "t"}, look_up=look_up)
    session.batch(0, {"0": 0}, {"0": 1}, {"0": 9})
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(session.listener.metrics)
        assert entered.wait(10)
        second = pool.submit(session.listener.metrics)
        release.set()
        assert first.result(10) == second.result(10)
    assert len(asked) == 1


def test_an_event_that_cannot_be_read_is_no_error(session: Session) -> None:
    session.listener.onQueryProgress(event(progress=SimpleNamespace(json="{}")))
    session.ended(query="unknown")
    assert session.listener.metrics() == {}


def test_prometheus_reads_active_queries_over_http() -> None:
    session = Session(port=0)
    try:
        session.started(name='a "query"')
        session.batch(0, {"0": 0}, {"0": 10}, {"0": 15}, name='a "query"')
        session.report("q1", (0, (10, 700, 0, 250_000_000, 0)))
        session.started(query="q2", run="r3", name="over")
        session.ended(query="q2", run="r3")
        with urlopen(f"{session.listener.url}/metrics", timeout=10) as response:
            lines = response.read().decode().splitlines()
        name = r'query="a \"query\""'
        assert f'minikafka_spark_partition_lag{{{name},topic="t",partition="0"}} 5' in lines
        assert f'minikafka_spark_max_offsets_behind_latest{{{name},source="0"}} 5' in lines
        assert f'minikafka_spark_decode_seconds_total{{{name},topic="t",partition="0"}} 0.25' in lines
        assert f'minikafka_spark_batch_duration_seconds{{{name},phase="addBatch"}} 1.5' in lines
        assert not any("over" in line for line in lines)
    finally:
        session.listener.close()


def test_a_query_of_very_many_partitions_has_no_series_for_each(session: Session) -> None:
    many = {str(number): 1 for number in range(prometheus.PARTITIONS_MAX + 1)}
    session.batch(0, many, many, dict.fromkeys(many, 3))
    text = session.text()
    assert "minikafka_spark_partition_lag" not in text
    assert 'minikafka_spark_lag_sum{query="orders",source="0"} 2002' in text

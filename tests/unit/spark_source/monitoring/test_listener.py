"""The listener that logs the lag of queries: when it writes, and that it never fails."""

from __future__ import annotations

import json
import logging
import math
from types import SimpleNamespace
from typing import Any

import pytest

import pyspark_minikafka
from minikafka.base.clock import ManualClock
from pyspark_minikafka.monitoring.listener import LagListener

PYTHON_SOURCE = "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@1"


class Watched:
    """A listener with a clock of the test, and the lines that it has written."""

    def __init__(self, *options: dict[str, str]) -> None:
        self.clock = ManualClock()
        self.lines: list[str] = []
        self.listener = LagListener(*options, every_s=60, clock=self.clock, write=self.lines.append)

    def started(self, run: str = "run-1") -> None:
        self.listener.onQueryStarted(event(runId=run))

    def batch(self, rows: int, end: int, *, run: str = "run-1", latest: int = 100) -> None:
        """Spark reports a batch of ``rows`` that ends at ``end``."""
        reported = {
            "id": "id-1",
            "runId": run,
            "name": "orders",
            "batchId": 1,
            "timestamp": "T",
            "sources": [
                {
                    "description": PYTHON_SOURCE,
                    "endOffset": {"a": {"0": end}},
                    "latestOffset": {"a": {"0": latest}},
                    "numInputRows": rows,
                }
            ],
        }
        self.listener.onQueryProgress(event(progress=SimpleNamespace(json=json.dumps(reported))))

    def idle(self, run: str = "run-1") -> None:
        self.listener.onQueryIdle(event(runId=run))

    def ended(self, run: str = "run-1") -> None:
        self.listener.onQueryTerminated(event(runId=run))


def event(**fields: Any) -> Any:
    """An event of Spark, as far as the listener looks."""
    return SimpleNamespace(**fields)


def test_a_line_is_written_once_an_interval() -> None:
    watched = Watched()
    watched.started()
    for second in range(0, 150, 10):
        watched.clock.advance(10_000)
        watched.batch(60, min(second, 100))
    assert watched.lines == [
        "query orders: topics a, 6 rows/s, lag 50 records, most in a-0: 50",
        "query orders: topics a, 6 rows/s, lag 0 records",
    ]


def test_an_idle_query_is_written_of_too() -> None:
    watched = Watched()
    watched.started()
    watched.batch(30, 100)
    watched.clock.advance(60_000)
    watched.idle()
    watched.clock.advance(60_000)
    watched.idle()
    assert watched.lines == [
        "query orders: topics a, 0 rows/s, lag 0 records",
        "query orders: topics a, 0 rows/s, lag 0 records",
    ]


def test_a_short_query_is_written_of_at_its_end() -> None:
    watched = Watched()
    watched.started()
    watched.clock.advance(2_000)
    watched.batch(30, 100)
    watched.ended()
    assert watched.lines == ["query orders: topics a, 15 rows/s, lag 0 records"]


def test_rows_are_counted_for_each_query() -> None:
    watched = Watched()
    watched.started("one")
    watched.started("two")
    watched.clock.advance(10_000)
    watched.batch(100, 1, run="one")
    watched.batch(20, 1, run="two")
    watched.ended("one")
    watched.ended("two")
    assert [line.split(", ")[1] for line in watched.lines] == ["10 rows/s", "2 rows/s"]


def test_a_query_that_was_running_before_is_watched() -> None:
    watched = Watched()
    watched.batch(10, 1)
    watched.clock.advance(60_000)
    watched.batch(50, 2)
    assert watched.lines == ["query orders: topics a, 1 rows/s, lag 98 records, most in a-0: 98"]


def test_an_event_that_cannot_be_read_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    with caplog.at_level(logging.WARNING):
        watched.listener.onQueryProgress(event(progress=SimpleNamespace(json="{}")))
        watched.listener.onQueryProgress(event(progress=SimpleNamespace(json="not JSON")))
        watched.idle("nobody")
        watched.ended("nobody")
    assert watched.lines == []
    assert "cannot log the lag of a query" in caplog.text


def test_brokers_that_do_not_answer_are_no_error(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched({"minikafka.data.dir": "/nowhere"})
    watched.started()
    watched.clock.advance(60_000)
    with caplog.at_level(logging.WARNING):
        watched.batch(10, 1)
    assert watched.lines == []
    assert "no cluster runs in /nowhere" in caplog.text


@pytest.mark.parametrize("every_s", [0, -1.5, math.nan])
def test_an_interval_must_be_positive(every_s: float) -> None:
    with pytest.raises(ValueError, match=rf"^every_s must be positive, not {every_s}$"):
        LagListener(every_s=every_s)


def test_an_interval_that_is_no_number_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^every_s must be a number of seconds, not '60'$"):
        LagListener(every_s="60")  # type: ignore[arg-type]


def test_what_is_no_session_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^expected a SparkSession, not Watched$"):
        pyspark_minikafka.log_progress(Watched())  # type: ignore[arg-type]


def test_options_that_are_no_mapping_are_refused() -> None:
    with pytest.raises(TypeError, match=r"must be a mapping, such as {'subscribe': 'orders'}, not str$"):
        LagListener("orders")  # type: ignore[arg-type]

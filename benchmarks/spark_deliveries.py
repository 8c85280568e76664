"""The cases of ``spark_bench.py`` that compare the deliveries of our sink."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka_fill import Shape
from spark_rounds import OURS, Bench, Row, Work

GOALS = {"Apache Kafka": 0.5, "its own broker": 0.8}
_DELIVERY = "minikafka.delivery"
_DELIVERIES = ("exactly-once", "at-least-once")


def deliveries(bench: Bench) -> list[Row]:
    """A stream from topic to topic in one batch, and a batch write of rows in Spark's memory."""
    rows = bench.rows // 3
    found: list[Row] = []
    for name, servers in (("Apache Kafka", bench.apache), ("its own broker", bench.own)):
        source = bench.reading(servers, bench.topic(servers, "deliveries", rows), startingOffsets="earliest")

        def stream(sink: dict[str, str], number: int, source: dict[str, str] = source) -> dict[str, Any]:
            if "exactly" in sink[_DELIVERY]:
                sink["minikafka.sink.id"] = f"{sink['topic']}-{number}"
            return bench.main.ask("copy", source=OURS, options=source, sink=OURS, sink_options=sink)

        def write(sink: dict[str, str], _: int) -> dict[str, Any]:
            return bench.main.ask("write", source=OURS, options=sink)

        bench.main.ask("frame", rows=rows, value_bytes=Shape().value_bytes, keys=False)
        found += [
            _against(bench, f"stream from topic to topic, exactly once, {name}", rows, name, servers, stream),
            _against(bench, f"batch write, exactly once, {name}", rows, name, servers, write),
        ]
    return found


def _against(
    bench: Bench,
    what: str,
    rows: int,
    name: str,
    servers: str,
    ask: Callable[[dict[str, str], int], dict[str, Any]],
) -> Row:
    def work(delivery: str) -> Work:
        def run(number: int) -> dict[str, Any]:
            topic = bench.new_topic(servers)
            sink = {**bench.connecting(servers), "topic": topic, "kafka.acks": "all", _DELIVERY: delivery}
            found = ask(sink, number)
            if number == 0:
                read = bench.reading(servers, topic, **{"kafka.isolation.level": "read_committed"})
                count, _ = bench.main.ask("checksum", source=OURS, options=read, columns=["value"])["result"]
                if count != rows:
                    raise SystemExit(f"{delivery} wrote {count} rows, not {rows}")
            return found

        return run

    works = {delivery: work(delivery) for delivery in _DELIVERIES}
    return bench.against("deliveries", what, GOALS[name], rows, works)

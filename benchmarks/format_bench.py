"""Values of a format to columns and back, through our source and through Spark's connector and functions.

    KAFKA_JARS=DIR SPARK_KAFKA_JARS=DIR python benchmarks/format_bench.py [--quick] [--only CASE,…] [--runs N]
        [--rows N] [--secured]

How it is measured: as ``spark_bench.py``, on the same Apache Kafka, in ``noop``. Values are events with eight
fields, of which one is nested, one a time and three are texts: about 190 bytes of JSON, or 200 of Avro, whose
texts are longer. The topic is written by our sink, of JSON from Spark's own ``to_json``. Ours decodes with
``minikafka.value.format``; the peer is ``from_json`` or ``from_avro`` over Spark's connector. What both read
is compared before it is timed, by a checksum over the decoded value. Beside both stands the "floor": a source
in Python with the decoded record batches ready in a file. Avro needs the jar ``spark-avro`` too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from kafka_fill import PARTITIONS
from spark_rounds import OURS, PEER, Bench, Row, Work, check_jars, parsed, parser_of, print_table

SCHEMA = (
    "id BIGINT, user STRING, event STRING, at TIMESTAMP, amount DOUBLE, ok BOOLEAN, url STRING, "
    "place STRUCT<lat: DOUBLE, lon: DOUBLE>"
)
EVENT = (
    "named_struct('id', id, 'user', concat('user-', id % 5000), 'event', 'page_view', 'at', "
    "timestamp_millis(1700000000000 + id * 37), 'amount', id * 0.37D, 'ok', id % 2 = 0, 'url', "
    "concat('https://example.com/some/path/', id), 'place', named_struct('lat', id * 0.001D, 'lon', "
    "id * -0.002D))"
)
"""The expression of one event, by its number."""
OTHERS = ("key", "topic", "partition", "offset", "timestamp", "timestampType")
FROM_JSON = f"from_json(cast(value AS string), '{SCHEMA}') AS value"
JSON = {"minikafka.value.format": "json", "minikafka.value.schema": SCHEMA}
LONG_EVENT = EVENT.replace("/some/path/'", f"/{'some/longer/path/' * 7}'")
"""An event with more text."""
AVRO_SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Event",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "user", "type": "string"},
            {"name": "event", "type": "string"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "amount", "type": ["null", "double"]},
            {"name": "ok", "type": "boolean"},
            {"name": "url", "type": "string"},
            {
                "name": "place",
                "type": {
                    "type": "record",
                    "name": "Place",
                    "fields": [{"name": "lat", "type": "double"}, {"name": "lon", "type": "double"}],
                },
            },
        ],
    }
)
FROM_AVRO = f"from_avro(value, '{AVRO_SCHEMA}', map()) AS value"
TO_AVRO = f"to_avro(value, '{AVRO_SCHEMA}') AS value"
BATCH_ROWS = 5_000
"""Rows in a record batch of the floor: about 1 MiB, as in ours."""
AVRO = {"minikafka.value.format": "avro", "minikafka.value.schema": AVRO_SCHEMA}


def _topic(bench: Bench, event: str, written: str, more: dict[str, str]) -> str:
    """A new topic of events, whose values are the expression ``written``."""
    topic = bench.new_topic(bench.apache)
    bench.main.ask("frame_of", rows=bench.rows, columns=[f"{event} AS value"])
    given = {**bench.connecting(bench.apache), "topic": topic, **more}
    bench.main.ask("write", source=OURS, options=given, columns=[written])
    return topic


def _against(
    bench: Bench, case: str, what: str, ours: dict[str, Any], peer: dict[str, Any], goal: float | None
) -> Row:
    """A row of two reads and the floor, after a look at whether both give the same values."""
    sums = [
        bench.main.ask(
            "checksum",
            source=read["source"],
            options=read["options"],
            columns=[column.removesuffix(" AS value") for column in read["columns"] if "value" in column],
        )["result"]
        for read in (ours, peer)
    ]
    if sums[0] != sums[1] or sums[0][0] != bench.rows:
        raise SystemExit(f"of {bench.rows} rows the sides do not read the same: {sums}")
    file = str(bench.directory / "saved.arrow")
    bench.main.ask("save", **ours, rows=BATCH_ROWS, file=file)
    floor = {"source": "saved", "options": {"file": file, "rows": str(bench.rows)}}
    works: dict[str, Work] = {
        name: lambda _, read=read: bench.main.ask("read", **read)
        for name, read in ((OURS, ours), (PEER, peer), ("floor", floor))
    }
    return bench.against(case, what, goal, bench.rows, works)


def read_json(bench: Bench) -> list[Row]:
    """JSON to columns."""
    topic = _topic(bench, EVENT, "to_json(value) AS value", {})
    return _reads(bench, "JSON", topic, JSON, FROM_JSON)


def read_avro(bench: Bench) -> list[Row]:
    """Avro to columns."""
    return _reads(bench, "Avro", _topic(bench, LONG_EVENT, "value", AVRO), AVRO, FROM_AVRO)


def _reads(bench: Bench, name: str, topic: str, options: dict[str, str], peers: str) -> list[Row]:
    """The value alone, and with all other columns."""
    found = []
    for what, others, more in (
        (f"{name} to columns, the value alone", (), {"minikafka.columns": "value"}),
        (f"{name} to columns, with all other columns", OTHERS, {}),
    ):
        given = bench.reading(bench.apache, topic)
        ours = {"source": OURS, "options": {**given, **options, **more}, "columns": ["value", *others]}
        peer = {"source": PEER, "options": given, "columns": [peers, *others]}
        found.append(_against(bench, f"read-{name.lower()}", what, ours, peer, 3.0))
    return found


def write_json(bench: Bench) -> list[Row]:
    """Columns to JSON."""
    return _writes(bench, "JSON", EVENT, {"minikafka.value.format": "json"}, "to_json(value) AS value")


def write_avro(bench: Bench) -> list[Row]:
    """Columns to Avro."""
    return _writes(bench, "Avro", LONG_EVENT, AVRO, TO_AVRO)


def _writes(bench: Bench, name: str, event: str, options: dict[str, str], peers: str) -> list[Row]:
    bench.main.ask("frame_of", rows=bench.rows, columns=[f"{event} AS value"])

    def work(source: str, columns: Sequence[str], more: dict[str, str]) -> Work:
        def run(_: int) -> dict[str, Any]:
            given = {**bench.connecting(bench.apache), "topic": bench.new_topic(bench.apache), **more}
            given["kafka.acks"] = "all"
            return bench.main.ask("write", source=source, options=given, columns=columns)

        return run

    works = {OURS: work(OURS, ["value"], options), PEER: work(PEER, [peers], {})}
    return [bench.against(f"write-{name.lower()}", f"columns to {name}", None, bench.rows, works)]


CASES: dict[str, Callable[[Bench], list[Row]]] = {
    "read-json": read_json,
    "write-json": write_json,
    "read-avro": read_avro,
    "write-avro": write_avro,
}


def options_of(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = parser_of(__doc__ or "", CASES, "of each topic; 1,000,000")
    found = parsed(parser, words, CASES, 1_000_000)
    found.rows = found.rows // PARTITIONS * PARTITIONS
    return found


def main() -> int:
    """Run the cases; print the table, and what was found as JSON."""
    arguments = options_of()
    check_jars()
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        bench = Bench(stack, arguments)
        for name in arguments.only:
            rows += CASES[name](bench)
    print_table(rows)
    print(json.dumps({"load": os.getloadavg(), "sides": [dict(row.data) for row in rows]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

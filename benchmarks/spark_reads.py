"""The cases of ``spark_bench.py`` that read."""

from __future__ import annotations

import json
import statistics
from typing import Any

from kafka_fill import PARTITIONS, Shape, append, make_topic
from spark_rounds import COLUMNS, OURS, PEER, Bench, Row, Session, Work

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import LATEST, Admin
from minikafka.clients.network.cluster import ClusterClient


def batch_read(
    bench: Bench, case: str, what: str, rows: int, shape: Shape, name: str, ours: str, runs: int = 0
) -> Row:
    """A batch read of the topic ``name`` by both sources; ours reads it from the broker ``ours``."""
    reads = {
        OURS: {"source": OURS, "options": bench.reading(ours, bench.topic(ours, name, rows, shape))},
        PEER: {
            "source": PEER,
            "options": bench.reading(bench.apache, bench.topic(bench.apache, name, rows, shape)),
        },
    }
    bench.same(reads[OURS], reads[PEER], rows, COLUMNS)
    ask = bench.main.ask
    works: dict[str, Work] = {s: lambda _, read=read: ask("read", **read) for s, read in reads.items()}
    return bench.against(case, what, 2.5, rows, works, runs)


def read(bench: Bench) -> list[Row]:
    """Both sources on the same Apache Kafka."""
    what = "batch read, both on Apache Kafka"
    return [batch_read(bench, "read", what, bench.rows, Shape(), "rows", bench.apache)]


def read_own(bench: Bench) -> list[Row]:
    """Each source on its broker."""
    what = "batch read, each on its own broker"
    return [batch_read(bench, "read-own", what, bench.rows, Shape(), "rows", bench.own)]


def _ready(rows: int, columns: str, **more: str) -> dict[str, Any]:
    """Return the read of a source that yields ready record batches, of about the size of ours."""
    options = {"rows": str(rows), "value.bytes": "100", "batch.rows": "7500", "columns": columns}
    return {"source": "ready", "options": options | more}


def columns(bench: Bench) -> list[Row]:
    """All columns, and the value alone: against each other and against ready record batches."""
    everything = ",".join(COLUMNS)
    given = bench.reading(bench.apache, bench.rows_of(bench.apache))
    reads = {
        f"{OURS}, all columns": {"source": OURS, "options": given},
        f"{OURS}, value": {"source": OURS, "options": given | {"minikafka.columns": "value"}},
        "ready batches, all columns": _ready(bench.rows, everything),
        "ready batches, value": _ready(bench.rows, "value"),
    }
    found: list[Row] = []
    for session in filter(None, (bench.main, bench.newest)):
        ask = session.ask
        works: dict[str, Work] = {
            name: lambda _, read=read, ask=ask: ask("read", **read) for name, read in reads.items()
        }
        took = bench.rounds(works)
        every, value, ready_every, ready_value = took
        for case, what, goal, ours, other in (
            ("floor", "batch read against ready record batches, all columns", 0.95, every, ready_every),
            ("floor", "the same, value alone", 0.95, value, ready_value),
            ("columns", "minikafka.columns=value against all columns", 1.2, value, every),
        ):
            sides = {name: took[name] for name in (ours, other)}
            what = f"{what}, Spark {session.spark}"
            found.append(bench.ratio(case, what, goal, bench.rows, sides))
    return found


def micro_batches(bench: Bench) -> list[Row]:
    """Micro-batches of 200,000 rows, against those of ready record batches from one task a partition."""
    if bench.newest is None:
        print("  micro-batches are left out: they need --spark-python with Spark 4.2 or newer")
        return []
    limit = str(min(200_000, bench.rows // 5))
    given = bench.reading(bench.apache, bench.rows_of(bench.apache), startingOffsets="earliest")
    reads = {
        OURS: {"source": OURS, "options": given | {"maxOffsetsPerTrigger": limit}},
        "ready batches": _ready(bench.rows, ",".join(COLUMNS), **{"trigger.rows": limit}),
    }
    ask = bench.newest.ask
    works: dict[str, Work] = {
        name: lambda _, read=read: ask("micro_batches", rows=bench.rows, **read)
        for name, read in reads.items()
    }
    took = bench.rounds(works)
    what = f"micro-batches of {int(limit):,}, against ready batches, Spark {bench.newest.spark}"
    return [bench.ratio("micro-batches", what, 1.15, bench.rows, took)]


def offset_range(bench: Bench) -> list[Row]:
    """Few rows of a large topic, and all rows of a small one."""
    few = bench.rows // 30 // PARTITIONS
    found: list[Row] = []
    for source, servers, name in (
        (OURS, bench.own, "minikafka on its own broker"),
        (OURS, bench.apache, "minikafka on Apache Kafka"),
        (PEER, bench.apache, "the peer on Apache Kafka"),
    ):
        large = bench.rows_of(servers)
        small = bench.topic(servers, "few", few * PARTITIONS)
        first = bench.rows // PARTITIONS * 2 // 3
        starts = {large: {str(p): first for p in range(PARTITIONS)}}
        ends = {large: {str(p): first + few for p in range(PARTITIONS)}}
        part = bench.reading(
            servers, large, startingOffsets=json.dumps(starts), endingOffsets=json.dumps(ends)
        )
        whole = bench.reading(servers, small)
        works: dict[str, Work] = {
            text: lambda _, source=source, given=given: bench.main.ask("read", source=source, options=given)
            for text, given in (("of the large topic", part), ("the small topic", whole))
        }
        took = bench.rounds(works)
        ratio = took["of the large topic"]["seconds"] / took["the small topic"]["seconds"]
        detail = ", ".join(f"{text} {figures['seconds']:.2f} s" for text, figures in took.items())
        what = f"{few * PARTITIONS:,} rows of {bench.rows:,} against a topic of only so many, {name}"
        goal = None if source == PEER else 1.2
        found.append(Row("range", what, ratio, "×", goal, False, detail, took))
    return found


def tiny(bench: Bench) -> list[Row]:
    """Four rows."""
    options = bench.reading(bench.apache, bench.topic(bench.apache, "tiny", PARTITIONS))
    found: list[Row] = []
    for session in (bench.main, bench.newest):
        if session is None:
            continue

        def work(source: str, given: dict[str, str], session: Session = session) -> Work:
            return lambda _: session.ask("rows", source=source, options=given)

        works = {"trivial": work("trivial", {}), OURS: work(OURS, options)}
        if session is bench.main:
            works[PEER] = work(PEER, options)
        took = bench.rounds(works, 2 * bench.runs)
        more = took[OURS]["seconds"] - took["trivial"]["seconds"]
        detail = ", ".join(f"{name} {figures['seconds']:.2f} s" for name, figures in took.items())
        what = f"four rows, warm, above a trivial Python source, Spark {session.spark}"
        found.append(Row("tiny", what, more, "s", 0.15, False, detail, took))
    return found


def stream(bench: Bench) -> list[Row]:
    """AvailableNow in one batch, and in limited ones."""
    options = bench.reading(bench.apache, bench.rows_of(bench.apache), startingOffsets="earliest")
    limit = min(200_000, bench.rows // 5)
    limited = options | {"maxOffsetsPerTrigger": str(limit)}

    def work(session: Session, source: str, given: dict[str, str]) -> Work:
        def run(_: int) -> dict[str, Any]:
            found = session.ask("stream", source=source, options=given)
            rows, batches = found["result"]
            wanted = -(-bench.rows // limit) if "maxOffsetsPerTrigger" in given else 1
            if rows != bench.rows or not wanted <= batches <= wanted + PARTITIONS:
                raise SystemExit(f"{source} read {rows} rows in {batches} batches, {wanted} were wanted")
            return found

        return run

    runs = max(2, bench.runs * 3 // 5)
    peer = {f"{PEER} on {bench.main.spark}": work(bench.main, PEER, options)}
    ours: dict[str, Work] = {f"{OURS} on {bench.main.spark}": work(bench.main, OURS, options)}
    what = "stream, AvailableNow, one batch"
    rows = [bench.against("stream", what, 2.5, bench.rows, ours | peer, runs)]
    if bench.newest is None:
        print("  batches of limited size are left out: they need --spark-python with Spark 4.2 or newer")
        return rows
    name = f"{OURS} on {bench.newest.spark}"
    ours = {name: work(bench.newest, OURS, options)}
    rows.append(bench.against("stream-newest", what, 2.5, bench.rows, ours | peer, runs))
    what = f"stream, AvailableNow, batches of {limit:,}"
    ours = {name: work(bench.newest, OURS, limited)}
    peer = {f"{PEER} on {bench.main.spark}": work(bench.main, PEER, limited)}
    rows.append(bench.against("stream-limited", what, 1.5, bench.rows, ours | peer, runs))
    return rows


TRIGGERS = 4
"""Batches of a run, the first of which is not counted."""


def triggers(bench: Bench) -> list[Row]:
    """Small micro-batches, with tasks by work against one a partition: a batch's time, as Spark gives it."""
    found = []
    for partitions, rows, goal in ((PARTITIONS, 2_000, 0.7), (200, 1_000, 0.15)):
        topic = f"triggers-{partitions}"
        make_topic(bench.apache, topic, partitions)
        options = bench.reading(bench.apache, topic)
        for session in (bench.main, bench.newest):
            if session is None:
                continue

            def work(
                source: str,
                given: dict[str, str],
                session: Session = session,
                topic: str = topic,
                rows: int = rows,
                partitions: int = partitions,
            ) -> Work:
                return lambda _: _batches(bench, session, source, given, topic, rows, partitions)

            works = {
                "by work": work(OURS, options),
                "by partition": work(OURS, options | {"minikafka.tasks": "partition"}),
            }
            if session is bench.main:
                works[PEER] = work(PEER, options)
            took = bench.rounds(works)
            ratio = took["by work"]["seconds"] / took["by partition"]["seconds"]
            detail = ", ".join(
                f"{name} {figures['seconds'] * 1e3:.0f} ms ({figures['jvm'] * 1e3:.0f} + "
                f"{figures['python'] * 1e3:.0f} ms)"
                for name, figures in took.items()
            )
            what = f"{rows:,} rows a trigger from {partitions} partitions, Spark {session.spark}"
            found.append(Row("triggers", what, ratio, "×", goal, False, detail, took))
    return found


def _batches(
    bench: Bench,
    session: Session,
    source: str,
    options: dict[str, str],
    topic: str,
    rows: int,
    partitions: int,
) -> dict[str, Any]:
    """Run a stream for some batches: the median of a batch's time, and of its processor time.

    A batch waits for all rows that are written at once.
    """
    options = options | {"minOffsetsPerTrigger": str(rows)}
    with ClusterClient(bench.apache) as cluster:
        wanted = {TopicPartition(topic, number): LATEST for number in range(partitions)}
        ends = {str(tp.partition): end for tp, end in Admin(cluster).offsets(wanted).items()}
        append(cluster, topic, rows, partitions)
        session.ask("start", source=source, options=options | {"startingOffsets": json.dumps({topic: ends})})
        batches = []
        for _ in range(TRIGGERS):
            append(cluster, topic, rows, partitions)
            answer = session.ask("trigger", rows=rows)
            batches.append(answer | {"seconds": answer["result"]})
        session.ask("stop")
    return {name: statistics.median(b[name] for b in batches[1:]) for name in ("seconds", "jvm", "python")}

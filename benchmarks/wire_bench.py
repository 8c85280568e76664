"""Kafka's own tools and librdkafka against our broker and against Apache Kafka, in one run.

    KAFKA_JARS=DIR python benchmarks/wire_bench.py [--secured] [--records N] [--runs N] [--only CASE,…]
        [--set key=value]…

KAFKA_JARS: the jars of an Apache Kafka 3.9 broker, its tools included (``kafka_2.13``, ``kafka-tools``). The
same client programs talk to both brokers in turn, and share the machine's cores with them. 100-byte records,
four partitions, acks=1 but where a case says otherwise. Goals are those beside each case below.

Every case sends to, or reads from, a topic of its own; before anything counts each side has run it once, and
from then on the sides take turns in going first. What consumers read lies in all partitions in equal shares:
Java's producer would fill them unevenly, the more so the faster the broker, and a consumer that has read one
to its end reads the others in another way. librdkafka's consumer stops for a second whenever it has queued
100,000 messages (``fetch.queue.backoff.ms``), so that its rate is that of its stops; the case ``-unpaused``
lets it queue everything, which takes the client's memory. Latencies are of ``EndToEndLatency``: one message
at a time, produced and consumed again. It gives percentiles in whole milliseconds, so that they may be 0.

The cases of transactions send 1,000 records in each, with acks=all, and give the time that a commit takes.

With ``--secured`` the clients connect by SASL_SSL (see ``brokers.py``), and each goal is 1. The
processor time of the broker and of the client for each record stands beside the rates ("us"): it says more
than these where the machine does other work too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brokers import PASSWORD, USER, Broker, Security, apache_kafka, minikafka_broker

import minikafka
from minikafka.base.config.property_files import properties_text
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.embedded.java import find_java

PARTITIONS = 4
VALUE_BYTES = 100
TRANSACTION_RECORDS = 1_000
_TOOLS = "org.apache.kafka.tools."
_SENT = re.compile(r"(\d+) records sent, ([\d.]+) records/sec.*99th")
_LATENCY = re.compile(r"Avg latency: ([\d.]+) ms\s+Percentiles: .*99th = ([\d.]+), 99.9th")


@dataclass(frozen=True, slots=True)
class Side:
    """A broker and the programs that talk to it."""

    name: str
    broker: Broker
    jars: str
    properties: Path
    """A file with what the clients set."""

    @property
    def servers(self) -> str:
        """The address for clients."""
        return self.broker.client["bootstrap.servers"]

    def topic(self, name: str, partitions: int = PARTITIONS) -> str:
        """Make a topic."""
        with Client(self.broker.servers) as client:
            Admin(client).create_topic(NewTopic(name, partitions))
        return name

    def tool(self, name: str, *arguments: str) -> str:
        """Run one of Kafka's tools to its end; what it printed."""
        command = [find_java().path, "-Xmx512m", "-cp", f"{self.jars}/*", _TOOLS + name, *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise SystemExit(f"{name} against {self.name} failed:\n{done.stdout}\n{done.stderr[-2_000:]}")
        return done.stdout


def java_produce(side: Side, topic: str, records: int, *properties: str) -> dict[str, float]:
    """``ProducerPerformance``: records a second."""
    shape = ["--num-records", str(records), "--record-size", str(VALUE_BYTES), "--throughput", "-1"]
    given = ["--producer.config", str(side.properties), "--producer-props", "acks=1", *properties]
    out = side.tool("ProducerPerformance", "--topic", topic, *shape, *given)
    found = _SENT.findall(out)
    if not found or int(found[-1][0]) != records:
        raise SystemExit(f"{side.name}: not all of {records} records were sent:\n{out[-2_000:]}")
    return {"records/s": float(found[-1][1])}


def java_consume(side: Side, topic: str, records: int) -> dict[str, float]:
    """``ConsumerPerformance``: records a second from the first fetch on, without the joining of the group."""
    arguments = ["--bootstrap-server", side.servers, "--topic", topic, "--messages", str(records)]
    arguments += ["--group", f"g{time.monotonic_ns()}", "--consumer.config", str(side.properties)]
    out = side.tool("ConsumerPerformance", *arguments)
    header, row = (line.split(", ") for line in out.strip().splitlines()[-2:])
    figures = dict(zip(header, row, strict=True))
    if int(figures["data.consumed.in.nMsg"]) < records:
        raise SystemExit(f"{side.name}: not all of {records} records were read:\n{out[-2_000:]}")
    return {"records/s": float(figures["fetch.nMsg.sec"])}


def java_latency(side: Side, topic: str, messages: int) -> dict[str, float]:
    """``EndToEndLatency``: milliseconds."""
    shape = [str(messages), "1", str(VALUE_BYTES)]
    out = side.tool("EndToEndLatency", side.servers, topic, *shape, str(side.properties))
    found = _LATENCY.search(out)
    if found is None:
        raise SystemExit(f"{side.name}: no latencies in:\n{out[-2_000:]}")
    return {"mean ms": float(found[1]), "p99 ms": float(found[2])}


def java_transactions(side: Side, topic: str, records: int) -> dict[str, float]:
    """``TransactionalProducer``: records a second with their commits, and what commits take."""
    program = str(Path(__file__).parent / "java" / "TransactionalProducer.java")
    arguments = [str(side.properties), topic, str(records), str(TRANSACTION_RECORDS), str(VALUE_BYTES)]
    command = [find_java().path, "-Xmx512m", "-cp", f"{side.jars}/*", program, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"transactions on {side.name} failed:\n{done.stdout}\n{done.stderr[-2_000:]}")
    return dict(json.loads(done.stdout))


def rdkafka(side: Side, what: str, topic: str, records: int) -> dict[str, float]:
    """librdkafka in a process of its own: records a second."""
    settings = json.dumps(rdkafka_settings(side.broker.client))
    command = [sys.executable, __file__, "--client", what, settings, topic, str(records)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"librdkafka against {side.name} failed:\n{done.stdout}\n{done.stderr[-2_000:]}")
    return dict(json.loads(done.stdout))


def rdkafka_settings(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties of a client in librdkafka's names."""
    found = {"bootstrap.servers": properties["bootstrap.servers"]}
    if "security.protocol" in properties:
        found |= {"security.protocol": properties["security.protocol"]}
        found |= {"ssl.ca.pem": properties["ssl.truststore.certificates"]}
        found |= {"sasl.mechanism": properties["sasl.mechanism"]}
        found |= {"sasl.username": USER, "sasl.password": PASSWORD}
    return found


UNPAUSED = {"queued.min.messages": 10_000_000, "queued.max.messages.kbytes": 2_097_151}
"""The largest queue of librdkafka's consumer."""


def rdkafka_client(what: str, security: dict[str, Any], topic: str, records: int) -> None:
    """Run in the child process: send or read ``records`` and print the figures."""
    if what == "produce":
        figures = {"records/s": records / rdkafka_produce(security, topic, records)}
    elif what == "transactions":
        figures = rdkafka_transactions(security, topic, records)
    else:
        figures = {"records/s": records / rdkafka_consume(what, security, topic, records)}
    print(json.dumps(figures))


def rdkafka_produce(security: dict[str, Any], topic: str, records: int) -> float:
    """Send records; seconds."""
    from confluent_kafka import Producer

    failed = 0

    def told(error: object, _: object) -> None:
        nonlocal failed
        failed += error is not None

    settings = {**security, "acks": 1, "linger.ms": 5, "batch.size": 1 << 16}
    producer = Producer({**settings, "queue.buffering.max.messages": 1_000_000})
    value = bytes(range(VALUE_BYTES))
    began = time.monotonic()
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS, on_delivery=told)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120) or failed:
        raise SystemExit(f"not everything was sent, {failed} failed")
    return time.monotonic() - began


def rdkafka_transactions(security: dict[str, Any], topic: str, records: int) -> dict[str, float]:
    """Send records in transactions."""
    from confluent_kafka import Producer

    settings = {**security, "transactional.id": f"t{time.monotonic_ns()}", "linger.ms": 5}
    producer = Producer({**settings, "batch.size": 1 << 16})
    producer.init_transactions(60)
    value, commits = bytes(range(VALUE_BYTES)), []
    began = time.monotonic()
    for _ in range(records // TRANSACTION_RECORDS):
        producer.begin_transaction()
        for number in range(TRANSACTION_RECORDS):
            producer.produce(topic, value, partition=number % PARTITIONS)
        producer.flush(60)
        committing = time.monotonic()
        producer.commit_transaction(60)
        commits.append(1_000 * (time.monotonic() - committing))
    seconds = time.monotonic() - began
    p50, p99 = (statistics.quantiles(commits, n=100)[q - 1] for q in (50, 99))
    return {"records/s": records / seconds, "commit p50 ms": p50, "commit p99 ms": p99}


def rdkafka_consume(what: str, security: dict[str, Any], topic: str, records: int) -> float:
    """Read records; seconds from the first of them on."""
    from confluent_kafka import Consumer

    settings = {**security, "group.id": f"g{time.monotonic_ns()}"}
    settings |= UNPAUSED if what == "consume-unpaused" else {}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([topic])
    left, began = records, 0.0
    while left > 0:
        found = consumer.consume(10_000, 30)
        if not found:
            raise SystemExit(f"nothing more comes, {left} of {records} are missing")
        began = began or time.monotonic()
        left -= len(found)
    consumer.close()
    return time.monotonic() - began


@dataclass(frozen=True, slots=True)
class Case:
    """A timed case: ``run(side, topic, records)`` on a new topic, or on one that ``fills`` it."""

    run: Callable[[Side, str, int], dict[str, float]]
    goal: float
    share: float = 1.0
    """Of ``--records``."""
    fills: bool = False
    partitions: int = PARTITIONS


CASES = {
    "java-produce": Case(lambda s, t, n: java_produce(s, t, n, "batch.size=65536", "linger.ms=5"), 1.2),
    "java-produce-default": Case(java_produce, 1.0, share=0.5),
    "java-produce-single": Case(lambda s, t, n: java_produce(s, t, n, "batch.size=0"), 1.0, share=0.05),
    "java-produce-all": Case(
        lambda s, t, n: java_produce(s, t, n, "acks=all", "batch.size=65536", "linger.ms=5"), 1.0
    ),
    "rdkafka-produce": Case(lambda s, t, n: rdkafka(s, "produce", t, n), 1.0),
    "java-consume": Case(java_consume, 1.0, fills=True),
    "rdkafka-consume": Case(lambda s, t, n: rdkafka(s, "consume", t, n), 1.0, fills=True),
    "rdkafka-consume-unpaused": Case(lambda s, t, n: rdkafka(s, "consume-unpaused", t, n), 1.0, fills=True),
    "java-transactions": Case(java_transactions, 1.0, share=0.1),
    "rdkafka-transactions": Case(lambda s, t, n: rdkafka(s, "transactions", t, n), 1.0, share=0.1),
    "latency": Case(java_latency, 1.0, share=0.0025, partitions=1),
}


def with_processor_time(side: Side, topic: str, records: int, case: Case) -> dict[str, float]:
    """Run a case: also the processor time of the broker and of the client, in microseconds a record."""
    broker_s, client = side.broker.cpu_s(), resource.getrusage(resource.RUSAGE_CHILDREN)
    figures = case.run(side, topic, records)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    client_s = ended.ru_utime + ended.ru_stime - client.ru_utime - client.ru_stime
    seconds = {"broker us": side.broker.cpu_s() - broker_s, "client us": client_s}
    return figures | {unit: value / records * 1e6 for unit, value in seconds.items()}


def measure(name: str, case: Case, sides: list[Side], options: argparse.Namespace) -> dict[str, Any]:
    """The sides in turn; every run's figures, the medians, and ours over the peer's."""
    records = max(1, int(options.records * case.share))
    runs: dict[str, list[dict[str, float]]] = {side.name: [] for side in sides}
    for side in sides:
        if case.fills:
            rdkafka(side, "produce", side.topic(name), records)
    for run in range(options.runs + 1):
        for side in sides if run % 2 else reversed(sides):
            topic = name if case.fills else side.topic(f"{name}-{run}", case.partitions)
            figures = with_processor_time(side, topic, records, case)
            text = ", ".join(f"{value:,.2f} {unit}" for unit, value in figures.items())
            print(f"  {'warm-up' if run == 0 else f'run {run}'}: {side.name:<10} {text}", flush=True)
            if run:
                runs[side.name].append(figures)
    medians = {
        side: {unit: statistics.median(run[unit] for run in found) for unit in found[0]}
        for side, found in runs.items()
    }
    ours, *peer = (medians[side.name] for side in sides)
    ratios = {
        unit: ours[unit] / peer[0][unit] if unit.endswith("/s") else peer[0][unit] / ours[unit]
        for unit in ours
        if peer and ours[unit] and peer[0][unit]
    }
    return {"records": records, "runs": runs, "median": medians, "ratio": ratios}


def main() -> int:
    """Run the cases; print what was found as JSON too."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--secured", action="store_true", help="connect by SASL_SSL")
    parser.add_argument("--only", default=",".join(CASES), help="cases, by comma")
    parser.add_argument("--no-peer", action="store_true", help="only our side: for a profile")
    parser.add_argument("--set", action="append", default=[], metavar="key=value", help="of our broker")
    parser.add_argument("--client", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        what, settings, topic, records = options.client
        rdkafka_client(what, json.loads(settings), topic, int(records))
        return 0
    jars = os.environ.get("KAFKA_JARS")
    if not jars:
        raise SystemExit("set KAFKA_JARS: see the head of this file")
    found: dict[str, Any] = {
        "command": " ".join(sys.argv),
        "load": os.getloadavg(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "versions": {
            "minikafka": minikafka.__version__,
            "python": platform.python_version(),
            "kafka": next(path.stem for path in Path(jars).glob("kafka-clients-*.jar")),
        },
    }
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="minikafka-bench-")))
        config = dict(setting.split("=", 1) for setting in options.set)
        security = Security() if options.secured else None
        brokers = {"minikafka": stack.enter_context(minikafka_broker(directory, config, security))}
        if not options.no_peer:
            brokers["peer"] = stack.enter_context(apache_kafka(jars, directory, security))
        sides = []
        for name, broker in brokers.items():
            sides.append(Side(name, broker, jars, directory / f"{name}.client.properties"))
            sides[-1].properties.write_text(properties_text(broker.client))
        for name in options.only.split(","):
            print(name, flush=True)
            found[name] = measure(name, CASES[name], sides, options)
    print(json.dumps(found, indent=2))
    for name in options.only.split(","):
        for unit, ratio in found[name]["ratio"].items():
            goal = 1.0 if options.secured else CASES[name].goal
            if unit in ("broker us", "client us"):
                print(f"{name}, {unit}: the peer's is {ratio:.2f} x ours")
                continue
            state = "reached" if ratio >= goal else "MISSED"
            print(f"{name}, {unit}: {ratio:.2f} x the peer, goal {goal} x: {state}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

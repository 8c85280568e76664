"""One consumer of 2,000 partitions, idle and at 1,000 messages a second, with fetch sessions and without.

    [KAFKA_JARS=DIR] python benchmarks/fetch_session_bench.py [--partitions N] [--seconds S] [--only BROKER,…]

KAFKA_JARS: the jars of Apache Kafka 3.9.1 with its tools. A consumer reads all partitions with its default
settings: GroupConsumer of ours, and with KAFKA_JARS Kafka's console consumer. Once it has received a first
message, measured are the bytes of its connections with the broker, and the processor time of both, over some
seconds without messages, then over some with 1,000 messages a second in turn to all partitions; and the time
from a message's creation to its arrival at the consumer. (Before that it joins the group and looks up 2,000
positions, which takes 400 kB.)

    ours       a broker of ours
    without    the same without slots for sessions: the consumer names, and is answered, all partitions
    kafka      Apache Kafka, with KAFKA_JARS
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from brokers import Broker, apache_kafka, minikafka_broker

from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingProducer
from minikafka.embedded.java import find_java

TOPIC = "many"
PER_S = 1_000
START_S = 120.0
SETTLE_S = 5.0
NO_SESSIONS = {"max.incremental.fetch.session.cache.slots": "0"}
BYTES = re.compile(r"bytes_(?:sent|received):(\d+)")


def consume(servers: str) -> None:
    """Print each value as it arrives; what the process of our consumer does."""
    from minikafka.clients.group.consumer import GroupConsumer, GroupConsumerConfig

    config = GroupConsumerConfig("bench", auto_commit=False)
    with Client(servers) as client, GroupConsumer(client, config) as consumer:
        consumer.subscribe([TOPIC])
        while True:
            for record in consumer.poll_records(1_000, 10_000):
                print((record.value or b"").decode(), flush=True)


def command_of(consumer: str, servers: str, jars: str) -> list[str]:
    if consumer == "ours":
        return [sys.executable, __file__, "--consume", servers]
    main = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    return [find_java().path, "-cp", f"{jars}/*", main, "--bootstrap-server", servers, "--topic", TOPIC]


@dataclass(frozen=True, slots=True)
class Used:
    """The bytes and processor time that a consumer and its broker have used so far."""

    sent_bytes: int
    broker_s: float
    consumer_s: float

    @classmethod
    def by(cls, broker: Broker, consumer: psutil.Popen) -> Used:
        port = broker.servers.rpartition(":")[2]
        listed = subprocess.run(
            ["ss", "-tinpOH", "dport", "=", f":{port}"], capture_output=True, text=True, check=True
        )
        own = [line for line in listed.stdout.splitlines() if f"pid={consumer.pid}," in line]
        times = consumer.cpu_times()
        count = sum(int(number) for line in own for number in BYTES.findall(line))
        return cls(count, broker.cpu_s(), times.user + times.system)

    def per_s(self, later: Used, seconds: float) -> str:
        """Return what was used in a second until ``later``."""
        kilobytes = (later.sent_bytes - self.sent_bytes) / seconds / 1e3
        broker_ms = (later.broker_s - self.broker_s) / seconds * 1e3
        consumer_ms = (later.consumer_s - self.consumer_s) / seconds * 1e3
        return f"{kilobytes:8.1f} kB {broker_ms:6.0f} ms {consumer_ms:6.0f} ms"


@contextlib.contextmanager
def reading(command: list[str]) -> Iterator[tuple[psutil.Popen, list[float]]]:
    """Run a consumer; yield its process and the milliseconds that each message has taken so far."""
    process = psutil.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    found: list[float] = []

    def collect() -> None:
        found.extend(time.time() * 1e3 - float(line) for line in process.stdout)

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    try:
        yield process, found
    finally:
        process.terminate()
        process.wait(30)
        thread.join()


def await_first_message(servers: str, found: list[float]) -> None:
    """Wait until a consumer reads, and is at rest again."""
    deadline_s = time.monotonic() + START_S
    with Client(servers) as client, BatchingProducer(client) as producer:
        while not found:
            if time.monotonic() > deadline_s:
                raise SystemExit(f"the consumer received no message within {START_S:.0f} s")
            producer.send(TOPIC, f"{time.time() * 1e3:.3f}".encode(), partition=0)
            time.sleep(1)
    time.sleep(SETTLE_S)
    found.clear()


def write(servers: str, partitions: int, seconds: float) -> None:
    """Send messages with the time of their creation, in turn to all partitions."""
    with Client(servers) as client, BatchingProducer(client) as producer:
        began_s = time.monotonic()
        for number in range(int(PER_S * seconds)):
            time.sleep(max(0.0, began_s + number / PER_S - time.monotonic()))
            value = f"{time.time() * 1e3:.3f}".encode()
            producer.send(TOPIC, value, partition=number % partitions)


def measure(
    name: str, broker: Broker, consumer: str, command: list[str], options: argparse.Namespace
) -> None:
    """Print what a consumer and its broker use in a second."""
    with reading(command) as (process, found):
        await_first_message(broker.servers, found)
        before = Used.by(broker, process)
        time.sleep(options.seconds)
        idle = Used.by(broker, process)
        write(broker.servers, options.partitions, options.seconds)
        busy = Used.by(broker, process)
        time.sleep(1)
        took = sorted(found)
    late = took[int(len(took) * 0.99)] if took else 0.0
    middle = statistics.median(took) if took else 0.0
    print(f"{name:8} {consumer:6} idle {before.per_s(idle, options.seconds)}")
    print(
        f"{name:8} {consumer:6} busy {idle.per_s(busy, options.seconds)}"
        f"   {middle:6.1f} ms, 99 %: {late:6.1f} ms, {len(took)} messages",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--partitions", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--consume", help=argparse.SUPPRESS)
    options = parser.parse_args()
    jars = os.environ.get("KAFKA_JARS", "")
    if options.consume:
        consume(options.consume)
    print("broker   consumer    bytes/s  broker/s  consumer/s   median latency")
    for name in options.only.split(",") if options.only else ("ours", "without", "kafka"):
        if name == "kafka" and not jars:
            continue
        with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
            where = Path(directory)
            if name == "kafka":
                broker = stack.enter_context(apache_kafka(jars, where))
            else:
                config = NO_SESSIONS if name == "without" else {}
                broker = stack.enter_context(minikafka_broker(where, config))
            with Client(broker.servers) as client:
                Admin(client).create_topics([NewTopic(TOPIC, options.partitions, 1)])
            for consumer in ("ours", "java") if jars else ("ours",):
                measure(name, broker, consumer, command_of(consumer, broker.servers, jars), options)


if __name__ == "__main__":
    main()

"""Three brokers of ours against three of Apache Kafka 0.10.1.1, on one machine, one kind at a time.

    KAFKA_0_10_JARS=DIR python benchmarks/cluster_bench.py [--only CASE,…] [--records N] [--no-peer]

KAFKA_0_10_JARS: the jars of the broker (``kafka_2.11-0.10.1.1``, with slf4j-log4j12 and jaxb-api) and of
kafka-tools. Each kind has a ZooKeeper, sessions of 6 s and topics with three replicas. Cases and goals:

    acks-all     ProducerPerformance, acks=all, 100 B, 4 partitions: at least the peer's rate
    failover     the leader is killed with -9: seconds until librdkafka's next acknowledged write; not longer
                 than the peer's
    restart      a broker that leads 500 partitions is stopped cleanly and started again under 200 writes a
                 second, each to the next partition: how long the slowest write took; at most 200 ms
    create       1,000 partitions are made, until each has a leader that every broker names: at most 10 s
    controller   the controller of 2,000 partitions is killed: seconds behind its session's end until every
                 partition has a leader again; at most 5 s
    idle         processor time of the three brokers in 20 s, in percent of one core, and the largest one's
                 memory: at most 3 % and 160 MB
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import psutil
from confluent_kafka import Producer

from minikafka.base.errors import MinikafkaError
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.embedded import Cluster
from minikafka.embedded.java import find_java
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from minikafka.net.ports import free_port

BROKERS = 3
SESSION_MS = 6_000
_KEEPS_UP_S, _CATCHES_UP_S = 0.1, 60
"""Writes are slower than that behind a backlog, which may take so long to be worked off."""
VALUE = bytes(range(100))
_SENT = re.compile(r"(\d+) records sent, ([\d.]+) records/sec.*99th")


class Side(Protocol):
    """A cluster of one kind."""

    servers: str

    def kill(self, number: int) -> None:
        """SIGKILL."""

    def stop(self, number: int) -> None:
        """Stop it cleanly."""

    def start(self, number: int) -> None:
        """Start it again; return when it accepts connections."""

    def processes(self) -> list[psutil.Process]:
        """The brokers."""


class Ours:
    """Our cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.servers = cluster.bootstrap_servers

    def kill(self, number: int) -> None:
        self._cluster.kill(number)

    def stop(self, number: int) -> None:
        self._cluster.stop_broker(number)

    def start(self, number: int) -> None:
        self._cluster.restart(number)

    def processes(self) -> list[psutil.Process]:
        children = psutil.Process().children(recursive=True)
        return [child for child in children if child.cmdline()[1:3] == ["-m", "minikafka.server"]]


class Theirs:
    """Apache Kafka's."""

    def __init__(self, jars: str, directory: Path, zookeeper: str) -> None:
        self._jars = jars
        self._directory = directory
        self._zookeeper = zookeeper
        self._ports = [free_port() for _ in range(BROKERS)]
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self.servers = ",".join(f"127.0.0.1:{port}" for port in self._ports)

    def start(self, number: int) -> None:
        properties = self._directory / f"server-{number}.properties"
        properties.write_text(
            f"broker.id={number}\nlisteners=PLAINTEXT://127.0.0.1:{self._ports[number]}\n"
            f"log.dirs={self._directory / f'kafka-{number}'}\nzookeeper.connect={self._zookeeper}\n"
            f"zookeeper.session.timeout.ms={SESSION_MS}\nlog.cleaner.dedupe.buffer.size=8388608\n"
        )
        output = (self._directory / f"kafka-{number}.txt").open("ab")
        command = [find_java().path, "-Xmx768m", "-cp", f"{self._jars}/*", "kafka.Kafka", str(properties)]
        self._running[number] = subprocess.Popen(command, cwd=self._directory, stdout=output, stderr=output)
        self._await(number)

    def _await(self, number: int) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self._knows_itself(number):
                return
            time.sleep(0.05)
        raise SystemExit((self._directory / f"kafka-{number}.txt").read_text()[-2_000:])

    def _knows_itself(self, number: int) -> bool:
        try:
            with Client(f"127.0.0.1:{self._ports[number]}", request_timeout_ms=1_000) as client:
                return bool(Admin(client).describe_cluster().brokers)
        except MinikafkaError:
            return False

    def kill(self, number: int) -> None:
        process = self._running.pop(number)
        process.kill()
        process.wait()

    def stop(self, number: int) -> None:
        process = self._running.pop(number)
        process.terminate()
        process.wait(60)

    def processes(self) -> list[psutil.Process]:
        return [psutil.Process(process.pid) for process in self._running.values()]

    def close(self) -> None:
        for number in list(self._running):
            self.kill(number)


def topic(
    side: Side, name: str, partitions: int, assignments: Mapping[int, Sequence[int]] | None = None
) -> None:
    """Make a topic and return when every broker knows a leader of every partition."""
    with Client(side.servers) as client:
        Admin(client).create_topic(NewTopic(name, partitions, BROKERS, assignments or {}))
    await_leaders(side, name, partitions)


def leaders(servers: str, name: str) -> list[int]:
    """The leaders that one of the brokers names; none while it does not know."""
    try:
        with Client(servers, request_timeout_ms=5_000) as client:
            described = Admin(client).describe_topics([name])[name]
    except MinikafkaError:
        return []
    return (
        []
        if isinstance(described, MinikafkaError)
        else [partition.leader_id for partition in described.partitions]
    )


def await_leaders(side: Side, name: str, partitions: int, without: int | None = None) -> None:
    """Return when every broker that lives names a leader that lives for every partition."""
    for number, servers in enumerate(side.servers.split(",")):
        while number != without:
            found = leaders(servers, name)
            if len(found) == partitions and not {-1, without} & set(found):
                break
            time.sleep(0.02)


def acks_all(side: Side, jars: str, options: argparse.Namespace) -> dict[str, float]:
    """Records a second: the median of the runs behind the first."""
    rates = []
    for run in range(options.runs + 1):
        topic(side, f"acks-{run}", 4)
        shape = ["--num-records", str(options.records), "--record-size", "100", "--throughput", "-1"]
        given = [f"bootstrap.servers={side.servers}", "acks=all", "batch.size=65536", "linger.ms=5"]
        command = [find_java().path, "-Xmx512m", "-cp", f"{jars}/*"]
        command += ["org.apache.kafka.tools.ProducerPerformance", "--topic", f"acks-{run}", *shape]
        done = subprocess.run(
            [*command, "--producer-props", *given], check=True, capture_output=True, text=True, timeout=600
        )
        sent = _SENT.findall(done.stdout)
        if not sent or int(sent[-1][0]) != options.records:
            raise SystemExit(f"not everything was sent:\n{done.stdout[-2_000:]}")
        rates.append(float(sent[-1][1]))
    return {"records/s": statistics.median(rates[1:])}


class Writes:
    """A producer that writes to one partition after the other, acks=all, and how long the slowest write took.

    :param rate: writes a second
    """

    def __init__(self, side: Side, name: str, partitions: int, rate: float) -> None:
        settings = {"bootstrap.servers": side.servers, "acks": "all", "linger.ms": 0}
        self._producer = Producer({**settings, "retry.backoff.ms": 10, "reconnect.backoff.max.ms": 100})
        self._name = name
        self._partitions = partitions
        self._pause_s = 1 / rate
        self.took: list[tuple[float, float]] = []
        """When a write was asked for and how long it took, in seconds."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Writes:
        self._thread.start()
        while len(self.took) < 2 * self._partitions:
            time.sleep(0.01)
        waits_until = time.monotonic() + _CATCHES_UP_S
        while self.took[-1][1] > _KEEPS_UP_S and time.monotonic() < waits_until:
            time.sleep(0.1)
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        self._producer.flush(60)

    def slowest(self, since: float) -> float:
        """Of the writes asked for since then (``time.monotonic()``), in seconds."""
        return max((took for asked, took in self.took if asked >= since), default=math.inf)

    def _run(self) -> None:
        due, number = time.monotonic(), 0
        while not self._ended.is_set():
            asked = time.monotonic()
            if asked < due:
                self._producer.poll(due - asked)
                continue
            self._producer.produce(
                self._name, VALUE, partition=number % self._partitions, on_delivery=self._told(due)
            )
            due, number = due + self._pause_s, number + 1

    def _told(self, asked: float) -> Callable[[Any, Any], None]:
        def told(error: Any, message: Any) -> None:
            if error is None:
                self.took.append((asked, time.monotonic() - asked))

        return told


def failover(side: Side, jars: str, options: argparse.Namespace) -> dict[str, float]:
    """Seconds until the write that had to wait longest was acknowledged, the median of several."""
    topic(side, "failover", 1)
    gaps = []
    for _ in range(options.runs):
        with Writes(side, "failover", 1, rate=100) as writes:
            (leader,) = leaders(side.servers, "failover")
            killed = time.monotonic()
            side.kill(leader)
            time.sleep(SESSION_MS / 1000 + 6)
            while not any(asked >= killed for asked, _ in writes.took):
                time.sleep(0.1)
            gaps.append(writes.slowest(since=killed - 1))
        side.start(leader)
        time.sleep(12)
    return {"s": statistics.median(gaps)}


def restart(side: Side, jars: str, options: argparse.Namespace) -> dict[str, float]:
    """The slowest write in any of 500 partitions while their leader stops and comes back, in ms."""
    others = [[0, 2], [2, 0]]
    assignment = {number: [1, *others[number % 2]] for number in range(500)}
    topic(side, "restart", 500, assignment)
    with Writes(side, "restart", 500, rate=200) as writes:
        began = time.monotonic()
        time.sleep(5)
        usual = writes.slowest(since=began)
        began = time.monotonic()
        side.stop(1)
        side.start(1)
        time.sleep(10)
    return {"ms": 1000 * writes.slowest(since=began), "ms without a restart": 1000 * usual}


def create(side: Side, jars: str, options: argparse.Namespace) -> dict[str, float]:
    """Seconds until 1,000 partitions can be used."""
    began = time.monotonic()
    topic(side, "many", 1_000)
    return {"s": time.monotonic() - began}


def controller(side: Side, jars: str, options: argparse.Namespace) -> dict[str, float]:
    """Seconds behind the session's end until 2,000 partitions have leaders again."""
    topic(side, "controlled", 2_000)
    with Client(side.servers) as client:
        number = Admin(client).describe_cluster().controller_id
    side.kill(number)
    began = time.monotonic()
    await_leaders(side, "controlled", 2_000, without=number)
    took = time.monotonic() - began
    side.start(number)
    return {"s": took - SESSION_MS / 1000}


def idle(side: Side, jars: str, options: argparse.Namespace) -> dict[str, float]:
    """Percent of a core, and MB."""
    time.sleep(5)
    processes = side.processes()
    before = sum(sum(process.cpu_times()[:2]) for process in processes)
    time.sleep(20)
    used = sum(sum(process.cpu_times()[:2]) for process in processes) - before
    return {"%": 100 * used / 20, "MB": max(process.memory_info().rss for process in processes) / 1e6}


CASES: dict[str, Callable[[Side, str, argparse.Namespace], dict[str, float]]] = {
    "idle": idle,
    "acks-all": acks_all,
    "failover": failover,
    "restart": restart,
    "create": create,
    "controller": controller,
}


@contextlib.contextmanager
def ours() -> Iterator[Side]:
    """Ours, until the end."""
    with Cluster(BROKERS, config={"zookeeper.session.timeout.ms": str(SESSION_MS)}) as cluster:
        yield Ours(cluster)


@contextlib.contextmanager
def theirs(jars: str) -> Iterator[Side]:
    """Apache Kafka's, until the end."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="minikafka-bench-")))
        zookeeper = stack.enter_context(EmbeddedZooKeeper(str(directory / "zookeeper")))
        side = stack.enter_context(contextlib.closing(Theirs(jars, directory, f"{zookeeper.connect}/kafka")))
        for number in range(BROKERS):
            side.start(number)
        yield side


def main() -> int:
    """Run the cases on one kind, then on the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default=",".join(CASES), help="cases, by comma")
    parser.add_argument("--no-peer", action="store_true", help="only our side")
    options = parser.parse_args()
    jars = os.environ.get("KAFKA_0_10_JARS")
    if not jars:
        raise SystemExit("set KAFKA_0_10_JARS: see the head of this file")
    sides = {"minikafka": ours, "kafka": lambda: theirs(jars)}
    if options.no_peer:
        del sides["kafka"]
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, make in sides.items():
        with make() as side:
            for case in options.only.split(","):
                figures = found.setdefault(case, {})[name] = CASES[case](side, jars, options)
                text = ", ".join(f"{value:,.2f} {unit}" for unit, value in figures.items())
                print(f"{case:<12} {name:<10} {text}", flush=True)
    print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())

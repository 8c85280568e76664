"""Logins over TLS, and what a connection costs: our broker against Apache Kafka, in one run.

    KAFKA_JARS=DIR python benchmarks/login_bench.py [--logins N] [--runs N] [--connections N] [--json]

KAFKA_JARS: the jars of an Apache Kafka 3.9 broker. ``brokers.py`` says what both brokers have in common.

A client of ours makes connections one after the other: TCP, TLS 1.3 without an earlier session, ApiVersions,
SCRAM with 4,096 iterations or PLAIN, and one request for metadata. Counted are connections a second, the
median time from the first packet to the response, the same without the processor time of the client, which
both sides have in common (with SCRAM it is mostly the hash of the password), and the processor time of the
broker. The brokers take turns, and a round warms up (goal: 1.5 x the peer's time at most).

Memory is the broker's resident set above what it had, for each of 1,000 such connections that stay (goal: 60
KB). The peer's comes from a heap that grows in steps and is collected when it likes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from brokers import PLAIN, SCRAM, Broker, Security, apache_kafka, login_by, minikafka_broker

import minikafka
from minikafka.clients.common_client_configs import ClientSecurity
from minikafka.net.authentication import ask
from minikafka.net.interfaces import Connection, Connector
from minikafka.wire.apis.metadata import METADATA, metadata_request

CLIENT_ID = "login-bench"
TIME_GOAL, MEMORY_GOAL_KB = 1.5, 60.0
TIMEOUT_MS = 10_000


class Client:
    """Makes connections to one broker."""

    def __init__(self, broker: Broker, mechanism: str) -> None:
        self.broker = broker
        host, _, port = broker.client["bootstrap.servers"].rpartition(":")
        self._address = host, int(port)
        security = ClientSecurity.from_properties({**broker.client, **login_by(mechanism)})
        self._connector: Connector = security.connector(client_id=CLIENT_ID)

    def log_in(self) -> Connection:
        """Return a connection on which one request was answered."""
        connection = self._connector.connect(*self._address)
        ask(connection, METADATA, 1, metadata_request(()), 1, CLIENT_ID, TIMEOUT_MS)
        return connection

    def logins(self, count: int) -> dict[str, float]:
        """Make connections one after the other."""
        whole_ms, waiting_ms = [], []
        cpu_s, began = self.broker.cpu_s(), time.monotonic()
        for _ in range(count):
            started, used = time.perf_counter(), time.process_time()
            connection = self.log_in()
            whole_ms.append((time.perf_counter() - started) * 1e3)
            waiting_ms.append(whole_ms[-1] - (time.process_time() - used) * 1e3)
            connection.close()
        elapsed_s = time.monotonic() - began
        return {
            "logins/s": count / elapsed_s,
            "median ms": statistics.median(whole_ms),
            "of which the client waits ms": statistics.median(waiting_ms),
            "broker's processor ms": (self.broker.cpu_s() - cpu_s) / count * 1e3,
        }

    def memory_kb(self, count: int) -> float:
        """Return KB of the broker for each of ``count`` connections."""
        before = self.broker.process.memory_info().rss
        with contextlib.ExitStack() as stack:
            for _ in range(count):
                stack.callback(self.log_in().close)
            return float(self.broker.process.memory_info().rss - before) / count / 1024


Figures = dict[str, dict[str, float]]
"""By side and unit."""


def measure(brokers: Mapping[str, Broker], mechanism: str, options: argparse.Namespace) -> Figures:
    """Return the medians of logins by one mechanism."""
    clients = {name: Client(broker, mechanism) for name, broker in brokers.items()}
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in clients}
    for run in range(options.runs + 1):
        for name in clients if run % 2 else reversed(list(clients)):
            figures = clients[name].logins(options.logins)
            if run:
                runs[name].append(figures)
                text = figures_text(figures)
                print(f"  {mechanism}, run {run}: {name:<10} {text}", file=sys.stderr, flush=True)
    return {
        name: {unit: statistics.median(figures[unit] for figures in of_side) for unit in of_side[0]}
        for name, of_side in runs.items()
    }


def figures_text(figures: Mapping[str, float]) -> str:
    """Return figures in one line."""
    return ", ".join(f"{value:,.2f} {unit}" for unit, value in figures.items())


def main() -> int:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--logins", type=int, default=300)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--connections", type=int, default=1_000)
    parser.add_argument("--no-peer", action="store_true", help="only our side: for a profile")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    jars = os.environ.get("KAFKA_JARS")
    if not jars:
        raise SystemExit("set KAFKA_JARS: see the head of this file")
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="minikafka-bench-")))
        security = Security()
        brokers = {"minikafka": stack.enter_context(minikafka_broker(directory, {}, security))}
        if not options.no_peer:
            brokers["peer"] = stack.enter_context(apache_kafka(jars, directory, security))
        found = {mechanism: measure(brokers, mechanism, options) for mechanism in (SCRAM, PLAIN)}
        memory_kb = {
            name: Client(broker, SCRAM).memory_kb(options.connections) for name, broker in brokers.items()
        }
    machine = f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"
    versions = f"minikafka {minikafka.__version__}, python {platform.python_version()}"
    kafka = next(path.stem for path in Path(jars).glob("kafka-clients-*.jar"))
    print(f"{' '.join(sys.argv)}: {machine}; load {os.getloadavg()[0]:.1f}; {versions}, {kafka}")
    if options.json:
        print(json.dumps({"logins": found, "memory KB": memory_kb}))
    for mechanism, sides in found.items():
        for name, figures in sides.items():
            print(f"{mechanism}, {name:<10} {figures_text(figures)}")
        if "peer" in sides:
            ratio = sides["minikafka"]["median ms"] / sides["peer"]["median ms"]
            print(
                f"{mechanism}: {ratio:.2f} x the peer's time, goal {TIME_GOAL} x: {verdict(ratio, TIME_GOAL)}"
            )
    for name, kb in memory_kb.items():
        goal = f", goal {MEMORY_GOAL_KB:.0f} KB: {verdict(kb, MEMORY_GOAL_KB)}" if name == "minikafka" else ""
        print(f"memory of a connection, {name}: {kb:.1f} KB{goal}")
    return 0


def verdict(figure: float, goal: float) -> str:
    """Return whether a figure is within its goal."""
    return "reached" if figure <= goal else "MISSED"


if __name__ == "__main__":
    sys.exit(main())

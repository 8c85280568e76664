"""The cost of connections to a broker: a thousand idle ones, and two hundred busy ones.

    python benchmarks/connections_bench.py [--json]

Idle: 1,000 connections each ask for ApiVersions once and then nothing; counted are the broker's memory above
what it had before, and its processor time in ten seconds. Active: 200 connections ask as fast as they are
answered, for five seconds; counted is what the slowest got of the average. The goals: 20 MB at most, no more
than half a percent of a core above what the broker takes without any, and at least half of the average.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import selectors
import socket
import sys
import tempfile
import time
from collections import Counter

import psutil

from minikafka.embedded.cluster import Cluster
from minikafka.wire.api import ApiKey
from minikafka.wire.frame_parts import join
from minikafka.wire.framing import RequestHeader, encode_frame

IDLE, ACTIVE = 1000, 200
IDLE_GOAL_MB, IDLE_GOAL_PERCENT, FAIR_GOAL = 20.0, 0.5, 0.5
REQUEST = join(encode_frame([RequestHeader(ApiKey.API_VERSIONS, 0, 1, "bench").encode()]))


def broker_of(cluster: Cluster) -> psutil.Process:
    """The broker's process."""
    (broker,) = [
        child
        for child in psutil.Process().children(recursive=True)
        if child.cmdline()[1:3] == ["-m", "minikafka.server"]
    ]
    return broker


def connections(stack: contextlib.ExitStack, bootstrap: str, count: int) -> list[socket.socket]:
    """So many, each of which was answered once."""
    host, _, port = bootstrap.rpartition(":")
    socks = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(count)]
    for sock in socks:
        sock.sendall(REQUEST)
    for sock in socks:
        assert sock.recv(1 << 16)
    return socks


def idle(cluster: Cluster) -> tuple[float, float, float]:
    """MB more, and percent of a core with and without them."""
    broker = broker_of(cluster)
    alone = percent(broker)
    before = broker.memory_info().rss
    with contextlib.ExitStack() as stack:
        connections(stack, cluster.bootstrap_servers, IDLE)
        time.sleep(2)
        return (broker.memory_info().rss - before) / 1e6, percent(broker), alone


def percent(process: psutil.Process) -> float:
    """Processor time in ten seconds, in percent of one core."""
    before = process.cpu_times()
    time.sleep(10)
    after = process.cpu_times()
    return 10 * (after.user + after.system - before.user - before.system)


def active(cluster: Cluster) -> tuple[float, float]:
    """Answers a second of all, and the least of one as a part of the average."""
    answers: Counter[socket.socket] = Counter()
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
        for sock in connections(stack, cluster.bootstrap_servers, ACTIVE):
            sock.setblocking(False)
            selector.register(sock, selectors.EVENT_READ)
            answers[sock] = 0
            sock.send(REQUEST)
        began = time.monotonic()
        while time.monotonic() - began < 5:
            for key, _ in selector.select():
                sock = key.fileobj  # type: ignore[assignment]
                sock.recv(1 << 16)
                answers[sock] += 1
                sock.send(REQUEST)
        seconds = time.monotonic() - began
    total = sum(answers.values())
    return total / seconds, min(answers.values()) * ACTIVE / total


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, Cluster(data_dir=directory) as cluster:
        cluster.create_topic("t")
        idle_mb, idle_percent, alone_percent = idle(cluster)
        rate, fair = active(cluster)
    found = {
        "idle_mb": idle_mb,
        "idle_percent": idle_percent,
        "alone_percent": alone_percent,
        "active_rate": rate,
        "least_share": fair,
    }
    if given.json:
        print(json.dumps(found))
    else:
        print(
            f"{IDLE} idle: {idle_mb:.1f} MB, {idle_percent:.2f} % of a core ({alone_percent:.2f} % without)"
        )
        print(f"{ACTIVE} active: {rate:,.0f} answers/s, the slowest {fair:.2f} of the average")
    met = idle_mb <= IDLE_GOAL_MB and idle_percent - alone_percent <= IDLE_GOAL_PERCENT and fair >= FAIR_GOAL
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()

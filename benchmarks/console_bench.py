"""The console's pages and memory at 5,000 partitions and 500 groups, and beside a full load.

    python benchmarks/console_bench.py [--json]

Pages: each is read eleven times, one after the other; the first, whose connections are new, is apart. The
goal is a median of 1 s at most. Tail: a browser follows a topic while a producer sends as fast as a broker
takes it; the console's memory may grow by 32 MB at most, as a tail keeps only what it shows.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator

import psutil
from broker_loads import create_many_partitions, produced_per_s, read_ms

from minikafka.clients.network.cluster import ClusterClient
from minikafka.embedded.cluster import Cluster

PAGES = {
    "overview": "/",
    "topics": "/topics",
    "topic": "/topics/topic-7",
    "messages": "/topics/load/messages",
    "messages of 100 partitions": "/topics/topic-7/messages",
    "groups": "/groups",
    "group": "/group?id=group-7",
    "brokers": "/brokers",
    "broker": "/brokers/0",
    "reassignments": "/reassignments",
    "transactions": "/transactions",
}
READS, MESSAGES, MESSAGE_BYTES = 11, 3_000_000, 100
GOAL_MS, GROWTH_GOAL_MB = 1000.0, 32.0


@contextlib.contextmanager
def console(bootstrap: str) -> Iterator[tuple[str, psutil.Process]]:
    """Run a console of the cluster; its address, and its process."""
    command = [sys.executable, "-m", "minikafka.cli.main", "console", "--port", "0", "--bootstrap", bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[1].rstrip("/"), psutil.Process(process.pid)
        finally:
            process.terminate()


def pages(opener: urllib.request.OpenerDirector, url: str) -> dict[str, float]:
    """Read each page."""
    figures: dict[str, float] = {}
    for name, path in PAGES.items():
        first, *others = (read_ms(opener, url + path) for _ in range(READS))
        figures[f"{name}: ms, first"] = first[0]
        figures[f"{name}: ms, median"] = statistics.median(ms for ms, _ in others)
        figures[f"{name}: KB"] = first[1] / 1000
    return figures


@contextlib.contextmanager
def tailing(opener: urllib.request.OpenerDirector, url: str, seen: list[int]) -> Iterator[None]:
    """Follow the topic within the block; ``seen`` gets the size of each line."""
    response = opener.open(f"{url}/topics/load/tail/events")
    stopping = threading.Event()

    def run() -> None:
        for line in response:
            seen.append(len(line))
            if stopping.is_set():
                return

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(10)
        response.close()


def measured() -> dict[str, float]:
    """Measure the pages, and a tail beside a full load."""
    config = {"log.retention.bytes": "500000000", "log.segment.bytes": "100000000"}
    with Cluster(config=config) as cluster, ClusterClient(cluster.bootstrap_servers) as client:
        create_many_partitions(client)
        cluster.create_topic("load", partitions=4)
        produced_per_s(cluster, 100_000, MESSAGE_BYTES)
        with console(cluster.bootstrap_servers) as (url, process):
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            figures = pages(opener, url)
            before_mb = process.memory_info().rss / 1e6
            seen: list[int] = []
            with tailing(opener, url, seen):
                rate = produced_per_s(cluster, MESSAGES, MESSAGE_BYTES)
                after_mb = process.memory_info().rss / 1e6
            return {
                **figures,
                "memory, MB": before_mb,
                "tail: messages/s": rate,
                "tail: KB shown": sum(seen) / 1000,
                "tail: MB more": after_mb - before_mb,
            }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    figures = measured()
    if given.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:<40} {value:14,.1f}")
        print(f"goals: a median of {GOAL_MS} ms; {GROWTH_GOAL_MB} MB more")


if __name__ == "__main__":
    main()

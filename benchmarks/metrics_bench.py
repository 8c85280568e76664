"""The cost of metrics: the time of a scrape, alone and under full load, and the throughput that it takes.

    python benchmarks/metrics_bench.py [--json]

Large: a broker with 5,000 partitions and 500 groups of ten partitions each is scraped twenty times; the goal
is 200 ms at most. Loaded: a producer sends as fast as a broker takes it, four times without scrapes and four
times with one a second, in turn; the goals are 50 ms at most for a scrape, and a loss of 1 %. The median of
both is compared; the runs' own spread is printed beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import threading
import time
import urllib.request
from collections.abc import Iterator

import psutil
from broker_loads import create_many_partitions, produced_per_s, read_ms

from minikafka.clients.network.cluster import ClusterClient
from minikafka.embedded.cluster import Cluster

SCRAPES, RUNS = 20, 4
PAUSE_S = 2.0
INTERVAL_S = 15.0
"""Prometheus's interval of scrapes, as most configurations have it."""
LARGE_GOAL_MS, LOADED_GOAL_MS, SHARE_GOAL = 200.0, 50.0, 0.01
MESSAGES, MESSAGE_BYTES = 400_000, 1_000
METRICS = {"metrics.listeners": "http://127.0.0.1:0"}


def scrape_ms(url: str) -> tuple[float, int]:
    """Return the time of a scrape, and its bytes."""
    return read_ms(urllib.request.build_opener(), url)


def large() -> dict[str, float]:
    """Scrape a broker of many partitions and groups."""
    with Cluster(config=METRICS) as cluster, ClusterClient(cluster.bootstrap_servers) as client:
        create_many_partitions(client)
        (url,) = cluster.metrics_urls
        broker = psutil.Process(cluster.broker(0).pid)
        before = broker.memory_info().rss
        found = []
        for _ in range(SCRAPES):
            time.sleep(PAUSE_S)  # otherwise the last text is used again
            found.append(scrape_ms(url))
        return {
            "large: ms, median": statistics.median(ms for ms, _ in found),
            "large: ms, most": max(ms for ms, _ in found),
            "large: MB of text": found[-1][1] / 1e6,
            "large: MB of memory more": (broker.memory_info().rss - before) / 1e6,
        }


@contextlib.contextmanager
def scraping(url: str, every_s: float, times: list[float]) -> Iterator[None]:
    """Scrape within the block."""
    stopping = threading.Event()

    def run() -> None:
        while not stopping.wait(every_s):
            times.append(scrape_ms(url)[0])

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def processor_ms(process: psutil.Process, url: str) -> float:
    """Return the processor time that a scrape takes from an idle broker."""
    used = []
    for scraped in (False, True):
        before = process.cpu_times()
        for _ in range(SCRAPES):
            time.sleep(PAUSE_S)
            if scraped:
                scrape_ms(url)
        after = process.cpu_times()
        used.append(after.user + after.system - before.user - before.system)
    return (used[1] - used[0]) * 1000 / SCRAPES


def loaded() -> dict[str, float]:
    """Scrape a broker under full load."""
    times: list[float] = []
    rates: dict[bool, list[float]] = {False: [], True: []}
    config = {**METRICS, "log.retention.bytes": "500000000", "log.segment.bytes": "100000000"}
    with Cluster(config=config) as cluster:
        cluster.create_topic("load", partitions=4)
        (url,) = cluster.metrics_urls
        produced_per_s(cluster, MESSAGES, MESSAGE_BYTES)
        for run in range(2 * RUNS):
            scraped = run % 2 == 1
            with scraping(url, 1.0, times) if scraped else contextlib.nullcontext():
                rates[scraped].append(produced_per_s(cluster, MESSAGES, MESSAGE_BYTES))
        cost_ms = processor_ms(psutil.Process(cluster.broker(0).pid), url)
    without, with_scrapes = (statistics.median(rates[scraped]) for scraped in (False, True))
    return {
        "loaded: scrapes": len(times),
        "loaded: ms, median": statistics.median(times),
        "loaded: ms, most": max(times),
        "loaded: messages/s without": without,
        "loaded: spread without": max(rates[False]) / min(rates[False]) - 1,
        "loaded: messages/s with": with_scrapes,
        "loaded: loss": 1 - with_scrapes / without,
        "loaded: processor ms of a scrape": cost_ms,
        "loaded: share of a core": cost_ms / 1000 / INTERVAL_S,
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=["large", "loaded"])
    given = parser.parse_args()
    cases = [case for case in (large, loaded) if given.only in {None, case.__name__}]
    figures = {name: value for case in cases for name, value in case().items()}
    if given.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:<32} {value:14,.3f}")
        print(f"goals: {LARGE_GOAL_MS} ms; {LOADED_GOAL_MS} ms, share {SHARE_GOAL}")


if __name__ == "__main__":
    main()

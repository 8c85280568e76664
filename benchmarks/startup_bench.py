"""The start-up time of `minikafka up`, and the memory of a broker.

    python benchmarks/startup_bench.py [--runs N] [--json]

Each run starts `minikafka up` in a new directory with ZooKeeper on free ports, waits for the ready line,
produces and fetches once so that every kernel of the broker is loaded, reads the resident memory, and stops
it. The goals: ready after 2 s at most, 160 MB at most. One run before the first compiles the kernels and is
not counted.
"""

from __future__ import annotations

import argparse
import json
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.range_fetcher import RangeFetcher
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce import BatchingConfig, BatchingProducer
from minikafka.records.format.message_set import Codec

READY_GOAL_S = 2.0
MEMORY_GOAL_MB = 160


def one_run() -> tuple[float, float, float]:
    """Seconds to the ready line, MB of the broker, seconds to stop."""
    with tempfile.TemporaryDirectory() as directory:
        began = time.monotonic()
        command = [sys.executable, "-m", "minikafka.cli.main", "up", "--data-dir", directory, "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as up:
            assert up.stdout is not None
            ready = up.stdout.readline().split()
            ready_s = time.monotonic() - began
            assert ready[:1] == ["ready"], ready
            use_every_kernel(ready[1])
            memory_mb = broker_memory_mb(up.pid)
            stopping = time.monotonic()
            up.send_signal(signal.SIGTERM)
            assert up.wait() == 0
            return ready_s, memory_mb, time.monotonic() - stopping


def use_every_kernel(bootstrap: str) -> None:
    """Produce with and without a codec, and fetch."""
    with ClusterClient(bootstrap) as cluster:
        for codec in (Codec.NONE, Codec.GZIP):
            with BatchingProducer(cluster, BatchingConfig(compression=codec)) as producer:
                for number in range(100):
                    producer.send("startup", b"x" * 100, key=b"%d" % number, partition=0)
        assert sum(len(data) for data in RangeFetcher(cluster, TopicPartition("startup", 0), 0, 200)) > 0


def broker_memory_mb(pid: int) -> float:
    """Resident memory of the broker below process ``pid``."""
    below = psutil.Process(pid).children(recursive=True)
    (broker,) = [child for child in below if child.cmdline()[1:3] == ["-m", "minikafka.server"]]
    return float(broker.memory_info().rss) / 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    one_run()
    runs = [one_run() for _ in range(given.runs)]
    ready_s, memory_mb, stop_s = (statistics.median(column) for column in zip(*runs, strict=True))
    if given.json:
        print(json.dumps({"runs": runs, "ready_s": ready_s, "memory_mb": memory_mb, "stop_s": stop_s}))
        return
    print(f"{platform.platform()}, {psutil.cpu_count()} processors, Python {platform.python_version()}")
    print(f"command: {' '.join([Path(sys.argv[0]).name, *sys.argv[1:]])}; median of {given.runs} runs")
    print(f"ready after   {ready_s:6.2f} s   goal {READY_GOAL_S:.1f}   runs {[round(r[0], 2) for r in runs]}")
    print(f"broker memory {memory_mb:6.0f} MB  goal {MEMORY_GOAL_MB}   runs {[round(r[1]) for r in runs]}")
    print(f"stopped after {stop_s:6.2f} s")


if __name__ == "__main__":
    main()

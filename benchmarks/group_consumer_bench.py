"""Reading a topic as a member of a group: our tables and objects against librdkafka and kafka-python.

    python benchmarks/group_consumer_bench.py [--records N] [--size BYTES] [--runs N] [--only CLIENT,…]

One broker of ours serves; 100-byte values without keys lie in four partitions in equal shares, written in
sets of 64 KiB. Every client is a process of its own and a new group, reads all of it from the beginning with
its default settings but for what is said here, and counts from the first records that it gives out to the
last, of those behind the first. The clients take turns; figures are medians. Under processor time stands what
the client's process alone takes for a million records, which other work on the machine hardly changes.

    table          GroupConsumer.poll_table: goal 2 x librdkafka
    records        GroupConsumer.poll_records, 10,000 at a time
    iteration      for record in GroupConsumer: goal 3 x kafka-python
    sets           GroupConsumer.poll, of which nothing is decoded
    librdkafka     confluent_kafka.Consumer.consume(10_000), which queues without the stops of a second that
                   its default makes at each 100,000 messages
    rdkafka-usual  the same as it is by default
    kafka-python   kafka.KafkaConsumer.poll(max_records=10_000)
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence

from minikafka.embedded import Cluster

PARTITIONS = 4
CHUNK = 10_000
UNPAUSED = {"queued.min.messages": 10_000_000, "queued.max.messages.kbytes": 2_097_151}
RATIOS = (
    ("table", "librdkafka", 2.0),
    ("table", "rdkafka-usual", 2.0),
    ("iteration", "kafka-python", 3.0),
    ("records", "kafka-python", 3.0),
)


def ours(what: str, servers: str, topic: str) -> Iterator[int]:
    """Yield the number of records of each step of our consumer, without end."""
    from minikafka.clients.group.consumer import GroupConsumer, GroupConsumerConfig, Reset
    from minikafka.clients.network.cluster import ClusterClient as Client

    group = f"bench-{uuid.uuid4()}"
    config = GroupConsumerConfig(group, auto_offset_reset=Reset.EARLIEST, max_poll_records=CHUNK)
    with Client(servers) as client, GroupConsumer(client, config) as consumer:
        consumer.subscribe([topic])
        if what == "iteration":
            for _ in consumer:
                yield 1
        steps: dict[str, Callable[[], int]] = {
            "table": lambda: consumer.poll_table(1_000).num_rows,
            "records": lambda: len(consumer.poll_records(1_000)),
            "sets": lambda: sum(batch.next_offset - batch.start_offset for batch in consumer.poll(1_000)),
        }
        while True:
            yield steps[what]()


def librdkafka(what: str, servers: str, topic: str) -> Iterator[int]:
    """The same of librdkafka."""
    from confluent_kafka import Consumer

    settings = UNPAUSED if what == "librdkafka" else {}
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"bench-{uuid.uuid4()}",
            "auto.offset.reset": "earliest",
            **settings,
        }
    )
    consumer.subscribe([topic])
    try:
        while True:
            yield sum(message.value() is not None for message in consumer.consume(CHUNK, 0.1))
    finally:
        consumer.close()


def kafka_python(_: str, servers: str, topic: str) -> Iterator[int]:
    """The same of kafka-python."""
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=f"bench-{uuid.uuid4()}",
        auto_offset_reset="earliest",
        max_poll_records=CHUNK,
    )
    try:
        while True:
            yield sum(map(len, consumer.poll(1_000).values()))
    finally:
        consumer.close(autocommit=False)


CLIENTS: dict[str, Callable[[str, str, str], Iterator[int]]] = {
    "table": ours,
    "records": ours,
    "iteration": ours,
    "sets": ours,
    "librdkafka": librdkafka,
    "rdkafka-usual": librdkafka,
    "kafka-python": kafka_python,
}


def read(name: str, servers: str, topic: str, records: int) -> dict[str, float]:
    """Read all and measure; what a child process does."""
    steps = CLIENTS[name](name, servers, topic)
    first = 0
    while not first:
        first = next(steps)
    began_s, used_s, count = time.perf_counter(), processor_s(), first
    while count < records:
        count += next(steps)
    elapsed_s, used_s = time.perf_counter() - began_s, processor_s() - used_s
    steps.close()  # type: ignore[attr-defined]  # a generator
    return {
        "per_s": (count - first) / elapsed_s,
        "processor_s_per_million": used_s / (count - first) * 1e6,
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def processor_s() -> float:
    """Return the processor time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def child(*arguments: object) -> dict[str, float]:
    """Run ``read`` in a process of its own."""
    command = [sys.executable, __file__, "--client", *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise SystemExit(f"{arguments[0]} failed:\n{done.stderr[-2_000:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measure(names: Sequence[str], records: int, size: int, runs: int) -> dict[str, list[dict[str, float]]]:
    """All runs of all clients."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with Cluster() as cluster:
        cluster.create_topic("bench", partitions=PARTITIONS)
        command = "from minikafka.cli.main import main; main()"
        given = ["perf", "produce", "bench", "--records", records, "--size", size, "--batch-bytes", 1 << 16]
        environment = {**os.environ, "MINIKAFKA_BOOTSTRAP": cluster.bootstrap_servers}
        subprocess.run(
            [sys.executable, "-c", command, *map(str, given)],
            check=True,
            env=environment,
            capture_output=True,
        )
        for number in range(-1, runs):
            for name in names[:: 1 if number % 2 else -1]:
                # The first of each is for the page cache and the broker's code.
                few = records // 10 if number < 0 else records
                figures = child(name, cluster.bootstrap_servers, "bench", few)
                if number >= 0:
                    found[name].append(figures)
    return found


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--client", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default=",".join(CLIENTS))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.client:
        name, servers, topic, records = given.client
        print(json.dumps(read(name, servers, topic, int(records))))
        return 0
    names = given.only.split(",")
    found = measure(names, given.records, given.size, given.runs)
    medians = {
        name: {figure: statistics.median(run[figure] for run in runs) for figure in runs[0]}
        for name, runs in found.items()
    }
    if given.json:
        machine = f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores"
        print(
            json.dumps({"machine": machine, "command": sys.argv, "medians": medians, "runs": found}, indent=1)
        )
        return 0
    print(f"{'CLIENT':14} {'RECORDS/S':>10} {'CPU S/MILLION':>14} {'MEMORY MB':>10}   of each run")
    for name, one in medians.items():
        runs = ", ".join(f"{run['per_s'] / 1e6:.2f}" for run in found[name])
        cpu, memory = one["processor_s_per_million"], one["memory_mb"]
        print(f"{name:14} {one['per_s']:10.0f} {cpu:14.2f} {memory:10.0f}   {runs} M/s")
    for name, peer, goal in RATIOS:
        if name in medians and peer in medians:
            rate = medians[name]["per_s"] / medians[peer]["per_s"]
            cpu = medians[peer]["processor_s_per_million"] / medians[name]["processor_s_per_million"]
            verdict = f"goal {goal:g} x: {'met' if rate >= goal else 'missed'}"
            print(f"{name} against {peer}: {rate:.2f} x ({verdict}), by processor time {cpu:.2f} x")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A broker for ``test_request_fuzz``: real sockets, real files, ZooKeeper in memory, in a process of its own.

``python -m tests.faults.fuzzed_broker DIRECTORY`` prints the ports of its two listeners as JSON once it
serves, and when its stdin ends, a ``Report``. Address space is limited, so that an allocation that somebody
has talked it into fails, and is in the report.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import select
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from minikafka.base.clock import SystemClock
from minikafka.base.files import RealFiles
from minikafka.base.memory import collect_rarely
from minikafka.net.connection import SocketConnector
from minikafka.net.connection_quotas import ConnectionLimits
from minikafka.net.interfaces import Endpoint, RequestHandler
from minikafka.net.server import SocketServer
from minikafka.records import kernels
from minikafka.registry import paths
from minikafka.registry.memory import MemoryZooKeeper
from minikafka.registry.topics import PartitionState, TopicAssignment
from minikafka.server.assembly import Ports, RunningBroker
from minikafka.server.config.properties import BrokerConfig
from minikafka.server.workers.work_pool import MEMORY_BYTES, ThreadWorkPool
from minikafka.server.workers.worker import InlineWorker

REQUEST_BYTES = 1 << 20
MORE_MEMORY_BYTES = 384 << 20
"""Far more than logs, indexes and a thousand connections need, and far less than a length can claim."""
TICK_SECONDS = 0.005
GONE_BROKER = 9
LISTENERS = {
    "broker.id": "0",
    "listeners": "PLAINTEXT://127.0.0.1:0,CLASSIC://127.0.0.1:0",
    "zookeeper.connect": "memory",
}
PROPERTIES = {
    "num.network.threads": "2",
    "socket.request.max.bytes": str(REQUEST_BYTES),
    "message.max.bytes": str(REQUEST_BYTES // 2),
    # Less than tests wait for the end of a connection, and more than a client is starved on a busy machine.
    "connections.max.idle.ms": "15000",
    "queued.max.request.bytes": str(16 * REQUEST_BYTES),
    "log.segment.bytes": str(16 * REQUEST_BYTES),
    "log.retention.ms": "-1",
    "log.cleaner.dedupe.buffer.size": "1048576",
    "transaction.state.log.num.partitions": "1",
}


@dataclass
class Report:
    """The result of a run."""

    defects: list[str] = field(default_factory=list)
    """The logged tracebacks."""
    peak_bytes: int = 0
    """The peak of memory above that at the start of serving."""


class _Defects(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and len(self.found) < 10:
            self.found.append(self.format(record))


def main(
    directory: str,
    properties: Mapping[str, str] = PROPERTIES,
    more_memory_bytes: int | None = MORE_MEMORY_BYTES,
    led_elsewhere: Mapping[str, int] | None = None,
) -> None:
    """Serve until stdin ends. ``led_elsewhere``: topics with so many partitions each, of another broker that
    is not there.
    """
    defects = _Defects()
    logging.getLogger("minikafka").addHandler(defects)
    logging.getLogger("minikafka").propagate = False
    kernels.warm_up()
    collect_rarely()
    clock, worker, servers = SystemClock(), InlineWorker(), []
    zookeeper = MemoryZooKeeper(clock)
    add_topics(zookeeper, led_elsewhere or {})
    config = BrokerConfig.from_properties(LISTENERS | {"log.dirs": directory, **properties})

    def listen(config: BrokerConfig, handler: RequestHandler) -> SocketServer:
        servers.append(
            SocketServer(
                [Endpoint(at.name, at.host, at.port) for at in config.listeners],
                handler,
                processors=config.network_threads,
                max_request_bytes=config.request_max_bytes,
                idle_ms=config.connection_idle_max_ms,
                queued_bytes=config.queued_max_bytes,
                limits=ConnectionLimits(),
            )
        )
        servers[-1].start()
        return servers[-1]

    loader = InlineWorker()
    ports = Ports(
        files=RealFiles(),
        clock=clock,
        worker=worker,
        loader=loader,
        connect_store=zookeeper.connect,
        listen=listen,
        random_bytes=os.urandom,
        connector=SocketConnector(),
        pool=ThreadWorkPool("requests", 2, MEMORY_BYTES),
    )
    running = RunningBroker(config, ports)

    def settle() -> None:
        while zookeeper.deliver() + worker.run_until_idle() + loader.run_until_idle():
            pass

    running.housekeeper.start()
    settle()
    if more_memory_bytes is not None:
        limit = _address_space() + more_memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _say(dict(servers[0].ports))
    while not select.select([sys.stdin], [], [], TICK_SECONDS)[0]:
        settle()
    report = Report(defects.found, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
    running.housekeeper.stop()
    running.stop()
    _say(asdict(report))


def add_topics(zookeeper: MemoryZooKeeper, topics: Mapping[str, int]) -> None:
    """Write the znodes of topics as if another broker, which is gone, had led all of their partitions."""
    store = zookeeper.connect()
    for name, count in topics.items():
        replicas = dict.fromkeys(range(count), (GONE_BROKER,))
        store.create(paths.topic_path(name), TopicAssignment(replicas).to_json(), make_parents=True)
        for number in range(count):
            state = PartitionState(GONE_BROKER, 0, (GONE_BROKER,), 0)
            path = paths.partition_state_path(name, number)
            store.create(path, state.to_json(), make_parents=True)


def _say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _address_space() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main(sys.argv[1])

"""Brokers on one thread: simulated clock, disks, network and ZooKeeper, and clients that speak the protocol.

Nothing happens by itself. A request is delivered, and while its answer is awaited time passes in steps, in
each of which ZooKeeper's callbacks, the workers' jobs and the housekeepers run (``Simulation.settle``).
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping
from typing import Any

from minikafka.base.clock import NEVER_MS, ManualClock
from minikafka.base.memory_files import MemoryFiles
from minikafka.net.interfaces import Connector, PendingResponse, RequestHandler
from minikafka.net.memory import MemoryConnection, MemoryNetwork, MemoryServer
from minikafka.records.format.message_set import Record, StoredRecord, build_message_set, iterate
from minikafka.registry.memory import MemoryStore, MemoryZooKeeper
from minikafka.server.assembly import Ports, RunningBroker, endpoints_of
from minikafka.server.config.properties import BrokerConfig
from minikafka.server.core.broker import Broker
from minikafka.server.workers.worker import InlineWorker
from minikafka.wire.api import ApiKey
from minikafka.wire.api_table import APIS
from minikafka.wire.apis.fetch import FetchPartitionResponse, FetchResponse
from minikafka.wire.apis.produce import ProducePartitionResponse, ProduceResponse
from minikafka.wire.frame_parts import Part, buffer_of
from minikafka.wire.framing import RequestHeader, split_response
from tests.support import requests
from tests.support.requests import Request

PORT = 9092
DATA_DIR = "/data"


class Client:
    """A client with one connection, which is opened again after it broke."""

    def __init__(self, network: MemoryNetwork, host: str) -> None:
        self.network = network
        self.host = host
        self.port = PORT
        self.client_id = "simulation"
        self.connection: MemoryConnection | None = None
        self._correlation_id = 0
        self._pending: PendingResponse | None = None
        self._expected = ApiKey.METADATA, 0

    def go_to(self, port: int) -> None:
        """Connect to another listener."""
        if self.connection is not None:
            self.connection.close()
        self.port, self.connection = port, None

    def move_to(self, host: str) -> None:
        """Connect to another machine."""
        if self.connection is not None:
            self.connection.close()
        self.host, self.connection = host, None

    def call(self, request: Request) -> Any:
        """Send one request and return the decoded response (None if it has none)."""
        self.begin(request)
        return self.finish() if request.answered else None

    def begin(self, request: Request) -> None:
        """Send and deliver one request; ``finish`` returns its response."""
        self._correlation_id += 1
        header = RequestHeader(int(request.key), request.version, self._correlation_id, self.client_id)
        body = APIS[request.key].encode_request(request.version, request.body)
        parts: list[Part] = [header.encode(), *body]
        if self.connection is None or self.connection.closed:
            self.connection = self.network.connect(self.host, self.port)
        self._expected = request.key, request.version
        if request.answered:
            self._pending = self.connection.request(parts)
        else:
            self.connection.send(parts)
        self.network.run()

    def answered(self) -> bool:
        """Return True if the request of ``begin`` has a response or has failed."""
        assert self._pending is not None
        return self._pending.done()

    def finish(self) -> Any:
        """Return the decoded response to the request of ``begin``; time passes until it arrives."""
        assert self._pending is not None
        key, version = self._expected
        api = APIS[key]
        frame = self._pending.result(60_000)
        correlation_id, body = split_response(frame, api.has_tagged_response_header(version))
        assert correlation_id == self._correlation_id
        return api.decode_response(version, body)

    def create_topic(self, name: str, **options: Any) -> int:
        """Create a topic; return the error code."""
        code: int = self.call(requests.create_topic(name, **options)).topics[0].error_code
        return code

    def produce(self, topic: str, *values: bytes) -> ProducePartitionResponse:
        """Send one message set of ``values``; return the partition's response."""
        records = [Record(None, value, self.network.clock.now_ms()) for value in values]
        answer: ProduceResponse = self.call(requests.produce(topic, build_message_set(records)))
        return answer.topics[0].partitions[0]

    def fetch(self, topic: str, offset: int = 0, **options: Any) -> FetchPartitionResponse:
        """Fetch from ``offset``; return the partition's response."""
        answer: FetchResponse = self.call(requests.fetch(topic, offset, **options))
        return answer.topics[0].partitions[0]

    def records(self, topic: str) -> list[StoredRecord]:
        """Return all records that a consumer can read."""
        found: list[StoredRecord] = []
        while True:
            answer = self.fetch(topic, found[-1].offset + 1 if found else 0)
            assert answer.error_code == 0, answer
            got = list(iterate(buffer_of(answer.records)))
            if not got:
                return found
            found += got


@functools.cache
def _config(properties: frozenset[tuple[str, str]]) -> BrokerConfig:
    return BrokerConfig.from_properties(dict(properties))


class Machine:
    """A disk, and the broker that runs on it, if any. The number is the broker's id by default."""

    def __init__(self, simulation: Simulation, number: int) -> None:
        self.number = number
        self.host = f"machine-{number}"
        self.files = MemoryFiles(clock=simulation.clock)
        self.running: RunningBroker | None = None
        self.held = False
        """True to pause all background work; requests are still served."""
        self.intercept: Callable[[RequestHandler], RequestHandler] = lambda handler: handler
        """Puts another handler before the broker's."""
        self.connector: Connector = simulation.network
        """Connects this broker to the others."""
        self._simulation = simulation
        self._worker = InlineWorker()
        self._loader = InlineWorker()
        self._store: MemoryStore | None = None
        self._server: MemoryServer | None = None

    @property
    def broker(self) -> Broker:
        """The broker that runs on it."""
        assert self.running is not None, f"no broker runs on {self.host}"
        return self.running.broker

    @property
    def store(self) -> MemoryStore:
        """The broker's session with ZooKeeper."""
        assert self._store is not None, f"no broker was started on {self.host}"
        return self._store

    def start(self, properties: Mapping[str, str] | None = None) -> bool:
        """Start a broker and run everything that needs no time. Return True if it serves then.

        Raises what ``RunningBroker`` raises.
        """
        simulation, worker, store = self._simulation, InlineWorker(), self._simulation.zookeeper.connect()
        loader = InlineWorker()
        servers: list[MemoryServer] = []

        def listen(config: BrokerConfig, handler: RequestHandler) -> MemoryServer:
            endpoints = endpoints_of(config, {})
            servers.append(simulation.network.listen_all(endpoints, self.intercept(handler)))
            return servers[-1]

        given = {
            "broker.id": str(self.number),
            "listeners": f"PLAINTEXT://{self.host}:{PORT}",
            "log.dirs": DATA_DIR,
            "zookeeper.connect": "memory",
        }
        running = RunningBroker(
            _config(frozenset({**given, **(properties or {})}.items())),
            Ports(
                files=self.files,
                clock=simulation.clock,
                worker=worker,
                loader=loader,
                connect_store=lambda: store,
                listen=listen,
                random_bytes=simulation.chance.randbytes,
                connector=self.connector,
            ),
        )
        # Assigned last: a failed attempt does not affect a broker that already runs here.
        self.running, self._worker, self._store, (self._server,) = running, worker, store, servers
        self._loader = loader
        simulation.settle()
        return running.serving.is_set()

    def stop(self) -> None:
        """Stop it cleanly."""
        assert self.running is not None, f"no broker runs on {self.host}"
        try:
            self.running.stop()
        finally:
            self.running = None

    def kill(self) -> None:
        """Kill the process; the disk keeps all writes."""
        self.files.kill_process()
        self._vanish()

    def power_cut(self, *, partly: bool = False) -> None:
        """Cut the power; the disk keeps flushed data, and with ``partly`` some of the rest."""
        self.files.power_cut(self._simulation.chance if partly else None)
        self._vanish()

    def _vanish(self) -> None:
        # The session lasts until its time-out, as after a kill -9; pending jobs are dropped.
        assert self._server is not None, f"no broker was started on {self.host}"
        self._simulation.zookeeper.suspend(self.store)
        self._server.vanish()
        self.running, self._worker, self._loader = None, InlineWorker(), InlineWorker()

    def work(self) -> int:
        """Run the jobs of the broker's workers; return the number of jobs."""
        if self.held:
            return 0
        loaded = 0 if self._simulation.loading_is_held else self._loader.run_until_idle()
        talked = self.running is not None and self.running.step()
        return self._worker.run_until_idle() + loaded + talked

    def due_ms(self) -> int:
        """Return the time before which the broker has nothing to do."""
        if self.held:
            return NEVER_MS
        if not self._worker.idle or not (self._loader.idle or self._simulation.loading_is_held):
            return 0
        return NEVER_MS if self.running is None else self.running.due_ms()


class Simulation(Client):
    """Machines with brokers, network and ZooKeeper, and a client of machine 0. ``seed`` fixes all chance."""

    def __init__(self, seed: int = 0, *, now_ms: int = 0) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock(now_ms)
        super().__init__(MemoryNetwork(self.clock), "machine-0")
        self.zookeeper = MemoryZooKeeper(self.clock)
        self.watches_are_held = False
        """True to hold back ZooKeeper's watch and session events; requests are still answered."""
        self.loading_is_held = False
        """True to pause the loading of groups."""
        self._working = False
        self.network.on_step(self.settle, self.due_ms)
        self.machines: dict[int, Machine] = {}
        self.machine = self.machine_of(0)

    @classmethod
    def serving(
        cls, *topics: str, partitions: int = 1, properties: Mapping[str, str] | None = None
    ) -> Simulation:
        """Return a simulation whose machine 0 has a broker with these topics."""
        simulation = cls()
        simulation.machine.start(properties)
        for topic in topics:
            assert simulation.create_topic(topic, partitions=partitions) == 0
        return simulation

    def machine_of(self, number: int) -> Machine:
        """Return the machine of this number, created at its first use."""
        if number not in self.machines:
            self.machines[number] = Machine(self, number)
        return self.machines[number]

    def start_brokers(self, count: int, properties: Mapping[str, str]) -> list[Machine]:
        """Start a broker on each of the first ``count`` machines."""
        machines = [self.machine_of(number) for number in range(count)]
        for machine in machines:
            machine.start(properties)
        return machines

    def another_client(self) -> Client:
        """Return a client with its own connection."""
        return Client(self.network, self.host)

    def move_to_controller(self) -> None:
        """Connect to the machine of the active controller."""
        for machine in self.machines.values():
            if machine.running is not None and machine.broker.controller.active:
                self.move_to(machine.host)

    def pass_time(self, ms: int) -> None:
        """Let time pass in steps of half a second."""
        for _ in range(ms // 500):
            self.clock.advance(500)
            self.settle()

    def end_stray_sessions(self, ms: int = 10_000) -> None:
        """End the sessions that a restored ZooKeeper does not know of, and let time pass."""
        self.zookeeper.end_stray_sessions()
        self.pass_time(ms)

    def settle(self) -> None:
        """Run everything that needs no time, and the periodic work that is due."""
        self.work()
        for machine in list(self.machines.values()):
            if machine.running is not None and not machine.held:
                machine.running.housekeeper.tick()

    def work(self) -> None:
        """Run the jobs, notifications and inter-broker requests, until there are none."""
        if self._working:
            return
        self._working = True
        try:
            machines = list(self.machines.values())
            while self._deliver_news() + sum(machine.work() for machine in machines):
                self.network.run()
        finally:
            self._working = False

    def due_ms(self) -> int:
        """Return the time before which ``settle`` has nothing to do."""
        if not (self.watches_are_held or self.zookeeper.idle):
            return 0
        return min(machine.due_ms() for machine in self.machines.values())

    def _deliver_news(self) -> int:
        return 0 if self.watches_are_held else self.zookeeper.deliver()

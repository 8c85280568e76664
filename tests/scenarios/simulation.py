"""A whole broker on one thread: simulated clock, disk, network and ZooKeeper, and a client that speaks the
protocol.

Nothing happens by itself. A request is delivered, and while its answer is awaited time passes in steps, in
each of which ZooKeeper's news, the worker's jobs and the housekeeper run.
"""

from __future__ import annotations

import random
from typing import Any

from minikafka.base.clock import ManualClock
from minikafka.base.memory_files import MemoryFiles
from minikafka.net.memory import MemoryConnection, MemoryNetwork, MemoryServer
from minikafka.net.port import PendingResponse, RequestHandler
from minikafka.records.message_set import Record, StoredRecord, build_message_set, iterate
from minikafka.registry.memory import MemoryStore, MemoryZooKeeper
from minikafka.server.assembly import Ports, RunningBroker
from minikafka.server.config import BrokerConfig
from minikafka.server.worker import InlineWorker
from minikafka.wire.apis import APIS
from minikafka.wire.apis.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from minikafka.wire.apis.delete_topics import DeleteTopicsRequest
from minikafka.wire.apis.fetch import FetchPartition, FetchPartitionResponse, FetchRequest, FetchTopic
from minikafka.wire.apis.metadata import MetadataRequest, MetadataResponse
from minikafka.wire.apis.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceTopic,
)
from minikafka.wire.framing import RequestHeader, split_response
from minikafka.wire.keys import ApiKey
from minikafka.wire.parts import Part, buffer_of

HOST, PORT = "sim", 9092
DATA_DIR = "/data"


class Client:
    """Speaks the protocol over one connection, which is made anew after it broke."""

    def __init__(self, network: MemoryNetwork, clock: ManualClock) -> None:
        self.clock = clock
        self.network = network
        self.connection: MemoryConnection | None = None
        self._correlation_id = 0
        self._pending: PendingResponse | None = None
        self._expected = ApiKey.METADATA, 0

    def call(self, key: ApiKey, version: int, request: Any, *, answered: bool = True) -> Any:
        """Send one request and return the decoded response."""
        if not answered:
            self._connected().send(self._parts(key, version, request))
            self.network.run()
            return None
        self.begin(key, version, request)
        return self.finish()

    def begin(self, key: ApiKey, version: int, request: Any) -> None:
        """Send one request, to be answered later (see ``finish``), and deliver it."""
        self._pending = self._connected().request(self._parts(key, version, request))
        self._expected = key, version
        self.network.run()

    def finish(self) -> Any:
        """The decoded response to what was begun."""
        assert self._pending is not None
        correlation_id, body = split_response(self._pending.result(60_000))
        assert correlation_id == self._correlation_id
        key, version = self._expected
        return APIS[key].decode_response(version, body)

    def _connected(self) -> MemoryConnection:
        if self.connection is None or self.connection.closed:
            self.connection = self.network.connect(HOST, PORT)
        return self.connection

    def _parts(self, key: ApiKey, version: int, request: Any) -> list[Part]:
        self._correlation_id += 1
        header = RequestHeader(int(key), version, self._correlation_id, "simulation")
        return [header.encode(), *APIS[key].encode_request(version, request)]

    def create_topic(self, name: str, partitions: int = 1, timeout_ms: int = 5000, **config: str) -> int:
        """Create a topic; the error code."""
        configs = tuple(CreatableTopicConfig(k.replace("_", "."), v) for k, v in config.items())
        wish = CreatableTopic(name, partitions, 1, (), configs)
        return (
            self.call(ApiKey.CREATE_TOPICS, 0, CreateTopicsRequest((wish,), timeout_ms)).topics[0].error_code
        )

    def delete_topic(self, name: str, timeout_ms: int = 5000) -> int:
        """Delete a topic; the error code."""
        return (
            self.call(ApiKey.DELETE_TOPICS, 0, DeleteTopicsRequest((name,), timeout_ms)).topics[0].error_code
        )

    def produce(
        self, topic: str, *values: bytes, partition: int = 0, acks: int = -1
    ) -> ProducePartitionResponse | None:
        """Send one message set of ``values``; the partition's answer."""
        records = [Record(None, value, self.clock.now_ms()) for value in values]
        return self.produce_set(topic, build_message_set(records), partition=partition, acks=acks)

    def produce_set(
        self, topic: str, message_set: bytes, *, partition: int = 0, acks: int = -1
    ) -> ProducePartitionResponse | None:
        """Send a message set as it is; the partition's answer."""
        part = ProducePartition(partition, message_set)
        request = ProduceRequest(acks, 5000, (ProduceTopic(topic, (part,)),))
        response = self.call(ApiKey.PRODUCE, 2, request, answered=acks != 0)
        return response.topics[0].partitions[0] if response is not None else None

    def fetch(
        self, topic: str, offset: int = 0, *, partition: int = 0, wait_ms: int = 0, version: int = 3
    ) -> FetchPartitionResponse:
        """What a fetch from ``offset`` gives."""
        part = FetchPartition(partition, offset, 1 << 20)
        request = FetchRequest(-1, wait_ms, 1, 1 << 24, (FetchTopic(topic, (part,)),))
        return self.call(ApiKey.FETCH, version, request).topics[0].partitions[0]

    def records(self, topic: str, offset: int = 0, *, partition: int = 0) -> list[StoredRecord]:
        """Everything that a consumer can read from ``offset`` on."""
        found: list[StoredRecord] = []
        while True:
            answer = self.fetch(topic, offset, partition=partition)
            assert answer.error_code == 0, answer
            got = list(iterate(buffer_of(answer.records)))
            if not got:
                return found
            found += got
            offset = got[-1].offset + 1

    def metadata(self, *topics: str) -> MetadataResponse:
        """Metadata of ``topics``, or of all."""
        return self.call(ApiKey.METADATA, 2, MetadataRequest(topics or None))


class Simulation(Client):
    """The world of one broker, and a client of it. ``seed`` decides what chance decides."""

    def __init__(self, seed: int = 0, *, capacity_bytes: int | None = None) -> None:
        self.chance = random.Random(seed)
        clock = ManualClock()
        super().__init__(MemoryNetwork(clock), clock)
        self.files = MemoryFiles(clock=self.clock, capacity_bytes=capacity_bytes)
        self.zookeeper = MemoryZooKeeper(self.clock)
        self.network.on_step(self.settle)
        self.store: MemoryStore | None = None
        self.running: RunningBroker | None = None
        self._worker = InlineWorker()
        self._server: MemoryServer | None = None

    # --- the broker's life ----------------------------------------------------------------------------------

    def start(self, *, settle: bool = True, **properties: str) -> RunningBroker:
        """Start a broker on the data directory and, with ``settle``, wait until it serves."""
        named = {name.replace("_", "."): value for name, value in properties.items()}
        config = BrokerConfig.from_properties(
            {
                "broker.id": "0",
                "listeners": f"PLAINTEXT://{HOST}:{PORT}",
                "log.dirs": DATA_DIR,
                "zookeeper.connect": "memory",
                **named,
            }
        )
        self._worker = InlineWorker()
        self.store = self.zookeeper.connect()
        store = self.store
        self.running = RunningBroker(
            config,
            Ports(
                files=self.files,
                clock=self.clock,
                worker=self._worker,
                connect_store=lambda: store,
                listen=self._listen,
                random_bytes=self.chance.randbytes,
            ),
        )
        if settle:
            self.settle()
            assert self.running.serving.is_set(), "the broker does not serve"
        return self.running

    def _listen(self, config: BrokerConfig, handler: RequestHandler) -> MemoryServer:
        self._server = self.network.listen(config.bind_host, config.bind_port, handler)
        return self._server

    def stop(self) -> None:
        """Stop it cleanly."""
        assert self.running is not None
        self.running.stop()
        self._gone()

    def kill(self) -> None:
        """End the process; the disk keeps what was written."""
        self.files.kill_process()
        self._vanish()

    def power_cut(self, *, partly: bool = False) -> None:
        """End the machine; the disk keeps what was flushed, and with ``partly`` some of the rest."""
        self.files.power_cut(self.chance if partly else None)
        self._vanish()

    def _vanish(self) -> None:
        # The session stays until its time-out, as after a kill -9.
        assert self.store is not None
        assert self._server is not None
        self.zookeeper.suspend(self.store)
        self.network.cut(HOST, PORT)
        self.network.close_port(self._server)
        self._gone()

    def _gone(self) -> None:
        self.running = None
        self.connection = None

    def another_client(self) -> Client:
        """A client with a connection of its own."""
        return Client(self.network, self.clock)

    def settle(self) -> None:
        """Let everything happen that needs no time."""
        while self.zookeeper.deliver() + self._worker.run_until_idle():
            pass
        if self.running is not None:
            self.running.housekeeper.tick()

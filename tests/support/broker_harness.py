"""Real brokers in memory for the tests of clients, with a hook at every request.

``BrokerHarness`` runs brokers of ``tests.support.simulation``: the product on files, ZooKeeper and network in
memory, with a manual clock. Clients connect to ``memory:9001`` and so on. The harness and the brokers use
another listener, so that requests, scripts and faults are those of a test's clients. A script answers in
the place of a broker, or changes its answer, where a test needs what a broker never does.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from minikafka.base.clock import ManualClock
from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.network.cluster import ClusterClient
from minikafka.net.interfaces import Connection, Exchange, RequestHandler
from minikafka.net.memory import Fault, MemoryNetwork
from minikafka.records.format.batch import MAGIC as BATCH_MAGIC
from minikafka.records.format.message_set import Codec, Record, build_message_set
from minikafka.records.kernels.layout import MAGIC_AT
from minikafka.registry import paths
from minikafka.registry.controller import IsrChange, PreferredElection, Reassignments
from minikafka.registry.topics import PartitionState, TopicAssignment
from minikafka.wire.api import ApiKey
from minikafka.wire.api_table import APIS
from minikafka.wire.apis.api_versions import API_VERSIONS, ApiVersion
from minikafka.wire.apis.describe_configs import ConfigResourceType
from minikafka.wire.apis.describe_groups import DescribedGroup
from minikafka.wire.apis.fetch import (
    FETCH,
    TOPIC_IDS_SINCE,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
)
from minikafka.wire.apis.incremental_alter_configs import (
    AlterOperation,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from minikafka.wire.apis.list_groups import ListGroupsRequest
from minikafka.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from minikafka.wire.apis.produce import (
    ProducePartitionResponse,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResponse,
)
from minikafka.wire.frame_parts import join
from minikafka.wire.framing import RequestHeader, response_header, split_response
from tests.support import requests
from tests.support.partition_log import PartitionLog, split_entries
from tests.support.recorded_exchange import RecordedExchange
from tests.support.requests import Request, produce
from tests.support.simulation import PORT, Client, Simulation

HOST = "memory"
FIRST_PORT = 9000
_INTERNAL = "INTERNAL"
_SPARE = 9
"""The broker that has the partitions without a leader: it runs only while they move."""
_PROPERTIES = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1",
    "log.cleaner.enable": "false",
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
}
OFFSETS = TopicPartition("__consumer_offsets", 0)
"""The partition whose leader coordinates all groups."""

Answer = Callable[[int, Any], Any]
"""(broker id, request) -> response; None for no response at all, ``Fault.CUT_REQUEST`` to close the
connection, a ``Later``, or ``SERVED``."""
SERVED = object()
"""The answer of a script that leaves this request to the broker."""


class Later:
    """An answer that the test gives when it wants to."""

    def __init__(self) -> None:
        self._send: Callable[[Any], None] | None = None

    def bind(self, send: Callable[[Any], None]) -> None:
        self._send = send

    def give(self, response: object) -> None:
        if self._send is not None:
            self._send(response)


class ManualWaiter:
    """Lets the time of a wait pass at once."""

    def __init__(self, advance: Callable[[int], None]) -> None:
        self.waits: list[int] = []
        self.stopped = False
        self._advance = advance

    def wait(self, milliseconds: int) -> None:
        self.waits.append(milliseconds)
        if not self.stopped:
            self._advance(milliseconds)

    def stop(self) -> None:
        self.stopped = True


class BrokerHarness:
    """``count`` brokers with the ids 1, 2, …; partition p of a topic is led by broker ``p % count + 1``."""

    def __init__(
        self,
        count: int = 1,
        topics: Mapping[str, int] | None = None,
        *,
        replicas: int = 1,
        racks: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """``topics``: name -> number of partitions, each with so many ``replicas``; ``racks``: of the first
        brokers; ``properties``: further ones of the brokers.
        """
        self.simulation = Simulation(now_ms=ManualClock().now_ms())
        self.clock = self.simulation.clock
        self.network = self.simulation.network
        self.zookeeper = self.simulation.zookeeper
        self.waiter = self.make_waiter()
        self.count = count
        self.replicas = replicas
        self._racks = dict(enumerate(racks, 1))
        self._properties = {**_PROPERTIES, **(properties or {})}
        self.requests: list[tuple[int, ApiKey, int, Any]] = []
        """Broker id, API, version and request of each request of a client, in order."""
        self.newest: dict[ApiKey, int] = {}
        """Newest versions that the brokers say they have, for some APIs; so ``oldest``."""
        self.oldest: dict[ApiKey, int] = {}
        self.unknown: set[ApiKey] = set()
        """APIs that the brokers do not name."""
        self.logs = _Logs(self)
        self._scripts: dict[ApiKey, deque[Answer]] = defaultdict(deque)
        self._standing: dict[ApiKey, Answer | None] = {}
        self._store = self.zookeeper.connect()
        self._clients: dict[int, Client] = {}
        self._handlers: dict[int, RequestHandler] = {}
        self._running: set[int] = set()
        for broker_id in range(1, count + 1):
            self.start(broker_id)
        for name, partitions in (topics or {}).items():
            self._assign(name, partitions)
        self.settle()

    # Clients, time and brokers.

    def client(self, **options: Any) -> ClusterClient:
        options = {"clock": self.clock, "waiter": self.waiter, "connector": self.network} | options
        return ClusterClient(options.pop("bootstrap", f"{HOST}:{FIRST_PORT + 1}"), **options)

    def make_waiter(self) -> ManualWaiter:
        return ManualWaiter(self.advance)

    def advance(self, milliseconds: int) -> None:
        """Let time pass, with the periodic work of the brokers at its end."""
        self.clock.advance(milliseconds)
        self.settle()

    def settle(self) -> None:
        self.simulation.settle()

    def start(self, broker_id: int) -> None:
        machine = self.simulation.machine_of(broker_id)
        machine.intercept = lambda handler: _Handler(self, broker_id, handler)
        machine.connector = _BetweenBrokers(self.network)
        listeners = f"PLAINTEXT://{HOST}:{FIRST_PORT + broker_id},{_INTERNAL}://{machine.host}:{PORT}"
        protocols = f"PLAINTEXT:PLAINTEXT,{_INTERNAL}:PLAINTEXT"
        given = {"listeners": listeners, "listener.security.protocol.map": protocols}
        if broker_id in self._racks:
            given["broker.rack"] = self._racks[broker_id]
        assert machine.start(self._properties | given)
        self._running.add(broker_id)

    def kill(self, broker_id: int) -> None:
        """Kill a broker; its session with ZooKeeper stays."""
        self._running.remove(broker_id)
        self.simulation.machine_of(broker_id).kill()

    def stop(self, broker_id: int) -> None:
        """Kill a broker; its session with ZooKeeper ends at once."""
        self.kill(broker_id)
        self.zookeeper.expire(self.simulation.machine_of(broker_id).store)
        self.settle()

    def add_topic(self, name: str, partitions: int, leader: int | None = None) -> None:
        """Create a topic, or give it more partitions; ``leader``: of all of them."""
        self._assign(name, partitions, leader)
        self.settle()

    def _assign(self, name: str, partitions: int, leader: int | None = None) -> None:
        path = paths.topic_path(name)
        assignment = {
            p: (leader,) if leader else tuple((p + n) % self.count + 1 for n in range(self.replicas))
            for p in range(partitions)
        }
        data = TopicAssignment(assignment).to_json()
        if self._store.exists(path) is None:
            self._store.create(path, data, make_parents=True)
        else:
            self._store.write(path, data)

    def configure(self, topic: str, name: str, value: str) -> None:
        """Change a setting of a topic."""
        change = IncrementalAlterableConfig(name, AlterOperation.SET, value)
        resource = IncrementalAlterConfigsResource(ConfigResourceType.TOPIC, topic, (change,))
        request = IncrementalAlterConfigsRequest((resource,), False)
        (answer,) = self._to(1).call(Request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, request)).responses
        assert not answer.error_code, answer

    def delete_topic(self, name: str) -> None:
        self._store.create(f"{paths.DELETE_TOPICS}/{name}")
        self.settle()

    def script(self, key: ApiKey, *answers: Answer) -> None:
        """Put ``answers`` in the place of the next ones to ``key``."""
        self._scripts[key].extend(answers)

    def always(self, key: ApiKey, answer: Answer | None) -> None:
        """Put ``answer`` in the place of all to ``key``; None: the brokers answer again."""
        self._standing[key] = answer

    def damage(self, offset: int, change: Callable[[bytes], bytes]) -> None:
        """Change the entry at ``offset`` in all fetch responses."""

        def records(data: bytes) -> bytes:
            entries = split_entries(data)
            return b"".join(change(e) if int.from_bytes(e[:8], "big") == offset else e for e in entries)

        def answer(broker_id: int, request: Any) -> FetchResponse:
            served = self.serve(broker_id, request)
            return replace(
                served,
                topics=tuple(
                    replace(t, partitions=tuple(replace(p, records=records(p.records)) for p in t.partitions))
                    for t in served.topics
                ),
            )

        self.always(ApiKey.FETCH, answer)

    def fault(self, broker_id: int, fault: Fault, count: int = 1) -> None:
        self.network.inject(HOST, FIRST_PORT + broker_id, fault, count)

    def fill(self, tp: TopicPartition, *values: bytes, codec: Codec = Codec.NONE, magic: int = 1) -> None:
        """Send one message set to the leader."""
        records = [Record(b"k", value, 1_000 + number) for number, value in enumerate(values)]
        self.produce(tp, build_message_set(records, codec=codec, magic=magic))

    def produce(self, tp: TopicPartition, data: bytes) -> None:
        """Send a message set to the leader."""
        magic = data[MAGIC_AT]
        version = 7 if magic == BATCH_MAGIC else magic + 1
        request = produce(tp.topic, data, partitions=(tp.partition,), version=version)
        (topic,) = self._to(self.leader(tp)).call(request).topics
        assert topic.partitions[0].error_code == 0, topic

    def asked(self, key: ApiKey) -> list[Any]:
        """Return the requests of one API so far."""
        return [request for _, api_key, _, request in self.requests if api_key is key]

    # Leaders.

    @property
    def leaders(self) -> dict[TopicPartition, int]:
        """The leader of every partition; -1: none."""
        return {
            TopicPartition(topic, partition): self.leader(TopicPartition(topic, partition))
            for topic in self._store.children(paths.BROKER_TOPICS)
            for partition in self._assignment(topic)
        }

    def leader(self, tp: TopicPartition) -> int:
        return self._state(tp).leader

    def in_sync(self, tp: TopicPartition) -> list[int]:
        """The running brokers that may lead."""
        return sorted(self._running & set(self._state(tp).isr))

    def _assignment(self, topic: str) -> Mapping[int, tuple[int, ...]]:
        path = paths.topic_path(topic)
        return TopicAssignment.from_json(self._store.read(path)[0], path).partitions

    def _state(self, tp: TopicPartition) -> PartitionState:
        path = paths.partition_state_path(*tp)
        return PartitionState.from_json(self._store.read(path)[0], path)

    def move_leader(self, tp: TopicPartition, leader: int) -> None:
        """Let another broker lead, which gets a replica; the old leader follows, if it runs."""
        followers = [b for b in self._assignment(tp.topic)[tp.partition] if b not in (leader, _SPARE)]
        if self.leader(tp) < 0:
            self.start(_SPARE)
        self._reassign(tp, leader, *followers)
        self._do(paths.PREFERRED_ELECTION, PreferredElection(frozenset([tp])).to_json())
        self._stop_spare()
        assert self.leader(tp) == leader, self._state(tp)

    def lose_leader(self, tp: TopicPartition) -> None:
        """Leave a partition without a leader: its only replica is on a broker that has died."""
        self.start(_SPARE)
        self._reassign(tp, _SPARE)
        self._stop_spare()
        assert self.leader(tp) == -1, self._state(tp)

    def move_controller(self, broker_id: int) -> None:
        """Let another broker win the election: the others have no connection to ZooKeeper meanwhile."""
        others = [self.simulation.machine_of(b).store for b in self._running - {broker_id}]
        for store in others:
            self.zookeeper.suspend(store)
        self._store.delete(paths.CONTROLLER)
        self.settle()
        for store in others:
            self.zookeeper.resume(store)
        self.settle()

    def _reassign(self, tp: TopicPartition, *replicas: int) -> None:
        self._do(paths.REASSIGN_PARTITIONS, Reassignments({tp: replicas}).to_json())
        path = f"{paths.ISR_CHANGES}/{paths.ISR_CHANGE_PREFIX}"
        for _ in range(100):
            # The leader would tell the controller of the new ISR a while later.
            self._store.create(path, IsrChange(frozenset([tp])).to_json(), sequential=True)
            self.settle()
            if self._store.exists(paths.REASSIGN_PARTITIONS) is None:
                return
            self.advance(10)
        raise AssertionError(f"{tp} does not move to {replicas}: {self._state(tp)}")

    def _do(self, path: str, data: bytes) -> None:
        self._store.create(path, data)
        self.settle()

    def _stop_spare(self) -> None:
        if _SPARE in self._running:
            self.stop(_SPARE)

    # Groups.

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets from outside the group."""
        topics = tuple(
            OffsetCommitRequestTopic(
                tp.topic, (OffsetCommitRequestPartition(tp.partition, offset, -1, -1, ""),)
            )
            for tp, offset in offsets.items()
        )
        answer = self._coordinator(group).call(
            Request(ApiKey.OFFSET_COMMIT, 2, OffsetCommitRequest(group, -1, "", -1, topics))
        )
        assert not any(part.error_code for topic in answer.topics for part in topic.partitions), answer

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """The committed offsets of a group."""
        request = requests.fetch_offsets(group=group)
        return {
            TopicPartition(topic.name, part.partition_index): part.committed_offset
            for topic in self._coordinator(group).call(request).topics
            for part in topic.partitions
        }

    def group(self, group: str) -> DescribedGroup:
        """The description of a group."""
        request = requests.describe_groups(group)
        (described,) = self._coordinator(group).call(request).groups
        return described

    def groups(self) -> list[str]:
        """The groups that their coordinator knows."""
        request = Request(ApiKey.LIST_GROUPS, 0, ListGroupsRequest())
        return [group.group_id for group in self._coordinator("").call(request).groups]

    def remove_member(self, group: str, member_id: str) -> None:
        """Remove a member as the end of its session does."""
        request = requests.leave_group(group, member_id)
        assert not self._coordinator(group).call(request).error_code

    def move_coordinator(self, broker_id: int) -> None:
        """Let another broker coordinate all groups; -1: none."""
        self._coordinator("")
        if broker_id < 0:
            self.lose_leader(OFFSETS)
        else:
            self.move_leader(OFFSETS, broker_id)

    def _coordinator(self, group: str) -> Client:
        if OFFSETS.topic not in self._store.children(paths.BROKER_TOPICS):
            self._assign(OFFSETS.topic, 1)
            self.settle()
        return self._to(self.leader(OFFSETS))

    # Requests.

    def serve(self, broker_id: int, request: Any) -> Any:
        """Return the broker's own answer to a script's request; None if it has none."""
        key, version = next(
            (key, version)
            for _, key, version, asked in reversed(self.requests)
            if type(asked) is type(request)
        )
        api, exchange = APIS[key], RecordedExchange()
        header = RequestHeader(int(key), version, 0, "script")
        frame = join([header.encode(), *api.encode_request(version, request)])
        self._handlers[broker_id].on_request(exchange, memoryview(bytearray(frame)))
        self.settle()
        while not exchange.answered:
            assert not exchange.closed, exchange.closed
            self.advance(10)
        if not exchange.response:
            return None
        _, body = split_response(exchange.frame, api.has_tagged_response_header(version))
        return api.decode_response(version, body)

    def _to(self, broker_id: int) -> Client:
        client = self._clients.get(broker_id)
        if client is None:
            client = self._clients[broker_id] = Client(self.network, f"machine-{broker_id}")
        return client

    def respond(self, broker_id: int, exchange: Exchange, frame: memoryview) -> None:
        """Serve one request of a client."""
        header, body = RequestHeader.decode(frame)
        api = APIS[ApiKey(header.api_key)]
        request = api.decode_request(header.api_version, body)
        by_id = api is FETCH and header.api_version >= TOPIC_IDS_SINCE
        if by_id:
            request = self._with_names(request)
        self.requests.append((broker_id, api.key, header.api_version, request))
        scripts = self._scripts[api.key]
        answer = scripts.popleft() if scripts else self._standing.get(api.key)

        def send(response: Any) -> None:
            refused = getattr(response, "error_code", None) == ErrorCode.UNSUPPORTED_VERSION
            version = 0 if api is API_VERSIONS and refused else header.api_version
            head = response_header(header.correlation_id, api.has_tagged_response_header(version))
            answered = self._with_ids(response) if by_id else response
            exchange.respond([head, *api.encode_response(version, answered)])

        if answer is None and api.key is ApiKey.API_VERSIONS:
            answer = self._versions
        response = SERVED if answer is None else answer(broker_id, request)
        if response is SERVED:
            self._handlers[broker_id].on_request(exchange, frame)
        elif response is Fault.CUT_REQUEST:
            exchange.close("scripted")
        elif response is None:
            exchange.respond([])
        elif isinstance(response, Later):
            response.bind(send)
        else:
            send(response)
        self.settle()

    def _with_names(self, request: FetchRequest) -> FetchRequest:
        """A request by ids with the names of its topics too, for scripts and tests."""
        names = {topic_id: topic for topic, topic_id in self.topic_ids.items()}
        topics = (replace(topic, name=names.get(topic.topic_id, "")) for topic in request.topics)
        forgotten = (replace(topic, name=names.get(topic.topic_id, "")) for topic in request.forgotten_topics)
        return replace(request, topics=tuple(topics), forgotten_topics=tuple(forgotten))

    def _with_ids(self, response: FetchResponse) -> FetchResponse:
        """A script's response by names with the ids of its topics."""
        topics = (
            replace(topic, topic_id=self.topic_ids.get(topic.name, topic.topic_id))
            for topic in response.topics
        )
        return replace(response, topics=tuple(topics))

    @property
    def topic_ids(self) -> Mapping[str, bytes]:
        """Topic -> its id."""
        brokers = [self.simulation.machine_of(broker_id).broker for broker_id in self._running]
        return {name: known for broker in brokers for name, known in broker.metadata_cache.topic_ids.items()}

    def _versions(self, broker_id: int, request: object) -> Any:
        if not (self.newest or self.oldest or self.unknown):
            return SERVED
        served = self.serve(broker_id, request)
        rows = [
            ApiVersion(
                row.api_key,
                self.oldest.get(ApiKey(row.api_key), row.min_version),
                self.newest.get(ApiKey(row.api_key), row.max_version),
            )
            for row in served.api_keys
            if row.api_key not in self.unknown
        ]
        return replace(served, api_keys=tuple(rows))


class _Handler:
    """Stands before a broker's request handler."""

    def __init__(self, harness: BrokerHarness, broker_id: int, handler: RequestHandler) -> None:
        harness._handlers[broker_id] = self._handler = handler
        self._harness = harness
        self._broker_id = broker_id

    def on_request(self, exchange: Exchange, frame: memoryview) -> None:
        if exchange.listener == _INTERNAL:
            self._handler.on_request(exchange, frame)
        else:
            self._harness.respond(self._broker_id, exchange, frame)


class _BetweenBrokers:
    """Connects brokers to each other's internal listener."""

    def __init__(self, network: MemoryNetwork) -> None:
        self._network = network
        self.wait_any = network.wait_any

    def connect(self, host: str, port: int) -> Connection:
        return self._network.connect(f"machine-{port - FIRST_PORT}", PORT)


class _Logs(Mapping[TopicPartition, PartitionLog]):
    """The leader's log of each partition; without a leader that of the dead replica."""

    def __init__(self, harness: BrokerHarness) -> None:
        self._harness = harness

    def __getitem__(self, tp: TopicPartition) -> PartitionLog:
        state = self._harness._state(tp)
        return PartitionLog(self._harness.simulation.machine_of(max(state.leader, state.isr[0])), tp)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._harness.leaders)

    def __len__(self) -> int:
        return len(self._harness.leaders)


def fetch_error(code: ErrorCode) -> Answer:
    """A fetch that answers every partition with ``code``."""

    def refused(topic: FetchTopic) -> FetchTopicResponse:
        rows = (FetchPartitionResponse(p.index, int(code), -1, -1, -1, None, b"") for p in topic.partitions)
        return FetchTopicResponse(topic.name, tuple(rows))

    return lambda _, request: FetchResponse(0, 0, 0, tuple(map(refused, request.topics)))


def produce_error(code: ErrorCode) -> Answer:
    """A produce that refuses every partition with ``code``."""

    def refused(topic: ProduceTopic) -> ProduceTopicResponse:
        rows = (ProducePartitionResponse(part.index, int(code), -1) for part in topic.partitions)
        return ProduceTopicResponse(topic.name, tuple(rows))

    return lambda _, request: ProduceResponse(tuple(map(refused, request.topics)))


def commit_error(code: ErrorCode) -> Answer:
    """A commit that refuses every offset with ``code``."""

    def refused(topic: OffsetCommitRequestTopic) -> OffsetCommitResponseTopic:
        rows = (OffsetCommitResponsePartition(part.partition_index, int(code)) for part in topic.partitions)
        return OffsetCommitResponseTopic(topic.name, tuple(rows))

    return lambda _, request: OffsetCommitResponse(0, tuple(map(refused, request.topics)))

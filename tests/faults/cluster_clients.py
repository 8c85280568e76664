"""Clients of the simulated cluster: producers, consumers, a group that commits, and an operator.

Each is a routine that yields its waits: a number of milliseconds, or a ``Call`` for its response (None after
its time-out). They send requests to any broker, and report results to the oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from minikafka.base.errors import BrokerError, ErrorCode, NetworkError, NodeExists, NoNode
from minikafka.base.ids import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Record, build_message_set, iterate
from minikafka.registry import paths
from minikafka.registry.controller import PreferredElection, Reassignments
from minikafka.registry.entity_configs import EntityConfig
from minikafka.registry.topics import TopicAssignment
from minikafka.wire.api import ApiKey
from minikafka.wire.api_table import APIS
from minikafka.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from minikafka.wire.apis.find_coordinator import FindCoordinatorRequest
from minikafka.wire.apis.init_producer_id import InitProducerIdRequest
from minikafka.wire.apis.metadata import metadata_request
from minikafka.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from minikafka.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from minikafka.wire.apis.produce import ProducePartition, ProduceRequest, ProduceTopic
from minikafka.wire.frame_parts import buffer_of
from minikafka.wire.framing import RequestHeader, split_response
from tests.faults.cluster_events import Action, Connection, Pending
from tests.faults.cluster_machines import World
from tests.faults.cluster_oracle import Broken, Oracle

OK = ErrorCode.NONE
INTERNAL = {OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC}
Routine = Generator[Any, Any, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """A request to a broker, with a time-out for the response."""

    broker: int
    key: ApiKey
    version: int
    body: Any
    timeout_ms: int = 700


class Client:
    """Runs one routine until ``stopping``."""

    def __init__(self, world: World, oracle: Oracle, name: str) -> None:
        self.world = world
        self.events = world.events
        self.dice = world.dice
        self.oracle = oracle
        self.host = name
        self.life = 0
        self.stopping = False
        self.done = False
        self.leaders: dict[TopicPartition, int] = {}
        self._connections: dict[int, Connection] = {}
        self._correlation_id = 0
        self._routine: Routine = iter(())  # type: ignore[assignment]

    def execute(self, life: int, action: Action) -> None:
        action()

    def begin(self, routine: Routine) -> None:
        self._routine = routine
        self.events.at(self.dice.randrange(30), lambda: self._go(None))

    def _go(self, value: Any) -> None:
        try:
            wanted = self._routine.send(value)
        except StopIteration:
            self.done = True
            return
        if isinstance(wanted, Call):
            self._call(wanted)
        else:
            self.events.at(wanted, lambda: self._go(None))

    def _call(self, call: Call) -> None:
        api = APIS[call.key]
        self._correlation_id += 1
        header = RequestHeader(int(call.key), call.version, self._correlation_id, self.host)
        parts = [header.encode(), *api.encode_request(call.version, call.body)]
        connection = self._connections.get(call.broker)
        waiting = [True]

        def answer(value: Any) -> None:
            if waiting[0]:
                waiting[0] = False
                self.events.at(0, lambda: self._go(value))

        def came() -> None:
            if waiting[0]:
                response = None
                if pending.error is None:
                    _, body = split_response(pending.result(), api.has_tagged_response_header(call.version))
                    response = api.decode_response(call.version, body)
                answer(response)

        def late() -> None:
            if waiting[0]:
                waiting[0] = False
                assert connection is not None
                connection.close()
                self._go(None)

        try:
            if connection is None or connection.closed:
                connection = self.world.network.connect(self, f"machine-{call.broker}")
                self._connections[call.broker] = connection
            pending: Pending = connection.request(parts, came)
        except NetworkError:
            self.events.at(5, lambda: self._go(None))
            return
        self.events.at(call.timeout_ms, late)

    # --- shared by all clients

    def some_broker(self) -> int:
        return self.dice.randrange(len(self.world.machines))

    def refresh(self) -> Routine:
        """Request the leaders from any broker."""
        response = yield Call(self.some_broker(), ApiKey.METADATA, 1, metadata_request(None))
        if response is not None:
            for topic in response.topics:
                for part in topic.partitions:
                    if part.leader_id >= 0:
                        self.leaders[TopicPartition(topic.name, part.index)] = part.leader_id


class Producer(Client):
    """Sends messages, one batch at a time."""

    def __init__(
        self, world: World, oracle: Oracle, name: str, *, acks: int, idempotent: bool = False
    ) -> None:
        super().__init__(world, oracle, name)
        self.acks = acks
        self.idempotent = idempotent
        self.producer_id = -1
        self.sequences: dict[TopicPartition, int] = {}
        self.serial = 0
        self.begin(self._run())

    def _run(self) -> Routine:
        while not self.stopping:
            known = [
                name
                for name in sorted(self.leaders)
                if name.topic not in INTERNAL and name.topic not in self.oracle.deleted
            ]
            if not known or self.dice.random() < 0.05:
                yield from self.refresh()
                yield 20
                continue
            name = self.dice.choice(known)
            values = []
            for _ in range(self.dice.choice([1, 1, 2, 3])):
                self.serial += 1
                values.append(b"%s.%d" % (self.host.encode(), self.serial))
            if self.idempotent and self.producer_id < 0:
                yield from self._get_id()
            yield from self._send(name, values)
            yield self.dice.choice([5, 40, 100])

    def _get_id(self) -> Routine:
        while not self.stopping and self.producer_id < 0:
            body = InitProducerIdRequest(None, 1000)
            response = yield Call(self.some_broker(), ApiKey.INIT_PRODUCER_ID, 0, body)
            if response is not None and response.error_code == OK:
                self.producer_id = response.producer_id
                self.sequences.clear()
            else:
                yield 50

    def _records(self, name: TopicPartition, values: list[bytes]) -> bytes:
        records = [Record(None, value, 1_700_000_000_000 + self.events.now_ms) for value in values]
        if not self.idempotent:
            return build_message_set(records)
        return build_batch(
            records, producer_id=self.producer_id, producer_epoch=0, base_sequence=self.sequences.get(name, 0)
        )

    def _send(self, name: TopicPartition, values: list[bytes]) -> Routine:
        if self.idempotent and self.producer_id < 0:
            return
        self.oracle.sending(self.host, name, values, once=self.idempotent)
        life = self.oracle.lives[name.topic]
        data = self._records(name, values)
        patience_ms = self.dice.choice([60, 200, 500])
        topic = ProduceTopic(name.topic, (ProducePartition(name.partition, data),))
        body = ProduceRequest(None, self.acks, patience_ms, (topic,))
        for attempt in range(60 if self.idempotent else 8):
            leader = self.leaders.get(name, 0)
            # Sometimes shorter than the broker's time-out: the response may come after the client gives up.
            wait_ms = patience_ms + self.dice.choice([-40, 100, 300])
            answer = yield Call(leader, ApiKey.PRODUCE, 3 if self.idempotent else 2, body, wait_ms)
            part = None if answer is None else answer.topics[0].partitions[0]
            if part is not None and part.error_code in {OK, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}:
                self._acknowledged(name, values, part, life)
                return
            if self._is_deleted(name, life) or (self.stopping and attempt > 2):
                break
            yield self.dice.choice([5, 20, 50, 100])
            yield from self.refresh()
        # The outcome is unknown: its sequence numbers must not be used again.
        self.producer_id = -1
        self.oracle.counts["batches given up"] += 1

    def _is_deleted(self, name: TopicPartition, life: int) -> bool:
        return name.topic in self.oracle.deleted or life != self.oracle.lives[name.topic]

    def _acknowledged(self, name: TopicPartition, values: list[bytes], part: Any, life: int) -> None:
        if self.idempotent:
            self.sequences[name] = self.sequences.get(name, 0) + len(values)
        what = f"{[value.decode() for value in values]} acknowledged at {name} offset {part.base_offset}"
        self.events.note(self.host, f"{what} (acks={self.acks})")
        if self.acks == -1:
            offset = part.base_offset if part.error_code == OK else -1
            self.oracle.acknowledged(self.host, name, offset, values, life)
        else:
            self.oracle.counts["messages acknowledged by leaders"] += len(values)


class Consumer(Client):
    """Reads all partitions from the start, and starts again at random."""

    def __init__(self, world: World, oracle: Oracle, name: str) -> None:
        super().__init__(world, oracle, name)
        self.offsets: dict[TopicPartition, int] = {}
        self.begin(self._run())

    def _run(self) -> Routine:
        while not self.stopping:
            if not self.leaders or self.dice.random() < 0.15:
                yield from self.refresh()
            by_leader: dict[int, list[TopicPartition]] = {}
            for name, leader in sorted(self.leaders.items()):
                if name.topic not in INTERNAL and name.topic not in self.oracle.deleted:
                    by_leader.setdefault(leader, []).append(name)
            if not by_leader:
                yield 50
                continue
            leader = self.dice.choice(sorted(by_leader))
            if self.dice.random() < 0.05:
                self.offsets.pop(self.dice.choice(by_leader[leader]), None)
            yield from self._fetch(leader, by_leader[leader])
            yield self.dice.choice([20, 60, 150])

    def _fetch(self, leader: int, names: list[TopicPartition]) -> Routine:
        topics: dict[str, list[FetchPartition]] = {}
        for name in names:
            part = FetchPartition(name.partition, -1, self.offsets.get(name, 0), -1, 1 << 16)
            topics.setdefault(name.topic, []).append(part)
        wait_ms = self.dice.choice([0, 30, 100])
        body = FetchRequest(
            -1,
            wait_ms,
            1,
            1 << 20,
            0,
            0,
            -1,
            tuple(FetchTopic(topic, tuple(parts)) for topic, parts in topics.items()),
        )
        lives = {name.topic: self.oracle.lives[name.topic] for name in names}
        response = yield Call(leader, ApiKey.FETCH, 4, body, wait_ms + 300)
        if response is None:
            yield from self.refresh()
            return
        for topic in response.topics:
            for part in topic.partitions:
                name = TopicPartition(topic.name, part.index)
                if part.error_code == OK:
                    self._read(name, part.records, lives[name.topic])
                else:
                    self.leaders.pop(name, None)
                    if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self.oracle.lives[name.topic]:
                        self.offsets.pop(name, None)  # the topic was recreated

    def _read(self, name: TopicPartition, records: Any, life: int) -> None:
        offset = self.offsets.get(name, 0)
        try:
            for record in iterate(buffer_of(records)):
                if record.offset >= offset:
                    self.oracle.read(name, record.offset, record.value or b"", life)
                    self.offsets[name] = record.offset + 1
        except BrokerError as error:
            raise Broken(f"{name}: a consumer received damaged data: {error}") from error


class Committer(Client):
    """A group of one consumer that commits increasing offsets; with ``asks`` it also fetches them."""

    def __init__(self, world: World, oracle: Oracle, name: str, of: TopicPartition, *, asks: bool) -> None:
        super().__init__(world, oracle, name)
        self.of = of
        self.asks = asks
        self.coordinator = -1
        self.begin(self._run())

    def _run(self) -> Routine:
        offset = 0
        while not self.stopping:
            if self.asks and self.coordinator < 0:
                yield from self.find()
                # It may have become the coordinator just now.
                yield from self._ask()
            yield from self.find()
            offset += 1
            part = OffsetCommitRequestPartition(self.of.partition, offset, -1, -1, "")
            topics = (OffsetCommitRequestTopic(self.of.topic, (part,)),)
            body = OffsetCommitRequest(self.host, -1, "", -1, topics)
            response = yield Call(self.coordinator, ApiKey.OFFSET_COMMIT, 2, body)
            if response is not None and response.topics[0].partitions[0].error_code == OK:
                self.oracle.committed[self.host, self.of] = offset
                self.oracle.counts["offsets committed"] += 1
                self.events.note(self.host, f"offset {offset} is committed")
                yield self.dice.choice([50, 200])
                if self.asks and self.dice.random() < 0.5:
                    yield from self._ask()
            else:
                self.coordinator = -1
                yield 50

    def _ask(self) -> Routine:
        """Check that the coordinator returns no older offset than the acknowledged one.

        A new coordinator may return an unacknowledged offset before all replicas have it, as Kafka's does.
        """
        yield from self.find()
        coordinator, groups = self.coordinator, TopicPartition(OFFSETS_TOPIC, 0)
        least = self.oracle.committed.get((self.host, self.of), -1)
        epoch = self.oracle.coordinates(coordinator, groups)
        response = yield self._fetch()
        if response is None or response.error_code != OK or response.topics[0].partitions[0].error_code != OK:
            self.coordinator = -1
            return
        if epoch < 0 or self.oracle.coordinates(coordinator, groups) != epoch:
            return  # an old coordinator may know less
        fetched = response.topics[0].partitions[0].committed_offset
        self.oracle.counts["committed offsets fetched"] += 1
        if fetched < least:
            raise Broken(f"{self.host} committed {least}, and broker {coordinator} returns {fetched}")

    def _fetch(self) -> Call:
        topics = (OffsetFetchRequestTopic(self.of.topic, (self.of.partition,)),)
        return Call(self.coordinator, ApiKey.OFFSET_FETCH, 2, OffsetFetchRequest(self.host, topics))

    def find(self) -> Routine:
        while self.coordinator < 0:
            body = FindCoordinatorRequest(self.host)
            response = yield Call(self.some_broker(), ApiKey.FIND_COORDINATOR, 0, body)
            if response is not None and response.error_code == OK:
                self.coordinator = response.node_id
            else:
                yield 100

    def check(self) -> None:
        """Fetch the offset once more, after the recovery."""
        self.done = False
        self.begin(self._check())

    def _check(self) -> Routine:
        self.coordinator = -1
        while True:
            yield from self.find()
            response = yield self._fetch()
            if response is not None and response.error_code == OK:
                part = response.topics[0].partitions[0]
                if part.error_code == OK:
                    break
            self.coordinator = -1
            yield 100
        least = self.oracle.committed.get((self.host, self.of), -1)
        if part.committed_offset < least:
            found = part.committed_offset
            raise Broken(f"{self.host} committed {least}, and the coordinator returns {found}")


class Operator(Client):
    """Creates, extends, deletes and reassigns topics, all by znodes, as 0.10.1's tools do."""

    def __init__(self, world: World, oracle: Oracle, actions: int) -> None:
        super().__init__(world, oracle, "operator")
        self.store = world.zookeeper.connect()
        self.topics: list[str] = []
        self.begin(self._run(actions))

    def create(self, topic: str, assignment: dict[int, tuple[int, ...]], **config: str) -> None:
        """Create a topic; in settings ``_`` stands for the dot."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self.store.create(paths.topic_config_path(topic), EntityConfig(settings).to_json(), make_parents=True)
        self.store.create(paths.topic_path(topic), TopicAssignment(assignment).to_json(), make_parents=True)
        self.topics.append(topic)
        self.events.note(self.host, f"creates {topic}: {assignment} {settings}")

    def some_replicas(self, count: int) -> tuple[int, ...]:
        brokers = list(self.world.machines)
        return tuple(self.dice.sample(brokers, min(count, len(brokers))))

    def _run(self, actions: int) -> Routine:
        choices: list[Callable[[], None]] = [self._create, self._grow, self._delete]
        choices += [self._reassign] * 2 + [self._elect] * 2
        for _ in range(actions):
            yield self.dice.randrange(100, 900)
            if self.stopping:
                return
            try:
                self.dice.choice(choices)()
            except (NodeExists, NoNode):
                continue

    def _create(self) -> None:
        count = self.dice.choice([1, 2, 3])
        topic = f"later{len(self.topics)}"
        self.create(topic, {0: self.some_replicas(count)}, min_insync_replicas=str(min(2, count)))

    def _some_topic(self) -> str:
        return self.dice.choice([topic for topic in self.topics if topic not in self.oracle.deleted])

    def _assignment(self, topic: str) -> dict[int, tuple[int, ...]]:
        path = paths.topic_path(topic)
        return dict(TopicAssignment.from_json(self.store.read(path)[0], path).partitions)

    def _grow(self) -> None:
        topic = self._some_topic()
        if topic not in INTERNAL and not self._moving():
            path = paths.topic_path(topic)
            assignment = self._assignment(topic)
            assignment[len(assignment)] = self.some_replicas(len(assignment[0]))
            self.events.note(self.host, f"gives {topic} another partition: {assignment}")
            self.store.write(path, TopicAssignment(assignment).to_json())

    def _delete(self) -> None:
        topic = self._some_topic()
        if topic.startswith("later"):
            self.events.note(self.host, f"deletes {topic}")
            self.oracle.deleted.add(topic)
            self.store.create(f"{paths.DELETE_TOPICS}/{topic}", make_parents=True)

    def _moving(self) -> bool:
        return self.store.exists(paths.REASSIGN_PARTITIONS) is not None

    def _reassign(self) -> None:
        topic = self._some_topic()
        assignment = self._assignment(topic)
        partition = self.dice.choice(sorted(assignment))
        replicas = self.some_replicas(len(assignment[partition]))
        wanted = Reassignments({TopicPartition(topic, partition): replicas})
        self.store.create(paths.REASSIGN_PARTITIONS, wanted.to_json(), make_parents=True)
        self.oracle.moving(TopicPartition(topic, partition), replicas)
        self.events.note(self.host, f"moves {topic}-{partition} to {replicas}")

    def _elect(self) -> None:
        topic = self._some_topic()
        names = frozenset(TopicPartition(topic, partition) for partition in self._assignment(topic))
        self.store.create(paths.PREFERRED_ELECTION, PreferredElection(names).to_json(), make_parents=True)
        self.events.note(self.host, f"requests the preferred leaders of {topic}")


class Replacer(Operator):
    """Deletes a topic and recreates it under the same name, again and again."""

    TOPIC = "again"

    def __init__(self, world: World, oracle: Oracle) -> None:
        super().__init__(world, oracle, 0)

    def _make(self) -> None:
        count = self.dice.choice([2, 3])
        self.create(self.TOPIC, {0: self.some_replicas(count)}, min_insync_replicas="2")

    def _run(self, actions: int) -> Routine:
        self._make()
        while not self.stopping:
            yield self.dice.choice([400, 900, 1500])
            if self.stopping:
                return
            self.events.note(self.host, f"deletes {self.TOPIC}, to recreate it")
            self.oracle.deleted.add(self.TOPIC)
            self.store.create(f"{paths.DELETE_TOPICS}/{self.TOPIC}", make_parents=True)
            while self._exists():
                if self.stopping:
                    return
                yield 20
            self.oracle.recreated(self.TOPIC)
            self._make()

    def _exists(self) -> bool:
        wanted = (paths.topic_path(self.TOPIC), f"{paths.DELETE_TOPICS}/{self.TOPIC}")
        return any(self.store.exists(path) is not None for path in wanted)

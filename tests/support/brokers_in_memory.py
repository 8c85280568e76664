"""Brokers in memory for the tests of the clients: real framing and codecs, a log per partition, and scripts.

``BrokersInMemory`` serves all APIs that clients use. ``script`` puts an answer in the place of the next one
to an API, so that a test can say what goes wrong; the network's own faults (``minikafka.net.memory.Fault``)
break connections.
"""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from minikafka.base.clock import ManualClock
from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.network.cluster import ClusterClient
from minikafka.log.producers import producer_state
from minikafka.net.interfaces import Exchange
from minikafka.net.memory import Fault, MemoryNetwork, MemoryServer
from minikafka.records.format.batch import read_header
from minikafka.records.format.message_set import Codec, Record, build_message_set, iterate
from minikafka.wire.api import ApiKey
from minikafka.wire.api_table import APIS
from minikafka.wire.apis.api_versions import ApiVersion, ApiVersionsResponse
from minikafka.wire.apis.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from minikafka.wire.apis.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from minikafka.wire.apis.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)
from minikafka.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from minikafka.wire.apis.list_offsets import (
    EARLIEST,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from minikafka.wire.apis.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
)
from minikafka.wire.apis.produce import (
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)
from minikafka.wire.framing import RequestHeader, response_header
from tests.support.groups_in_memory import GroupsInMemory, Later

HOST = "memory"
FIRST_PORT = 9000

Answer = Callable[[int, Any], Any]
"""(broker id, request) -> response; None for no response at all, ``Fault.CUT_REQUEST`` to close the
connection."""


class ManualWaiter:
    """Time passes on the manual clock, at once."""

    def __init__(self, clock: ManualClock) -> None:
        self.waits: list[int] = []
        self.stopped = False
        self._clock = clock

    def wait(self, milliseconds: int) -> None:
        self.waits.append(milliseconds)
        if not self.stopped:
            self._clock.advance(milliseconds)

    def stop(self) -> None:
        self.stopped = True


@dataclass
class PartitionLog:
    """Entries (messages or wrappers) with the offsets of their first and last message."""

    entries: list[tuple[int, int, bytes]] = field(default_factory=list)
    start_offset: int = 0
    end_offset: int = 0
    stable_offset: int | None = None
    """Where an open transaction begins."""
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    """Producer, first offset and that of the mark."""

    @property
    def last_stable_offset(self) -> int:
        return self.end_offset if self.stable_offset is None else self.stable_offset

    producers: dict[int, producer_state.ProducerStateEntry] = field(default_factory=dict)

    def append(self, data: bytes) -> int:
        """Store the entries of a message set under the next offsets; the first of them.

        A batch of a producer is judged as by a broker, once it is clear that it is whole.
        """
        base = self.end_offset
        if data[16] == 2:
            header = read_header(data, 0)
            if header.producer_id >= 0 and not header.transactional:
                judged = producer_state.analyze_batches(self.producers, [header], base, 0)
                if not isinstance(judged, dict):
                    return judged.first_offset
                self.producers |= judged
        for entry in split_entries(data):
            count = sum(1 for _ in iterate(entry))
            last = self.end_offset + count - 1
            offset = self.end_offset if entry[16] == 2 else last
            self.entries.append((self.end_offset, last, offset.to_bytes(8, "big") + entry[8:]))
            self.end_offset += count
        return base

    def values(self) -> list[bytes | None]:
        return [record.value for _, _, entry in self.entries for record in iterate(entry)]

    def compact(self, *offsets: int) -> None:
        """Remove the uncompressed messages at ``offsets``, as the cleaner does."""
        self.entries = [entry for entry in self.entries if entry[1] not in offsets]


def split_entries(data: bytes) -> list[bytes]:
    found = []
    while data:
        end = 12 + int.from_bytes(data[8:12], "big")
        found.append(bytes(data[:end]))
        data = data[end:]
    return found


class BrokersInMemory:
    """``count`` brokers with the ids 1, 2, …; partition p of a topic is led by broker ``p % count + 1``."""

    def __init__(self, count: int = 1, topics: dict[str, int] | None = None) -> None:
        self.clock = ManualClock()
        self.network = MemoryNetwork(self.clock, step_ms=10, request_timeout_ms=30_000)
        self.waiter = ManualWaiter(self.clock)
        self.count = count
        self.controller_id = 1
        self.leaders: dict[TopicPartition, int] = {}
        self.logs: dict[TopicPartition, PartitionLog] = defaultdict(PartitionLog)
        self.requests: list[tuple[int, ApiKey, int, Any]] = []
        self.newest: dict[ApiKey, int] = {}
        self.oldest: dict[ApiKey, int] = {}
        self.unknown: set[ApiKey] = set()
        self.groups = GroupsInMemory(lambda broker_id: (HOST, FIRST_PORT + broker_id))
        self._producer_ids = itertools.count(1000)
        self._scripts: dict[ApiKey, deque[Answer]] = defaultdict(deque)
        self._servers: dict[int, MemoryServer] = {}
        for name, partitions in (topics or {}).items():
            self.add_topic(name, partitions)
        for broker_id in range(1, count + 1):
            self.start(broker_id)

    # What a test turns.

    def client(self, **options: Any) -> ClusterClient:
        options = {"clock": self.clock, "waiter": self.waiter, "connector": self.network} | options
        return ClusterClient(options.pop("bootstrap", f"{HOST}:{FIRST_PORT + 1}"), **options)

    def add_topic(self, name: str, partitions: int) -> None:
        for number in range(partitions):
            self.leaders[TopicPartition(name, number)] = number % self.count + 1

    def start(self, broker_id: int) -> None:
        handler = _Handler(self, broker_id)
        self._servers[broker_id] = self.network.listen(HOST, FIRST_PORT + broker_id, handler)

    def stop(self, broker_id: int) -> None:
        self._servers.pop(broker_id).stop(drain_ms=0)

    def script(self, key: ApiKey, *answers: Answer) -> None:
        """What stands in the place of the next answers to ``key``."""
        self._scripts[key].extend(answers)

    def fault(self, broker_id: int, fault: Fault, count: int = 1) -> None:
        self.network.inject(HOST, FIRST_PORT + broker_id, fault, count)

    def fill(self, tp: TopicPartition, *values: bytes, codec: Codec = Codec.NONE, magic: int = 1) -> None:
        records = [Record(b"k", value, 1_000 + number) for number, value in enumerate(values)]
        self.logs[tp].append(build_message_set(records, codec=codec, magic=magic))

    def asked(self, key: ApiKey) -> list[Any]:
        """The requests of one API so far."""
        return [request for _, api_key, _, request in self.requests if api_key is key]

    # What brokers do.

    def respond(self, broker_id: int, exchange: Exchange, frame: memoryview) -> None:
        header, body = RequestHeader.decode(frame)
        api = APIS[ApiKey(header.api_key)]
        request = api.decode_request(header.api_version, body)
        self.requests.append((broker_id, api.key, header.api_version, request))
        scripts = self._scripts[api.key]
        name = f"answer_{api.key.name.lower()}"
        owner = self if hasattr(self, name) else self.groups
        answer: Answer = scripts.popleft() if scripts else getattr(owner, name)
        response = answer(broker_id, request)

        def send(response: Any) -> None:
            parts = api.encode_response(header.api_version, response)
            exchange.respond([response_header(header.correlation_id), *parts])

        if response is Fault.CUT_REQUEST:
            exchange.close("scripted")
        elif response is None:
            exchange.respond([])
        elif isinstance(response, Later):
            response.bind(send)
        else:
            send(_cut(request, response) if api.key is ApiKey.FETCH and header.api_version < 3 else response)
        self.groups.settle()

    def answer_api_versions(self, broker_id: int, request: object) -> ApiVersionsResponse:
        rows = [
            ApiVersion(int(api.key), self.oldest.get(api.key, 0), self.newest.get(api.key, api.max_version))
            for api in APIS.values()
            if api.key not in self.unknown
        ]
        return ApiVersionsResponse(0, tuple(rows))

    def answer_metadata(self, broker_id: int, request: MetadataRequest) -> MetadataResponse:
        names = sorted({tp.topic for tp in self.leaders}) if request.topics is None else request.topics
        live = tuple(MetadataBroker(b, HOST, FIRST_PORT + b) for b in sorted(self._servers))
        return MetadataResponse(0, live, "a-cluster-id", self.controller_id, tuple(map(self._topic, names)))

    def _topic(self, name: str) -> MetadataTopic:
        partitions = [tp for tp in self.leaders if tp.topic == name]
        if not partitions:
            return MetadataTopic(int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), name, False, ())
        rows = []
        for tp in partitions:
            leader = self.leaders[tp]
            code = ErrorCode.NONE if leader > 0 else ErrorCode.LEADER_NOT_AVAILABLE
            rows.append(MetadataPartition(int(code), tp.partition, leader, 0, (leader,), (leader,)))
        # Brokers give them in no particular order.
        return MetadataTopic(0, name, name.startswith("__"), tuple(reversed(rows)))

    def answer_produce(self, broker_id: int, request: ProduceRequest) -> ProduceResponse | None:
        topics = []
        for topic in request.topics:
            rows = []
            for part in topic.partitions:
                tp = TopicPartition(topic.name, part.index)
                code, base = self._code(broker_id, tp), -1
                if code is ErrorCode.NONE:
                    try:
                        base = self.logs[tp].append(bytes(part.records))
                    except BrokerError as error:
                        code = error.code
                rows.append(ProducePartitionResponse(part.index, int(code), base))
            topics.append(ProduceTopicResponse(topic.name, tuple(rows)))
        return ProduceResponse(tuple(topics)) if request.acks else None

    def answer_init_producer_id(
        self, broker_id: int, request: InitProducerIdRequest
    ) -> InitProducerIdResponse:
        assert request.transactional_id is None
        return InitProducerIdResponse(0, 0, next(self._producer_ids), 0)

    def answer_fetch(self, broker_id: int, request: FetchRequest) -> FetchResponse:
        topics = [
            FetchTopicResponse(
                topic.name,
                tuple(
                    self._fetch(broker_id, topic.name, part, request.isolation_level)
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        ]
        return FetchResponse(0, 0, 0, tuple(topics))

    def _fetch(
        self, broker_id: int, topic: str, part: FetchPartition, isolation_level: int
    ) -> FetchPartitionResponse:
        tp = TopicPartition(topic, part.index)
        log = self.logs[tp]
        code = self._code(broker_id, tp)
        if code is ErrorCode.NONE and not log.start_offset <= part.fetch_offset <= log.end_offset:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        if code is not ErrorCode.NONE:
            return FetchPartitionResponse(part.index, int(code), -1, -1, -1, None, b"")
        end, stable = log.end_offset, log.last_stable_offset
        readable = stable if isolation_level else end
        found = [entry for _, last, entry in log.entries if part.fetch_offset <= last < readable]
        limit = max(part.partition_max_bytes, len(found[0]) if found else 0)
        aborted = None
        if isolation_level:
            # A broker names at least those of what it sends; here all that end behind its beginning.
            ended = [one for one in log.aborted if one[2] >= part.fetch_offset]
            aborted = tuple(AbortedTransaction(producer, first) for producer, first, _ in ended)
        data = b"".join(found)[:limit]
        return FetchPartitionResponse(part.index, 0, end, stable, log.start_offset, aborted, data)

    def answer_list_offsets(self, broker_id: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        def row(topic: str, part: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
            tp = TopicPartition(topic, part.index)
            log = self.logs[tp]
            latest = log.last_stable_offset if request.isolation_level else log.end_offset
            offset = {EARLIEST: log.start_offset, -1: latest}.get(part.timestamp, -1)
            if part.timestamp >= 0:
                records = [r for _, _, entry in log.entries for r in iterate(entry)]
                offset = next((r.offset for r in records if r.timestamp_ms >= part.timestamp), -1)
            return ListOffsetsPartitionResponse(
                part.index, int(self._code(broker_id, tp)), (offset,), part.timestamp, offset
            )

        return ListOffsetsResponse(
            0,
            tuple(
                ListOffsetsTopicResponse(
                    topic.name, tuple(row(topic.name, part) for part in topic.partitions)
                )
                for topic in request.topics
            ),
        )

    def answer_create_topics(self, broker_id: int, request: CreateTopicsRequest) -> CreateTopicsResponse:
        results = []
        for topic in request.topics:
            code = ErrorCode.NONE
            if broker_id != self.controller_id:
                code = ErrorCode.NOT_CONTROLLER
            elif any(tp.topic == topic.name for tp in self.leaders):
                code = ErrorCode.TOPIC_ALREADY_EXISTS
            else:
                self.add_topic(topic.name, max(topic.num_partitions, len(topic.assignments)))
            results.append(CreatableTopicResult(topic.name, int(code)))
        return CreateTopicsResponse(0, tuple(results))

    def answer_delete_topics(self, broker_id: int, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        results = []
        for name in request.topic_names:
            gone = [tp for tp in self.leaders if tp.topic == name]
            code = ErrorCode.NONE if gone else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if broker_id != self.controller_id:
                code, gone = ErrorCode.NOT_CONTROLLER, []
            for tp in gone:
                del self.leaders[tp]
            results.append(DeletableTopicResult(name, int(code)))
        return DeleteTopicsResponse(0, tuple(results))

    def _code(self, broker_id: int, tp: TopicPartition) -> ErrorCode:
        if tp not in self.leaders:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE if self.leaders[tp] == broker_id else ErrorCode.NOT_LEADER_FOR_PARTITION


class _Handler:
    def __init__(self, brokers: BrokersInMemory, broker_id: int) -> None:
        self._brokers = brokers
        self._broker_id = broker_id

    def on_request(self, exchange: Exchange, frame: memoryview) -> None:
        self._brokers.respond(self._broker_id, exchange, frame)


def _cut(request: FetchRequest, response: FetchResponse) -> FetchResponse:
    """Versions 0 to 2: the first message too is cut off at the limit."""
    limits = {(t.name, p.index): p.partition_max_bytes for t in request.topics for p in t.partitions}
    return replace(
        response,
        topics=tuple(
            replace(
                topic,
                partitions=tuple(
                    replace(part, records=part.records[: limits[topic.name, part.index]])
                    for part in topic.partitions
                ),
            )
            for topic in response.topics
        ),
    )


def fetch_error(code: ErrorCode) -> Answer:
    """A fetch that answers every partition with ``code``."""

    def answer(_: int, request: FetchRequest) -> FetchResponse:
        return FetchResponse(
            0,
            0,
            0,
            tuple(
                FetchTopicResponse(
                    t.name,
                    tuple(
                        FetchPartitionResponse(p.index, int(code), -1, -1, -1, None, b"")
                        for p in t.partitions
                    ),
                )
                for t in request.topics
            ),
        )

    return answer


def produce_error(code: ErrorCode) -> Answer:
    """A produce that refuses every partition with ``code``."""

    def answer(_: int, request: ProduceRequest) -> ProduceResponse:
        return ProduceResponse(
            tuple(
                ProduceTopicResponse(
                    t.name, tuple(ProducePartitionResponse(p.index, int(code), -1) for p in t.partitions)
                )
                for t in request.topics
            )
        )

    return answer

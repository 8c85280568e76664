"""Wrong requests of transactions: our brokers and Kafka 3.9.1 give the same errors, and write nothing."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, ProducerIdAndEpoch, TopicPartition
from minikafka.clients.admin.admin import LATEST, Admin, NewTopic
from minikafka.clients.network.cluster import ClusterClient
from minikafka.embedded.process import wait_until
from minikafka.net.connection import SocketConnection, SocketConnector
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Record
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.produce import ProducePartition, ProduceRequest, ProduceTopic
from tests.faults.attack import answer_of
from tests.support import requests
from tests.support import transaction_requests as transactions
from tests.support.requests import Request
from tests.support.transactional_clusters import KAFKA, OURS, transactional_cluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

PATIENCE_S = 60.0
TOPIC = "t"
FEW = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "2"}
GROUP, OTHER_GROUP = "a", "b"
"""Groups of two partitions of the offsets topic."""
WRITTEN_TO = [
    *(TopicPartition(topic, number) for topic in (TOPIC, OFFSETS_TOPIC) for number in (0, 1)),
    TopicPartition(TRANSACTION_STATE_TOPIC, 0),
]
_NUMBERS = itertools.count()


class Producer:
    """A producer of raw requests, with a new transactional id."""

    def __init__(self, cluster: ClusterClient, connection: SocketConnection) -> None:
        self._cluster = cluster
        self._connection = connection
        self.id = f"producer-{next(_NUMBERS)}"
        self.ids = transactions.NOBODY
        assert wait_until(self.init, PATIENCE_S)

    def call(self, request: Request) -> Any:
        return answer_of(self._connection, request)

    def init(self) -> bool:
        """Get an id, or the next epoch; return False if the coordinator is not ready yet."""
        found = self.call(transactions.init(self.id))
        self.ids = ProducerIdAndEpoch(found.producer_id, found.producer_epoch)
        return bool(found.error_code == 0)

    def codes(self, request: Request) -> list[str]:
        """The names of all error codes in the response."""
        return [ErrorCode.of(code).name for code in codes(self.call(request))]

    def begin(self) -> None:
        """Begin a transaction, with a batch in partition 0 of the topic."""
        assert self.codes(transactions.add(self.id, self.ids, {TOPIC: [0]})) == ["NONE"]
        assert self.codes(self.produced()) == ["NONE"]

    def end(self, *, commit: bool) -> None:
        """End the transaction, and wait until it is complete."""
        assert self.codes(transactions.end(self.id, self.ids, commit=commit)) == ["NONE"]
        assert wait_until(lambda: self.state.startswith("Complete"), PATIENCE_S)

    def produced(
        self, ids: ProducerIdAndEpoch | None = None, partition: int = 0, version: int = 9, name: str = ""
    ) -> Request:
        """A batch of the transaction."""
        producer_id, epoch = ids or self.ids
        batch = build_batch(
            [Record(None, b"v", 1)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=True,
        )
        topic = ProduceTopic(TOPIC, (ProducePartition(partition, batch),))
        return Request(ApiKey.PRODUCE, version, ProduceRequest(name or self.id, -1, 30_000, (topic,)))

    def refused(self, request: Request) -> list[str]:
        """The names of all error codes, of a request that must not change anything."""
        before = self.written()
        found = self.codes(request)
        assert self.written() == before
        return found

    @property
    def state(self) -> str:
        state: str = self.call(transactions.describe(self.id)).transaction_states[0].transaction_state
        return state

    @property
    def later(self) -> ProducerIdAndEpoch:
        """An epoch that nobody has yet."""
        return ProducerIdAndEpoch(self.ids.producer_id, self.ids.epoch + 1)

    @property
    def stranger(self) -> ProducerIdAndEpoch:
        """An id that nobody has."""
        return ProducerIdAndEpoch(self.ids.producer_id + 100_000, 0)

    def written(self) -> dict[str, object]:
        """All that a request can change."""
        ends: dict[str, object] = {
            str(tp): end
            for tp, end in Admin(self._cluster).offsets(dict.fromkeys(WRITTEN_TO, LATEST)).items()
        }
        offsets = self.call(requests.fetch_offsets(TOPIC, group=GROUP, partitions=(0, 1)))
        return {**ends, "state": self.state, "offsets": offsets}


def codes(response: Any) -> list[int]:
    """The error codes in a response: those of partitions, in their order, or else its own."""
    found: list[int] = []
    for name in getattr(response, "__dataclass_fields__", ()):
        value = getattr(response, name)
        if isinstance(value, tuple):
            found += itertools.chain.from_iterable(map(codes, value))
    own = [
        getattr(response, name) for name in ("error_code", "partition_error_code") if hasattr(response, name)
    ]
    return found or own


@pytest.fixture(scope="module", params=[OURS, KAFKA])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("wrong")
    with transactional_cluster(request.param, directory, FEW) as addresses:
        yield addresses


@contextlib.contextmanager
def started(bootstrap: str) -> Iterator[Producer]:
    """A producer on a cluster, with the topic."""
    host, _, port = bootstrap.rpartition(":")
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(ClusterClient(bootstrap))
        if TOPIC not in Admin(cluster).describe_cluster().topics:
            Admin(cluster).create_topic(NewTopic(TOPIC, partitions=2))
        connection = SocketConnector(request_timeout_ms=int(PATIENCE_S * 1_000)).connect(host, int(port))
        stack.callback(connection.close)
        for request in (transactions.find("x"), requests.find_coordinator()):  # these create their topics
            assert wait_until(lambda asked=request: answer_of(connection, asked).error_code == 0, PATIENCE_S)
        yield Producer(cluster, connection)


@pytest.fixture
def producer(bootstrap: str) -> Iterator[Producer]:
    with started(bootstrap) as producer:
        yield producer


def added(producer: Producer, name: str, ids: ProducerIdAndEpoch, version: int) -> Request:
    return transactions.add(name, ids, {TOPIC: [0]}, version)


def added_offsets(producer: Producer, name: str, ids: ProducerIdAndEpoch, version: int) -> Request:
    return transactions.add_offsets(name, ids, GROUP, version)


def committed_offsets(producer: Producer, name: str, ids: ProducerIdAndEpoch, version: int) -> Request:
    return transactions.commit_offsets(name, ids, GROUP, {TOPIC: [0]}, version)


def committed(producer: Producer, name: str, ids: ProducerIdAndEpoch, version: int) -> Request:
    return transactions.end(name, ids, version=version)


def aborted(producer: Producer, name: str, ids: ProducerIdAndEpoch, version: int) -> Request:
    return transactions.end(name, ids, commit=False, version=version)


def produced(producer: Producer, name: str, ids: ProducerIdAndEpoch, version: int) -> Request:
    return producer.produced(ids, version=version, name=name)


RequestOf = Callable[[Producer, str, ProducerIdAndEpoch, int], Request]
FENCED = [
    *((of, 0, "INVALID_PRODUCER_EPOCH") for of in (added, added_offsets, committed, aborted)),
    *((of, 3, "PRODUCER_FENCED") for of in (added, added_offsets, committed, aborted)),
    (committed_offsets, 0, "INVALID_PRODUCER_EPOCH"),
    (committed_offsets, 3, "INVALID_PRODUCER_EPOCH"),
    (produced, 7, "INVALID_PRODUCER_EPOCH"),
    (produced, 11, "INVALID_PRODUCER_EPOCH"),
]
"""Requests of producers, the oldest and newest version of each, and the error of another epoch."""
EVERY = [(of, version) for of, version, _ in FENCED]


@pytest.mark.parametrize(("of", "version"), EVERY)
def test_unknown_producer_is_refused(producer: Producer, of: RequestOf, version: int) -> None:
    unknown = of(producer, producer.id, producer.stranger, version)
    assert producer.refused(unknown) == ["INVALID_PRODUCER_ID_MAPPING"]


@pytest.mark.parametrize(("of", "version"), EVERY)
def test_unknown_transactional_id_is_refused(producer: Producer, of: RequestOf, version: int) -> None:
    unknown = of(producer, "nobody", producer.ids, version)
    assert producer.refused(unknown) == ["INVALID_PRODUCER_ID_MAPPING"]


@pytest.mark.parametrize(("of", "version"), [(of, version) for of, version in EVERY if of is not produced])
def test_empty_transactional_id_is_refused(producer: Producer, of: RequestOf, version: int) -> None:
    assert producer.refused(of(producer, "", producer.ids, version)) == ["INVALID_REQUEST"]


@pytest.mark.parametrize(("of", "version", "error"), FENCED)
def test_epoch_of_the_future_is_refused(producer: Producer, of: RequestOf, version: int, error: str) -> None:
    assert producer.refused(of(producer, producer.id, producer.later, version)) == [error]


@pytest.mark.parametrize(("of", "version", "error"), FENCED)
def test_fenced_producer_is_refused(producer: Producer, of: RequestOf, version: int, error: str) -> None:
    fenced = producer.ids
    assert producer.init()
    producer.begin()
    assert producer.refused(of(producer, producer.id, fenced, version)) == [error]
    producer.end(commit=True)


@pytest.mark.parametrize(("version", "error"), [(3, "INVALID_PRODUCER_EPOCH"), (4, "PRODUCER_FENCED")])
def test_initialization_as_somebody_else_is_refused(producer: Producer, version: int, error: str) -> None:
    for ids in (producer.later, producer.stranger):
        other = transactions.init(producer.id, producer=ids, version=version)
        assert producer.refused(other) == [error]


def test_initialization_with_half_an_identity_is_refused(producer: Producer) -> None:
    for ids in ((producer.ids.producer_id, -1), (-1, 0)):
        half = transactions.init(producer.id, producer=ProducerIdAndEpoch(*ids))
        assert producer.refused(half) == ["INVALID_REQUEST"]


@pytest.mark.parametrize("version", [0, 4])
def test_initialization_without_a_name_is_refused(producer: Producer, version: int) -> None:
    assert producer.refused(transactions.init("", version=version)) == ["INVALID_REQUEST"]


@pytest.mark.parametrize("version", [0, 4])
@pytest.mark.parametrize("timeout_ms", [900_001, (1 << 31) - 1, 0, -1, -(1 << 31)])
def test_time_out_outside_of_the_limits_is_refused(producer: Producer, timeout_ms: int, version: int) -> None:
    outside = transactions.init(producer.id, timeout_ms=timeout_ms, version=version)
    assert producer.refused(outside) == ["INVALID_TRANSACTION_TIMEOUT"]


@pytest.mark.parametrize("version", [0, 3])
@pytest.mark.parametrize(
    ("partitions", "errors"),
    [
        ({TOPIC: [0], "unknown": [0]}, ["OPERATION_NOT_ATTEMPTED", "UNKNOWN_TOPIC_OR_PARTITION"]),
        ({TOPIC: [0, 7]}, ["OPERATION_NOT_ATTEMPTED", "UNKNOWN_TOPIC_OR_PARTITION"]),
        ({TOPIC: [-1]}, ["UNKNOWN_TOPIC_OR_PARTITION"]),
        ({"not/legal": [0]}, ["UNKNOWN_TOPIC_OR_PARTITION"]),
        ({TOPIC: [0], OFFSETS_TOPIC: [0]}, ["OPERATION_NOT_ATTEMPTED", "TOPIC_AUTHORIZATION_FAILED"]),
        ({TRANSACTION_STATE_TOPIC: [0]}, ["TOPIC_AUTHORIZATION_FAILED"]),
    ],
)
def test_one_refused_partition_refuses_all(
    producer: Producer, partitions: dict[str, list[int]], errors: list[str], version: int
) -> None:
    assert producer.refused(transactions.add(producer.id, producer.ids, partitions, version)) == errors
    producer.begin()
    assert producer.refused(transactions.add(producer.id, producer.ids, partitions, version)) == errors
    producer.end(commit=True)


@pytest.mark.parametrize("version", [0, 3])
def test_end_without_a_transaction_is_refused(producer: Producer, version: int) -> None:
    for end in (committed, aborted):
        assert producer.refused(end(producer, producer.id, producer.ids, version)) == ["INVALID_TXN_STATE"]


@pytest.mark.parametrize("version", [0, 3])
@pytest.mark.parametrize("commit", [True, False])
def test_second_end_changes_nothing(producer: Producer, version: int, commit: bool) -> None:
    producer.begin()
    producer.end(commit=commit)
    ends = (committed, aborted) if commit else (aborted, committed)
    errors = [producer.refused(end(producer, producer.id, producer.ids, version)) for end in ends]
    assert errors == [["NONE"], ["INVALID_TXN_STATE"]]


@pytest.mark.parametrize(("version", "error"), [(7, "INVALID_TXN_STATE"), (11, "TRANSACTION_ABORTABLE")])
def test_batch_for_a_partition_outside_of_the_transaction_is_refused(
    producer: Producer, version: int, error: str
) -> None:
    assert producer.refused(producer.produced(version=version)) == [error]
    producer.begin()
    assert producer.refused(producer.produced(partition=1, version=version)) == [error]
    producer.end(commit=True)
    assert producer.refused(producer.produced(version=version)) == [error]


@pytest.mark.parametrize("version", [0, 3])
def test_offsets_of_a_group_that_was_not_added_are_refused(producer: Producer, version: int) -> None:
    offsets = committed_offsets(producer, producer.id, producer.ids, version)
    assert producer.refused(offsets) == ["INVALID_TXN_STATE"]
    other = transactions.add_offsets(producer.id, producer.ids, OTHER_GROUP)
    assert producer.codes(other) == ["NONE"]
    assert producer.refused(offsets) == ["INVALID_TXN_STATE"]
    producer.end(commit=True)
    assert producer.refused(offsets) == ["INVALID_TXN_STATE"]


@pytest.mark.parametrize("version", [0, 3])
def test_offsets_of_no_group_are_refused(producer: Producer, version: int) -> None:
    offsets = transactions.commit_offsets(producer.id, producer.ids, "", {TOPIC: [0]}, version)
    assert producer.refused(offsets) == ["INVALID_GROUP_ID"]


@pytest.mark.parametrize("kind", [OURS, KAFKA])
def test_producer_whose_id_has_expired_is_refused_until_it_has_another(kind: str, tmp_path: Path) -> None:
    expiring = {
        **FEW,
        "transactional.id.expiration.ms": "1000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    }
    with transactional_cluster(kind, tmp_path, expiring) as bootstrap, started(bootstrap) as producer:
        former = producer.ids
        assert wait_until(lambda: producer.state == "", PATIENCE_S)
        for of, version in EVERY:
            late = of(producer, producer.id, former, version)
            assert producer.refused(late) == ["INVALID_PRODUCER_ID_MAPPING"], of
        found = producer.call(transactions.init(producer.id, producer=former))
        assert (found.error_code, found.producer_epoch) == (0, 0)
        assert found.producer_id != former.producer_id

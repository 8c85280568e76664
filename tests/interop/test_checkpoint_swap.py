"""A streaming query that goes from Spark's own connector to ours with its checkpoint, and back.

Whatever happens on the way, each record must come in exactly one batch: a sink that writes a batch again over
its first attempt then has everything once.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce import BatchingConfig, BatchingProducer
from tests.interop.conftest import Broker
from tests.interop.driver import Program, encode
from tests.interop.spark_connector import PROGRAMS, SparkConnector, spark_connector

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

PATIENCE_S = 300.0

PEER, OURS = "kafka", "minikafka"
Record = tuple[str, int, int]
"""Topic, partition and offset."""


class Sparks:
    """The program, started again when it was killed."""

    def __init__(self, connector: SparkConnector, bootstrap: str) -> None:
        self._connector = connector
        self._bootstrap = bootstrap
        self._program: Program | None = None

    def run(self, **asked: Any) -> str:
        """Run a query to its end; its error's text, which is empty when there was none."""
        if self._program is None:
            peer = self._connector
            command = [peer.python, str(PROGRAMS / "spark_swap.py"), self._bootstrap, peer.jars]
            self._program = Program(command, peer.environment(ours=True))
        word = encode(json.dumps(asked).encode())
        if "dies" in asked:
            with pytest.raises(AssertionError, match="has ended"):
                self._program.ask("run", word, patience_s=PATIENCE_S)
            self.close()
            return "killed"
        try:
            said = self._program.ask("run", word, patience_s=PATIENCE_S)
        except BaseException:
            self.close()  # it may still be at it
            raise
        return " ".join(" ".join(words) for words in said)

    def close(self) -> None:
        """End it."""
        if self._program is not None:
            self._program.close()
            self._program = None


@pytest.fixture(scope="module")
def sparks(broker: Broker) -> Iterator[Sparks]:
    found = Sparks(spark_connector(), broker.bootstrap)
    yield found
    found.close()


class Query:
    """A query over topics of its own, its checkpoint and what its batches wrote."""

    def __init__(self, sparks: Sparks, broker: Broker, directory: Path, *topics: int) -> None:
        self._sparks = sparks
        self._broker = broker
        self._directory = directory
        self.checkpoint = directory / "checkpoint"
        self.sent: list[Record] = []
        self.topics = [f"swap-{uuid.uuid4().hex[:12]}" for _ in topics]
        with ClusterClient(broker.bootstrap) as cluster:
            for name, partitions in zip(self.topics, topics, strict=True):
                Admin(cluster).create_topic(NewTopic(name, partitions))
        self.partitions = [
            TopicPartition(name, number)
            for name, partitions in zip(self.topics, topics, strict=True)
            for number in range(partitions)
        ]

    def send(self, each: int) -> None:
        """Append so many records to the first partition, twice as many to the second, and so on."""
        with (
            ClusterClient(self._broker.bootstrap) as cluster,
            BatchingProducer(cluster, BatchingConfig(acks=-1)) as producer,
        ):
            sent = [
                producer.send(tp.topic, b"x", partition=tp.partition)
                for number, tp in enumerate(self.partitions, 1)
                for _ in range(each * number)
            ]
        for delivery in sent:
            result = delivery.result()
            self.sent.append((*result.topic_partition, result.offset))

    def run(self, source: str, sources: list[dict[str, str]] | None = None, **given: Any) -> str:
        """Run it with one of the two sources; what of ``given`` is no word of the program is an option."""
        asked = {name: given.pop(name) for name in ("fails", "dies", "stops", "trigger") if name in given}
        options = {name.replace("__", "."): value for name, value in given.items()}
        options.setdefault("subscribe", ",".join(self.topics))
        return self._sparks.run(
            format=source,
            sources=sources or [options],
            checkpoint=str(self.checkpoint),
            to=str(self._directory / "batches"),
            **asked,
        )

    def finish(self, source: str, **options: str) -> None:
        """Run it until nothing is left: before 4.2 a run of ours is one batch, be it a repeated one."""
        for _ in range(2 if source == OURS else 1):
            assert self.run(source, **options) == ""

    @property
    def batches(self) -> dict[int, list[Record]]:
        """The records of each batch in the sink."""
        found = {}
        for path in (self._directory / "batches").glob("*[0-9]"):
            lines = (line.split() for line in path.read_text().splitlines())
            found[int(path.name)] = sorted((topic, int(p), int(offset)) for topic, p, offset in lines)
        return found

    def has(self, expected: list[Record]) -> bool:
        """Return True if the batches contain exactly these records."""
        came = Counter(record for batch in self.batches.values() for record in batch)
        assert came == Counter(expected), (came - Counter(expected), Counter(expected) - came)
        return True

    def first_end(self) -> dict[str, dict[str, int]]:
        """The end of batch 0 of the first source."""
        found: dict[str, dict[str, int]] = json.loads(
            (self.checkpoint / "offsets" / "0").read_text().splitlines()[2]
        )
        return found


LIMITED = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}


def test_a_query_goes_over_and_back_again_and_again(sparks: Sparks, broker: Broker, tmp_path: Path) -> None:
    query = Query(sparks, broker, tmp_path, 1, 3, 2)
    for source in (PEER, OURS, PEER, OURS, OURS, PEER):
        query.send(3)
        assert query.run(source, **LIMITED) == ""
        assert query.has(query.sent)
    assert len(query.batches) > 8


@pytest.mark.parametrize("first", [PEER, OURS])
def test_a_batch_that_failed_is_repeated_exactly_by_the_other(
    sparks: Sparks, broker: Broker, tmp_path: Path, first: str
) -> None:
    query, second = Query(sparks, broker, tmp_path, 2, 2), OURS if first == PEER else PEER
    query.send(2)
    assert query.run(PEER, **LIMITED) == ""
    done = max(query.batches)
    query.send(2)
    assert "the sink is away" in query.run(first, fails=done + 1, **LIMITED)
    planned = (query.checkpoint / "offsets" / str(done + 1)).read_text()
    query.send(2)
    query.finish(second, **LIMITED)
    assert (query.checkpoint / "offsets" / str(done + 1)).read_text() == planned
    assert query.has(query.sent)


@pytest.mark.parametrize("first", [PEER, OURS])
def test_a_query_that_is_stopped_in_a_batch_goes_on_with_the_other(
    sparks: Sparks, broker: Broker, tmp_path: Path, first: str
) -> None:
    query, second = Query(sparks, broker, tmp_path, 2), OURS if first == PEER else PEER
    query.send(30)
    assert query.run(PEER, **LIMITED) == ""
    done = max(query.batches)
    query.send(30)
    query.run(first, trigger=False, stops=done + 1, **LIMITED)
    assert done + 1 not in query.batches
    query.send(1)
    query.finish(second, **LIMITED)
    assert query.has(query.sent)


@pytest.mark.parametrize("first", [PEER, OURS])
def test_a_query_that_is_killed_in_a_batch_goes_on_with_the_other(
    sparks: Sparks, broker: Broker, tmp_path: Path, first: str
) -> None:
    query, second = Query(sparks, broker, tmp_path, 1, 2), OURS if first == PEER else PEER
    query.send(4)
    assert query.run(PEER, **LIMITED) == ""
    done = max(query.batches)
    query.send(4)
    query.run(first, dies=done + 1, **LIMITED)
    query.send(4)
    query.finish(second, **LIMITED)
    assert query.has(query.sent)


def begun_by_the_peer(query: Query) -> dict[str, str]:
    """Have the peer's query fail in batch 0, which begins at each partition's third record; its options."""
    query.send(4)
    start: dict[str, dict[str, int]] = {}
    for topic, partition in query.partitions:
        start.setdefault(topic, {})[str(partition)] = 2
    options = {"startingOffsets": json.dumps(start)}
    assert "the sink is away" in query.run(PEER, fails=0, **options)
    query.send(4)
    return options


@pytest.mark.parametrize("option", ["minikafka.resume.from", "checkpointLocation"])
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_first_batch_that_failed_begins_where_the_peers_file_says(
    sparks: Sparks, broker: Broker, tmp_path: Path, option: str, start: str
) -> None:
    query = Query(sparks, broker, tmp_path, 1, 2)
    begun_by_the_peer(query)
    query.finish(OURS, startingOffsets=start, **{option: str(query.checkpoint)})
    assert query.has([record for record in query.sent if record[2] >= 2])
    ends = {(topic, int(p)): end for topic, ps in query.first_end().items() for p, end in ps.items()}
    assert query.batches[0] == sorted(r for r in query.sent if 2 <= r[2] < ends[r[:2]])


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_invisible_start_file_refuses_query_without_loss(
    sparks: Sparks, broker: Broker, tmp_path: Path, start: str
) -> None:
    query = Query(sparks, broker, tmp_path, 2)
    options = begun_by_the_peer(query)
    said = query.run(OURS, startingOffsets=start)
    assert "planned by another source" in said
    assert "minikafka.resume.from" in said
    assert query.batches == {}
    assert query.run(PEER, **options) == ""
    assert query.has([record for record in query.sent if record[2] >= 2])


def test_peer_killed_before_first_batch_has_recorded_its_start(
    sparks: Sparks, broker: Broker, tmp_path: Path
) -> None:
    query = Query(sparks, broker, tmp_path, 2)
    begun_by_the_peer(query)
    for path in (query.checkpoint / "offsets").iterdir():
        path.unlink()
    asked = {"startingOffsets": "latest", "minikafka.resume.from": str(query.checkpoint)}
    assert query.run(OURS, **asked) == ""
    assert query.has([record for record in query.sent if record[2] >= 2])


def test_each_of_several_sources_begins_where_its_own_file_says(
    sparks: Sparks, broker: Broker, tmp_path: Path
) -> None:
    query = Query(sparks, broker, tmp_path, 1, 1)
    query.send(5)
    one, other = query.topics
    sources = [
        {"subscribe": one, "startingOffsets": json.dumps({one: {"0": 1}})},
        {"subscribe": other, "startingOffsets": json.dumps({other: {"0": 4}})},
    ]
    assert "the sink is away" in query.run(PEER, sources, fails=0)
    query.send(5)
    resumed = [
        {"subscribe": source["subscribe"], "minikafka.resume.from": str(query.checkpoint)}
        for source in sources
    ]
    for _ in range(2):
        assert query.run(OURS, resumed) == ""
    begins = {one: 1, other: 4}
    assert query.has([record for record in query.sent if record[2] >= begins[record[0]]])


@pytest.mark.parametrize("batches", [1, 2])
def test_a_query_that_began_here_goes_to_the_peer(
    sparks: Sparks, broker: Broker, tmp_path: Path, batches: int
) -> None:
    query = Query(sparks, broker, tmp_path, 2)
    for _ in range(batches):
        query.send(3)
        assert query.run(OURS, startingOffsets="earliest") == ""
    query.send(3)
    assert query.run(PEER) == ""
    assert query.has(query.sent)


def test_peer_repeats_our_failed_first_batch_from_its_options(
    sparks: Sparks, broker: Broker, tmp_path: Path
) -> None:
    query = Query(sparks, broker, tmp_path, 2)
    query.send(3)
    assert "the sink is away" in query.run(OURS, fails=0, startingOffsets="earliest")
    query.send(3)
    assert query.run(PEER, startingOffsets="earliest") == ""
    assert query.has(query.sent)

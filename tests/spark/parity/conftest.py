"""One test, the same assertion, on Spark's own connector and on ours.

``source`` is three in turn: ``ours``, the format minikafka with our broker, in every run; and where there are
jars (see ``tests.spark.peer``, and ``MINIKAFKA_KAFKA3_LIBS``) ``peer``, the format kafka with Apache Kafka
3.9.1, and ``ours_on_kafka``. One Spark session has both formats.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.releases import KAFKA_3_9
from tests.spark import peer
from tests.spark.conftest import Kafka
from tests.support.kafka_broker import running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming import StreamingQuery

PATIENCE_S = 90


def named(options: Mapping[str, object]) -> dict[str, str]:
    """``kafka__acks=1`` as Spark has it: ``{"kafka.acks": "1"}``."""
    return {name.replace("__", "."): str(value) for name, value in options.items()}


def texts(rows: list[Row]) -> list[str]:
    """The values, in order of the alphabet."""
    return sorted("" if row.value is None else bytes(row.value).decode() for row in rows)


class Running:
    """A streaming query and what its batches held."""

    def __init__(self, query: StreamingQuery, batches: dict[int, list[Row]], checkpoint: Path) -> None:
        self.query = query
        self.batches = batches
        self.checkpoint = checkpoint

    @property
    def rows(self) -> list[Row]:
        return list(itertools.chain.from_iterable(self.batches[number] for number in sorted(self.batches)))

    def read(self) -> list[str]:
        """All values so far, once everything that is there was read."""
        self.query.processAllAvailable()
        return texts(self.rows)

    def ended(self) -> list[str]:
        """All values, once the query has ended by itself."""
        assert self.query.awaitTermination(PATIENCE_S)
        return texts(self.rows)

    def failure(self) -> str:
        """Why the query failed, once it has."""
        with pytest.raises(Exception) as caught:
            self.query.awaitTermination(PATIENCE_S)
        return str(caught.value)


class Source:
    """A format, a cluster that it is to read and write, and the Spark that does it."""

    def __init__(self, format_name: str, kafka: Kafka, spark: SparkSession, directory: Path) -> None:
        self.format = format_name
        self.kafka = kafka
        self.spark = spark
        self._directory = directory
        self._numbers = itertools.count()
        self._started: list[StreamingQuery] = []

    @property
    def is_peer(self) -> bool:
        """True for Spark's own connector."""
        return self.format == "kafka"

    def options(self, given: Mapping[str, object]) -> dict[str, str]:
        """``given`` with the cluster's address; topics are looked for anew in every batch."""
        defaults = {"kafka.bootstrap.servers": self.kafka.servers, "kafka.metadata.max.age.ms": "1"}
        return {**defaults, **named(given)}

    def read(self, **options: object) -> DataFrame:
        """A batch read."""
        return self.spark.read.format(self.format).options(**self.options(options)).load()

    def values(self, **options: object) -> list[str]:
        """The values that a batch read gives."""
        return texts(self.read(**options).select("value").collect())

    def reading(self, **options: object) -> DataFrame:
        """A streaming read."""
        return self.spark.readStream.format(self.format).options(**self.options(options)).load()

    def checkpoint(self) -> Path:
        """A directory of its own for a query's progress."""
        return self._directory / f"checkpoint-{next(self._numbers)}"

    def stream(
        self,
        *,
        checkpoint: Path | None = None,
        trigger: dict[str, Any] | None = None,
        before: Callable[[int], None] | None = None,
        frame: DataFrame | None = None,
        **options: object,
    ) -> Running:
        """Start a query that keeps what it reads.

        before: is told the number of a batch that was planned, and not read yet.
        frame: what to start, rather than a read with ``options``.
        """
        at, batches = checkpoint or self.checkpoint(), dict[int, "list[Row]"]()

        def collect(batch: DataFrame, number: int) -> None:
            if before is not None:
                before(number)
            batches[number] = batch.collect()

        writer = (frame if frame is not None else self.reading(**options)).writeStream
        writer = writer.foreachBatch(collect).option("checkpointLocation", str(at))
        if trigger is not None:
            writer = writer.trigger(**trigger)
        self._started.append(writer.start())
        return Running(self._started[-1], batches, at)

    def write(self, frame: DataFrame, mode: str | None = "append", **options: object) -> None:
        """A batch write."""
        writer = frame.write.format(self.format).options(**self.options(options))
        (writer if mode is None else writer.mode(mode)).save()

    def writing(self, frame: DataFrame, mode: str = "append", **options: object) -> StreamingQuery:
        """A streaming write of all that is there, to its end."""
        writer = frame.writeStream.format(self.format).outputMode(mode).options(**self.options(options))
        writer = writer.option("checkpointLocation", str(self.checkpoint())).trigger(availableNow=True)
        query = writer.start()
        self._started.append(query)
        assert query.awaitTermination(PATIENCE_S)
        return query

    def continuous(self, frame: DataFrame) -> StreamingQuery:
        """A query without batches."""
        writer = frame.selectExpr("value").writeStream.format("noop").trigger(continuous="1 second")
        query = writer.option("checkpointLocation", str(self.checkpoint())).start()
        self._started.append(query)
        return query

    def stop(self) -> None:
        """Stop what still runs."""
        for query in self._started:
            query.stop()


def refused(action: Callable[[], object], *words: str) -> None:
    """``action`` fails, and what it says has all the words, in any case."""
    with pytest.raises(Exception) as caught:
        action()
    said = str(caught.value)
    missing = [word for word in words if word.lower() not in said.lower()]
    assert not missing, said


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Apache Kafka 3.9.1."""
    with running(KAFKA_3_9, tmp_path_factory.mktemp("kafka")) as broker:
        found = Kafka(broker.bootstrap)
        yield found
        found.client.close()


OURS, THEIRS, OURS_ON_THEIRS = "ours", "peer", "ours_on_kafka"


@pytest.fixture(
    params=[
        OURS,
        pytest.param(THEIRS, marks=pytest.mark.interop),
        pytest.param(OURS_ON_THEIRS, marks=pytest.mark.interop),
    ]
)
def source(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Source]:
    """The source under test: ours, and where it is there the peer's."""
    if request.param == THEIRS and (why := peer.missing()):
        pytest.skip(why)
    kafka = request.getfixturevalue("kafka" if request.param == OURS else "apache_kafka")
    found = Source("kafka" if request.param == THEIRS else "minikafka", kafka, spark, tmp_path)
    yield found
    found.stop()

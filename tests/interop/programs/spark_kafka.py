"""``spark_kafka.py BOOTSTRAP JAR,JAR…``: Spark's own source and sink ``kafka``, in a session of its own.

produce TOPIC CODEC MODE N      then N records, written as one batch (Spark sends no timestamps of ours)
read TOPIC                      all records, in one batch
since TOPIC MS                  the records from the first of each partition at that time or later
stream TOPIC DIRECTORY          the records that a stream with that checkpoint has not had yet
copy TOPIC TO DIRECTORY         the same, written to another topic by the stream
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from lines import Client, decode, headers_of, record, reply, serve
from spark_kafka_session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BOOTSTRAP, JARS = sys.argv[1:]
SCHEMA = "partition int, key binary, value binary, headers array<struct<key: string, value: binary>>"
OPTIONS = {"kafka.bootstrap.servers": BOOTSTRAP, "startingOffsets": "earliest", "includeHeaders": "true"}


def show(frame: DataFrame) -> None:
    """Answer with the records of a frame."""
    for row in frame.collect():
        key, value = (None if field is None else bytes(field) for field in (row.key, row.value))
        headers = [
            (header.key, None if header.value is None else bytes(header.value))
            for header in row.headers or []
        ]
        timestamp_ms = round(row.timestamp.timestamp() * 1000)
        reply(record(row.partition, row.offset, timestamp_ms, key, value, headers))


class SparkKafka(Client):
    """The commands."""

    def __init__(self) -> None:
        super().__init__()
        self._spark = session(JARS)

    def produce(self, topic: str, codec: str, mode: str, lines: list[list[str]]) -> None:
        """Write a batch; one task keeps the order."""
        rows = [
            (int(partition), decode(key), decode(value), headers_of(headers))
            for partition, _, key, value, headers in lines
        ]
        writer = (
            self._spark.createDataFrame(rows, SCHEMA).coalesce(1).write.format("kafka").options(**OPTIONS)
        )
        if mode == "plain":
            writer = writer.option("kafka.enable.idempotence", "false")
        writer.option("topic", topic).option("kafka.compression.type", codec).mode("append").save()

    def read(self, topic: str) -> None:
        """Read a batch."""
        show(self._spark.read.format("kafka").options(**OPTIONS).option("subscribe", topic).load())

    def since(self, topic: str, timestamp_ms: str) -> None:
        """Read a batch from a time on."""
        options = OPTIONS | {"subscribe": topic, "startingTimestamp": timestamp_ms}
        options["startingOffsetsByTimestampStrategy"] = "latest"
        show(self._spark.read.format("kafka").options(**options).load())

    def _stream(self, topic: str) -> DataFrame:
        return self._spark.readStream.format("kafka").options(**OPTIONS).option("subscribe", topic).load()

    def stream(self, topic: str, directory: str) -> None:
        """Run a stream until it has everything."""
        query = self._stream(topic).writeStream.foreachBatch(lambda frame, number: show(frame))
        query.option("checkpointLocation", directory).trigger(availableNow=True).start().awaitTermination()

    def copy(self, topic: str, to: str, directory: str) -> None:
        """Run a stream that writes to a topic."""
        query = self._stream(topic).drop("topic").writeStream.format("kafka").options(**OPTIONS)
        query = query.option("topic", to).option("checkpointLocation", directory)
        query.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    serve(SparkKafka())

"""Dead letters: records whose key or value is not in its format, sent to a topic of their own.

A dead letter is the record as it was read (key, value, headers and timestamp), with more headers, as those of
Kafka Connect's dead letter queues. Their values are text::

    __connect.errors.topic               topic, partition and offset of the record
    __connect.errors.partition
    __connect.errors.offset
    __connect.errors.stage               KEY_CONVERTER or VALUE_CONVERTER
    __connect.errors.exception.message   why the key or value is bad

They are sent through the sink, and acknowledged before the other rows of their piece go to Spark. A task that
Spark runs again sends them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from minikafka.base.errors import MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.produce.config import BatchingConfig
from minikafka.records.columns import HEADERS_TYPE
from pyspark_minikafka.formats.bad_values import DEAD_LETTER_TOPIC
from pyspark_minikafka.formats.query_formats import QueryFormats
from pyspark_minikafka.location import Target
from pyspark_minikafka.options.kafka_options import SINK_DEFAULTS
from pyspark_minikafka.options.options import SinkOptions, SourceOptions
from pyspark_minikafka.schema import SinkColumns
from pyspark_minikafka.writing.task_writer import send

STORED = ("key", "value", "headers")
"""The columns of the stored records of which dead letters are made."""
_COLUMNS = SinkColumns(
    key=0, value=1, headers=2, topic=None, partition=None, timestamp=3, timestamp_is_ms=True
)
_STAGES = {"key": "KEY_CONVERTER", "value": "VALUE_CONVERTER"}
_BYTES_MAX = 1 << 30
"""For one record that was read: the brokers decide whether it is too large."""


class DeadLetterFailed(MinikafkaError):
    """A dead letter could not be written."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A key or value that is not in its format. row: in its piece. side: ``key`` or ``value``."""

    row: int
    side: str
    offset: int
    reason: str


class DeadLetters:
    """The dead letters of a task: sent to the cluster that it reads, with the same login."""

    def __init__(self, options: SourceOptions, target: Target) -> None:
        producer = {"max.request.size": _BYTES_MAX, "buffer.memory": _BYTES_MAX}
        self._target = target
        self._options = SinkOptions(
            location=options.location,
            connection=options.connection,
            producer=BatchingConfig.from_properties({**SINK_DEFAULTS, **producer}),
            topic=options.formats.dead_letter_topic,
            formats=QueryFormats(),
            warnings=(),
        )

    def send(
        self,
        at: TopicPartition,
        faults: Sequence[Fault],
        stored: Sequence[pa.Array],
        timestamps: np.ndarray[tuple[int], np.dtype[np.int64]],
    ) -> None:
        """Send the records of ``faults``, at most one a row, and wait until they are acknowledged.

        stored: the columns STORED of the piece. timestamps: in milliseconds, -1 for none. Raise
        DeadLetterFailed.
        """
        rows = np.array([fault.row for fault in faults], dtype=np.int64)
        key, value, headers = (column.take(pa.array(rows)) for column in stored)
        named = [
            (before or []) + _headers(at, fault)
            for before, fault in zip(headers.to_pylist(), faults, strict=True)
        ]
        times = timestamps[rows]
        columns = [key, value, pa.array(named, HEADERS_TYPE), pa.array(times, mask=times < 0)]
        letters = pa.RecordBatch.from_arrays(columns, names=[*STORED, "timestamp"])
        try:
            send(iter([letters]), self._options, self._target, _COLUMNS)
        except MinikafkaError as problem:
            raise DeadLetterFailed(
                f"cannot write dead letters of {at} to the topic {self._options.topic} "
                f"({DEAD_LETTER_TOPIC}): {problem}"
            ) from problem


def _headers(at: TopicPartition, fault: Fault) -> list[dict[str, object]]:
    texts = {
        "topic": at.topic,
        "partition": str(at.partition),
        "offset": str(fault.offset),
        "stage": _STAGES[fault.side],
        "exception.message": fault.reason,
    }
    return [{"key": f"__connect.errors.{name}", "value": text.encode()} for name, text in texts.items()]

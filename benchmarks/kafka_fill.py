"""Topics filled for a benchmark: the same bytes, in the same batches, for every broker.

Batches are those of Kafka's Java producer with its default settings: of 16 kB before compression, one after
another in each partition. All partitions get the same number of rows. Values are hexadecimal digits by
chance (a codec halves them), keys numbers of 16 digits; batches repeat after a few hundred, which nobody
notices who reads them one by one. Nothing is deleted for its age.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.network.broker_connection import ResponseFuture
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.connections import ConnectionPool
from minikafka.records.columns import EncodedRecords, encode
from minikafka.records.format.message_set import Codec
from minikafka.wire.apis.produce import (
    PRODUCE,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)

PARTITIONS = 4
BATCH_BYTES = 16_384
KEY_BYTES = 16
_POOL_BYTES = 4 << 20
_REQUESTS_AHEAD = 8


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of the rows of a topic."""

    value_bytes: int = 100
    keys: bool = False
    codec: Codec = Codec.NONE


def make_topic(servers: str, name: str, partitions: int = PARTITIONS) -> None:
    """A topic that keeps what it has."""
    with ClusterClient(servers) as cluster:
        Admin(cluster).create_topic(NewTopic(name, partitions, configs={"retention.ms": "-1"}))


def append(cluster: ClusterClient, name: str, rows: int, partitions: int) -> None:
    """Write ``rows`` rows, a multiple of ``partitions``, by one request: all are there at the same time."""
    (batch,) = _encoded(rows // partitions, rows // partitions, Shape(), max_bytes=1 << 20)
    parts = tuple(ProducePartition(index=p, records=batch.data) for p in range(partitions))
    request = ProduceRequest(None, -1, 30_000, (ProduceTopic(name=name, partitions=parts),))
    leader = cluster.leader(TopicPartition(name, 0)).broker_id
    _check(cluster.send(leader, PRODUCE, request, pool=ConnectionPool.PRODUCE))


def fill(servers: str, name: str, rows: int, shape: Shape) -> None:
    """Make the topic ``name`` and write ``rows`` rows to it, a multiple of four."""
    make_topic(servers, name)
    batches = _batches(rows // PARTITIONS, shape)
    with ClusterClient(servers) as cluster:
        leader = cluster.leader(TopicPartition(name, 0)).broker_id
        waiting: deque[ResponseFuture[ProduceResponse]] = deque()
        for batch in batches:
            parts = tuple(ProducePartition(index=p, records=batch.data) for p in range(PARTITIONS))
            request = ProduceRequest(None, -1, 30_000, (ProduceTopic(name=name, partitions=parts),))
            waiting.append(cluster.send(leader, PRODUCE, request, pool=ConnectionPool.PRODUCE))
            if len(waiting) > _REQUESTS_AHEAD:
                _check(waiting.popleft())
        while waiting:
            _check(waiting.popleft())


def _check(reply: ResponseFuture[ProduceResponse]) -> None:
    for topic in reply.result(30_000).topics:
        for partition in topic.partitions:
            if partition.error_code:
                raise SystemExit(f"filling {topic.name}: {ErrorCode.of(partition.error_code).name}")


def _batches(rows: int, shape: Shape) -> list[EncodedRecords]:
    """The batches of one partition: of one pool over and over, and a last one that makes the count good."""
    pool_rows = min(rows, max(1, _POOL_BYTES // (shape.value_bytes + KEY_BYTES)))
    pool = list(_encoded(pool_rows, pool_rows, shape))
    if len(pool) > 1:
        pool.pop()  # smaller than the others
    found: list[EncodedRecords] = []
    left = rows
    while left > 0:
        batch = pool[len(found) % len(pool)]
        if batch.count > left:
            batch = next(_encoded(pool_rows, left, shape))
        found.append(batch)
        left -= batch.count
    return found


def _encoded(rows: int, taken: int, shape: Shape, max_bytes: int = BATCH_BYTES) -> Iterator[EncodedRecords]:
    chance = np.random.default_rng(7)
    keys = _column(chance, rows, KEY_BYTES, b"0123456789") if shape.keys else None
    values = _column(chance, rows, shape.value_bytes, b"0123456789abcdef")
    timestamps = np.full(rows, time.time_ns() // 1_000_000 // 86_400_000 * 86_400_000, dtype=np.int64)
    chosen = np.arange(taken, dtype=np.int64)
    return encode(keys, values, timestamps, chosen, magic=2, codec=shape.codec, max_bytes=max_bytes)


def _column(chance: np.random.Generator, rows: int, size: int, digits: bytes) -> pa.Array:
    data: NDArray[np.uint8] = np.frombuffer(digits, np.uint8)[chance.integers(0, len(digits), rows * size)]
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(size)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends), pa.py_buffer(data)])

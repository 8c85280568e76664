"""A look at a few records of a log: how many bytes an offset of it has on average.

Only the headers of the entries are read, without a kernel, so that a process that only plans stays small. In
a compacted log many offsets have no record any more; they count, so that the bytes of a range are its offsets
times this.
"""

from __future__ import annotations

from dataclasses import dataclass

from minikafka.base.errors import NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.retry import Deadline
from minikafka.records.kernels.layout import (
    BATCH_FLAGS_AT,
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    LAST_DELTA_AT,
    MAGIC_AT,
    MESSAGE_ATTRIBUTES_AT,
    MIN_MESSAGE_BYTES,
    entry_size,
)
from minikafka.wire.api import partitions_of
from minikafka.wire.apis.fetch import (
    FETCH,
    NAMES_UNTIL,
    NO_REPLICA,
    FetchPartitionResponse,
    consumer_partition,
    consumer_request,
)

SAMPLE_BYTES = 64 * 1024
_BATCH_MAGIC = 2  # not from ``format.batch``, which imports the codecs


@dataclass(frozen=True, slots=True)
class LogSample:
    """The mean bytes of an offset, as stored. is_compressed: by a codec, so the records have more."""

    bytes_per_offset: float
    is_compressed: bool


def sample_log(
    cluster: ClusterClient,
    tp: TopicPartition,
    offset: int,
    deadline: Deadline,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    rack: str = "",
) -> LogSample | None:
    """Fetch up to SAMPLE_BYTES from ``offset`` on, once, without waiting; None if there is nothing.

    From the follower that the leader names for ``rack``, if it names one (KIP-392). Raises NetworkError or
    BrokerError where that fails.
    """
    part = consumer_partition(tp.partition, offset, SAMPLE_BYTES, cluster.leader_epoch(tp))

    def fetch(broker_id: int) -> FetchPartitionResponse:
        request = consumer_request(
            {tp: part}, max_bytes=SAMPLE_BYTES, isolation_level=isolation, rack_id=rack
        )
        reply = cluster.send(broker_id, FETCH, request, deadline=deadline, newest=NAMES_UNTIL)
        found = dict(partitions_of(reply.result(deadline.remaining_ms()).topics)).get(tp)
        if found is None:
            raise NetworkError(f"no {tp} in the response of broker {broker_id}")
        return found

    found = fetch(cluster.leader(tp, deadline.remaining_ms()).broker_id)
    if found.preferred_read_replica != NO_REPLICA:
        found = fetch(found.preferred_read_replica)
    if found.records is None:
        return None
    assert isinstance(found.records, memoryview)
    return measure(found.records, offset)


def measure(data: memoryview, offset: int) -> LogSample | None:
    """Return the sample of entries that were fetched from ``offset`` on; None without a complete entry."""
    first: int | None = None
    end = at = 0
    is_compressed = False
    while at + MIN_MESSAGE_BYTES <= len(data):
        size, base, last_delta = entry_size(data, at), _number(data, at, 8), 0
        is_batch = data[at + MAGIC_AT] >= _BATCH_MAGIC
        if size < (BATCH_HEADER_BYTES if is_batch else MIN_MESSAGE_BYTES) or at + size > len(data):
            break
        attributes = data[at + (BATCH_FLAGS_AT if is_batch else MESSAGE_ATTRIBUTES_AT)]
        if is_batch:
            last_delta = _number(data, at + LAST_DELTA_AT, 4)
        is_compressed = is_compressed or attributes & CODEC_MASK != 0
        first = min(offset, base) if first is None else first
        end, at = base + last_delta + 1, at + size
    return None if first is None or end <= first else LogSample(at / (end - first), is_compressed)


def _number(data: memoryview, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big")

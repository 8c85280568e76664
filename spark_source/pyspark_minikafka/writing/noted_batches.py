"""The list of the staged batches of a batch that is published in portions: records of the sink's token topic.

Their keys are the sink's id with a number, their values zlib-compressed JSON. They are written in the
transaction that decides the batch, and deleted (by records without a value) in that of its last portion.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence

from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce.batch_copier import StagedBatch
from pyspark_minikafka.writing.commit_token import TokenMismatch, read_records
from pyspark_minikafka.writing.staging_area import StagingArea

BATCHES_OF_RECORD = 2_000
"""The most batches in a record, so that it stays below 300 kB."""
_BYTES_OF_BATCH = 150


def records(
    sink_id: str, batches: Sequence[StagedBatch], most_bytes: int = 1 << 20
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of the records of a list, each of at most about ``most_bytes``."""
    most = _most(most_bytes)
    for number, key in enumerate(keys(sink_id, batches, most_bytes)):
        part = batches[number * most : (number + 1) * most]
        rows = [
            [b.topic, b.partition, b.staging_partition, b.offset, b.header.hex(), b.size_bytes] for b in part
        ]
        found = {"version": 1, "batches": len(batches), "part": rows}
        yield key, zlib.compress(json.dumps(found, separators=(",", ":")).encode())


def keys(sink_id: str, batches: Sequence[StagedBatch], most_bytes: int = 1 << 20) -> list[bytes]:
    """Return the keys of the records of a list."""
    return [f"{sink_id}/{number}".encode() for number in range(-(-len(batches) // _most(most_bytes)))]


def _most(most_bytes: int) -> int:
    return max(1, min(BATCHES_OF_RECORD, most_bytes // _BYTES_OF_BATCH))


def read(cluster: ClusterClient, area: StagingArea) -> list[StagedBatch]:
    """Return the last list of a sink. Raise TokenMismatch if it is not whole."""
    sink_id = area.transactional_id
    return joined(sink_id, read_records(cluster, area.token, sink_id))


def joined(sink_id: str, found: Mapping[bytes, bytes]) -> list[StagedBatch]:
    """Return the list whose records are in ``found``, by key. Raise TokenMismatch if one is missing."""
    batches: list[StagedBatch] = []
    wanted, number = 1, 0
    while len(batches) < wanted:
        value = found.get(f"{sink_id}/{number}".encode())
        if value is None:
            raise TokenMismatch(
                f"the token topic of minikafka.sink.id={sink_id} lacks a part of the list of "
                f"batches that are published ({len(batches)} of {wanted} are there): it was changed by "
                "something else; use another minikafka.sink.id"
            )
        part = json.loads(zlib.decompress(value))
        wanted, number = int(part["batches"]), number + 1
        batches += [
            StagedBatch(topic, partition, staging_partition, offset, bytes.fromhex(header), size)
            for topic, partition, staging_partition, offset, header, size in part["part"]
        ]
    return batches

"""Produce: append message sets to partitions.

Version 0: as in 0.8. Version 1: throttle_time_ms in the response. Version 2: messages of magic 1, and the
response has the append time if the topic uses it. Version 3: one batch of magic 2 for each partition, and a
transactional id. Version 5: the response has the log start offset. Version 7: batches may be compressed with
zstd. Version 8: the response names the refused records. Version 10: it has the new leader after
NOT_LEADER_OR_FOLLOWER. Versions 4, 6, 9 and 11 have no new fields. With ``acks`` 0 there is no response at
all.
"""

import struct
from typing import Annotated

from minikafka.base.errors import RemoteWireError
from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.apis.current_leader import LeaderIdAndEpoch, NodeEndpoint
from minikafka.wire.codegen import read_varint, skip_tagged_fields
from minikafka.wire.fields import Int16, Int32, Int64, Records, since, tagged
from minikafka.wire.framing import RequestHeader


@fast_value
class ProducePartition:
    """The records for one partition. Decoded, ``records`` is a view of the request."""

    index: Int32
    records: Records


@fast_value
class ProduceTopic:
    """The partitions of one topic."""

    name: str
    partitions: tuple[ProducePartition, ...]


@fast_value
class ProduceRequest:
    """Message sets to append."""

    transactional_id: Annotated[str | None, since(3), "null: no transaction"]
    acks: Annotated[Int16, "0 no response, 1 leader, -1 all in-sync replicas"]
    timeout_ms: Annotated[Int32, "the time to wait for the replicas"]
    topics: tuple[ProduceTopic, ...]


@fast_value
class RecordError:
    """A record that was refused, and with it its batch."""

    batch_index: Annotated[Int32, "of the record in its batch"]
    batch_index_error_message: str | None = None


@fast_value
class ProducePartitionResponse:
    """The result for one partition's message set."""

    index: Int32
    error_code: Int16
    base_offset: Annotated[Int64, "offset of the first message, -1 with an error"]
    log_append_time_ms: Annotated[Int64, since(2), "-1 with CreateTime"] = -1
    log_start_offset: Annotated[Int64, since(5), "-1 with an error"] = -1
    record_errors: Annotated[tuple[RecordError, ...], since(8)] = ()
    error_message: Annotated[str | None, since(8)] = None
    current_leader: Annotated[LeaderIdAndEpoch, tagged(0, 10)] = LeaderIdAndEpoch()


@fast_value
class ProduceTopicResponse:
    """The partitions of one topic."""

    name: str
    partitions: tuple[ProducePartitionResponse, ...]


@fast_value
class ProduceResponse:
    """The response to acks 1 and -1."""

    topics: tuple[ProduceTopicResponse, ...]
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    node_endpoints: Annotated[tuple[NodeEndpoint, ...], tagged(0, 10), "of the new leaders"] = ()


PRODUCE = Api(ApiKey.PRODUCE, "Produce", 0, 11, ProduceRequest, ProduceResponse)

TRANSACTIONAL_SINCE = 3
"""The first version with a transactional id."""

_COUNT = struct.Struct(">i")
_LENGTH = struct.Struct(">h")
_ACKS_AND_TIMEOUT_BYTES = 6


def has_many_partitions(frame: memoryview, version: int, most: int) -> bool:
    """Return True if a request, given with its header, has more than ``most`` partitions or topics.

    It stops counting there. It returns False for bytes that are not such a request; the decoder rejects them.
    """
    return count_partitions(frame, version, most) > most


def count_partitions(frame: memoryview, version: int, most: int) -> int:
    """Count the topics and partitions of a request, given with its header, until they are more than ``most``.

    0 for bytes that are not such a request.
    """
    try:
        _, body = RequestHeader.decode(frame)
        if PRODUCE.is_flexible.get(version):
            return _count_flexible(body, most)
        return _count_classic(body, version, most)
    except (struct.error, IndexError, RemoteWireError):
        return 0


def _count_classic(body: memoryview, version: int, most: int) -> int:
    at = 0
    if version >= TRANSACTIONAL_SINCE:
        at = 2 + max(0, _LENGTH.unpack_from(body)[0])
    at += _ACKS_AND_TIMEOUT_BYTES
    topics: int = _COUNT.unpack_from(body, at)[0]
    at += 4
    count = max(0, topics)
    if count > most:
        return count
    for _ in range(topics):
        at += 2 + max(0, _LENGTH.unpack_from(body, at)[0])
        partitions: int = _COUNT.unpack_from(body, at)[0]
        at += 4
        if partitions < 0:
            return 0
        count += partitions
        if count > most:
            return count
        for _ in range(partitions):
            at += 8 + max(0, _COUNT.unpack_from(body, at + 4)[0])
    return count


def _count_flexible(body: memoryview, most: int) -> int:
    at = _after_compact(body, 0) + _ACKS_AND_TIMEOUT_BYTES  # transactional id
    topics, at = read_varint(body, at, "topics")
    count = max(0, topics - 1)
    if count > most:
        return count
    for _ in range(topics - 1):
        partitions, at = read_varint(body, _after_compact(body, at), "partitions")
        if partitions == 0:
            return 0
        count += partitions - 1
        if count > most:
            return count
        for _ in range(partitions - 1):
            at = _after_tagged_fields(body, _after_compact(body, at + 4), most)
        at = _after_tagged_fields(body, at, most)
    return count


def _after_compact(body: memoryview, at: int) -> int:
    length, at = read_varint(body, at, "length")
    return at + max(0, length - 1)


def _after_tagged_fields(body: memoryview, at: int, most: int) -> int:
    at, _ = skip_tagged_fields(body, at + 1, body[at], most, most, "tagged fields")
    return at

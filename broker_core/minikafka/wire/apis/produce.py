"""Produce: append message sets to partitions.

Version 0: as in 0.8. Version 1: throttle_time_ms in the response. Version 2: messages of magic 1, and the
response has the append time if the topic uses it. Version 3: one batch of magic 2 for each partition, and a
transactional id. Version 5: the response has the log start offset. Version 7: batches may be compressed with
zstd. Versions 4 and 6 are the same as their predecessors. With ``acks`` 0 there is no response at all.
"""

import struct
from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32, Int64, Records, since


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
class ProducePartitionResponse:
    """The result for one partition's message set."""

    index: Int32
    error_code: Int16
    base_offset: Annotated[Int64, "offset of the first message, -1 with an error"]
    log_append_time_ms: Annotated[Int64, since(2), "-1 with CreateTime"] = -1
    log_start_offset: Annotated[Int64, since(5), "-1 with an error"] = -1


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


PRODUCE = Api(ApiKey.PRODUCE, "Produce", 0, 7, ProduceRequest, ProduceResponse)

_COUNT = struct.Struct(">i")
_LENGTH = struct.Struct(">h")
_HEADER_BYTES = 8
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
    count = 0
    try:
        at = _HEADER_BYTES
        for _ in range(2 if version >= 3 else 1):  # client id, transactional id
            at += 2 + max(0, _LENGTH.unpack_from(frame, at)[0])
        at += _ACKS_AND_TIMEOUT_BYTES
        topics: int = _COUNT.unpack_from(frame, at)[0]
        at += 4
        count += max(0, topics)
        if count > most:
            return count
        for _ in range(topics):
            at += 2 + max(0, _LENGTH.unpack_from(frame, at)[0])
            partitions: int = _COUNT.unpack_from(frame, at)[0]
            at += 4
            if partitions < 0:
                return 0
            count += partitions
            if count > most:
                return count
            for _ in range(partitions):
                at += 8 + max(0, _COUNT.unpack_from(frame, at + 4)[0])
    except struct.error:
        return 0
    return count

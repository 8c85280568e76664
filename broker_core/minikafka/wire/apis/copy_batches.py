"""CopyBatches: append batches that the broker itself has in the logs of other partitions.

An API of minikafka, not of Kafka, for a transaction whose records were staged in a topic. Each partition gets
one batch, as with Produce, and the broker treats it as if it had come in a Produce request of the same
version, whose response it sends. So this API has no versions but those.

A batch that the broker cannot copy gets OPERATION_NOT_ATTEMPTED: the client fetches and produces it itself.
"""

from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.apis.produce import ProduceResponse
from minikafka.wire.fields import Int16, Int32, Int64

MAX_COPIES = 1_000
"""Batches in a request of a client at most. A broker decodes and looks them up in 30 ms."""


@fast_value
class CopyPartition:
    """The batch for one partition: its source, and the numbers of the producer that copies it."""

    index: Int32
    source_topic: str
    source_partition: Int32
    source_offset: Annotated[Int64, "the offset of the first record"]
    sent_header: Annotated[bytes, "the header of the batch as it was sent, from the checksum to the records"]
    producer_id: Int64
    producer_epoch: Int16
    base_sequence: Int32


@fast_value
class CopyTopic:
    """The partitions of one topic."""

    name: str
    partitions: tuple[CopyPartition, ...]


@fast_value
class CopyBatchesRequest:
    """Batches to copy in a transaction."""

    transactional_id: str
    acks: Annotated[Int16, "0 no response, 1 leader, -1 all in-sync replicas"]
    timeout_ms: Annotated[Int32, "the time to wait for the replicas"]
    topics: tuple[CopyTopic, ...]


COPY_BATCHES = Api(
    ApiKey.COPY_BATCHES,
    "CopyBatches",
    11,
    11,
    CopyBatchesRequest,
    ProduceResponse,
    max_elements=2 * MAX_COPIES,  # each may have a topic of its own
)

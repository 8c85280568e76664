"""OffsetForLeaderEpoch: the end offset of a leader epoch in a partition that this broker leads.

Versions: 1 adds the epoch to the response; 2 the client's leader epoch, and throttle_time_ms; 3 the id of the
follower that asks, which changes nothing, as in Kafka. The response has the largest known epoch that is not
above the requested one, and the start offset of the next epoch (the log end offset for the newest). Both are
-1 when no epoch is known, as for data in formats without epochs.
"""

from __future__ import annotations

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.log.checkpoints.leader_epochs import UNKNOWN
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.workers.work_pool import Steps
from minikafka.wire.apis.offset_for_leader_epoch import (
    EpochPartition,
    EpochPartitionResponse,
    EpochTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

STEP_PARTITIONS = 100


def handle(broker: Broker, context: RequestContext, request: OffsetForLeaderEpochRequest) -> Steps:
    """Serve one OffsetForLeaderEpoch request. It changes nothing, so it needs no lock."""
    topics = []
    for topic in request.topics:
        rows = []
        for part in topic.partitions:
            rows.append(_end_of(broker, topic.name, part))
            if len(rows) % STEP_PARTITIONS == 0:
                yield 0
        topics.append(EpochTopicResponse(topic.name, tuple(rows)))
        yield 0
    context.reply(OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=tuple(topics)))


def _end_of(broker: Broker, topic: str, part: EpochPartition) -> EpochPartitionResponse:
    epoch = end_offset = UNKNOWN
    code = ErrorCode.NONE
    try:
        partition = broker.partition(TopicPartition(topic, part.index))
        partition.check_leader(part.current_leader_epoch)
        epoch, end_offset = partition.log.end_offset_for_epoch(part.leader_epoch)
    except BrokerError as error:
        code = error.code
    return EpochPartitionResponse(
        error_code=code, index=part.index, leader_epoch=epoch, end_offset=end_offset
    )

"""DeleteRecords: deletes the start of logs, one request to the leader of the partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError
from minikafka.base.ids import TopicPartition, rows_by_topic
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.response_errors import authorization_hint, is_retriable
from minikafka.clients.network.retry import Deadline
from minikafka.wire.api import partitions_of
from minikafka.wire.apis.delete_records import (
    DELETE_RECORDS,
    HIGH_WATERMARK,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from minikafka.wire.apis.describe_configs import ConfigResourceType

if TYPE_CHECKING:
    from minikafka.clients.admin.admin import Admin
    from minikafka.clients.network.metadata import TopicMetadata

__all__ = ["HIGH_WATERMARK", "check_deletable", "delete_records"]


def check_deletable(admin: Admin, topic: TopicMetadata) -> None:
    """Raise the BrokerError with which ``delete_records`` would fail: for an internal topic, and for one that
    is only compacted. A topic whose settings the client may not see passes.
    """
    if topic.is_internal:
        raise _refusal(ErrorCode.INVALID_TOPIC, topic.name)
    try:
        settings = admin.describe_configs(ConfigResourceType.TOPIC, topic.name)
    except BrokerError:
        return
    policy = next((it.value for it in settings if it.name == "cleanup.policy"), None)
    if policy is not None and "delete" not in policy.replace(" ", "").split(","):
        raise _refusal(ErrorCode.POLICY_VIOLATION, topic.name)


def _refusal(code: ErrorCode, topic: str) -> BrokerError:
    if code is ErrorCode.INVALID_TOPIC:
        return BrokerError(code, f"{topic} is an internal topic, so its records cannot be deleted by offset")
    return BrokerError(
        code,
        f"{topic} has cleanup.policy=compact, so its records cannot be deleted by offset; add delete to "
        "cleanup.policy, or write tombstones",
    )


def delete_records(
    cluster: ClusterClient, offsets: Mapping[TopicPartition, int], deadline: Deadline
) -> dict[TopicPartition, int]:
    """Delete the records of each partition before an offset, or (HIGH_WATERMARK) all that consumers see.
    Return the new starts of the logs. Raises the BrokerError of a partition that cannot be trimmed.
    """
    pending = dict(offsets)
    starts: dict[TopicPartition, int] = {}

    def attempt() -> None:
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for tp in pending:
            by_leader[cluster.leader(tp, deadline.remaining_ms()).broker_id].append(tp)
        replies = []
        for broker_id, partitions in by_leader.items():
            request = DeleteRecordsRequest(
                _topics({tp: pending[tp] for tp in partitions}), max(1, deadline.remaining_ms() * 9 // 10)
            )
            replies.append(cluster.send(broker_id, DELETE_RECORDS, request, deadline=deadline))
        problem: MinikafkaError | None = None
        for reply in replies:
            for tp, result in partitions_of(reply.result(deadline.remaining_ms()).topics):
                code = ErrorCode.of(result.error_code)
                if code is ErrorCode.NONE:
                    pending.pop(tp, None)
                    starts[tp] = result.low_watermark
                    continue
                hint = authorization_hint(code, "Delete", f"topic {tp.topic!r}")
                error = BrokerError(code, f"deleting records of {tp}{hint}")
                if code in {ErrorCode.INVALID_TOPIC, ErrorCode.POLICY_VIOLATION}:
                    error = _refusal(code, tp.topic)
                if not is_retriable(error):
                    raise error
                cluster.invalidate(tp.topic)
                problem = error
        if problem is not None:
            raise problem

    if pending:
        cluster.retry("deleting records", deadline, attempt)
    return starts


def _topics(offsets: Mapping[TopicPartition, int]) -> tuple[DeleteRecordsTopic, ...]:
    rows = rows_by_topic((tp, DeleteRecordsPartition(tp.partition, at)) for tp, at in offsets.items())
    return tuple(DeleteRecordsTopic(name, tuple(partitions)) for name, partitions in rows.items())

"""The private topics of a sink: staged batches and the token, made at start, and emptied after each batch."""

from __future__ import annotations

import contextlib
import time
import uuid
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.admin.record_deletion import delete_records
from minikafka.clients.fetch.list_offsets import EARLIEST, LATEST, list_offsets
from minikafka.clients.network.cluster import ClusterClient
from pyspark_minikafka import private_topics, report

PARTITIONS = 12
"""Of a staging topic: a request of a task has a batch for each of them at most."""
_DAY_MS = 86_400_000
RETENTION_MS = 7 * _DAY_MS
"""The time for which staged batches are kept that nobody deletes. A batch that is published in part has its
other rows there alone.
"""
_REPLICAS_MAX = 3
_MESSAGE_BYTES = 1_048_588
"""The default of ``message.max.bytes``."""
_SEGMENT_BYTES = 64 << 20
_TOKEN_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "segment.ms": str(_DAY_MS),
    "min.cleanable.dirty.ratio": "0.1",
}


@dataclass(frozen=True, slots=True)
class StagingArea:
    """The names of one sink in the cluster; pickled to the executors.

    transactional_id: of the driver's producer. topic: of staged batches. token: the partition of the token.
    is_temporary: the topic is of one batch write, and deleted at its end.
    """

    transactional_id: str
    topic: str
    token: TopicPartition
    is_temporary: bool

    def partition_for(self, target: TopicPartition, task: int) -> TopicPartition:
        """Return the staging partition of the rows of ``task`` for ``target``."""
        number = zlib.crc32(target.topic.encode()) + target.partition + task
        return TopicPartition(self.topic, number % PARTITIONS)

    @property
    def partitions(self) -> list[TopicPartition]:
        """All staging partitions."""
        return [TopicPartition(self.topic, number) for number in range(PARTITIONS)]


def of_stream(sink_id: str) -> StagingArea:
    """Return the names of a stream."""
    token = TopicPartition(private_topics.TOKEN_PREFIX + sink_id, 0)
    return StagingArea(sink_id, private_topics.STAGING_PREFIX + sink_id, token, False)


def of_write() -> StagingArea:
    """Return names for a new batch write."""
    topic = f"{private_topics.WRITE_PREFIX}{time.time_ns() // 1_000_000}-{uuid.uuid4().hex[:16]}"
    return StagingArea(topic.strip("_"), topic, TopicPartition(topic, PARTITIONS), True)


def create(cluster: ClusterClient, area: StagingArea, largest_request_bytes: int) -> None:
    """Create those topics of the sink that do not exist. Wait for one that is being deleted."""

    def attempt() -> None:
        names = {area.topic, area.token.topic}
        known = cluster.metadata(names, refresh=True, creates_topics=False).topics
        missing = [
            name
            for name in names
            if name not in known or known[name].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ]
        if missing:
            _create(cluster, area, missing, largest_request_bytes)

    cluster.retry("preparing the private topics of the sink", cluster.deadline(), attempt)


def left(cluster: ClusterClient, area: StagingArea, largest_request_bytes: int) -> dict[int, int]:
    """Return the ends of the staging partitions that are not empty. Make a topic again that was deleted."""
    found: dict[int, int] = {}
    deadline = cluster.deadline()

    def attempt() -> None:
        try:
            starts, ends = (
                list_offsets(cluster, dict.fromkeys(area.partitions, time), deadline, creates_topics=False)
                for time in (EARLIEST, LATEST)
            )
        except BrokerError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            create(cluster, area, largest_request_bytes)
            raise NetworkError(f"topic {area.topic!r} was deleted") from error
        found.update(
            {tp.partition: end for tp, end in ends.items() if end is not None and end > (starts[tp] or 0)}
        )

    cluster.retry("looking for staged rows of the sink", deadline, attempt)
    return found


def _create(
    cluster: ClusterClient, area: StagingArea, missing: list[str], largest_request_bytes: int
) -> None:
    replicas = max(1, min(_REPLICAS_MAX, len(cluster.metadata(None).brokers)))
    # A token that is lost after it was acknowledged would let its batch be written again.
    safe = {"unclean.leader.election.enable": "false", "min.insync.replicas": str(max(1, replicas - 1))}
    staging = safe | {
        "cleanup.policy": "delete",
        "retention.ms": str(RETENTION_MS),
        "segment.bytes": str(_SEGMENT_BYTES),
        # Rows may have times of long ago, by which retention would delete them at once.
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": str(max(_MESSAGE_BYTES, largest_request_bytes + 1024)),
        "compression.type": "producer",
    }
    partitions = PARTITIONS + (area.token.topic == area.topic)
    new = [
        NewTopic(name, partitions, replicas, configs=staging)
        if name == area.topic
        else NewTopic(name, 1, replicas, configs=safe | _TOKEN_CONFIG)
        for name in missing
    ]
    for name, error in Admin(cluster).create_topics(new).items():
        cluster.invalidate(name)
        if error is None:
            continue
        if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            raise NetworkError(f"topic {name!r} was just created, or is being deleted")
        raise BrokerError(error.code, f"{error.detail} (topic {name!r}, for minikafka.delivery=exactly-once)")


def empty(cluster: ClusterClient, area: StagingArea, ends: Mapping[int, int]) -> None:
    """Delete the staged batches before ``ends`` (partition to offset). A failure is only logged, as the topic
    has a retention.
    """
    wanted = {TopicPartition(area.topic, partition): end for partition, end in ends.items()}
    try:
        if wanted:
            delete_records(cluster, wanted, cluster.deadline())
    except MinikafkaError as problem:
        if isinstance(problem, BrokerError) and problem.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return
        report.warn_once(
            f"staged rows in {area.topic} were not deleted, they stay until they are a week old: {problem}"
        )


def drop(cluster: ClusterClient, topics: Iterable[str]) -> None:
    """Delete topics of batch writes. A failure is only logged: the next write tries again after a day."""
    topics = list(topics)
    try:
        errors = Admin(cluster).delete_topics(topics) if topics else {}
    except MinikafkaError as problem:
        report.warn([f"the staging topics {', '.join(topics)} were not deleted: {problem}"])
        return
    for name, error in errors.items():
        if error is not None and error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            report.warn([f"the staging topic {name} was not deleted: {error}"])


def drop_left(cluster: ClusterClient) -> None:
    """Delete the topics of batch writes that began more than a day ago: their drivers have died."""
    oldest_ms = time.time_ns() // 1_000_000 - _DAY_MS
    with contextlib.suppress(MinikafkaError):
        began = {name: private_topics.write_began_ms(name) for name in cluster.metadata(None).topics}
        drop(cluster, [name for name, ms in began.items() if ms is not None and ms < oldest_ms])

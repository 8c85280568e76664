"""The rows of ``topic describe``, selected as by 0.10.1's tool."""

from __future__ import annotations

from minikafka.base.ids import topic_id_text
from minikafka.base.secrets import redact
from minikafka.cli import cluster_health
from minikafka.clients.admin.admin import EARLIEST, LATEST, Admin
from minikafka.clients.admin.health import is_leaderless, is_under_replicated
from minikafka.clients.network.metadata import ClusterMetadata, PartitionMetadata
from minikafka.wire.apis.describe_configs import ConfigResourceType, ConfigSource

Rows = list[dict[str, object]]

FILTERED_COLUMNS = cluster_health.PARTITION_COLUMNS
PARTITION_COLUMNS = [*FILTERED_COLUMNS, "start_offset", "end_offset"]
OVERRIDE_COLUMNS = ["topic", "partitions", "replicas", "config"]


def all_partition_rows(admin: Admin, known: ClusterMetadata) -> Rows:
    """Return all partitions of the topics in ``known``, with their offsets."""
    found = _partitions(known)
    led = [partition.topic_partition for partition in found if not is_leaderless(partition, known)]
    first = admin.offsets(dict.fromkeys(led, EARLIEST))
    end = admin.offsets(dict.fromkeys(led, LATEST))
    return [
        {
            **row,
            "topic_id": topic_id_text(known.topic_id(partition.topic_partition.topic)),
            "start_offset": first.get(partition.topic_partition),
            "end_offset": end.get(partition.topic_partition),
        }
        for partition, row in zip(found, cluster_health.partition_rows(found), strict=True)
    ]


def filtered_partition_rows(known: ClusterMetadata, *, unavailable: bool) -> Rows:
    """Return the partitions without a live leader, or those with a replica out of sync."""
    return cluster_health.partition_rows(
        [
            partition
            for partition in _partitions(known)
            if (is_leaderless(partition, known) if unavailable else is_under_replicated(partition))
        ]
    )


def override_rows(admin: Admin, known: ClusterMetadata) -> Rows:
    """Return the topics that have settings of their own."""
    rows: Rows = []
    for name, topic in sorted(known.topics.items()):
        settings = admin.describe_configs(ConfigResourceType.TOPIC, name)
        own = {
            setting.name: redact(setting.name, setting.value)
            for setting in settings
            if setting.source is ConfigSource.TOPIC
        }
        if own:
            replicas = max((len(partition.replicas) for partition in topic.partitions), default=0)
            row = {"topic": name, "partitions": len(topic.partitions), "replicas": replicas, "config": own}
            rows.append(row)
    return rows


def _partitions(known: ClusterMetadata) -> list[PartitionMetadata]:
    return [partition for _, topic in sorted(known.topics.items()) for partition in topic.partitions]

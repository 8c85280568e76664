"""The rows of ``topic describe``, as 0.10.1's tool chooses them."""

from __future__ import annotations

from minikafka.base.secrets import redact
from minikafka.cli.health import PARTITION_COLUMNS as WANTING_COLUMNS
from minikafka.cli.health import partition_rows
from minikafka.clients.admin.admin import EARLIEST, LATEST, Admin
from minikafka.clients.admin.health import is_leaderless, is_under_replicated
from minikafka.clients.network.metadata import ClusterMetadata, PartitionMetadata
from minikafka.wire.apis.describe_configs import ConfigSource, ResourceType

__all__ = [
    "OVERRIDE_COLUMNS",
    "PARTITION_COLUMNS",
    "WANTING_COLUMNS",
    "all_partition_rows",
    "filtered_partition_rows",
    "override_rows",
]

Rows = list[dict[str, object]]

PARTITION_COLUMNS = [*WANTING_COLUMNS, "start_offset", "end_offset"]
OVERRIDE_COLUMNS = ["topic", "partitions", "replicas", "config"]


def all_partition_rows(admin: Admin, known: ClusterMetadata) -> Rows:
    """All partitions of the topics in ``known``, with their offsets."""
    found = _partitions(known)
    led = [one.topic_partition for one in found if not is_leaderless(one, known)]
    first = admin.offsets(dict.fromkeys(led, EARLIEST))
    end = admin.offsets(dict.fromkeys(led, LATEST))
    return [
        {
            **row,
            "start_offset": first.get(one.topic_partition),
            "end_offset": end.get(one.topic_partition),
        }
        for one, row in zip(found, partition_rows(found), strict=True)
    ]


def filtered_partition_rows(known: ClusterMetadata, *, unavailable: bool) -> Rows:
    """The partitions without a leader that lives, or those with a replica out of sync."""
    return partition_rows(
        [
            one
            for one in _partitions(known)
            if (is_leaderless(one, known) if unavailable else is_under_replicated(one))
        ]
    )


def override_rows(admin: Admin, known: ClusterMetadata) -> Rows:
    """The topics that have settings of their own."""
    rows: Rows = []
    for name, topic in sorted(known.topics.items()):
        settings = admin.describe_configs(ResourceType.TOPIC, name)
        own = {one.name: redact(one.name, one.value) for one in settings if one.source is ConfigSource.TOPIC}
        if own:
            replicas = max((len(one.replicas) for one in topic.partitions), default=0)
            rows.append(
                {
                    "topic": name,
                    "partitions": len(topic.partitions),
                    "replicas": replicas,
                    "config": own,
                }
            )
    return rows


def _partitions(known: ClusterMetadata) -> list[PartitionMetadata]:
    return [one for _, topic in sorted(known.topics.items()) for one in topic.partitions]

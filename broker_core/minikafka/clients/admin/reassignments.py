"""Partition reassignments by the protocol: start, replace, cancel and list them (KIP-455; Kafka 2.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from minikafka.base.errors import BrokerError
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.controller_requests import ask_controller, controller_timeout_ms
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.response_errors import error_of
from minikafka.clients.network.retry import Deadline
from minikafka.wire.api import partitions_of
from minikafka.wire.apis.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from minikafka.wire.apis.list_partition_reassignments import (
    LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsRequest,
)

ReassignmentErrors = dict[TopicPartition, BrokerError | None]
"""The error of each partition; None: the request is stored."""


@dataclass(frozen=True, slots=True)
class OngoingReassignment:
    """A partition that is being reassigned."""

    topic_partition: TopicPartition
    replicas: tuple[int, ...]
    """All that it has now, the new ones first."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def alter_reassignments(
    cluster: ClusterClient, wanted: Mapping[TopicPartition, tuple[int, ...] | None], deadline: Deadline
) -> ReassignmentErrors:
    """Ask the controller for new replicas of partitions; None cancels a reassignment."""
    by_topic = groupby(sorted(wanted.items(), key=lambda item: item[0]), key=lambda item: item[0].topic)
    topics = tuple(
        ReassignableTopic(
            topic, tuple(ReassignablePartition(key.partition, replicas) for key, replicas in rows)
        )
        for topic, rows in by_topic
    )

    def request() -> AlterPartitionReassignmentsRequest:
        return AlterPartitionReassignmentsRequest(controller_timeout_ms(deadline), topics)

    response = ask_controller(cluster, ALTER_PARTITION_REASSIGNMENTS, request, deadline)
    return {
        key: error_of(row.error_code, row.error_message) for key, row in partitions_of(response.responses)
    }


def list_reassignments(cluster: ClusterClient, deadline: Deadline) -> list[OngoingReassignment]:
    """Return all reassignments in progress, whoever has requested them."""

    def request() -> ListPartitionReassignmentsRequest:
        return ListPartitionReassignmentsRequest(controller_timeout_ms(deadline), None)

    response = ask_controller(cluster, LIST_PARTITION_REASSIGNMENTS, request, deadline)
    return [
        OngoingReassignment(key, row.replicas, row.adding_replicas, row.removing_replicas)
        for key, row in sorted(partitions_of(response.topics), key=lambda item: item[0])
    ]

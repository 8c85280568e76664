"""Partition reassignments by the protocol: start, replace, cancel and list them (KIP-455; Kafka 2.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.retry import Deadline
from minikafka.wire.api import Api, partitions_of
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
        return AlterPartitionReassignmentsRequest(max(1, deadline.remaining_ms()), topics)

    response = _ask_controller(cluster, ALTER_PARTITION_REASSIGNMENTS, request, deadline)
    return {key: _error(row.error_code, row.error_message) for key, row in partitions_of(response.responses)}


def list_reassignments(cluster: ClusterClient, deadline: Deadline) -> list[OngoingReassignment]:
    """Return all reassignments in progress, whoever has requested them."""

    def request() -> ListPartitionReassignmentsRequest:
        return ListPartitionReassignmentsRequest(max(1, deadline.remaining_ms()), None)

    response = _ask_controller(cluster, LIST_PARTITION_REASSIGNMENTS, request, deadline)
    return [
        OngoingReassignment(key, row.replicas, row.adding_replicas, row.removing_replicas)
        for key, row in sorted(partitions_of(response.topics), key=lambda item: item[0])
    ]


def _ask_controller(
    cluster: ClusterClient, api: Api[Any, Any], request: Callable[[], object], deadline: Deadline
) -> Any:
    """Return the response of the controller, which may move meanwhile."""

    def attempt() -> Any:
        controller = cluster.controller(deadline)
        response = cluster.send(controller, api, request(), deadline=deadline).result(deadline.remaining_ms())
        error = _error(response.error_code, response.error_message)
        if error is not None:
            raise error
        return response

    return cluster.retry(api.name, deadline, attempt)


def _error(code: int, message: str | None) -> BrokerError | None:
    found = ErrorCode.of(code)
    return None if found is ErrorCode.NONE else BrokerError(found, message or "")

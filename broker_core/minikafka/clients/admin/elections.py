"""Elections of leaders by the protocol: of preferred replicas, or of any live ones (KIP-460; Kafka 2.2)."""

from __future__ import annotations

from collections.abc import Collection

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition, numbers_by_topic
from minikafka.clients.admin.controller_requests import ask_controller, controller_timeout_ms
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.response_errors import error_of
from minikafka.clients.network.retry import Deadline
from minikafka.wire.apis.elect_leaders import (
    ELECT_LEADERS,
    ElectionType,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopic,
)

_UNCLEAN_SINCE = 1
"""The first version with the type of the election."""

ElectionErrors = dict[TopicPartition, BrokerError | None]
"""The error of each partition; None: it has a new leader. ELECTION_NOT_NEEDED: it had the right one."""


def elect_leaders(
    cluster: ClusterClient,
    kind: ElectionType,
    partitions: Collection[TopicPartition] | None,
    deadline: Deadline,
) -> ElectionErrors:
    """Elect leaders of ``partitions``, and wait until the controller knows them. One result per partition.

    None: of all partitions that need it; the others are left out of the result. Raises BrokerError.
    """
    topics = None if partitions is None else numbers_by_topic(sorted(partitions))
    wanted = None if topics is None else tuple(ElectLeadersTopic(n, tuple(p)) for n, p in topics.items())

    def request() -> ElectLeadersRequest:
        if kind is ElectionType.UNCLEAN:
            _check_unclean(cluster, deadline)
        return ElectLeadersRequest(kind, wanted, controller_timeout_ms(deadline))

    response = ask_controller(cluster, ELECT_LEADERS, request, deadline, _moved)
    return {
        TopicPartition(topic.topic, row.partition_id): error_of(row.error_code, row.error_message)
        for topic in response.replica_election_results
        for row in topic.partition_result
    }


def _check_unclean(cluster: ClusterClient, deadline: Deadline) -> None:
    """Raise UNSUPPORTED_VERSION if the controller would elect preferred replicas."""
    controller = cluster.controller(deadline)
    version = cluster.connection(controller).version(ELECT_LEADERS, deadline)
    if version < _UNCLEAN_SINCE:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"unclean elections need ElectLeaders {_UNCLEAN_SINCE}, but broker {controller} supports "
            f"{version}",
        )


def _moved(response: ElectLeadersResponse) -> BrokerError | None:
    """Return the error of the whole response. In version 0 each partition has it."""
    moved = any(
        row.error_code == ErrorCode.NOT_CONTROLLER
        for topic in response.replica_election_results
        for row in topic.partition_result
    )
    return error_of(ErrorCode.NOT_CONTROLLER if moved else response.error_code, None, "electing leaders")

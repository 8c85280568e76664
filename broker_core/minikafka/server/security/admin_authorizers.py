"""The permissions of requests about the cluster, its users and their quotas (``request_authorizers``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from minikafka.base.acls import Operation
from minikafka.server.security.authorization import (
    CLUSTER_DENIED,
    AuthorizationResult,
    RequestAuthorizer,
    Requester,
    cluster_operations,
    cluster_request,
    denial_message,
    denied_topic,
    each_topic,
)
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResult,
)
from minikafka.wire.apis.alter_partition_reassignments import AlterPartitionReassignmentsResponse
from minikafka.wire.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    changes_of,
)
from minikafka.wire.apis.describe_client_quotas import DescribeClientQuotasResponse
from minikafka.wire.apis.describe_cluster import DescribeClusterRequest
from minikafka.wire.apis.describe_producers import (
    DescribeProducersPartition,
    DescribeProducersResponse,
    DescribeProducersTopicResult,
)
from minikafka.wire.apis.describe_user_scram_credentials import DescribeUserScramCredentialsResponse
from minikafka.wire.apis.elect_leaders import (
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopicResult,
)
from minikafka.wire.apis.list_partition_reassignments import ListPartitionReassignmentsResponse


def _describe_cluster(
    requester: Requester, version: int, request: DescribeClusterRequest
) -> AuthorizationResult | None:
    """Everybody may see the brokers; the operations of others than those with Describe are none."""
    if not request.include_cluster_authorized_operations:
        return None
    allowed = cluster_operations(requester)
    return AuthorizationResult(request, lambda served: replace(served, cluster_authorized_operations=allowed))


def _denied_quotas(request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    message = denial_message(Operation.ALTER_CONFIGS)
    rows = (AlterClientQuotasResult(CLUSTER_DENIED, message, entry.entity) for entry in request.entries)
    return AlterClientQuotasResponse(0, tuple(rows))


def _denied_users(request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
    users = dict.fromkeys(change.name for change in changes_of(request))
    message = denial_message(Operation.ALTER)
    rows = (AlterUserScramCredentialsResult(user, CLUSTER_DENIED, message) for user in users)
    return AlterUserScramCredentialsResponse(0, tuple(rows))


def _denied_elections(request: ElectLeadersRequest) -> ElectLeadersResponse:
    message = denial_message(Operation.ALTER)
    rows = (
        ElectLeadersTopicResult(
            topic.topic,
            tuple(ElectLeadersPartitionResult(index, CLUSTER_DENIED, message) for index in topic.partitions),
        )
        for topic in request.topic_partitions or ()
    )
    return ElectLeadersResponse(0, CLUSTER_DENIED, tuple(rows))


ADMIN_AUTHORIZERS: Mapping[ApiKey, RequestAuthorizer] = {
    ApiKey.ELECT_LEADERS: cluster_request(Operation.ALTER, _denied_elections),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: cluster_request(
        Operation.ALTER,
        lambda request: AlterPartitionReassignmentsResponse(
            0, CLUSTER_DENIED, denial_message(Operation.ALTER), ()
        ),
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: cluster_request(
        Operation.DESCRIBE,
        lambda request: ListPartitionReassignmentsResponse(
            0, CLUSTER_DENIED, denial_message(Operation.DESCRIBE), ()
        ),
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: cluster_request(
        Operation.DESCRIBE_CONFIGS,
        lambda request: DescribeClientQuotasResponse(
            0, CLUSTER_DENIED, denial_message(Operation.DESCRIBE_CONFIGS), None
        ),
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: cluster_request(Operation.ALTER_CONFIGS, _denied_quotas),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: cluster_request(
        Operation.DESCRIBE,
        lambda request: DescribeUserScramCredentialsResponse(
            0, CLUSTER_DENIED, denial_message(Operation.DESCRIBE), ()
        ),
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: cluster_request(Operation.ALTER, _denied_users),
    ApiKey.DESCRIBE_CLUSTER: _describe_cluster,
    ApiKey.DESCRIBE_PRODUCERS: each_topic(
        Operation.READ,
        denied_topic(
            DescribeProducersTopicResult,
            lambda index, code: DescribeProducersPartition(index, code, None, ()),
            "partition_indexes",
        ),
        DescribeProducersResponse(0, ()),
    ),
}
"""The authorizer of each API."""

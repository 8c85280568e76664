"""Requests, what they need permission for, and the code of their refusal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minikafka.base.acls import CLUSTER, Operation, Resource, ResourceType
from minikafka.base.errors import ErrorCode
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.alter_client_quotas import AlterClientQuotasEntry, AlterClientQuotasRequest
from minikafka.wire.apis.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from minikafka.wire.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from minikafka.wire.apis.describe_client_quotas import DescribeClientQuotasRequest, QuotaEntityPart
from minikafka.wire.apis.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from minikafka.wire.apis.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from minikafka.wire.apis.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from minikafka.wire.apis.list_partition_reassignments import ListPartitionReassignmentsRequest

K = ApiKey
TOPIC = Resource(ResourceType.TOPIC, "t")
READ, ALTER, DESCRIBE = Operation.READ, Operation.ALTER, Operation.DESCRIBE
TOPIC_DENIED, CLUSTER_DENIED = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


@dataclass(frozen=True)
class Case:
    """A request, what it needs, and the only code of its refusal."""

    key: ApiKey
    version: int
    body: Any
    needs: tuple[tuple[Operation, Resource], ...]
    refusal: ErrorCode

    def __str__(self) -> str:
        return f"{self.key.name.lower()}-{self.version}-{self.needs[-1][0].label}"


LIMITS = AlterClientQuotasRequest(
    (AlterClientQuotasEntry((QuotaEntityPart("user", "alice"),), ()),), validate_only=True
)
NO_USER = AlterUserScramCredentialsRequest((ScramCredentialDeletion("nobody", 1),), ())

ADMIN_CASES = [
    Case(
        *(K.ELECT_LEADERS, 2, ElectLeadersRequest(0, (ElectLeadersTopic("t", (0,)),), 0)),
        ((ALTER, CLUSTER),),
        CLUSTER_DENIED,
    ),
    Case(
        *(K.ALTER_PARTITION_REASSIGNMENTS, 0, AlterPartitionReassignmentsRequest(0, ())),
        ((ALTER, CLUSTER),),
        CLUSTER_DENIED,
    ),
    Case(
        *(K.LIST_PARTITION_REASSIGNMENTS, 0, ListPartitionReassignmentsRequest(0, None)),
        ((DESCRIBE, CLUSTER),),
        CLUSTER_DENIED,
    ),
    Case(
        *(K.DESCRIBE_CLIENT_QUOTAS, 1, DescribeClientQuotasRequest((), strict=False)),
        ((Operation.DESCRIBE_CONFIGS, CLUSTER),),
        CLUSTER_DENIED,
    ),
    Case(K.ALTER_CLIENT_QUOTAS, 1, LIMITS, ((Operation.ALTER_CONFIGS, CLUSTER),), CLUSTER_DENIED),
    Case(
        *(K.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, DescribeUserScramCredentialsRequest(None)),
        ((DESCRIBE, CLUSTER),),
        CLUSTER_DENIED,
    ),
    Case(K.ALTER_USER_SCRAM_CREDENTIALS, 0, NO_USER, ((ALTER, CLUSTER),), CLUSTER_DENIED),
    Case(
        *(K.DESCRIBE_PRODUCERS, 0, DescribeProducersRequest((DescribeProducersTopic("t", (0,)),))),
        ((READ, TOPIC),),
        TOPIC_DENIED,
    ),
]
"""Requests about the cluster, its users and their quotas."""

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
from minikafka.wire.apis.copy_batches import CopyBatchesRequest, CopyPartition, CopyTopic
from minikafka.wire.apis.describe_client_quotas import DescribeClientQuotasRequest, QuotaEntityPart
from minikafka.wire.apis.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from minikafka.wire.apis.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from minikafka.wire.apis.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from minikafka.wire.apis.find_coordinator import CoordinatorType, FindCoordinatorRequest
from minikafka.wire.apis.leave_group import LeaveGroupRequest
from minikafka.wire.apis.list_partition_reassignments import ListPartitionReassignmentsRequest
from minikafka.wire.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from minikafka.wire.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)

K = ApiKey
TOPIC = Resource(ResourceType.TOPIC, "t")
GROUP = Resource(ResourceType.GROUP, "g")
READ, ALTER, DESCRIBE, DELETE = Operation.READ, Operation.ALTER, Operation.DESCRIBE, Operation.DELETE
WRITE = Operation.WRITE
TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


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

COPY = CopyBatchesRequest(
    "x", 1, 0, (CopyTopic("t", (CopyPartition(0, "other", 0, 0, bytes(44), 7, 0, 0),)),)
)
SOURCE, TRANSACTIONS = Resource(ResourceType.TOPIC, "other"), Resource(ResourceType.TRANSACTIONAL_ID, "x")
COPY_CASES = [
    Case(
        *(K.COPY_BATCHES, 11, COPY),
        ((READ, SOURCE), (WRITE, TOPIC), (WRITE, TRANSACTIONS)),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    Case(*(K.COPY_BATCHES, 11, COPY), ((READ, SOURCE), (WRITE, TRANSACTIONS), (WRITE, TOPIC)), TOPIC_DENIED),
    Case(
        *(K.COPY_BATCHES, 11, COPY),
        ((WRITE, TRANSACTIONS), (WRITE, TOPIC), (READ, SOURCE)),
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    ),
]
"""Copies from another topic. Without Read on it the client fetches, and gets that error."""

COMMITTED_BY_GROUP = OffsetFetchRequest(
    "", (), (OffsetFetchRequestGroup("g", (OffsetFetchRequestTopic("t", (0,)),)),)
)
FORGOTTEN = OffsetDeleteRequest("g", (OffsetDeleteRequestTopic("t", (OffsetDeleteRequestPartition(0),)),))
GROUP_CASES = [
    Case(K.OFFSET_FETCH, 9, COMMITTED_BY_GROUP, ((DESCRIBE, TOPIC), (DESCRIBE, GROUP)), GROUP_DENIED),
    Case(K.OFFSET_FETCH, 9, COMMITTED_BY_GROUP, ((DESCRIBE, GROUP), (DESCRIBE, TOPIC)), TOPIC_DENIED),
    Case(K.OFFSET_DELETE, 0, FORGOTTEN, ((READ, TOPIC), (DELETE, GROUP)), GROUP_DENIED),
    Case(K.OFFSET_DELETE, 0, FORGOTTEN, ((DELETE, GROUP), (READ, TOPIC)), TOPIC_DENIED),
    Case(
        *(K.FIND_COORDINATOR, 6, FindCoordinatorRequest("", CoordinatorType.GROUP, ("g",))),
        ((DESCRIBE, GROUP),),
        GROUP_DENIED,
    ),
    Case(K.LEAVE_GROUP, 5, LeaveGroupRequest("g", "", ()), ((READ, GROUP),), GROUP_DENIED),
]
"""Requests about groups in versions with several of them."""

"""All supported APIs, by key, and their description as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from minikafka.wire.api import Api, ApiKey
from minikafka.wire.apis.add_offsets_to_txn import ADD_OFFSETS_TO_TXN
from minikafka.wire.apis.add_partitions_to_txn import ADD_PARTITIONS_TO_TXN
from minikafka.wire.apis.alter_client_quotas import ALTER_CLIENT_QUOTAS
from minikafka.wire.apis.alter_configs import ALTER_CONFIGS
from minikafka.wire.apis.alter_partition_reassignments import ALTER_PARTITION_REASSIGNMENTS
from minikafka.wire.apis.alter_replica_log_dirs import ALTER_REPLICA_LOG_DIRS
from minikafka.wire.apis.alter_user_scram_credentials import ALTER_USER_SCRAM_CREDENTIALS
from minikafka.wire.apis.api_versions import API_VERSIONS
from minikafka.wire.apis.controlled_shutdown import CONTROLLED_SHUTDOWN
from minikafka.wire.apis.copy_batches import COPY_BATCHES
from minikafka.wire.apis.create_acls import CREATE_ACLS
from minikafka.wire.apis.create_partitions import CREATE_PARTITIONS
from minikafka.wire.apis.create_topics import CREATE_TOPICS
from minikafka.wire.apis.delete_acls import DELETE_ACLS
from minikafka.wire.apis.delete_groups import DELETE_GROUPS
from minikafka.wire.apis.delete_records import DELETE_RECORDS
from minikafka.wire.apis.delete_topics import DELETE_TOPICS
from minikafka.wire.apis.describe_acls import DESCRIBE_ACLS
from minikafka.wire.apis.describe_client_quotas import DESCRIBE_CLIENT_QUOTAS
from minikafka.wire.apis.describe_cluster import DESCRIBE_CLUSTER
from minikafka.wire.apis.describe_configs import DESCRIBE_CONFIGS
from minikafka.wire.apis.describe_groups import DESCRIBE_GROUPS
from minikafka.wire.apis.describe_log_dirs import DESCRIBE_LOG_DIRS
from minikafka.wire.apis.describe_producers import DESCRIBE_PRODUCERS
from minikafka.wire.apis.describe_transactions import DESCRIBE_TRANSACTIONS
from minikafka.wire.apis.describe_user_scram_credentials import DESCRIBE_USER_SCRAM_CREDENTIALS
from minikafka.wire.apis.elect_leaders import ELECT_LEADERS
from minikafka.wire.apis.end_txn import END_TXN
from minikafka.wire.apis.fetch import FETCH
from minikafka.wire.apis.find_coordinator import FIND_COORDINATOR
from minikafka.wire.apis.heartbeat import HEARTBEAT
from minikafka.wire.apis.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from minikafka.wire.apis.init_producer_id import INIT_PRODUCER_ID
from minikafka.wire.apis.join_group import JOIN_GROUP
from minikafka.wire.apis.leader_and_isr import LEADER_AND_ISR
from minikafka.wire.apis.leave_group import LEAVE_GROUP
from minikafka.wire.apis.list_groups import LIST_GROUPS
from minikafka.wire.apis.list_offsets import LIST_OFFSETS
from minikafka.wire.apis.list_partition_reassignments import LIST_PARTITION_REASSIGNMENTS
from minikafka.wire.apis.list_transactions import LIST_TRANSACTIONS
from minikafka.wire.apis.metadata import METADATA
from minikafka.wire.apis.offset_commit import OFFSET_COMMIT
from minikafka.wire.apis.offset_delete import OFFSET_DELETE
from minikafka.wire.apis.offset_fetch import OFFSET_FETCH
from minikafka.wire.apis.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from minikafka.wire.apis.produce import PRODUCE
from minikafka.wire.apis.sasl_authenticate import SASL_AUTHENTICATE
from minikafka.wire.apis.sasl_handshake import SASL_HANDSHAKE
from minikafka.wire.apis.stop_replica import STOP_REPLICA
from minikafka.wire.apis.sync_group import SYNC_GROUP
from minikafka.wire.apis.txn_offset_commit import TXN_OFFSET_COMMIT
from minikafka.wire.apis.update_metadata import UPDATE_METADATA
from minikafka.wire.apis.write_txn_markers import WRITE_TXN_MARKERS
from minikafka.wire.fields import ArrayOf, Type
from minikafka.wire.schema import Field, Struct

APIS: dict[ApiKey, Api[Any, Any]] = {
    api.key: api
    for api in (
        PRODUCE,
        FETCH,
        LIST_OFFSETS,
        METADATA,
        LEADER_AND_ISR,
        STOP_REPLICA,
        UPDATE_METADATA,
        CONTROLLED_SHUTDOWN,
        OFFSET_COMMIT,
        OFFSET_FETCH,
        FIND_COORDINATOR,
        JOIN_GROUP,
        HEARTBEAT,
        LEAVE_GROUP,
        SYNC_GROUP,
        DESCRIBE_GROUPS,
        LIST_GROUPS,
        SASL_HANDSHAKE,
        API_VERSIONS,
        CREATE_TOPICS,
        DELETE_TOPICS,
        DELETE_RECORDS,
        INIT_PRODUCER_ID,
        OFFSET_FOR_LEADER_EPOCH,
        ADD_PARTITIONS_TO_TXN,
        ADD_OFFSETS_TO_TXN,
        END_TXN,
        WRITE_TXN_MARKERS,
        TXN_OFFSET_COMMIT,
        DESCRIBE_ACLS,
        CREATE_ACLS,
        DELETE_ACLS,
        DESCRIBE_CONFIGS,
        ALTER_CONFIGS,
        ALTER_REPLICA_LOG_DIRS,
        DESCRIBE_LOG_DIRS,
        SASL_AUTHENTICATE,
        CREATE_PARTITIONS,
        DELETE_GROUPS,
        ELECT_LEADERS,
        INCREMENTAL_ALTER_CONFIGS,
        ALTER_PARTITION_REASSIGNMENTS,
        LIST_PARTITION_REASSIGNMENTS,
        OFFSET_DELETE,
        DESCRIBE_CLIENT_QUOTAS,
        ALTER_CLIENT_QUOTAS,
        DESCRIBE_USER_SCRAM_CREDENTIALS,
        ALTER_USER_SCRAM_CREDENTIALS,
        DESCRIBE_CLUSTER,
        DESCRIBE_PRODUCERS,
        DESCRIBE_TRANSACTIONS,
        LIST_TRANSACTIONS,
        COPY_BATCHES,
    )
}


def describe(apis: Iterable[Api[Any, Any]] | None = None) -> str:
    """Return every field of every version of ``apis`` (by default all) as text, in wire order.

    An API whose ``max_version`` was lowered is described without the fields of newer versions.
    """
    chosen = APIS.values() if apis is None else apis
    return "\n\n".join("\n".join(_api_lines(api)) for api in chosen)


def _api_lines(api: Api[Any, Any]) -> Iterator[str]:
    versions = f"version {api.min_version}"
    if api.max_version > api.min_version:
        versions = f"versions {api.min_version} to {api.max_version}"
    yield f"{api.name} (key {int(api.key)}), {versions}"
    for title, message in (("request", Struct(api.request)), ("response", Struct(api.response))):
        lines = [*_struct_lines(message, "    ", api.max_version)]
        yield f"  {title}" if lines else f"  {title}: nothing"
        yield from lines


def _struct_lines(message: Struct, indent: str, newest: int) -> Iterator[str]:
    for row in message.fields:
        if row.since > newest:
            continue
        note = f"  # {row.note}" if row.note else ""
        yield f"{indent}{row.name}: {_type_name(row.type)}{_versions(row, newest)}{note}"
        inner = row.type.element if isinstance(row.type, ArrayOf) else row.type
        if isinstance(inner, Struct):
            yield from _struct_lines(inner, indent + "  ", newest)


def _type_name(type_: Type) -> str:
    if isinstance(type_, ArrayOf) and isinstance(type_.element, Struct):
        return "array of"
    return type_.name


def _versions(row: Field, newest: int) -> str:
    tag = "" if row.tag is None else f", tag {row.tag}"
    until = None if row.until is None or row.until >= newest else row.until
    if row.since and until == row.since:
        return f"{tag}, version {until}"
    if row.since and until is not None:
        return f"{tag}, versions {row.since} to {until}"
    if row.since:
        return f"{tag}, since version {row.since}"
    return tag if until is None else f"{tag}, until version {until}"

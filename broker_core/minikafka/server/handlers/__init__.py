"""The request handlers, one file for each API.

``handle(broker, context, request)``, or ``handle(coordinator, …)`` for the APIs of groups and transactions,
replies through the context, at once or later, or returns the steps that do so. Every API with a handler is
served, and advertised, in the versions of ``server.served_versions``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from minikafka.server.context import RequestContext
from minikafka.server.control.controller_event_manager import ControllerEventManager
from minikafka.server.core.broker import Broker
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.server.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    api_versions,
    controlled_shutdown,
    copy_batches,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leader_and_isr,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    stop_replica,
    sync_group,
    txn_offset_commit,
    update_metadata,
    write_txn_markers,
)
from minikafka.server.replication.replica_manager import ReplicaManager
from minikafka.server.transactions.marker_writer import MarkerWriter
from minikafka.server.transactions.transaction_coordinator import TransactionCoordinator
from minikafka.server.workers.work_pool import Steps, begin_here
from minikafka.wire.api import ApiKey

Handler = Callable[[RequestContext, Any], None]

_Bound = Callable[[RequestContext, Any], Steps | None]
_Handle = Callable[[Broker, RequestContext, Any], Steps | None]
_TransactionsHandle = Callable[[TransactionCoordinator, RequestContext, Any], Steps | None]

# A waiting request counts as work: jobs of the worker must write to ZooKeeper for it.
_BY_JOB: dict[ApiKey, _Handle] = {
    ApiKey.CREATE_TOPICS: create_topics.handle,
    ApiKey.DELETE_TOPICS: delete_topics.handle,
    ApiKey.CREATE_ACLS: create_acls.handle,
    ApiKey.DELETE_ACLS: delete_acls.handle,
    ApiKey.ALTER_CONFIGS: alter_configs.handle,
    ApiKey.ALTER_REPLICA_LOG_DIRS: alter_replica_log_dirs.handle,
    ApiKey.CREATE_PARTITIONS: create_partitions.handle,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs.handle,
    ApiKey.ALTER_CLIENT_QUOTAS: alter_client_quotas.handle,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials.handle,
}
_OF_TRANSACTIONS_BY_JOB: dict[ApiKey, _TransactionsHandle] = {
    ApiKey.INIT_PRODUCER_ID: init_producer_id.handle
}
# Other waiting requests depend on other clients, on time, or on the start: they do not delay others.
_OF_BROKER: dict[ApiKey, _Handle] = {
    ApiKey.PRODUCE: produce.handle,
    ApiKey.COPY_BATCHES: copy_batches.handle,
    ApiKey.FETCH: fetch.handle,
    ApiKey.LIST_OFFSETS: list_offsets.handle,
    ApiKey.METADATA: metadata.handle,
    ApiKey.DELETE_RECORDS: delete_records.handle,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.handle,
    ApiKey.DESCRIBE_ACLS: describe_acls.handle,
    ApiKey.DESCRIBE_CONFIGS: describe_configs.handle,
    ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs.handle,
    ApiKey.SASL_HANDSHAKE: sasl_handshake.handle,
    ApiKey.SASL_AUTHENTICATE: sasl_authenticate.handle,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments.handle,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: describe_client_quotas.handle,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: describe_user_scram_credentials.handle,
    ApiKey.DESCRIBE_CLUSTER: describe_cluster.handle,
    ApiKey.DESCRIBE_PRODUCERS: describe_producers.handle,
}
_OF_GROUPS: dict[ApiKey, Callable[[GroupCoordinator, RequestContext, Any], Steps | None]] = {
    ApiKey.JOIN_GROUP: join_group.handle,
    ApiKey.SYNC_GROUP: sync_group.handle,
    ApiKey.HEARTBEAT: heartbeat.handle,
    ApiKey.LEAVE_GROUP: leave_group.handle,
    ApiKey.OFFSET_COMMIT: offset_commit.handle,
    ApiKey.OFFSET_FETCH: offset_fetch.handle,
    ApiKey.DESCRIBE_GROUPS: describe_groups.handle,
    ApiKey.LIST_GROUPS: list_groups.handle,
    ApiKey.DELETE_GROUPS: delete_groups.handle,
    ApiKey.OFFSET_DELETE: offset_delete.handle,
    ApiKey.TXN_OFFSET_COMMIT: txn_offset_commit.handle,
}
_OF_TRANSACTIONS: dict[ApiKey, _TransactionsHandle] = {
    ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn.handle,
    ApiKey.END_TXN: end_txn.handle,
    ApiKey.DESCRIBE_TRANSACTIONS: describe_transactions.handle,
    ApiKey.LIST_TRANSACTIONS: list_transactions.handle,
}
_OF_BOTH: dict[
    ApiKey, Callable[[GroupCoordinator, TransactionCoordinator, RequestContext, Any], Steps | None]
] = {ApiKey.FIND_COORDINATOR: find_coordinator.handle, ApiKey.ADD_OFFSETS_TO_TXN: add_offsets_to_txn.handle}
# Requests of the controller: also jobs, in order.
_OF_REPLICAS: dict[ApiKey, Callable[[ReplicaManager, RequestContext, Any], None]] = {
    ApiKey.STOP_REPLICA: stop_replica.handle,
    ApiKey.UPDATE_METADATA: update_metadata.handle,
}
# Requests for work of the controller.
_OF_CONTROLLER: dict[ApiKey, Callable[[ControllerEventManager, Broker, RequestContext, Any], None]] = {
    ApiKey.CONTROLLED_SHUTDOWN: controlled_shutdown.handle,
    ApiKey.ELECT_LEADERS: elect_leaders.handle,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments.handle,
}
list_api_versions = api_versions.listing(
    [
        *(*_BY_JOB, *_OF_TRANSACTIONS_BY_JOB, *_OF_BROKER, *_OF_GROUPS, *_OF_TRANSACTIONS, *_OF_BOTH),
        *(*_OF_REPLICAS, *_OF_CONTROLLER),
        *(ApiKey.WRITE_TXN_MARKERS, ApiKey.LEADER_AND_ISR, ApiKey.API_VERSIONS),
    ]
)
"""The handler of ApiVersions, which clients may ask before they have authenticated."""
_OF_BROKER[ApiKey.API_VERSIONS] = list_api_versions

WORK = frozenset(_BY_JOB | _OF_TRANSACTIONS_BY_JOB)
"""APIs whose requests count as work until they are answered (``Exchange.park``)."""


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of a broker that serve requests."""

    broker: Broker
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    marker_writer: MarkerWriter
    replicas: ReplicaManager
    control: ControllerEventManager


def handlers(services: Services) -> Mapping[ApiKey, Handler]:
    """Return the handler of each API that is served."""
    broker = services.broker

    def run(handle: _Bound, context: RequestContext, request: Any) -> None:
        steps = handle(context, request)
        if steps is not None:
            begin_here(broker.pool, context.exchange, broker.clock, steps)

    return {
        **{key: partial(run, partial(handle, broker)) for key, handle in (_BY_JOB | _OF_BROKER).items()},
        **{key: partial(run, partial(handle, services.groups)) for key, handle in _OF_GROUPS.items()},
        **{
            key: partial(run, partial(handle, services.transactions))
            for key, handle in (_OF_TRANSACTIONS_BY_JOB | _OF_TRANSACTIONS).items()
        },
        **{
            key: partial(run, partial(handle, services.groups, services.transactions))
            for key, handle in _OF_BOTH.items()
        },
        ApiKey.WRITE_TXN_MARKERS: partial(
            run, partial(write_txn_markers.handle, broker.clock, services.marker_writer)
        ),
        **{key: partial(handle, services.replicas) for key, handle in _OF_REPLICAS.items()},
        ApiKey.LEADER_AND_ISR: partial(leader_and_isr.handle, broker, services.replicas),
        **{key: partial(handle, services.control, broker) for key, handle in _OF_CONTROLLER.items()},
    }

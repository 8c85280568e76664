"""Sends the requests of a transactional producer: to its coordinator, that of a group, or any broker."""

from __future__ import annotations

from typing import Any

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError
from minikafka.base.ids import BrokerAddress
from minikafka.clients.network.broker_connection import BrokerConnection, ResponseFuture
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.connections import DedicatedConnectionPool
from minikafka.clients.network.response_errors import raise_for_code
from minikafka.clients.network.retry import Deadline
from minikafka.clients.produce.config import TransactionalConfig
from minikafka.clients.produce.requests import TransactionTask
from minikafka.clients.produce.transaction_requests import (
    APIS,
    FindCoordinator,
    Outcome,
    outcome_of,
    request_of,
)
from minikafka.wire.api import Api
from minikafka.wire.apis.add_offsets_to_txn import ADD_OFFSETS_TO_TXN
from minikafka.wire.apis.add_partitions_to_txn import ADD_PARTITIONS_TO_TXN
from minikafka.wire.apis.end_txn import END_TXN
from minikafka.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from minikafka.wire.apis.init_producer_id import INIT_PRODUCER_ID

_NEEDED: tuple[Api[Any, Any], ...] = (INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN)


_DENIED = frozenset({ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED})


class TransactionRunner:
    """Does the I/O of TransactionTasks.

    It has connections of its own: a coordinator answers once its replicas have a change, and requests of
    others would wait behind that.
    """

    def __init__(self, cluster: ClusterClient, config: TransactionalConfig) -> None:
        self._cluster = cluster
        self._config = config
        self._pool = DedicatedConnectionPool()
        self._knows_brokers = False

    def find(self, task: TransactionTask, deadline: Deadline) -> Outcome:
        """Return the coordinator that a task looks for, or the error."""
        operation = task.operation
        assert isinstance(operation, FindCoordinator)
        try:
            connection = self._cluster.any_connection(deadline)
            if not self._knows_brokers:
                _check_transactions(connection, deadline)
                self._knows_brokers = True
            request = FindCoordinatorRequest(operation.key, operation.type, (operation.key,))
            response = connection.send(FIND_COORDINATOR, lambda _: request, deadline).result(
                deadline.remaining_ms()
            )
            row = response.coordinators[0] if response.coordinators else response
            # For a missing right TransactionManager has a better text than the broker.
            is_denied = ErrorCode.of(row.error_code) in _DENIED
            message = f"{operation}: {row.error_message}" if row.error_message and not is_denied else None
            raise_for_code(row.error_code, message, str(operation))
            return BrokerAddress(row.node_id, row.host, row.port)
        except MinikafkaError as error:
            return error

    def send(self, task: TransactionTask, deadline: Deadline) -> ResponseFuture[Any]:
        """Send the request of a task to its coordinator. Raises as ``BrokerConnection.send``."""
        assert task.coordinator is not None
        connection = self._cluster.connection_to(task.coordinator, self._pool)
        request = request_of(
            task.operation, self._config.transactional_id, self._config.transaction_timeout_ms
        )
        return connection.send(APIS[type(task.operation)], request, deadline)

    def outcome(self, task: TransactionTask, response: Any) -> Outcome:
        """Return the outcome of a task, given the response to its request, its error, or what was found."""
        if isinstance(response, MinikafkaError | BrokerAddress):
            return response
        return outcome_of(task.operation, response)

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close_pool(self._pool)


def _check_transactions(connection: BrokerConnection, deadline: Deadline) -> None:
    """Raise UNSUPPORTED_VERSION, with the name of the broker, if it has no transactions."""
    missing = []
    for api in _NEEDED:
        try:
            connection.version(api, deadline)
        except BrokerError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            missing.append(api.name)
    if missing:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{connection.name} has no transactions: it lacks {', '.join(missing)}. Apache Kafka "
            "has them since 0.11, and minikafka's brokers unless they are in a cluster with 0.10.1",
        )

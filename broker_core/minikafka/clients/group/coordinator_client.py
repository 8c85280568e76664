"""Requests to the coordinator of a group, which is found through any broker.

The coordinator is the leader of one partition of ``__consumer_offsets``, which follows from the group's name.
It moves with that leader, and does not exist before the topic, which the first FindCoordinator request
creates. Members use connections of their own: JoinGroup is answered when all have joined, and delays all
requests behind it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from minikafka.base.errors import (
    AuthenticationFailed,
    BrokerError,
    ErrorCode,
    MinikafkaError,
    RemoteWireError,
)
from minikafka.base.ids import BrokerAddress
from minikafka.clients.group.membership import COORDINATOR_MOVED_CODES
from minikafka.clients.network.broker_connection import ResponseFuture
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.connections import ConnectionPool, DedicatedConnectionPool
from minikafka.clients.network.response_errors import raise_for_group
from minikafka.clients.network.retry import Deadline
from minikafka.wire.api import Api
from minikafka.wire.apis.find_coordinator import (
    FIND_COORDINATOR,
    Coordinator,
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
T = TypeVar("T")


class CoordinatorClient:
    """Sends requests to the coordinator of one group. Thread-safe. A member has a ``pool`` of its own."""

    def __init__(
        self, cluster: ClusterClient, group_id: str, pool: DedicatedConnectionPool | None = None
    ) -> None:
        self.cluster = cluster
        self.group_id = group_id
        self._pool = pool or ConnectionPool.CONTROL
        self._lock = threading.Lock()
        self._address: BrokerAddress | None = None

    def forget(self) -> None:
        """Forget the coordinator's address: it is looked up before the next request."""
        with self._lock:
            self._address = None

    def address(self, deadline: Deadline) -> BrokerAddress:
        """Return the coordinator. One attempt; raises NetworkError or GROUP_COORDINATOR_NOT_AVAILABLE."""
        with self._lock:
            known = self._address
        if known is not None:
            return known
        response = self.cluster.call(
            None, FIND_COORDINATOR, find_request(self.group_id), timeout_ms=deadline.remaining_ms()
        )
        row = found_coordinator(response)
        raise_for_group(row.error_code, "finding the coordinator of", self.group_id, "Read")
        found = BrokerAddress(row.node_id, row.host, row.port)
        with self._lock:
            self._address = found
        return found

    def send(
        self, api: Api[RequestT, ResponseT], request: Callable[[int], RequestT], deadline: Deadline
    ) -> ResponseFuture[ResponseT]:
        """Send ``request(version)`` without waiting for its response. One attempt; raises as ``address``."""
        try:
            connection = self.cluster.connection_to(self.address(deadline), self._pool)
            return connection.send(api, request, deadline)
        except MinikafkaError as error:
            self.forget_if_moved(error)
            raise

    def call(
        self,
        what: str,
        api: Api[RequestT, ResponseT],
        request: Callable[[int], RequestT],
        deadline: Deadline,
        take: Callable[[ResponseT], T],
    ) -> T:
        """Return the result of ``take`` for the response, with retries while the error is retriable.

        ``take`` raises the BrokerError in the response.
        """

        def attempt() -> T:
            try:
                return take(self.send(api, request, deadline).result(deadline.remaining_ms()))
            except MinikafkaError as error:
                self.forget_if_moved(error)
                raise

        return self.cluster.retry(what, deadline, attempt)

    def forget_if_moved(self, error: MinikafkaError) -> None:
        """Forget the coordinator if ``error`` says that it has moved, is not available or refuses the login.

        Another broker may be the coordinator by the time of the next request.
        """
        if (
            not isinstance(error, BrokerError)
            or isinstance(error, AuthenticationFailed)
            or error.code in COORDINATOR_MOVED_CODES
        ):
            self.forget()


def find_request(group_id: str) -> FindCoordinatorRequest:
    """Return the request for the coordinator of a group, in every version."""
    return FindCoordinatorRequest(group_id, CoordinatorType.GROUP, (group_id,))


def found_coordinator(response: FindCoordinatorResponse) -> Coordinator | FindCoordinatorResponse:
    """Return the part of a response with the address or the error: from version 4 on a row.

    Raises RemoteWireError for a response with neither.
    """
    found = response.coordinators[0] if response.coordinators else response
    if found.error_code == ErrorCode.NONE and not found.host:
        raise RemoteWireError("FindCoordinator was answered without an address and without an error")
    return found

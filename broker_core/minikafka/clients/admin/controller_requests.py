"""Requests that only the controller serves: sent again when it moves, with a time-out that leaves it time to
answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minikafka.base.errors import BrokerError
from minikafka.clients.network.response_errors import error_of

if TYPE_CHECKING:
    from minikafka.clients.network.cluster import ClusterClient
    from minikafka.clients.network.retry import Deadline
    from minikafka.wire.api import Api


def ask_controller(
    cluster: ClusterClient,
    api: Api[Any, Any],
    request: Callable[[], object],
    deadline: Deadline,
    error_in: Callable[[Any], BrokerError | None] | None = None,
) -> Any:
    """Return the controller's response. Raise the error of the whole response, or what ``error_in`` finds."""

    def attempt() -> Any:
        controller = cluster.controller(deadline)
        response = cluster.send(controller, api, request(), deadline=deadline).result(deadline.remaining_ms())
        if error_in is not None:
            error = error_in(response)
        else:
            error = error_of(response.error_code, response.error_message)
        if error is not None:
            raise error
        return response

    return cluster.retry(api.name, deadline, attempt)


def controller_timeout_ms(deadline: Deadline) -> int:
    """Return the controller's time-out: a little less than the client's, so that its response arrives."""
    return max(1, deadline.remaining_ms() * 9 // 10)

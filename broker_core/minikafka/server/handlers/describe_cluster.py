"""DescribeCluster: the brokers, the controller and the id of the cluster, as this broker knows them.

The addresses are those of the listener that received the request; a broker without that listener is left out.
A cluster with ZooKeeper has no endpoints of controllers.
"""

from __future__ import annotations

from minikafka.base.acls import CLUSTER_OPERATIONS, operation_bits
from minikafka.base.errors import ErrorCode
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.wire.api import NO_OPERATIONS
from minikafka.wire.apis.describe_cluster import (
    BROKER_ENDPOINTS,
    CONTROLLER_ENDPOINTS,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)


def handle(broker: Broker, context: RequestContext, request: DescribeClusterRequest) -> None:
    """Serve one DescribeCluster request."""
    if request.endpoint_type != BROKER_ENDPOINTS:
        context.reply(_refusal(request.endpoint_type))
        return
    known = broker.metadata_cache
    addresses = known.addresses(context.listener)
    asked = request.include_cluster_authorized_operations
    context.reply(
        DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            error_message=None,
            endpoint_type=BROKER_ENDPOINTS,
            cluster_id=known.cluster_id,
            controller_id=known.controller_id if known.controller_id in addresses else -1,
            brokers=tuple(
                DescribeClusterBroker(at.broker_id, at.host, at.port, at.rack) for at in addresses.values()
            ),
            cluster_authorized_operations=operation_bits(CLUSTER_OPERATIONS) if asked else NO_OPERATIONS,
        )
    )


def _refusal(endpoint_type: int) -> DescribeClusterResponse:
    if endpoint_type == CONTROLLER_ENDPOINTS:
        code, text = ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a broker, not a controller of its own"
    else:
        code, text = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"unknown endpoint type {endpoint_type}"
    return DescribeClusterResponse(0, code, text, endpoint_type, "", -1, ())

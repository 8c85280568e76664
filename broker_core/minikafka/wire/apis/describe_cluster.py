"""DescribeCluster: the brokers, the controller and the id of the cluster, without its topics.

Of Kafka 2.8. Version 1 says whether the brokers or the controllers are asked for; only a cluster without
ZooKeeper has endpoints of controllers.
"""

from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import NO_OPERATIONS, Api, ApiKey
from minikafka.wire.fields import Int8, Int16, Int32, since

BROKER_ENDPOINTS, CONTROLLER_ENDPOINTS = 1, 2


@fast_value
class DescribeClusterRequest:
    """A request for the cluster, and for what the client may do with it."""

    include_cluster_authorized_operations: bool
    endpoint_type: Annotated[Int8, since(1, default=BROKER_ENDPOINTS), "1 brokers, 2 controllers"] = (
        BROKER_ENDPOINTS
    )


@fast_value
class DescribeClusterBroker:
    """A live broker, at its address on the listener of the request."""

    broker_id: Int32
    host: str
    port: Int32
    rack: str | None


@fast_value
class DescribeClusterResponse:
    """The cluster. ``controller_id`` is -1 if no live broker is the controller."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
    endpoint_type: Annotated[Int8, since(1, default=BROKER_ENDPOINTS), "as in the request"]
    cluster_id: str
    controller_id: Int32
    brokers: tuple[DescribeClusterBroker, ...]
    cluster_authorized_operations: Annotated[Int32, "bits; -2^31: not requested"] = NO_OPERATIONS


DESCRIBE_CLUSTER = Api(
    ApiKey.DESCRIBE_CLUSTER, "DescribeCluster", 0, 1, DescribeClusterRequest, DescribeClusterResponse
)

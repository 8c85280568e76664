"""DescribeCluster: brokers, controller, operations, and the endpoints that there are not."""

from __future__ import annotations

from minikafka.base.errors import ErrorCode
from minikafka.wire.api import NO_OPERATIONS, ApiKey
from minikafka.wire.apis.describe_cluster import (
    CONTROLLER_ENDPOINTS,
    DescribeClusterBroker,
    DescribeClusterRequest,
)
from tests.support.requests import Request
from tests.support.simulation import Simulation


def test_cluster_is_described_with_its_brokers_and_controller() -> None:
    world = Simulation.serving()
    answer = world.call(Request(ApiKey.DESCRIBE_CLUSTER, 0, DescribeClusterRequest(False)))
    assert (answer.error_code, answer.error_message) == (0, None)
    assert answer.cluster_id == world.machine.broker.zk_client.cluster_id
    assert answer.controller_id == 0
    assert answer.brokers == (DescribeClusterBroker(0, world.host, world.port, None),)
    assert answer.cluster_authorized_operations == NO_OPERATIONS


def test_without_access_rules_every_operation_is_authorized() -> None:
    answer = Simulation.serving().call(Request(ApiKey.DESCRIBE_CLUSTER, 1, DescribeClusterRequest(True)))
    assert answer.cluster_authorized_operations == 8096  # as 3.9.1


def test_there_are_no_endpoints_of_controllers() -> None:
    world = Simulation.serving()
    for endpoint_type, code in (
        (CONTROLLER_ENDPOINTS, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ):
        request = DescribeClusterRequest(False, endpoint_type)
        answer = world.call(Request(ApiKey.DESCRIBE_CLUSTER, 1, request))
        assert (answer.error_code, answer.cluster_id, answer.brokers) == (code, "", ())

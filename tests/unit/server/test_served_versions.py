"""The versions that a broker advertises and that clients use, beside those that the schemas know."""

from __future__ import annotations

import pytest

from minikafka.base.errors import RemoteWireError
from minikafka.clients.network.used_versions import NEWEST_USED
from minikafka.server.context import decode_request
from minikafka.server.served_versions import NEWEST_IN_0_10_1, NEWEST_SERVED, newest_versions
from minikafka.wire.api import ApiKey
from minikafka.wire.api_table import APIS
from minikafka.wire.apis.api_versions import API_VERSIONS, ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from minikafka.wire.framing import RequestHeader, split_response
from tests.support.recorded_exchange import RecordedExchange
from tests.support.requests import Request
from tests.support.simulation import Simulation


def test_a_broker_advertises_the_versions_that_it_serves() -> None:
    table = Simulation.serving().call(Request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest()))
    assert [(row.api_key, row.min_version, row.max_version) for row in table.api_keys] == [
        (0, 0, 7),
        (1, 0, 10),
        (2, 0, 4),
        (3, 0, 7),
        (4, 0, 1),
        (5, 0, 0),
        (6, 0, 4),
        (7, 0, 1),
        (8, 0, 6),
        (9, 0, 5),
        (10, 0, 2),
        (11, 0, 3),
        (12, 0, 2),
        (13, 0, 2),
        (14, 0, 2),
        (15, 0, 2),
        (16, 0, 2),
        (17, 0, 1),
        (18, 0, 2),
        (19, 0, 4),
        (20, 0, 3),
        (21, 0, 1),
        (22, 0, 1),
        (23, 0, 2),
        (29, 0, 1),
        (30, 0, 1),
        (31, 0, 1),
        (32, 0, 2),
        (33, 0, 1),
        (35, 0, 1),
        (36, 0, 1),
        (37, 0, 1),
        (42, 0, 1),
        (43, 0, 2),
        (44, 0, 0),
        (48, 0, 1),
        (49, 0, 1),
        (50, 0, 0),
        (51, 0, 0),
        (60, 0, 1),
        (61, 0, 0),
    ]


@pytest.mark.parametrize("newest", [NEWEST_SERVED, NEWEST_IN_0_10_1, NEWEST_USED])
def test_every_version_in_use_has_a_schema(newest: dict[ApiKey, int]) -> None:
    assert [key for key, version in newest.items() if not APIS[key].supports(version)] == []


def test_an_api_with_a_handler_is_served_in_a_version() -> None:
    table = Simulation.serving().call(Request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest()))
    assert {row.api_key for row in table.api_keys} == set(NEWEST_SERVED)


def test_newer_api_versions_request_is_refused_in_version_0() -> None:
    world = Simulation.serving()
    header = RequestHeader(ApiKey.API_VERSIONS, 3, 5, "new").encode()
    connection = world.network.connect(world.host, world.port)
    pending = connection.request([header, b"\x05java\x063.9.1\0"])
    world.network.run()
    correlation_id, body = split_response(pending.result(60_000))
    assert correlation_id == 5
    assert API_VERSIONS.decode_response(0, body) == ApiVersionsResponse(35, (ApiVersion(18, 0, 2),))


def test_version_above_those_served_closes_the_connection() -> None:
    for newest, complaint in (
        (NEWEST_SERVED, "Produce version 8 is not supported: expected 0 to 7"),
        (NEWEST_IN_0_10_1, "Produce version 8 is not supported: expected 0 to 2"),
    ):
        frame = memoryview(RequestHeader(ApiKey.PRODUCE, 8, 1, "new").encode())
        with pytest.raises(RemoteWireError, match=complaint):
            decode_request(RecordedExchange(), frame, APIS, newest)


def test_version_that_the_cluster_limits_is_told_with_the_reason() -> None:
    frame = memoryview(RequestHeader(ApiKey.PRODUCE, 7, 1, "new").encode())
    with pytest.raises(
        RemoteWireError, match=r"unsupported version 7 of Produce: inter\.broker\.protocol\.version"
    ):
        decode_request(RecordedExchange(), frame, APIS, newest_versions(beside_0_10=True))

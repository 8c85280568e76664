"""The versions that a broker advertises and that clients use, beside those that the schemas know."""

from __future__ import annotations

import pytest

from minikafka.base.errors import RemoteWireError
from minikafka.clients.network.used_versions import NEWEST_USED
from minikafka.server.context import decode_request
from minikafka.server.served_versions import NEWEST_IN_0_10_1, NEWEST_SERVED, newest_versions
from minikafka.wire.api import ApiKey
from minikafka.wire.api_table import APIS
from minikafka.wire.apis.api_versions import ApiVersionsRequest
from minikafka.wire.framing import RequestHeader
from tests.support.recorded_exchange import RecordedExchange
from tests.support.requests import Request
from tests.support.simulation import Simulation


def test_a_broker_advertises_the_versions_that_it_serves() -> None:
    table = Simulation.serving().call(Request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest()))
    rows = [(row.api_key, row.min_version, row.max_version) for row in table.api_keys]
    assert rows == [(key, APIS[key].min_version, newest) for key, newest in sorted(NEWEST_SERVED.items())]


@pytest.mark.parametrize("newest", [NEWEST_SERVED, NEWEST_IN_0_10_1, NEWEST_USED])
def test_every_version_in_use_has_a_schema(newest: dict[ApiKey, int]) -> None:
    assert [key for key, version in newest.items() if not APIS[key].supports(version)] == []


def test_version_above_those_served_closes_the_connection() -> None:
    for newest, complaint in (
        (NEWEST_SERVED, "Produce version 12 is not supported: expected 0 to 11"),
        (NEWEST_IN_0_10_1, "Produce version 12 is not supported: expected 0 to 2"),
    ):
        frame = memoryview(RequestHeader(ApiKey.PRODUCE, 12, 1, "new").encode())
        with pytest.raises(RemoteWireError, match=complaint):
            decode_request(RecordedExchange(), frame, APIS, newest)


def test_version_that_the_cluster_limits_is_told_with_the_reason() -> None:
    frame = memoryview(RequestHeader(ApiKey.PRODUCE, 7, 1, "new").encode())
    with pytest.raises(
        RemoteWireError, match=r"unsupported version 7 of Produce: inter\.broker\.protocol\.version"
    ):
        decode_request(RecordedExchange(), frame, APIS, newest_versions(beside_0_10=True))

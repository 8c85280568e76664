"""SaslHandshake and SaslAuthenticate where no authentication is expected: a listener without SASL."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.api_versions import ApiVersionsRequest
from minikafka.wire.apis.sasl_authenticate import SaslAuthenticateRequest
from minikafka.wire.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.support.requests import Request
from tests.support.simulation import Simulation


@pytest.mark.parametrize("version", [0, 1])
def test_client_with_sasl_is_refused_by_a_listener_without(
    version: int, caplog: pytest.LogCaptureFixture
) -> None:
    world = Simulation.serving("t")
    greeted = world.call(Request(ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest("PLAIN")))
    assert greeted == SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE, ())
    world.network.run()
    token = world.call(Request(ApiKey.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(b"\0a\0b")))
    assert token.error_code == ErrorCode.ILLEGAL_SASL_STATE
    world.network.run()
    assert caplog.text.count("a client with SASL on the listener PLAINTEXT, which has none") == 2
    assert world.produce("t", b"x").error_code == ErrorCode.NONE


def test_sasl_is_advertised_by_every_broker_as_by_kafkas() -> None:
    world = Simulation.serving()
    table = world.call(Request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest()))
    versions = {row.api_key: (row.min_version, row.max_version) for row in table.api_keys}
    assert versions[ApiKey.SASL_HANDSHAKE] == (0, 1)
    assert versions[ApiKey.SASL_AUTHENTICATE] == (0, 2)


def test_beside_0_10_the_handshake_is_that_of_0_10() -> None:
    world = Simulation.serving(properties={"inter.broker.protocol.version": "0.10.1"})
    table = world.call(Request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest()))
    versions = {row.api_key: row.max_version for row in table.api_keys}
    assert versions[ApiKey.SASL_HANDSHAKE] == 0
    assert ApiKey.SASL_AUTHENTICATE not in versions

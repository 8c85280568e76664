"""The APIs of SASL: the bytes that the classes of Apache Kafka 3.9.1 write."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.wire.apis.sasl_authenticate import (
    SASL_AUTHENTICATE,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from minikafka.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest, SaslHandshakeResponse
from minikafka.wire.frame_parts import join


@pytest.mark.parametrize("version", [0, 1])
def test_handshake_names_one_mechanism_and_is_told_all(version: int) -> None:
    request, request_bytes = SaslHandshakeRequest("PLAIN"), bytes.fromhex("0005504c41494e")
    assert join(SASL_HANDSHAKE.encode_request(version, request)) == request_bytes
    assert SASL_HANDSHAKE.decode_request(version, request_bytes) == request
    response = SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, ("PLAIN", "GSSAPI"))
    response_bytes = bytes.fromhex("0021000000020005504c41494e0006475353415049")
    assert join(SASL_HANDSHAKE.encode_response(version, response)) == response_bytes
    assert SASL_HANDSHAKE.decode_response(version, response_bytes) == response


@pytest.mark.parametrize("version", [0, 1])
def test_authenticate_carries_one_token(version: int) -> None:
    request, request_bytes = SaslAuthenticateRequest(b"\0a\0b"), bytes.fromhex("0000000400610062")
    assert join(SASL_AUTHENTICATE.encode_request(version, request)) == request_bytes
    assert SASL_AUTHENTICATE.decode_request(version, request_bytes) == request


@pytest.mark.parametrize(
    ("version", "lifetime_ms", "encoded"),
    [(0, 0, "0000ffff00000002763d"), (1, 3_600_000, "0000ffff00000002763d000000000036ee80")],
)
def test_session_lifetime_is_told_since_version_1(version: int, lifetime_ms: int, encoded: str) -> None:
    response = SaslAuthenticateResponse(ErrorCode.NONE, None, b"v=", lifetime_ms)
    assert join(SASL_AUTHENTICATE.encode_response(version, response)) == bytes.fromhex(encoded)
    assert SASL_AUTHENTICATE.decode_response(version, bytes.fromhex(encoded)) == response


def test_refusal_carries_code_and_message() -> None:
    refusal = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, "no", b"")
    encoded = bytes.fromhex("003a00026e6f00000000")
    assert join(SASL_AUTHENTICATE.encode_response(0, refusal)) == encoded
    assert SASL_AUTHENTICATE.decode_response(0, encoded) == refusal


def test_tokens_are_in_no_repr() -> None:
    texts = repr((SaslAuthenticateRequest(b"\0alice\0wonder"), SaslAuthenticateResponse(0, None, b"wonder")))
    assert "wonder" not in texts

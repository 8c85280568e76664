"""OAUTHBEARER, both sides, with a validator that knows one token."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.errors import AuthenticationFailed, BrokerError, ErrorCode
from minikafka.base.secrets import Password
from minikafka.security.sasl.oauthbearer import (
    MAX_NAME_CHARS,
    MAX_PAIRS,
    OAuthBearerSaslClient,
    OAuthBearerSaslServer,
    OAuthBearerToken,
    TokenRefusal,
)
from tests.unit.security.sasl.exchange import exchange

VALID = OAuthBearerToken(Password("abc.DEF-_1"), "alice,=1", 1_000, frozenset({"kafka"}))
REFUSAL = TokenRefusal("it expired", "invalid_token", "kafka read", "https://example.com/.well-known")


def server() -> OAuthBearerSaslServer:
    return OAuthBearerSaslServer(lambda text: VALID if text == VALID.value.value else REFUSAL)


def first(auth: str = "auth=Bearer abc.DEF-_1\x01", header: str = "n,,") -> bytes:
    return f"{header}\x01{auth}\x01".encode()


def refusal(*responses: bytes) -> AuthenticationFailed:
    oauth = server()
    for response in responses[:-1]:
        oauth.evaluate_response(response)
    with pytest.raises(AuthenticationFailed) as refused:
        oauth.evaluate_response(responses[-1])
    assert not oauth.is_complete
    return refused.value


def test_client_with_a_valid_token_is_authenticated() -> None:
    client, oauth = OAuthBearerSaslClient(VALID.value, {"logicalCluster": "lkc-1", "x": "a b"}), server()
    exchange(client, oauth)
    assert client.is_complete
    assert oauth.authorization_id == "alice,=1"
    assert oauth.expires_ms == 1_000
    assert oauth.extensions == {"logicalCluster": "lkc-1", "x": "a b"}


def test_only_the_token_may_be_long() -> None:
    token = "auth=Bearer abc.DEF-_1\x01"
    names = [chr(97 + number // 26) + chr(97 + number % 26) for number in range(MAX_PAIRS)]
    pairs = [f"{name}=x\x01" for name in names]
    assert server().evaluate_response(first(token + "".join(pairs[:-1]))) == b""
    assert "malformed" in refusal(first(token + "".join(pairs))).reason
    assert "may not act as" in refusal(first(header=f"n,a={'x' * MAX_NAME_CHARS},")).reason
    assert "malformed" in refusal(first(header=f"n,a={'x' * (MAX_NAME_CHARS + 1)},")).reason


def test_client_sends_the_message_of_rfc_7628() -> None:
    client = OAuthBearerSaslClient(
        Password("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg=="), {"host": "h", "port": "1"}
    )
    assert client.initial_response() == (
        b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01host=h\x01port=1\x01\x01"
    )


def test_refusal_is_answered_by_the_byte_1_and_then_an_error() -> None:
    client, oauth = OAuthBearerSaslClient(Password("other")), server()
    challenge = oauth.evaluate_response(client.initial_response())
    assert json.loads(challenge) == {
        "status": "invalid_token",
        "scope": "kafka read",
        "openid-configuration": "https://example.com/.well-known",
    }
    answer = client.evaluate_challenge(challenge)
    assert answer == b"\x01"
    assert client.refusal == challenge.decode()
    with pytest.raises(AuthenticationFailed) as refused:
        oauth.evaluate_response(answer)
    assert refused.value.detail == challenge.decode()
    assert refused.value.reason == "OAUTHBEARER: it expired"


def test_client_is_not_complete_after_a_refusal() -> None:
    client = OAuthBearerSaslClient(Password("other"))
    client.initial_response()
    client.evaluate_challenge(b'{"status":"invalid_token"}')
    with pytest.raises(AuthenticationFailed, match="invalid_token"):
        client.evaluate_challenge(b"")
    assert not client.is_complete


def test_refusal_ends_the_exchange_whatever_the_client_answers() -> None:
    assert refusal(first("auth=Bearer other\x01"), first()).reason == "OAUTHBEARER: it expired"


def test_refusal_leaves_out_what_it_does_not_say() -> None:
    assert TokenRefusal("a reason for the log").to_json() == '{"status": "invalid_token"}'


def test_authorization_id_may_be_the_name_in_the_token() -> None:
    oauth = server()
    assert oauth.evaluate_response(first(header="n,a=alice=2C=3D1,")) == b""
    assert oauth.authorization_id == "alice,=1"


@pytest.mark.parametrize("auth", ["auth=bearer abc.DEF-_1\x01", "x=y\x01auth=BEARER   abc.DEF-_1\x01"])
def test_scheme_is_read_in_any_case_and_place(auth: str) -> None:
    assert server().evaluate_response(first(auth)) == b""


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (b"", "malformed"),
        (b"\x01", "malformed"),  # the answer to a refusal that there was not
        (b"n,,auth=Bearer abc.DEF-_1", "malformed"),  # Kafka 2.0.0's first form
        (first(auth=""), "no token"),
        (first(auth="x=y\x01"), "no token"),
        (first(auth="auth=Bearer\x01"), "no token"),
        (first(auth="auth=Bearer a b\x01"), "no token"),
        (first(auth="auth=Bearer a\x01auth=Bearer b\x01"), "a key twice"),
        (first(auth="auth=Bearer a\x01x=1\x01x=2\x01"), "a key twice"),
        (first(auth="auth=Basic YTpi\x01"), "the scheme is 'Basic'"),
        (first(auth="auth=Bearer a\x01x1=y\x01"), "malformed"),
        (first(auth="auth=Bearer a\x01x=\x01"), "malformed"),
        (first(header="y,,"), "channel binding"),
        (first(header="p=x,,"), "channel binding"),
        (first(header="n,a=bob,"), "'alice,=1' may not act as 'bob'"),
        (first(auth="auth=Bearer \xff\x01"), "malformed"),
        (b"\xff", "UTF-8"),
    ],
)
def test_other_messages_are_refused(response: bytes, reason: str) -> None:
    error = refusal(response)
    assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert reason in error.reason
    assert error.detail.endswith("due to invalid credentials with SASL mechanism OAUTHBEARER")


@pytest.mark.parametrize("token", ["", "a b", "a\x01b", "ä"])
def test_client_does_not_send_a_token_that_would_be_misread(token: str) -> None:
    with pytest.raises(AuthenticationFailed, match="the token is empty"):
        OAuthBearerSaslClient(Password(token)).initial_response()


@pytest.mark.parametrize(
    "extension", [("auth", "x"), ("a1", "x"), ("", "x"), ("a", ""), ("a", "x\x01b=y"), ("a", "ä")]
)
def test_client_does_not_send_an_extension_that_would_be_misread(extension: tuple[str, str]) -> None:
    with pytest.raises(AuthenticationFailed, match="invalid extension"):
        OAuthBearerSaslClient(VALID.value, dict([extension])).initial_response()


def test_no_token_is_in_an_error_or_a_representation() -> None:
    client = OAuthBearerSaslClient(Password("s3cret"))
    client.initial_response()
    client.evaluate_challenge(b"no")
    with pytest.raises(AuthenticationFailed) as refused:
        client.evaluate_challenge(b"")
    assert "s3cret" not in f"{refused.value!r} {refused.value.reason}"
    assert "abc" not in repr(VALID)


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_by_an_own_error(response: bytes) -> None:
    refusal(response)


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_any_challenges_raise_only_own_errors(challenge: bytes, second: bytes) -> None:
    client = OAuthBearerSaslClient(VALID.value)
    client.initial_response()
    with contextlib.suppress(BrokerError):
        client.evaluate_challenge(challenge)
        client.evaluate_challenge(second)
    assert client.is_complete == (challenge == b"")

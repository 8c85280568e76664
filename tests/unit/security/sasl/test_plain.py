"""PLAIN, both sides."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.errors import AuthenticationFailed, BrokerError, ErrorCode
from minikafka.base.secrets import Password
from minikafka.security.sasl.plain import PlainSaslClient, PlainSaslServer
from tests.unit.security.sasl.exchange import exchange

USERS = {"alice": Password("tiger"), "böb": Password("a;b=c,ü")}
FIXED_TEXT = "Authentication failed: Invalid username or password"
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)


def server() -> PlainSaslServer:
    return PlainSaslServer(USERS.get)


def refusal(response: bytes) -> AuthenticationFailed:
    with pytest.raises(AuthenticationFailed) as refused:
        server().evaluate_response(response)
    return refused.value


@pytest.mark.parametrize("user", USERS)
def test_user_with_the_right_password_is_authenticated(user: str) -> None:
    client, plain = PlainSaslClient(user, USERS[user]), server()
    exchange(client, plain)
    assert client.is_complete
    assert plain.is_complete
    assert plain.authorization_id == user


def test_message_is_that_of_rfc_4616() -> None:
    assert (
        PlainSaslClient("tim", Password("tanstaaftanstaaf")).initial_response() == b"\0tim\0tanstaaftanstaaf"
    )


def test_authorization_id_may_be_the_user() -> None:
    plain = server()
    assert plain.evaluate_response(b"alice\0alice\0tiger") == b""
    assert plain.authorization_id == "alice"


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (b"\0alice\0lion", "wrong password of user 'alice'"),
        (b"\0alice\0tige", "wrong password"),
        (b"\0carol\0tiger", "user 'carol' is unknown"),
        (b"bob\0alice\0tiger", "'alice' may not act as 'bob'"),
        (b"\0\0tiger", "empty"),
        (b"\0alice\0", "empty"),
        (b"alice\0tiger", "got 2 parts"),
        (b"\0alice\0tiger\0", "got 4 parts"),
        (b"", "got 1 parts"),
        (b"\0alice\0\xff", "UTF-8"),
    ],
)
def test_refusal_has_one_text_for_the_peer_and_the_reason_for_the_log(response: bytes, reason: str) -> None:
    error = refusal(response)
    assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert error.detail == FIXED_TEXT
    assert reason in error.reason


def test_no_password_is_in_a_refusal() -> None:
    error = refusal(b"\0alice\0hunter2")
    assert "hunter2" not in f"{error!r} {error.reason}"
    assert "tiger" not in f"{error!r} {error.reason}"


def test_failed_exchange_takes_no_second_password() -> None:
    plain = server()
    with pytest.raises(AuthenticationFailed):
        plain.evaluate_response(b"\0alice\0lion")
    with pytest.raises(BrokerError) as refused:
        plain.evaluate_response(b"\0alice\0tiger")
    assert refused.value.code is ErrorCode.ILLEGAL_SASL_STATE
    assert not plain.is_complete


def test_authorization_id_is_there_after_success_only() -> None:
    with pytest.raises(BrokerError) as refused:
        _ = server().authorization_id
    assert refused.value.code is ErrorCode.ILLEGAL_SASL_STATE


def test_complete_exchange_takes_no_further_message() -> None:
    client, plain = PlainSaslClient("alice", USERS["alice"]), server()
    exchange(client, plain)
    for message in (plain.evaluate_response, client.evaluate_challenge):
        with pytest.raises(BrokerError, match="ILLEGAL_SASL_STATE"):
            message(b"")
    with pytest.raises(BrokerError, match="ILLEGAL_SASL_STATE"):
        client.initial_response()


def test_client_waits_for_its_own_message_first() -> None:
    with pytest.raises(BrokerError, match="ILLEGAL_SASL_STATE"):
        PlainSaslClient("alice", Password("x")).evaluate_challenge(b"")


def test_client_refuses_a_challenge() -> None:
    client = PlainSaslClient("alice", Password("x"))
    client.initial_response()
    with pytest.raises(AuthenticationFailed) as refused:
        client.evaluate_challenge(b"more")
    assert "no challenges" in refused.value.reason


@pytest.mark.parametrize(
    ("user", "password"), [("", "x"), ("a", ""), ("a\0b", "x"), ("a", "x\0"), ("\ud800", "x")]
)
def test_client_does_not_send_what_would_be_misread(user: str, password: str) -> None:
    with pytest.raises(AuthenticationFailed):
        PlainSaslClient(user, Password(password)).initial_response()


def test_a_password_that_is_no_text_is_in_no_error_behind_another() -> None:
    with pytest.raises(AuthenticationFailed) as refused:
        PlainSaslClient("a", Password("tiger\ud800")).initial_response()
    assert refused.value.__context__ is None
    with pytest.raises(AuthenticationFailed) as refused:
        PlainSaslServer({}.get).evaluate_response(b"\0a\0tiger\xff")
    assert refused.value.__context__ is None


@given(TEXTS, TEXTS, TEXTS)
def test_both_sides_agree_exactly_on_the_right_password(user: str, password: str, other: str) -> None:
    client = PlainSaslClient(user, Password(other))
    plain = PlainSaslServer({user: Password(password)}.get)
    with contextlib.suppress(AuthenticationFailed):
        exchange(client, plain)
    assert client.is_complete == plain.is_complete == (password == other)


@given(st.binary(max_size=40))
def test_any_bytes_are_refused_by_an_own_error(response: bytes) -> None:
    refusal(response)

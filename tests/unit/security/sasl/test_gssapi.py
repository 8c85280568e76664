"""GSSAPI with a context that a test makes: the messages of RFC 4752."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.errors import AuthenticationFailed
from minikafka.security.sasl.gssapi import GssapiSaslClient


class Context:
    """A context that is complete after some tokens; wrapping puts ``w:`` before a message."""

    def __init__(self, *tokens: bytes | None) -> None:
        self._tokens = list(tokens)
        self.received: list[bytes | None] = []

    @property
    def complete(self) -> bool:
        return not self._tokens

    def step(self, token: bytes | None) -> bytes | None:
        self.received.append(token)
        return self._tokens.pop(0)

    def wrap(self, message: bytes) -> bytes:
        return b"w:" + message

    def unwrap(self, message: bytes) -> bytes:
        if not message.startswith(b"w:"):
            raise AuthenticationFailed("GSSAPI: not wrapped")
        return message[2:]


def complete(authorization_id: str = "") -> GssapiSaslClient:
    """Return a client whose context is complete."""
    client = GssapiSaslClient(Context(b"one"), authorization_id)
    client.initial_response()
    return client


def test_tokens_pass_until_the_context_is_complete() -> None:
    context = Context(b"one", b"two", None)
    client = GssapiSaslClient(context)
    assert client.initial_response() == b"one"
    assert client.evaluate_challenge(b"A") == b"two"
    assert client.evaluate_challenge(b"B") == b""  # the last token was the server's
    assert not client.is_complete
    assert client.evaluate_challenge(b"w:\x07\x00\x10\x00") == b"w:\x01\x00\x00\x00"
    assert client.is_complete
    assert context.received == [None, b"A", b"B"]


def test_authorization_id_follows_the_choice_of_no_layer() -> None:
    assert complete("alice").evaluate_challenge(b"w:\x01\0\0\0") == b"w:\x01\0\0\0alice"


def test_server_that_demands_a_layer_is_refused() -> None:
    with pytest.raises(AuthenticationFailed, match="SASL_SSL"):
        complete().evaluate_challenge(b"w:\x06\0\0\0")


@given(st.binary(max_size=9))
def test_any_offer_of_a_server_is_answered_or_refused(offer: bytes) -> None:
    client = complete()
    try:
        client.evaluate_challenge(b"w:" + offer)
    except AuthenticationFailed:
        assert not client.is_complete
    else:
        assert len(offer) == 4
        assert offer[0] & 1

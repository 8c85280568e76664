"""Damaged messages of SASL logins: the broker answers or ends each connection, and authenticates nobody.

``MINIKAFKA_FUZZ`` is how many messages are tried (at least 3,000).
"""

from __future__ import annotations

import os
import random

import pytest

from minikafka.base.errors import ErrorCode, RemoteWireError
from minikafka.security.principals import ANONYMOUS
from minikafka.wire.api import ApiKey
from minikafka.wire.api_table import APIS
from minikafka.wire.apis.sasl_authenticate import SaslAuthenticateRequest
from minikafka.wire.apis.sasl_handshake import SaslHandshakeRequest
from minikafka.wire.frame_parts import join
from minikafka.wire.framing import RequestHeader
from tests.support.recorded_exchange import RecordedExchange
from tests.unit.server.security.test_authentication import MECHANISMS, World

INPUTS = max(3_000, int(os.environ.get("MINIKAFKA_FUZZ", "0")))
SEED = 20_261_126
FRAMES_OF_A_CONNECTION = 5
TOKENS = [
    b"\0alice\0wrong",
    b"n,,n=alice,r=abc",
    b"n,,n=al=2Cice,r=abc,tokenauth=true",
    b"c=biws,r=abc,p=AAAA",
    b"n,,\x01auth=Bearer a.b.c\x01\x01",
    b"\x01",
]


def request(key: ApiKey, version: int, body: object) -> bytes:
    return join([RequestHeader(key, version, 1, "c").encode(), *APIS[key].encode_request(version, body)])


HANDSHAKES = [
    request(ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism))
    for version in (0, 1)
    for mechanism in MECHANISMS
]


def damaged(chance: random.Random, data: bytes) -> bytes:
    """Return ``data`` with up to five bytes or pieces changed, removed or added."""
    changed = bytearray(data)
    for _ in range(chance.choice((0, 0, 1, 1, 2, 5))):
        at = chance.randrange(len(changed) + 1)
        changed[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(4))
    return bytes(changed)


def message(chance: random.Random) -> bytes:
    token = damaged(chance, chance.choice(TOKENS))
    kind = chance.randrange(6)
    if kind < 3:
        return damaged(chance, chance.choice(HANDSHAKES))
    if kind == 3:
        return damaged(chance, request(ApiKey.SASL_AUTHENTICATE, 1, SaslAuthenticateRequest(token)))
    return token if kind == 4 else chance.randbytes(chance.randrange(60))


@pytest.mark.timeout(600)
def test_damaged_logins_are_refused_and_harm_nobody() -> None:
    chance, world, tried = random.Random(SEED), World(), 0
    server = world.machine._server
    assert server is not None
    while tried < INPUTS:
        exchange = RecordedExchange()
        exchange.listener = "SASL_PLAINTEXT"
        for _ in range(FRAMES_OF_A_CONNECTION):
            tried += 1
            data = message(chance)
            exchange.calls.clear()
            try:
                server.handler.on_request(exchange, memoryview(bytearray(data)))
            except RemoteWireError:
                break
            assert exchange.calls, f"no answer to message {tried} of seed {SEED}: {data!r}"
            assert exchange.principal == ANONYMOUS, f"message {tried} of seed {SEED}: {data!r}"
            if exchange.closed:
                break
    assert world.log_in().error_code == ErrorCode.NONE

"""A listener with SASL on the network in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.secrets import Password
from minikafka.net.interfaces import Exchange
from minikafka.net.memory import MemoryNetwork
from minikafka.security.sasl.plain import PlainSaslServer
from minikafka.security.sasl.scram import ScramCredential, ScramMechanism, ScramSaslServer, UnknownUsers
from minikafka.security.sasl.server_states import (
    ApiVersionsAnswer,
    AuthenticateAnswer,
    EnabledMechanism,
    HandshakeAnswer,
    SaslServerAuthenticator,
    SaslState,
    Step,
    TokenAnswer,
)
from minikafka.wire.apis.api_versions import API_VERSIONS, ApiVersion, ApiVersionsResponse
from minikafka.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateResponse
from minikafka.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeResponse
from minikafka.wire.frame_parts import Part
from minikafka.wire.framing import RequestHeader, response_header

HOST, PORT = "broker", 9092
PASSWORD = Password("pencil")
SCRAM = ScramMechanism.SCRAM_SHA_256
CREDENTIAL = ScramCredential.create(SCRAM, PASSWORD, b"salt", 4096)
NEW = {17: (0, 1), 18: (0, 2), 36: (0, 1)}
NEWEST = {17: (0, 1), 18: (0, 4), 36: (0, 2)}
OLD = {17: (0, 0), 18: (0, 0)}
VersionTable = Mapping[int, tuple[int, int]]
"""API key to the oldest and newest version that a broker supports."""
TABLES = pytest.mark.parametrize("table", [NEWEST, NEW, OLD], ids=["3.9", "2.1", "0.10.1"])


@dataclass
class SaslBroker:
    """A listener with SASL, which echoes the requests of authenticated clients."""

    network: MemoryNetwork
    table: dict[int, tuple[int, int]]
    lifetime_ms: int = 0
    seen: list[RequestHeader] = field(default_factory=list)
    logins: int = 0

    def __post_init__(self) -> None:
        self.network.listen(HOST, PORT, self)

    def on_request(self, exchange: Exchange, frame: memoryview) -> None:
        machine = exchange.memory.setdefault("machine", self._machine())
        if machine.state is SaslState.COMPLETE:
            exchange.respond([bytes(frame)])
            return
        if not machine.expects_bare_token:
            self.seen.append(RequestHeader.decode(frame)[0])
        parts, failure = serve_login(machine, self.table, frame, self.network.clock.now_ms())
        if failure is None:
            exchange.respond(parts)
        else:
            exchange.close(failure, parts)
        self.logins += machine.state is SaslState.COMPLETE

    def _machine(self) -> SaslServerAuthenticator:
        mechanisms = {
            "PLAIN": EnabledMechanism(lambda: PlainSaslServer({"alice": PASSWORD}.get), self.lifetime_ms),
            SCRAM.value: EnabledMechanism(
                lambda: ScramSaslServer(SCRAM, {"alice": CREDENTIAL}.get, UnknownUsers(b"s"), "server"),
                self.lifetime_ms,
            ),
        }
        return SaslServerAuthenticator(
            mechanisms, lambda key, version: key in self.table and version <= self.table[key][1]
        )


def serve_login(
    machine: SaslServerAuthenticator, table: VersionTable, frame: memoryview, now_ms: int
) -> tuple[list[Part], str | None]:
    """Return the answer to a frame of a login, and the reason to close the connection, if there is one."""
    if machine.expects_bare_token:
        return _encoded(machine.receive_token(bytes(frame), now_ms), [], 0, table)
    header, body = RequestHeader.decode(frame)
    version = header.api_version
    step = machine.receive_request(header.api_key, version, now_ms)
    if step is None and header.api_key == SASL_HANDSHAKE.key:
        step = machine.receive_handshake(version, SASL_HANDSHAKE.decode_request(version, body).mechanism)
    elif step is None:
        token = SASL_AUTHENTICATE.decode_request(version, body).auth_bytes
        step = machine.receive_authenticate(token, now_ms)
    is_authenticate = header.api_key == SASL_AUTHENTICATE.key
    is_flexible = is_authenticate and SASL_AUTHENTICATE.has_tagged_response_header(version)
    return _encoded(step, [response_header(header.correlation_id, is_flexible)], version, table)


def api_versions(table: VersionTable, version: int, error_code: ErrorCode = ErrorCode.NONE) -> Sequence[Part]:
    """Return the parts of the response with this table."""
    rows = tuple(ApiVersion(key, *versions) for key, versions in table.items())
    return API_VERSIONS.encode_response(version, ApiVersionsResponse(error_code, rows))


def _encoded(
    step: Step, head: list[Part], version: int, table: VersionTable
) -> tuple[list[Part], str | None]:
    answer = step.answer
    parts: list[Part] = head if answer else []
    if isinstance(answer, ApiVersionsAnswer):
        parts = [*head, *api_versions(table, 0 if answer.error_code else version, answer.error_code)]
    elif isinstance(answer, HandshakeAnswer):
        response = SaslHandshakeResponse(answer.error_code, answer.mechanisms)
        parts = head + SASL_HANDSHAKE.encode_response(version, response)
    elif isinstance(answer, AuthenticateAnswer):
        verdict = SaslAuthenticateResponse(
            answer.error_code, answer.error_message, answer.auth_bytes, answer.session_lifetime_ms
        )
        parts = head + SASL_AUTHENTICATE.encode_response(version, verdict)
    elif isinstance(answer, TokenAnswer):
        parts = [answer.token]
    return parts, step.failure

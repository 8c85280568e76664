"""A listener with SASL on the network in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

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
OLD = {17: (0, 0), 18: (0, 0)}


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
        now_ms = self.network.clock.now_ms()
        if machine.state is SaslState.COMPLETE:
            exchange.respond([bytes(frame)])
        elif machine.expects_bare_token:
            self._answer(exchange, machine.receive_token(bytes(frame), now_ms), [], 0)
        else:
            header, body = RequestHeader.decode(frame)
            self.seen.append(header)
            step = machine.receive_request(header.api_key, header.api_version, now_ms)
            if step is None and header.api_key == SASL_HANDSHAKE.key:
                request = SASL_HANDSHAKE.decode_request(header.api_version, body)
                step = machine.receive_handshake(header.api_version, request.mechanism)
            elif step is None:
                token = SASL_AUTHENTICATE.decode_request(header.api_version, body).auth_bytes
                step = machine.receive_authenticate(header.api_version, token, now_ms)
            self._answer(exchange, step, [response_header(header.correlation_id)], header.api_version)
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

    def _answer(self, exchange: Exchange, step: Step, head: list[Part], version: int) -> None:
        answer, parts = step.answer, head
        if isinstance(answer, ApiVersionsAnswer):
            rows = tuple(ApiVersion(key, *versions) for key, versions in self.table.items())
            parts = head + API_VERSIONS.encode_response(version, ApiVersionsResponse(answer.error_code, rows))
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
        if step.failure is None:
            exchange.respond(parts)
        else:
            exchange.close(step.failure, parts if answer else ())

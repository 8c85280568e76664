"""Connections that are authenticated before their first request: TCP, TLS, then SASL.

``SecureConnector`` makes each connection with another connector, which does TCP and TLS, and logs in on it:
ApiVersions 0, SaslHandshake, and the messages of the mechanism (``security.sasl.client_states``). All of this
shares the time-out of the connection.

A login that fails raises AuthenticationFailed, which is not to be retried. A connection that breaks meanwhile
raises NetworkError, with one exception: a broker without SaslAuthenticate closes the connection in place of a
refusal, so a second one that ends in this way is a refusal too.

A session may have an end (``connections.max.reauth.ms``, or that of a token). Kafka's clients authenticate
again on the same connection at a random time between 85 % and 95 % of it, so that not all clients do so at
once. Here ``session_end_ms`` of the connection is that time, and its user then opens another one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from minikafka.base.clock import Clock, SystemClock
from minikafka.base.errors import AuthenticationFailed, ErrorCode, NetworkError, NoResponse, RemoteWireError
from minikafka.net.interfaces import Connection, Connector, PendingResponse
from minikafka.security.sasl.client_states import (
    ClientState,
    SaslClientAuthenticator,
    SendAuthenticate,
    SendToken,
)
from minikafka.security.sasl.mechanism import SaslClient
from minikafka.wire.api import Api
from minikafka.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from minikafka.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from minikafka.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest
from minikafka.wire.frame_parts import Part
from minikafka.wire.framing import RequestHeader, split_response

VersionTable = Mapping[int, tuple[int, int]]
"""API key to the oldest and newest version that a broker supports."""
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

MAX_RESPONSE_BYTES = 524_288
"""The limit of a broker's response during the login: Kafka's for a client's requests."""
RENEWAL_FROM, RENEWAL_TO = 0.85, 0.95
"""The parts of a session's lifetime between which a client authenticates again."""


class Login(Protocol):
    """The credentials of a client, for all its connections."""

    @property
    def mechanism(self) -> str:
        """The name of the SASL mechanism."""

    def create_client(self, host: str) -> SaslClient:
        """Return the client's side of one exchange with the broker at ``host``. May fetch a token."""


class SecureConnector:
    """Makes authenticated connections. See ``interfaces.Connector``."""

    def __init__(
        self,
        connector: Connector,
        login: Login,
        *,
        is_encrypted: bool,
        client_id: str,
        connect_timeout_ms: int = 10_000,
        clock: Clock | None = None,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """connector: does TCP and, if ``is_encrypted``, TLS.

        connect_timeout_ms: the limit for TCP, TLS and SASL together. uniform: returns a random number between
        two.
        """
        self._connector = connector
        self._login = login
        self._is_encrypted = is_encrypted
        self._client_id = client_id
        self._connect_timeout_ms = connect_timeout_ms
        self._clock = clock or SystemClock()
        self._uniform = uniform

    def connect(self, host: str, port: int) -> Connection:
        """Return a new connection, on which this client is authenticated.

        Raises NetworkError, and AuthenticationFailed with the address and the reason.
        """
        deadline_ms = self._clock.monotonic_ms() + self._connect_timeout_ms
        try:
            return self._connect(host, port, deadline_ms)
        except _ClosedDuringLogin:
            # The broker may just have been stopped: then the second attempt finds nobody.
            try:
                return self._connect(host, port, deadline_ms)
            except _ClosedDuringLogin as closed:
                raise closed.meaning from None

    def wait_any(self, pending: Sequence[PendingResponse], timeout_ms: int) -> bool:
        """See ``interfaces.Connector``."""
        return self._connector.wait_any(pending, timeout_ms)

    def _connect(self, host: str, port: int, deadline_ms: int) -> Connection:
        def remaining_ms() -> int:
            return deadline_ms - self._clock.monotonic_ms()

        def authenticator(versions: VersionTable) -> SaslClientAuthenticator:
            return SaslClientAuthenticator(
                self._login.mechanism,
                lambda: self._login.create_client(host),
                versions,
                is_encrypted=self._is_encrypted,
            )

        connection = self._connector.connect(host, port)
        try:
            exchange = _LoginExchange(connection, self._client_id, remaining_ms, self._connect_timeout_ms)
            lifetime_ms = exchange.run(authenticator)
        except BaseException:
            connection.close()
            raise
        if lifetime_ms:
            part = self._uniform(RENEWAL_FROM, RENEWAL_TO)
            connection.session_end_ms = self._clock.monotonic_ms() + int(lifetime_ms * part)
        return connection


class _ClosedDuringLogin(Exception):
    """The broker has closed the connection where a refusal may be meant, which ``meaning`` says."""

    def __init__(self, meaning: AuthenticationFailed) -> None:
        super().__init__()
        self.meaning = meaning


class _LoginExchange:
    """The requests of one login on one new connection."""

    def __init__(
        self, connection: Connection, client_id: str, remaining_ms: Callable[[], int], limit_ms: int
    ) -> None:
        self._connection = connection
        self._client_id = client_id
        self._remaining_ms = remaining_ms
        self._limit_ms = limit_ms
        self._correlation_id = 0

    def run(self, authenticator: Callable[[VersionTable], SaslClientAuthenticator]) -> int:
        """Log in, and return the lifetime of the session in ms; 0: without end."""
        try:
            return self._run(authenticator)
        except AuthenticationFailed as error:
            raise _at(self._connection.peer, error) from None

    def _run(self, make: Callable[[VersionTable], SaslClientAuthenticator]) -> int:
        table = self._ask(make({}), API_VERSIONS, 0, ApiVersionsRequest())
        if table.error_code:
            code = ErrorCode.of(table.error_code)
            raise NetworkError(f"the broker refuses ApiVersions with {code.name}", self._connection.peer)
        authenticator = make({row.api_key: (row.min_version, row.max_version) for row in table.api_keys})
        first = authenticator.begin()
        handshake = SaslHandshakeRequest(first.mechanism)
        accepted = self._ask(authenticator, SASL_HANDSHAKE, first.version, handshake)
        sending: SendAuthenticate | SendToken | None
        sending = authenticator.receive_handshake(accepted.error_code, accepted.mechanisms)
        while sending is not None:
            sending = self._send(authenticator, sending)
        return authenticator.session_lifetime_ms

    def _send(
        self, authenticator: SaslClientAuthenticator, sending: SendAuthenticate | SendToken
    ) -> SendAuthenticate | SendToken | None:
        if isinstance(sending, SendAuthenticate):
            request = SaslAuthenticateRequest(sending.auth_bytes)
            answer = self._ask(authenticator, SASL_AUTHENTICATE, sending.version, request)
            return authenticator.receive_authenticate(
                answer.error_code, answer.error_message, answer.auth_bytes, answer.session_lifetime_ms
            )
        if authenticator.state is ClientState.COMPLETE:
            self._connection.send([sending.token])
            return None
        return authenticator.receive_token(bytes(self._frame(authenticator, [sending.token])))

    def _ask(
        self,
        authenticator: SaslClientAuthenticator,
        api: Api[RequestT, ResponseT],
        version: int,
        request: RequestT,
    ) -> ResponseT:
        self._correlation_id += 1
        header = RequestHeader(api.key, version, self._correlation_id, self._client_id)
        frame = self._frame(authenticator, [header.encode(), *api.encode_request(version, request)])
        try:
            correlation_id, body = split_response(frame)
            if correlation_id != self._correlation_id:
                raise RemoteWireError(f"expected correlation id {self._correlation_id}, got {correlation_id}")
            return api.decode_response(version, body)
        except RemoteWireError as error:
            raise NetworkError(f"invalid response to {api.name}: {error}", self._connection.peer) from None

    def _frame(self, authenticator: SaslClientAuthenticator, parts: Sequence[Part]) -> memoryview:
        """Send a frame, and return the one that comes back."""
        peer = self._connection.peer
        try:
            pending = self._connection.request(parts, MAX_RESPONSE_BYTES)
            return pending.result(max(1, self._remaining_ms()))
        except NoResponse:
            raise NetworkError(f"the login was not complete within {self._limit_ms} ms", peer) from None
        except NetworkError as error:
            begun = authenticator.state not in (
                ClientState.SEND_HANDSHAKE_REQUEST,
                ClientState.RECEIVE_HANDSHAKE_RESPONSE,
            )
            meaning = authenticator.receive_close(error.detail)
            if begun:
                raise _ClosedDuringLogin(_at(peer, meaning)) from None
            raise NetworkError(meaning.reason, peer) from None


def _at(peer: str, error: AuthenticationFailed) -> AuthenticationFailed:
    """Return ``error`` with the address of the broker."""
    text = error.reason if error.reason.startswith(peer) else f"{peer}: {error.reason}"
    return AuthenticationFailed(text, text, error.code)

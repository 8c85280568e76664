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
from typing import TypeVar

from minikafka.base.clock import Clock, SystemClock
from minikafka.base.errors import (
    AuthenticationFailed,
    ErrorCode,
    IdentityProviderUnreachable,
    NetworkError,
    NoResponse,
    RemoteWireError,
    SslAuthenticationFailed,
)
from minikafka.base.ids import host_port
from minikafka.net.interfaces import Connection, Connector, PendingResponse
from minikafka.security.sasl.client_states import (
    ClientState,
    SaslClientAuthenticator,
    SendAuthenticate,
    SendToken,
)
from minikafka.security.sasl.login import ClientLogin
from minikafka.security.sasl.mechanism import SaslClient
from minikafka.wire.api import Api
from minikafka.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from minikafka.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from minikafka.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest
from minikafka.wire.framing import RequestHeader, split_response

VersionTable = Mapping[int, tuple[int, int]]
"""API key to the oldest and newest version that a broker supports."""
T = TypeVar("T")
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

MAX_RESPONSE_BYTES = 524_288
"""The limit of a broker's response during the login: Kafka's for a client's requests."""
RENEWAL_FROM, RENEWAL_TO = 0.85, 0.95
"""The parts of a session's lifetime between which a client authenticates again."""


class SecureConnector:
    """Makes authenticated connections. See ``interfaces.Connector``."""

    def __init__(
        self,
        connector: Connector,
        login: ClientLogin,
        *,
        is_encrypted: bool,
        client_id: str,
        connect_timeout_ms: int = 10_000,
        clock: Clock | None = None,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """connector: does TCP and, if ``is_encrypted``, TLS.

        connect_timeout_ms: the limit for TCP, TLS and SASL together, and before that for what the login needs
        from elsewhere. uniform: returns a random number between two.
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
        try:
            return self._connect(host, port)
        except _ClosedDuringLogin:
            # The broker may just have been stopped: then the second attempt finds nobody.
            try:
                return self._connect(host, port)
            except _ClosedDuringLogin as closed:
                raise closed.meaning from None

    def wait_any(self, pending: Sequence[PendingResponse], timeout_ms: int) -> bool:
        """See ``interfaces.Connector``."""
        return self._connector.wait_any(pending, timeout_ms)

    def _connect(self, host: str, port: int) -> Connection:
        client = self._create_client(host, port)  # first: it may have to fetch a token
        deadline_ms = self._clock.monotonic_ms() + self._connect_timeout_ms

        def remaining_ms() -> int:
            return deadline_ms - self._clock.monotonic_ms()

        def authenticator(versions: VersionTable) -> SaslClientAuthenticator:
            return SaslClientAuthenticator(
                self._login.mechanism, lambda: client, versions, is_encrypted=self._is_encrypted
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

    def _create_client(self, host: str, port: int) -> SaslClient:
        try:
            return self._login.create_client(host, self._connect_timeout_ms)
        except NetworkError as error:
            raise IdentityProviderUnreachable(error.problem, host_port(host, port), error.advice) from None


def ask(
    connection: Connection,
    api: Api[RequestT, ResponseT],
    version: int,
    request: RequestT,
    correlation_id: int,
    client_id: str,
    timeout_ms: int,
) -> ResponseT:
    """Return the response to one request on a new connection. Raises NetworkError and RemoteWireError."""
    header = RequestHeader(api.key, version, correlation_id, client_id)
    pending = connection.request([header.encode(), *api.encode_request(version, request)], MAX_RESPONSE_BYTES)
    received_id, body = split_response(pending.result(timeout_ms), api.has_tagged_response_header(version))
    if received_id != correlation_id:
        raise RemoteWireError(f"expected correlation id {correlation_id}, got {received_id}")
    return api.decode_response(version, body)


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
        token = self._attempt(authenticator, lambda: self._exchange_token(sending.token))
        return authenticator.receive_token(token)

    def _exchange_token(self, token: bytes) -> bytes:
        return bytes(self._connection.request([token], MAX_RESPONSE_BYTES).result(self._left_ms))

    def _ask(
        self,
        authenticator: SaslClientAuthenticator,
        api: Api[RequestT, ResponseT],
        version: int,
        request: RequestT,
    ) -> ResponseT:
        self._correlation_id += 1
        number = self._correlation_id
        return self._attempt(
            authenticator,
            lambda: ask(self._connection, api, version, request, number, self._client_id, self._left_ms),
        )

    @property
    def _left_ms(self) -> int:
        return max(1, self._remaining_ms())

    def _attempt(self, authenticator: SaslClientAuthenticator, exchange: Callable[[], T]) -> T:
        """Return the result of ``exchange``, or raise what its error means at this point of the login."""
        peer = self._connection.peer
        try:
            return exchange()
        except NoResponse:
            raise NetworkError(f"the login was not complete within {self._limit_ms} ms", peer) from None
        except RemoteWireError as error:
            raise NetworkError(f"invalid response during the login: {error}", peer) from None
        except NetworkError as error:
            meaning = authenticator.receive_close(error.detail)
            if isinstance(meaning, AuthenticationFailed):
                raise _ClosedDuringLogin(_at(peer, meaning)) from None
            raise type(error)(meaning.detail, peer) from None


def _at(peer: str, error: AuthenticationFailed) -> AuthenticationFailed:
    """Return ``error`` with the address of the broker."""
    if isinstance(error, SslAuthenticationFailed):  # the connector has put it there
        return error
    text = f"{peer}: {error.reason}"
    return AuthenticationFailed(text, text, error.code)

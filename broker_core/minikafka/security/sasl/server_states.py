"""The states of a connection to a SASL listener, from its first request to an authenticated client.

After Kafka's ``SaslServerAuthenticator``:

    INITIAL_REQUEST                 ApiVersions, once, or SaslHandshake
    HANDSHAKE_OR_VERSIONS_REQUEST   the same, after ApiVersions that was refused
    HANDSHAKE_REQUEST               SaslHandshake
    AUTHENTICATE                    SaslAuthenticate after SaslHandshake 1; bare tokens after 0
    COMPLETE                        any request; SaslHandshake begins a re-authentication (KIP-368)
    FAILED                          nothing: the connection is closed

Pure: the network layer passes what arrives, and carries out the ``Step`` that it gets. It sends the answer;
if the step has a failure, it does so after ``connection.failed.authentication.delay.ms``, and then closes the
connection. It reads nothing more before the answer is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from minikafka.base.errors import AuthenticationFailed, BrokerError, ErrorCode, MinikafkaError
from minikafka.base.text import shorten
from minikafka.security.sasl.mechanism import SaslServer

MAX_REQUEST_BYTES = 524_288
"""The limit of a request before authentication (``sasl.server.max.receive.size``); the network holds it."""
MIN_REAUTHENTICATION_INTERVAL_MS = 1_000

# Keys of the wire's table of APIs, which this floor does not know.
SASL_HANDSHAKE = 17
API_VERSIONS = 18
SASL_AUTHENTICATE = 36

_NO_KAFKA_CLIENT = (
    "the client may have another security.protocol than the listener, be older than Kafka 0.10, "
    "or be no client of Kafka"
)
_NO_LOGIN = "the client does not log in; set its security.protocol, sasl.mechanism and sasl.jaas.config"


class SaslState(Enum):
    """The state of a connection."""

    INITIAL_REQUEST = auto()
    HANDSHAKE_OR_VERSIONS_REQUEST = auto()
    HANDSHAKE_REQUEST = auto()
    AUTHENTICATE = auto()
    COMPLETE = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class ApiVersionsAnswer:
    """Answer ApiVersions: with the table, or with error 35 for a version that is not supported."""

    error_code: ErrorCode


@dataclass(frozen=True, slots=True)
class HandshakeAnswer:
    """Answer SaslHandshake."""

    error_code: ErrorCode
    mechanisms: tuple[str, ...]
    """The enabled ones."""


@dataclass(frozen=True, slots=True)
class AuthenticateAnswer:
    """Answer SaslAuthenticate."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    auth_bytes: bytes = b""
    session_lifetime_ms: int = 0
    """The time after which the client must authenticate again; 0: never. Version 0 has no place for it."""


@dataclass(frozen=True, slots=True)
class TokenAnswer:
    """Send the bytes behind their length, without a header."""

    token: bytes


@dataclass(frozen=True, slots=True)
class Step:
    """The verdict on what a client sent."""

    answer: ApiVersionsAnswer | HandshakeAnswer | AuthenticateAnswer | TokenAnswer | None
    """None: send nothing."""
    failure: str | None = None
    """The reason for which the connection is closed, for the log; None: it stays open."""


@dataclass(frozen=True, slots=True)
class EnabledMechanism:
    """A mechanism of a listener."""

    create: Callable[[], SaslServer]
    """Makes the server's side of one exchange."""
    max_reauth_ms: int = 0
    """``connections.max.reauth.ms``; 0: a client authenticates once."""


class SaslServerAuthenticator:
    """The state machine of one connection."""

    def __init__(
        self, mechanisms: Mapping[str, EnabledMechanism], supports: Callable[[int, int], bool]
    ) -> None:
        """mechanisms: those of the listener by name.

        supports: takes the key and the version of an API; returns True for versions that the broker has.
        """
        self.state = SaslState.INITIAL_REQUEST
        self.session_expires_ms: int | None = None
        """The time in epoch milliseconds until which the client must authenticate again; None: never.

        It holds as well for a client whose requests are too old to tell it: anyone may choose old ones.
        """
        self._mechanisms = mechanisms
        self._supports = supports
        self._mechanism = ""
        self._server: SaslServer | None = None
        self._with_requests = False
        """True after SaslHandshake 1 and higher: tokens travel in SaslAuthenticate."""
        self._authenticated_ms = 0
        self._previous: tuple[str, str] | None = None
        """Mechanism and authorization id before a re-authentication, which may not change them."""

    @property
    def expects_bare_token(self) -> bool:
        """True if the next frame is a token (``receive_token``) instead of a request."""
        return self.state is SaslState.AUTHENTICATE and not self._with_requests

    @property
    def authorization_id(self) -> str:
        """The name of the client, once the state is COMPLETE."""
        if self.state is not SaslState.COMPLETE or self._server is None:
            raise BrokerError(ErrorCode.ILLEGAL_SASL_STATE, "the client is not authenticated")
        return self._server.authorization_id

    def receive_malformed(self, problem: str) -> Step:
        """Return the verdict on a frame that is no request, such as the first one of a 0.9 client."""
        hint = f"; {_NO_KAFKA_CLIENT}" if self.state is SaslState.INITIAL_REQUEST else ""
        return self._fail(f"invalid request: {problem}{hint}")

    def receive_request(self, api_key: int, version: int, now_ms: int) -> Step | None:
        """Return the verdict on a request that its header alone decides.

        None: decode the body of SaslHandshake or SaslAuthenticate and pass it to its method. In the state
        COMPLETE None is also the verdict on any other API: serve it.
        """
        if self.state is SaslState.COMPLETE:
            return self._receive_after_authentication(api_key, version, now_ms)
        if self.state is SaslState.AUTHENTICATE and self._with_requests:
            if api_key != SASL_AUTHENTICATE:
                return self._fail(f"unexpected request (API {api_key}) during authentication")
        elif api_key == API_VERSIONS and self._before_handshake:
            return self._receive_api_versions(version)
        elif api_key != SASL_HANDSHAKE or not (
            self._before_handshake or self.state is SaslState.HANDSHAKE_REQUEST
        ):
            return self._receive_early(f"unexpected API {api_key} version {version} before authentication")
        return self._check_version(api_key, version)

    def _receive_early(self, problem: str) -> Step:
        if self.state is SaslState.INITIAL_REQUEST:
            return self.receive_malformed(problem)
        # It has sent ApiVersions: it is a client of Kafka, on the wrong kind of listener.
        return self._fail(f"{problem}: {_NO_LOGIN}")

    def _check_version(self, api_key: int, version: int) -> Step | None:
        if self._supports(api_key, version):
            return None
        return self._fail(f"version {version} of API {api_key} is not supported")

    @property
    def _before_handshake(self) -> bool:
        return self.state in (SaslState.INITIAL_REQUEST, SaslState.HANDSHAKE_OR_VERSIONS_REQUEST)

    def _receive_api_versions(self, version: int) -> Step:
        if not self._supports(API_VERSIONS, version):
            self.state = SaslState.HANDSHAKE_OR_VERSIONS_REQUEST  # the client asks again, in a lower version
            return Step(ApiVersionsAnswer(ErrorCode.UNSUPPORTED_VERSION))
        self.state = SaslState.HANDSHAKE_REQUEST
        return Step(ApiVersionsAnswer(ErrorCode.NONE))

    def api_versions_refused(self) -> None:
        """Note that the ApiVersions request was invalid: the client may send another one."""
        self.state = SaslState.HANDSHAKE_OR_VERSIONS_REQUEST

    def _receive_after_authentication(self, api_key: int, version: int, now_ms: int) -> Step | None:
        if api_key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
            refusal = self._check_version(api_key, version)
            if refusal is not None:
                return refusal
        if api_key == SASL_HANDSHAKE:
            if now_ms - self._authenticated_ms < MIN_REAUTHENTICATION_INTERVAL_MS:
                return Step(HandshakeAnswer(ErrorCode.ILLEGAL_SASL_STATE, ()))
            return None
        expires_ms = self.session_expires_ms
        if expires_ms is not None and expires_ms < now_ms:
            return self._fail(f"the session ended {now_ms - expires_ms} ms ago without a re-authentication")
        if api_key == SASL_AUTHENTICATE:
            return Step(
                AuthenticateAnswer(ErrorCode.ILLEGAL_SASL_STATE, "the client is authenticated already")
            )
        return None

    def receive_handshake(self, version: int, mechanism: str) -> Step:
        """Return the verdict on SaslHandshake."""
        if self.state in (SaslState.AUTHENTICATE, SaslState.FAILED):
            raise self._unexpected("handshake")
        self._with_requests = version >= 1
        names = tuple(self._mechanisms)
        enabled = self._mechanisms.get(mechanism)
        if enabled is None:
            failure = f"mechanism {shorten(mechanism)!r} is not enabled: expected one of {', '.join(names)}"
            return self._fail(failure, HandshakeAnswer(ErrorCode.UNSUPPORTED_SASL_MECHANISM, names))
        if self.state is SaslState.COMPLETE:
            self._previous = self._mechanism, self.authorization_id
        self._mechanism = mechanism
        self._server = enabled.create()
        self.state = SaslState.AUTHENTICATE
        return Step(HandshakeAnswer(ErrorCode.NONE, names))

    def receive_authenticate(self, auth_bytes: bytes, now_ms: int) -> Step:
        """Return the verdict on SaslAuthenticate."""
        try:
            challenge = self._evaluate(auth_bytes, now_ms)
        except AuthenticationFailed as error:
            return self._fail(error.reason, AuthenticateAnswer(error.code, error.detail))
        ends_ms = self.session_expires_ms if self.state is SaslState.COMPLETE else None
        lifetime_ms = 0 if ends_ms is None else ends_ms - now_ms
        return Step(AuthenticateAnswer(auth_bytes=challenge, session_lifetime_ms=lifetime_ms))

    def receive_token(self, token: bytes, now_ms: int) -> Step:
        """Return the verdict on a bare token. A failure has no answer."""
        try:
            return Step(TokenAnswer(self._evaluate(token, now_ms)))
        except AuthenticationFailed as error:
            return self._fail(error.reason)

    def _evaluate(self, response: bytes, now_ms: int) -> bytes:
        """Return the mechanism's answer. Raises AuthenticationFailed, whatever goes wrong."""
        server = self._server
        if self.state is not SaslState.AUTHENTICATE or server is None:
            raise self._unexpected("token")
        mechanism, name = self._previous or (self._mechanism, None)
        if mechanism != self._mechanism:
            text = f"Cannot change the mechanism from {mechanism} to {self._mechanism} in a re-authentication"
            raise AuthenticationFailed(text, text)
        try:
            challenge = server.evaluate_response(response)
        except AuthenticationFailed:
            raise
        except MinikafkaError as error:  # of a look-up: whom it concerns is not for the peer
            raise AuthenticationFailed(f"{mechanism}: no verdict: {error}") from error
        if server.is_complete:
            if name not in (None, server.authorization_id):
                text = "Cannot change the principal in a re-authentication"
                reason = f"{text}: from {name!r} to {server.authorization_id!r}"
                raise AuthenticationFailed(reason, text)
            self._begin_session(server, now_ms)
        return challenge

    def _begin_session(self, server: SaslServer, now_ms: int) -> None:
        self.state = SaslState.COMPLETE
        self._previous = None
        self._authenticated_ms = now_ms
        max_reauth_ms = self._mechanisms[self._mechanism].max_reauth_ms
        ends = [now_ms + max_reauth_ms] if max_reauth_ms else []
        if server.expires_ms is not None:
            ends.append(max(now_ms, server.expires_ms))
        self.session_expires_ms = min(ends, default=None)

    def _unexpected(self, what: str) -> BrokerError:
        return BrokerError(ErrorCode.ILLEGAL_SASL_STATE, f"unexpected {what} in the state {self.state.name}")

    def _fail(self, reason: str, answer: HandshakeAnswer | AuthenticateAnswer | None = None) -> Step:
        self.state = SaslState.FAILED
        return Step(answer, reason)

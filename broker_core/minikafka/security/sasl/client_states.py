"""The states of a client's connection to a SASL listener, from the broker's table of APIs to its verdict.

After Kafka's ``SaslClientAuthenticator``:

    SEND_HANDSHAKE_REQUEST       ``begin`` returns SaslHandshake
    RECEIVE_HANDSHAKE_RESPONSE   the mechanism is accepted, or the connection is of no use
    INTERMEDIATE                 the messages of the mechanism
    CLIENT_COMPLETE              the mechanism's last message was the client's: the broker's verdict on it
    COMPLETE                     the connection may carry any request
    FAILED                       nothing: the connection is to be closed

A broker with SaslAuthenticate gets SaslHandshake 1, and each message in a request; any other one gets
SaslHandshake 0, and bare messages behind their length (brokers before 1.0; Azure Event Hubs for years after).
Such a broker closes the connection in place of an error.

Pure: the network layer sends what it gets from here, and passes what arrives. Each failure raises
``AuthenticationFailed``, whose text is one line for the user: what the broker said, and what to set. Only a
connection that ends early may be no failure of the login: ``receive_close``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from minikafka.base.errors import AuthenticationFailed, BrokerError, ErrorCode, NetworkError
from minikafka.base.printable import printable
from minikafka.base.text import first_of, shorten
from minikafka.security.sasl.mechanism import SaslClient
from minikafka.security.sasl.server_states import SASL_AUTHENTICATE, SASL_HANDSHAKE

NEWEST_SASL_AUTHENTICATE = 2
_MAX_LISTED = 10


class ClientState(Enum):
    """The state of a client's connection."""

    SEND_HANDSHAKE_REQUEST = auto()
    RECEIVE_HANDSHAKE_RESPONSE = auto()
    INTERMEDIATE = auto()
    CLIENT_COMPLETE = auto()
    COMPLETE = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class SendHandshake:
    """Send SaslHandshake, and pass the response to ``receive_handshake``."""

    version: int
    mechanism: str


@dataclass(frozen=True, slots=True)
class SendAuthenticate:
    """Send SaslAuthenticate, and pass the response to ``receive_authenticate``."""

    version: int
    auth_bytes: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SendToken:
    """Send the bytes behind their length, without a header.

    Pass the frame that comes back to ``receive_token``, unless the state is COMPLETE: then none comes.
    """

    token: bytes = field(repr=False)


class SaslClientAuthenticator:
    """The state machine of one connection."""

    def __init__(
        self,
        mechanism: str,
        create: Callable[[], SaslClient],
        versions: Mapping[int, tuple[int, int]],
        *,
        is_encrypted: bool,
    ) -> None:
        """create: makes the client's side of one exchange, once the broker has accepted the mechanism.

        versions: the oldest and newest version of each API that the broker advertises on this connection.

        is_encrypted: True for SASL_SSL, so that an error names the protocol to set.
        """
        self.state = ClientState.SEND_HANDSHAKE_REQUEST
        self.session_lifetime_ms = 0
        """The time after which the broker ends the session; 0: never, or it does not say."""
        self._mechanism = mechanism
        self._create = create
        self._versions = versions
        self._without_sasl = "SSL" if is_encrypted else "PLAINTEXT"
        self._authenticate_version: int | None = None
        """None: bare tokens."""
        self._client: SaslClient | None = None

    def begin(self) -> SendHandshake:
        """Return the first request."""
        self._expect(ClientState.SEND_HANDSHAKE_REQUEST)
        if SASL_HANDSHAKE not in self._versions:
            raise self._no_sasl()
        newest = 1 if SASL_AUTHENTICATE in self._versions else 0
        version = self._common_version("SaslHandshake", SASL_HANDSHAKE, newest)
        if version >= 1:
            self._authenticate_version = self._common_version(
                "SaslAuthenticate", SASL_AUTHENTICATE, NEWEST_SASL_AUTHENTICATE
            )
        self.state = ClientState.RECEIVE_HANDSHAKE_RESPONSE
        return SendHandshake(version, self._mechanism)

    def _common_version(self, name: str, api_key: int, newest_here: int) -> int:
        oldest, newest = self._versions[api_key]
        version = min(newest, newest_here)
        if version < max(oldest, 0):
            raise self._failed(
                f"no common version of {name}: the broker has {oldest} to {newest}, "
                f"this client 0 to {newest_here}",
                ErrorCode.UNSUPPORTED_VERSION,
            )
        return version

    def receive_handshake(self, error_code: int, mechanisms: Sequence[str]) -> SendAuthenticate | SendToken:
        """Return the first message of the mechanism. ``mechanisms``: those that the broker has enabled."""
        self._expect(ClientState.RECEIVE_HANDSHAKE_RESPONSE)
        enabled = printable(shorten(first_of(mechanisms, _MAX_LISTED))) or "none"
        if error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            raise self._failed(
                f"the broker has not enabled {self._mechanism} on this listener; set sasl.mechanism to one "
                f"that it has: {enabled}",
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            )
        if error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise self._no_sasl()  # Kafka has SaslHandshake in the tables of all listeners
        if error_code != ErrorCode.NONE:
            raise self._failed(
                f"the broker refuses SaslHandshake with error {_code(error_code)} (mechanisms: {enabled})"
            )
        self.state = ClientState.FAILED  # unless a client can be made: it may need a token from afar
        self._client = self._create()
        self.state = ClientState.INTERMEDIATE
        return self._send(self._attempt(self._client.initial_response))

    def receive_authenticate(
        self, error_code: int, error_message: str | None, auth_bytes: bytes, session_lifetime_ms: int = 0
    ) -> SendAuthenticate | None:
        """Return the next message for the broker; None if the client is authenticated.

        session_lifetime_ms: 0 in a response of version 0, which has no place for it.
        """
        self._expect(ClientState.INTERMEDIATE, ClientState.CLIENT_COMPLETE)
        if error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise self._failed(
                "the broker did not expect the login in this state of the connection"
                f"{_in_brackets(error_message)}; see its log",
                ErrorCode.ILLEGAL_SASL_STATE,
            )
        if error_code != ErrorCode.NONE:
            raise self._refused(error_code, error_message)
        sending = self._receive(auth_bytes)
        if self.state is ClientState.COMPLETE:
            self.session_lifetime_ms = max(0, session_lifetime_ms)
        assert not isinstance(sending, SendToken), "the broker has SaslAuthenticate"
        return sending

    def receive_token(self, token: bytes) -> SendToken | None:
        """Return the next bare token for the broker; None if the client is authenticated."""
        self._expect(ClientState.INTERMEDIATE)
        sending = self._receive(token)
        assert not isinstance(sending, SendAuthenticate), "the broker has no SaslAuthenticate"
        return sending

    def _receive(self, challenge: bytes) -> SendAuthenticate | SendToken | None:
        client = self._client
        assert client is not None, "the handshake is over"
        if self.state is ClientState.CLIENT_COMPLETE:
            self.state = ClientState.COMPLETE
            return None
        response = self._attempt(lambda: client.evaluate_challenge(challenge))
        if not client.is_complete:
            return self._send(response)
        if response is not None and self._authenticate_version is not None:
            self.state = ClientState.CLIENT_COMPLETE
        else:
            self.state = ClientState.COMPLETE
        return None if response is None else self._send(response)

    def _send(self, message: bytes | None) -> SendAuthenticate | SendToken:
        assert message is not None, "only a complete client has no answer"
        if self._authenticate_version is None:
            return SendToken(message)
        return SendAuthenticate(self._authenticate_version, message)

    def _attempt(self, step: Callable[[], bytes | None]) -> bytes | None:
        try:
            return step()
        except AuthenticationFailed as error:
            raise self._failed(printable(shorten(error.reason))) from None  # it may have the broker's words

    def receive_close(self, problem: str) -> AuthenticationFailed | NetworkError:
        """Return what it means that the broker closed the connection, or broke the protocol, in this state.

        problem: what the network layer saw, such as ``closed by the peer``. A NetworkError, which has no
        address yet, is no refusal: the broker may stop, or have too many connections.
        """
        if self.state in (ClientState.INTERMEDIATE, ClientState.CLIENT_COMPLETE):
            client = self._client
            assert client is not None, "the handshake is over"
            if client.refusal is not None:
                return self._refused(ErrorCode.SASL_AUTHENTICATION_FAILED, client.refusal)
            if self._authenticate_version is None:
                meaning = "a broker of its version does so if it refuses the login"
                return self._failed(f"{problem} during the login: {meaning}; {client.ADVICE}")
            return self._broken(f"{problem} during the login, without a verdict", "see the broker's log")
        return self._broken(
            f"{problem} before the login",
            f"check that the port is that of a listener with security.protocol=SASL_{self._without_sasl}",
        )

    def _broken(self, problem: str, advice: str) -> NetworkError:
        self.state = ClientState.FAILED
        return NetworkError(f"{self._mechanism}: {problem}; {advice}")

    def _refused(self, error_code: int, message: str | None) -> AuthenticationFailed:
        assert self._client is not None, "the handshake is over"
        code = (
            "" if error_code == ErrorCode.SASL_AUTHENTICATION_FAILED else f" with error {_code(error_code)}"
        )
        words = _in_brackets(message and self._client.without_secrets(message))
        return self._failed(f"the broker refuses the login{code}{words}; {self._client.ADVICE}")

    def _no_sasl(self) -> AuthenticationFailed:
        return self._failed(
            f"the listener has no SASL; set security.protocol={self._without_sasl}, or use the port of a "
            "listener with SASL",
            ErrorCode.ILLEGAL_SASL_STATE,
        )

    def _expect(self, *states: ClientState) -> None:
        if self.state not in states:
            raise BrokerError(
                ErrorCode.ILLEGAL_SASL_STATE, f"unexpected message in the state {self.state.name}"
            )

    def _failed(
        self, reason: str, code: ErrorCode = ErrorCode.SASL_AUTHENTICATION_FAILED
    ) -> AuthenticationFailed:
        self.state = ClientState.FAILED
        prefix = f"{self._mechanism}: "
        text = reason if reason.startswith(prefix) else prefix + reason
        return AuthenticationFailed(text, text, code)


def _code(error_code: int) -> str:
    known = ErrorCode.of(error_code)
    return f"{error_code} ({known.name})" if known is not ErrorCode.UNKNOWN else str(error_code)


def _in_brackets(message: str | None) -> str:
    """Return the broker's words as one line in brackets; nothing for none."""
    return f" ({printable(shorten(message.strip()))})" if message and message.strip() else ""

"""The two sides of a SASL exchange, after Java's ``SaslClient`` and ``SaslServer``.

    client.initial_response()   ->  server.evaluate_response(response)
    client.evaluate_challenge(challenge)  <-  its result, until both sides are complete

An object is good for one exchange. A failure ends it, and what it gets afterwards is ILLEGAL_SASL_STATE. Any
bytes of the peer either are accepted or raise ``AuthenticationFailed``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import ClassVar

from minikafka.base.errors import AuthenticationFailed, BrokerError, ErrorCode
from minikafka.base.secrets import HIDDEN, Password

_MIN_SECRET_CHARS = 4
"""The length below which a gap in a text would tell more than the text: syllables of any word."""


class SaslClient(ABC):
    """The client's side of one exchange."""

    ADVICE: ClassVar[str] = "check username and password in sasl.jaas.config"
    """The remedy that the user of a client reads if the server refuses."""

    def __init__(self, mechanism: str, *secrets: Password) -> None:
        self.mechanism = mechanism
        self.is_complete = False
        """True once the server has accepted the client, and has proved itself if the mechanism demands it.

        A mechanism whose last message is the client's (GSSAPI) is complete with that message.
        """
        self.refusal: str | None = None
        """The server's words if it has refused the client in a challenge."""
        self._accepts_challenge = False
        self._secrets = secrets

    def initial_response(self) -> bytes:
        """Return the first message, once."""
        if self._accepts_challenge or self.is_complete:
            raise _illegal_state(self.mechanism, "the exchange has begun already")
        response = self._initial_response()
        self._accepts_challenge = True
        return response

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        """Return the answer to a message of the server; None if the exchange is complete."""
        if not self._accepts_challenge:
            raise _illegal_state(self.mechanism, "unexpected message of the server")
        self._accepts_challenge = False  # a failure ends the exchange
        response = self._evaluate(challenge)
        self._accepts_challenge = not self.is_complete
        return response

    @abstractmethod
    def _initial_response(self) -> bytes: ...

    @abstractmethod
    def _evaluate(self, challenge: bytes) -> bytes | None: ...

    def without_secrets(self, text: str) -> str:
        """Return words of the server without the client's secrets, which it may repeat."""
        for secret in self._secrets:
            if len(secret.value) >= _MIN_SECRET_CHARS:
                text = text.replace(secret.value, HIDDEN)
        return text

    def _failed(self, reason: str) -> AuthenticationFailed:
        reason = self.without_secrets(reason)
        text = f"{self.mechanism}: {reason}"
        return AuthenticationFailed(text, text)  # nobody to hide it from

    def _encoded(self, text: str) -> bytes:
        with suppress(UnicodeEncodeError):
            return text.encode("utf-8")
        # Not inside: the text would be in the context of this error.
        raise self._failed("the user name, password or token has characters that UTF-8 cannot hold")


class SaslServer(ABC):
    """The server's side of one exchange."""

    def __init__(self, mechanism: str, peer_text: str | None = None) -> None:
        self.mechanism = mechanism
        self.is_complete = False
        """True once the client is authenticated."""
        self.expires_ms: int | None = None
        """The time in epoch milliseconds from which on the client's credential is not valid; None: no end."""
        self._authorization_id = ""
        self._is_over = False
        self._peer_text = peer_text or (
            "Authentication failed during authentication due to invalid credentials "
            f"with SASL mechanism {mechanism}"
        )

    @property
    def authorization_id(self) -> str:
        """The name of the authenticated client."""
        if not self.is_complete:
            raise _illegal_state(self.mechanism, "the client is not authenticated")
        return self._authorization_id

    def evaluate_response(self, response: bytes) -> bytes:
        """Return the answer to a message of the client, which may be empty."""
        if self._is_over:
            raise _illegal_state(self.mechanism, "unexpected message of the client")
        self._is_over = True  # a failure ends the exchange
        challenge = self._evaluate(response)
        self._is_over = self.is_complete
        return challenge

    @abstractmethod
    def _evaluate(self, response: bytes) -> bytes: ...

    def _accept(self, authorization_id: str) -> None:
        self._authorization_id = authorization_id
        self.is_complete = True

    def _failed(self, reason: str) -> AuthenticationFailed:
        """Return the error for ``reason``. The peer reads the same text whatever the reason is."""
        return AuthenticationFailed(f"{self.mechanism}: {reason}", self._peer_text)

    def _decoded(self, response: bytes) -> str:
        with suppress(UnicodeDecodeError):
            return response.decode("utf-8")
        raise self._failed("the client's message is not UTF-8")


def _illegal_state(mechanism: str, problem: str) -> BrokerError:
    return BrokerError(ErrorCode.ILLEGAL_SASL_STATE, f"{mechanism}: {problem}")

"""GSSAPI (RFC 4752): Kerberos tokens until there is a context, then the choice of no security layer.

    client   token …                              the library's, until the context is complete
    server   token …
    client   (nothing), if the last token was the server's
    server   wrapped: 1 byte of layers, 3 bytes of size
    client   wrapped: 01 00 00 00, authorization id

Kafka encrypts by TLS, and so knows no security layer of SASL. A library makes the context, and is passed in.
"""

from __future__ import annotations

from typing import Protocol

from minikafka.security.sasl.mechanism import SaslClient

MECHANISM = "GSSAPI"

_NO_LAYER = 1


class SecurityContext(Protocol):
    """A Kerberos context between this client and one broker. Its methods raise AuthenticationFailed."""

    @property
    def complete(self) -> bool:
        """True once both sides know each other."""

    def step(self, token: bytes | None) -> bytes | None:
        """Take a token of the server, at first None; return the next one for it, None for none."""

    def wrap(self, message: bytes) -> bytes:
        """Return ``message`` with a proof that it is this side's."""

    def unwrap(self, message: bytes) -> bytes:
        """Return the content of a wrapped message of the server."""


class GssapiSaslClient(SaslClient):
    """The client's side of GSSAPI."""

    ADVICE = (
        "check principal and keyTab (or kinit), sasl.kerberos.service.name, the brokers' host names, and the "
        "clocks"
    )

    def __init__(self, context: SecurityContext, authorization_id: str = "") -> None:
        """authorization_id: empty for the principal's own name."""
        super().__init__(MECHANISM)
        self._context = context
        self._authorization_id = authorization_id

    def _initial_response(self) -> bytes:
        return self._context.step(None) or b""

    def _evaluate(self, challenge: bytes) -> bytes:
        if not self._context.complete:
            return self._context.step(challenge) or b""
        offer = self._context.unwrap(challenge)
        if len(offer) != 4:
            raise self._failed(f"the server's offer of layers has {len(offer)} bytes, not 4")
        if not offer[0] & _NO_LAYER:
            raise self._failed(
                "the server demands a security layer, which Kafka does not have; use SASL_SSL for encryption"
            )
        answer = bytes([_NO_LAYER, 0, 0, 0]) + self._encoded(self._authorization_id)
        wrapped = self._context.wrap(answer)
        self.is_complete = True
        return wrapped

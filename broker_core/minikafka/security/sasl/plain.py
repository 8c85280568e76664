"""PLAIN (RFC 4616): the client sends ``[authorization id] NUL user NUL password``, and the server nothing.

Who listens reads the password, so it needs TLS.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable

from minikafka.base.secrets import Password
from minikafka.security.sasl.mechanism import SaslClient, SaslServer

MECHANISM = "PLAIN"


class PlainSaslClient(SaslClient):
    """The client's side of PLAIN."""

    def __init__(self, username: str, password: Password) -> None:
        super().__init__(MECHANISM, password)
        self._username = username
        self._password = password

    def _initial_response(self) -> bytes:
        parts = self._username, self._password.value
        for name, part in zip(("user name", "password"), parts, strict=True):
            if not part or "\0" in part:
                raise self._failed(f"the {name} is empty or contains a NUL character")
        return b"\0" + b"\0".join(map(self._encoded, parts))

    def _evaluate(self, challenge: bytes) -> None:
        if challenge:
            raise self._failed(f"the server sent {len(challenge)} bytes, but PLAIN has no challenges")
        self.is_complete = True


class PlainSaslServer(SaslServer):
    """The server's side of PLAIN."""

    def __init__(self, password_of: Callable[[str], Password | None]) -> None:
        """password_of: returns the password of a user; None for an unknown one."""
        super().__init__(MECHANISM, "Authentication failed: Invalid username or password")
        self._password_of = password_of

    def _evaluate(self, response: bytes) -> bytes:
        parts = self._decoded(response).split("\0")
        if len(parts) != 3:
            raise self._failed(f"expected [authorization id] NUL user NUL password, got {len(parts)} parts")
        authorization_id, username, password = parts
        if not username or not password:
            raise self._failed("the user name or the password is empty")
        known = self._password_of(username)
        # Digests have one length, so the comparison takes the same time for every password, and for no user.
        expected, actual = (
            hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
            for text in (known.value if known else "", password)
        )
        fits = hmac.compare_digest(expected, actual)
        if known is None or not fits:
            raise self._failed(
                f"user {username!r} is unknown" if known is None else f"wrong password of user {username!r}"
            )
        if authorization_id not in ("", username):
            raise self._failed(f"user {username!r} may not act as {authorization_id!r}")
        self._accept(username)
        return b""

"""OAUTHBEARER (RFC 7628, KIP-255): the client sends a token, and the server validates it.

    client first   n,[a=ID],^Aauth=Bearer TOKEN^A[key=value^A…]^A      (^A is the byte 1)
    server         nothing, or {"status":"invalid_token",…} if it refuses the token
    client         ^A, after a refusal; then the server fails

Who listens can use the token, so it needs TLS. What a valid token is decides a validator that is passed in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from minikafka.base.errors import AuthenticationFailed
from minikafka.base.secrets import Password
from minikafka.security.sasl.mechanism import SaslClient, SaslServer

MECHANISM = "OAUTHBEARER"

MAX_NAME_CHARS = 1_000
MAX_PAIRS = 100
"""Limits of a client's message: anybody may have the broker parse a long one, but only tokens are long."""

_AFTER_REFUSAL = b"\x01"
_NAME = rf"(?:[^=,\0\x01]|=2C|=3D){{1,{MAX_NAME_CHARS}}}"
_VALUE = r"[\x21-\x7e \t\r\n]+"
_PAIR = re.compile(rf"(?P<key>[A-Za-z]+)=(?P<value>{_VALUE})")
_PAIRS = rf"(?:[A-Za-z]+={_VALUE}\x01){{0,{MAX_PAIRS}}}"
_CLIENT_FIRST = re.compile(rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>{_PAIRS})\x01")
_AUTHORIZATION = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_.a-zA-Z0-9]+)", re.ASCII)
_TOKEN = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class OAuthBearerToken:
    """A valid token."""

    value: Password
    principal_name: str
    expires_ms: int
    """The time in epoch milliseconds from which on it is not valid."""
    scope: frozenset[str] = frozenset()
    begins_ms: int | None = None
    """The time in epoch milliseconds at which it was issued; None: it does not say."""


@dataclass(frozen=True, slots=True)
class TokenRefusal:
    """A validator's refusal of a token."""

    reason: str
    """For the log."""
    status: str = "invalid_token"
    """RFC 6750's error code, which the client gets."""
    scope: str | None = None
    """The scope that a token must have, separated by blanks."""
    openid_configuration: str | None = None
    """The address at which the client learns where to get a token."""

    def to_json(self) -> str:
        """Return the server's answer, with the fields of RFC 7628."""
        fields = {
            "status": self.status,
            "scope": self.scope,
            "openid-configuration": self.openid_configuration,
        }
        return json.dumps({name: value for name, value in fields.items() if value is not None})


class OAuthBearerSaslClient(SaslClient):
    """The client's side of OAUTHBEARER."""

    ADVICE = "check that the broker accepts the token's issuer, audience and scope, and both clocks"

    def __init__(self, token: Password, extensions: Mapping[str, str] | None = None) -> None:
        """extensions: letters -> text, which some services want beside the token: a cluster's id."""
        super().__init__(MECHANISM, token)
        self._token = token
        self._extensions = dict(extensions or {})

    def _initial_response(self) -> bytes:
        if _TOKEN.fullmatch(self._token.value) is None:
            raise self._failed("the token is empty, or has blanks or characters outside ASCII")
        for key, value in self._extensions.items():
            if key == "auth" or _PAIR.fullmatch(f"{key}={value}") is None:
                raise self._failed(
                    f"invalid extension {key!r}: expected letters but not 'auth', and printable ASCII"
                )
        pairs = {"auth": f"Bearer {self._token.value}", **self._extensions}
        text = "".join(f"{key}={value}\x01" for key, value in pairs.items())
        return f"n,,\x01{text}\x01".encode("ascii")

    def _evaluate(self, challenge: bytes) -> bytes | None:
        if self.refusal is not None:
            raise self._failed(f"the server refuses the token: {self.refusal}")
        if challenge:
            self.refusal = challenge.decode("utf-8", "replace")
            return _AFTER_REFUSAL
        self.is_complete = True
        return None


class OAuthBearerSaslServer(SaslServer):
    """The server's side of OAUTHBEARER."""

    def __init__(self, validate: Callable[[str], OAuthBearerToken | TokenRefusal]) -> None:
        """validate: returns the token for its text, or why it is refused."""
        super().__init__(MECHANISM)
        self.extensions: Mapping[str, str] = {}
        """The extensions that the client sent beside its token. Nobody has validated them."""
        self._validate = validate
        self._refusal: TokenRefusal | None = None

    def _evaluate(self, response: bytes) -> bytes:
        if self._refusal is not None:
            raise AuthenticationFailed(f"{MECHANISM}: {self._refusal.reason}", self._refusal.to_json())
        token_text, authorization_id = self._client_first(self._decoded(response))
        token = self._validate(token_text)
        if isinstance(token, TokenRefusal):
            self._refusal = token
            return token.to_json().encode("utf-8")
        if authorization_id not in ("", token.principal_name):
            raise self._failed(f"user {token.principal_name!r} may not act as {authorization_id!r}")
        self.expires_ms = token.expires_ms
        self._accept(token.principal_name)
        return b""

    def _client_first(self, text: str) -> tuple[str, str]:
        """Return the token and the authorization id, and keep the extensions."""
        first = _CLIENT_FIRST.fullmatch(text)
        if first is None:
            binding = text.startswith(("y,", "p="))
            raise self._failed(
                "channel binding is not supported" if binding else "the client's message is malformed"
            )
        pairs = [(found["key"], found["value"]) for found in _PAIR.finditer(first["pairs"])]
        extensions = dict(pairs)
        authorization = _AUTHORIZATION.fullmatch(extensions.pop("auth", ""))
        if authorization is None or len(extensions) != len(pairs) - 1:
            raise self._failed("the client's message has no token, or a key twice")
        if authorization["scheme"].lower() != "bearer":
            raise self._failed(f"the scheme is {authorization['scheme'][:40]!r}, not Bearer")
        self.extensions = extensions
        return authorization["token"], (first["authzid"] or "").replace("=2C", ",").replace("=3D", "=")

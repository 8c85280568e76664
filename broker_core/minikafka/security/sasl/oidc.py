"""Tokens of an identity provider (OpenID Connect): the request for one, its response, and when to renew it.

    POST ENDPOINT   Authorization: Basic base64(id:secret)     grant_type=client_credentials[&scope=…]
    200             {"access_token":"header.claims.signature","expires_in":3600,…}

As in Kafka (KIP-768). The network layer sends requests, repeats them, and keeps tokens; here is what they
mean. No error has a secret: not the client's, not the token, and not the query of an address.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus, unquote_plus, urlsplit

from minikafka.base.errors import AuthenticationFailed, NetworkError
from minikafka.base.printable import printable
from minikafka.base.secrets import Password
from minikafka.base.text import shorten
from minikafka.security.sasl.oauthbearer import MECHANISM, OAuthBearerToken
from minikafka.security.sasl.sasl_config import JAAS, TOKEN_ENDPOINT, SaslConfig, allows_http, ssl_options
from minikafka.security.sasl.token_claims import MAX_SECONDS, InvalidToken, decoded, parts_of, time_ms

DEFAULT_TIMEOUT_MS = 10_000
"""The time limit of a request where the settings have none. Kafka's clients then wait for ever."""
MAX_RESPONSE_BYTES = 1 << 20

_MEANINGS = {
    400: "check scope, clientId and clientSecret in sasl.jaas.config",
    401: "check clientId and clientSecret in sasl.jaas.config",
    403: "the identity provider does not permit client credentials for this clientId",
    404: f"check {TOKEN_ENDPOINT}",
    405: f"check {TOKEN_ENDPOINT}",
}
"""Status -> advice."""
_NOT_REPEATED = frozenset({*range(400, 408), *range(409, 416), 501, 505})
"""Statuses after which Kafka does not repeat a request."""
_REDIRECTS = range(300, 400)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request over HTTP: to an identity provider, or another server that the settings name."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)
    """The body of a POST; None for a GET."""
    connect_timeout_ms: int = DEFAULT_TIMEOUT_MS
    read_timeout_ms: int = DEFAULT_TIMEOUT_MS
    allow_http: bool = False
    """True if the user permits an address without TLS that is not on this host."""
    ssl_options: Mapping[str, Password] = field(default_factory=dict, repr=False)
    """``ssl.…`` settings of the connection; none of them: the system's certificate authorities."""
    setting: str = TOKEN_ENDPOINT
    """The name of the setting that has the address."""
    server: str = "the identity provider"
    """The server in messages."""
    ssl_advice: str = f"its ssl.… settings are options of {JAAS}"
    """The end of the message when TLS fails: where its settings are."""

    @property
    def place(self) -> str:
        """The address for messages, without its query."""
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        return printable(shorten(f"{parts.scheme}://{host}{parts.path}"))


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """The response to it, of any status."""

    status: int
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class RefreshPolicy:
    """The time to renew a token, as in Kafka's ``ExpiringCredentialRefreshingLogin``."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_ms: int = 60_000
    buffer_ms: int = 300_000

    @classmethod
    def of(cls, config: SaslConfig) -> RefreshPolicy:
        """Return the policy of ``sasl.login.refresh.…``."""
        return cls(
            config.refresh_window_factor,
            config.refresh_window_jitter,
            config.refresh_min_period_s * 1000,
            config.refresh_buffer_s * 1000,
        )

    def refresh_ms(self, token: OAuthBearerToken, now_ms: int, chance: float) -> int:
        """Return the time in epoch milliseconds. ``chance``: a random number from 0 to 1."""
        part = self.window_factor + self.window_jitter * chance
        begins_ms = now_ms if token.begins_ms is None else token.begins_ms
        end_ms = token.expires_ms
        if now_ms + self.min_period_ms + self.buffer_ms > end_ms:  # too short for the two
            return now_ms + int((end_ms - now_ms) * part)
        proposed_ms = begins_ms + int((end_ms - begins_ms) * part)
        if proposed_ms > end_ms - self.buffer_ms:
            return end_ms - self.buffer_ms
        return max(proposed_ms, now_ms + self.min_period_ms)


def token_request(config: SaslConfig) -> HttpRequest:
    """Return the request for a token by client credentials. ``config`` has no faults."""
    client_id = config.option("clientId", config.client_id) or ""
    secret = config.client_secret.value if config.client_secret else config.option("clientSecret") or ""
    if config.header_urlencode:
        client_id, secret = quote_plus(client_id), quote_plus(secret)
    credentials = b64encode(f"{client_id}:{secret}".encode()).decode("ascii")
    scope = (config.option("scope", config.scope) or "").strip()
    body = "grant_type=client_credentials" + (f"&scope={quote_plus(scope)}" if scope else "")
    headers = {
        "Authorization": f"Basic {credentials}",
        "Accept": "application/json",
        "Cache-Control": "no-cache",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    return HttpRequest(
        config.token_endpoint_url or "",
        headers,
        body.encode("ascii"),
        config.connect_timeout_ms or DEFAULT_TIMEOUT_MS,
        config.read_timeout_ms or DEFAULT_TIMEOUT_MS,
        allows_http(config.jaas),
        ssl_options(config.jaas),
    )


def token_of_response(
    request: HttpRequest, response: HttpResponse, now_ms: int, sub_claim: str = "sub"
) -> OAuthBearerToken:
    """Return the token in a response.

    Raises NetworkError if another attempt may succeed, and AuthenticationFailed if not.
    """
    if response.status not in (200, 201):
        raise _refusal(request, response)
    fields = _json_object(response.body)
    value = fields.get("access_token")
    if not isinstance(value, str) or not value.strip():
        raise _failed(f"the response of {request.place} has no access_token; check {TOKEN_ENDPOINT}")
    return read_token(value.strip(), now_ms, sub_claim, fields.get("expires_in"), request.place)


def read_token(
    value: str, now_ms: int, sub_claim: str, expires_in: object = None, place: str = ""
) -> OAuthBearerToken:
    """Return a token with the times that it has, or else ``expires_in``, in seconds from now.

    A provider's token may be of any form; one that is no JSON Web Token has the times of the response alone.
    """
    try:
        claims: Mapping[str, Any] = decoded("claims", parts_of(value)[1])
        expires_ms, begins_ms = time_ms(claims, "exp"), time_ms(claims, "iat")
    except InvalidToken:
        claims, expires_ms, begins_ms = {}, None, None
    if expires_ms is None and isinstance(expires_in, int | float) and 0 < expires_in < MAX_SECONDS:
        begins_ms, expires_ms = now_ms, now_ms + int(expires_in * 1000)
    if expires_ms is None:
        raise _failed(f"the token of {place} says nowhere when it expires")
    name = claims.get(sub_claim)
    principal_name = name if isinstance(name, str) else ""
    return OAuthBearerToken(Password(value), principal_name, expires_ms, begins_ms=begins_ms)


def _refusal(request: HttpRequest, response: HttpResponse) -> NetworkError | AuthenticationFailed:
    status = response.status
    if status in _REDIRECTS:
        return _failed(
            f"{request.place} redirects to another address (status {status}), which does not get the "
            f"client's secret; set {TOKEN_ENDPOINT} to it"
        )
    problem = f"no token: status {status}{_explanation(request, response.body)}"
    if status in _NOT_REPEATED:
        advice = _MEANINGS.get(status, f"check {TOKEN_ENDPOINT}")
        return _failed(f"{request.place}: {problem}; {advice}")
    return NetworkError(problem, request.place, "the identity provider may be overloaded: try again later")


def _explanation(request: HttpRequest, body: bytes) -> str:
    """Return the provider's words, if they have the form of RFC 6749 or another known one."""
    fields = _json_object(body)
    found = [fields.get(name) for name in ("error", "error_description", "errorCode", "errorSummary")]
    words = ": ".join(text for text in found if isinstance(text, str))
    if any(secret in words for secret in _secrets(request)):
        return ""
    words = printable(shorten(words))
    return f" ({words})" if words else ""


def _secrets(request: HttpRequest) -> Iterator[str]:
    """Yield the forms of the client's secret that a provider may repeat."""
    authorization = request.headers.get("Authorization", "").rpartition(" ")[2]
    if authorization:
        yield authorization
    with suppress(ValueError):
        secret = b64decode(authorization, validate=True).decode().partition(":")[2]
        yield from filter(None, {secret, unquote_plus(secret), quote_plus(secret)})


def _json_object(body: bytes) -> Mapping[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _failed(reason: str) -> AuthenticationFailed:
    text = f"{MECHANISM}: {reason}"
    return AuthenticationFailed(text, text)

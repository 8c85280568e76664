"""The parts and claims of a JSON Web Token (RFC 7519), whoever vouches for them.

    base64url(header).base64url(claims).base64url(signature)

``unsecured_tokens`` and ``signed_tokens`` decide whether a server believes the claims; a client reads its own
token's times to know when to renew it.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from minikafka.base.secrets import Password
from minikafka.security.sasl.oauthbearer import OAuthBearerToken, TokenRefusal

MAX_SECONDS = 1e12
"""Times beyond are no times."""


class InvalidToken(Exception):
    """A token is not acceptable: the reason, and what the client gets as the answer."""

    def __init__(self, reason: str, status: str = "invalid_token", scope: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.refusal = TokenRefusal(f"the token is refused: {reason}", status, scope)


class TokenValidator(ABC):
    """Decides whether a server believes a token."""

    __slots__ = ()

    def validate(self, value: str, now_ms: int) -> OAuthBearerToken | TokenRefusal:
        """Return the token, or why it is not valid now."""
        try:
            return self._validated(value, now_ms)
        except InvalidToken as error:
            return error.refusal

    @abstractmethod
    def _validated(self, value: str, now_ms: int) -> OAuthBearerToken:
        """Return the token. Raises InvalidToken."""


@dataclass(frozen=True, slots=True)
class ClaimReader:
    """Reads the claims that Kafka uses, and checks its times."""

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    clock_skew_ms: int = 0

    def token(self, value: str, claims: Mapping[str, Any], now_ms: int) -> OAuthBearerToken:
        """Return the token of ``claims``. Raises InvalidToken, also for one that is not valid now."""
        expires_ms, issued_ms, begins_ms = (time_ms(claims, name) for name in ("exp", "iat", "nbf"))
        if expires_ms is None:
            raise InvalidToken("it has no claim 'exp'")
        if expires_ms <= now_ms - self.clock_skew_ms:
            raise InvalidToken(f"it expired {now_ms - expires_ms} ms ago")
        for name, begin_ms in (("iat", issued_ms), ("nbf", begins_ms)):
            if begin_ms is not None and begin_ms > now_ms + self.clock_skew_ms:
                raise InvalidToken(f"its {name!r} is {begin_ms - now_ms} ms ahead of this clock")
            if begin_ms is not None and begin_ms >= expires_ms:
                raise InvalidToken(f"it expires before its {name!r}")
        scope = scope_of(claims.get(self.scope_claim))
        principal = _principal(claims, self.principal_claim)
        return OAuthBearerToken(Password(value), principal, expires_ms, scope, issued_ms)


def parts_of(value: str) -> tuple[str, str, str]:
    """Return header, claims and signature, in base64url. Raises InvalidToken."""
    parts = value.split(".")
    if len(parts) != 3:
        raise InvalidToken(f"it has {len(parts)} parts: expected a header, claims and a signature")
    return parts[0], parts[1], parts[2]


def decoded(name: str, part: str) -> Mapping[str, Any]:
    """Return a part's fields. Raises InvalidToken, which names the part."""
    try:
        text = b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
        fields = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise InvalidToken(f"its {name} is not JSON in base64url") from None
    if not isinstance(fields, dict):
        raise InvalidToken(f"its {name} is not a JSON object")
    return fields


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    """Return the time in a claim in epoch milliseconds; None without the claim. Raises InvalidToken."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < MAX_SECONDS:
        raise InvalidToken(f"its claim {name!r} is not a time in seconds")
    return round(value * 1000)


def scope_of(value: object) -> frozenset[str]:
    """Return the scope: a text with blanks between its elements, or a list. Anything else has none."""
    elements = value.split() if isinstance(value, str) else value if isinstance(value, list) else []
    return frozenset(element.strip() for element in elements if isinstance(element, str) and element.strip())


def _principal(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not value.strip() or not _is_unicode(value):
        raise InvalidToken(f"it has no name of a user in its claim {name!r}")
    return value


def _is_unicode(text: str) -> bool:
    """Return False for text with half a character, which JSON can express and UTF-8 cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True

"""Unsecured tokens for OAUTHBEARER (RFC 7519, section 6; KIP-255): for development, as everyone can make one.

    base64url({"alg":"none"}).base64url({"sub":"alice","iat":…,"exp":…}).

The options of a JAAS configuration say which claims a client's tokens have (``unsecuredLogin…``), and which a
server wants (``unsecuredValidator…``). Whoever uses ``UnsecuredValidator`` asks for an explicit switch first.
"""

from __future__ import annotations

import json
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, NoReturn

from minikafka.base.config.types import whole_number
from minikafka.base.errors import ConfigError
from minikafka.base.secrets import Password
from minikafka.security.jaas import JaasConfig
from minikafka.security.sasl.oauthbearer import OAuthBearerToken, TokenRefusal

_LOGIN = "unsecuredLogin"
_VALIDATOR = "unsecuredValidator"
_MAX_SECONDS = 1e12
"""Times beyond are no times."""


@dataclass(frozen=True, slots=True)
class UnsecuredLogin:
    """Makes the tokens of a client."""

    principal_name: str
    claims: Mapping[str, object]
    """The claims but for ``iat`` and ``exp``."""
    extensions: Mapping[str, str]
    """The extensions that the client sends beside a token."""
    lifetime_s: int

    @classmethod
    def from_jaas(cls, config: JaasConfig) -> UnsecuredLogin:
        """Return the login of options such as ``unsecuredLoginStringClaim_sub``. Raises ConfigError."""
        claims: dict[str, object] = {}
        extensions: dict[str, str] = {}
        for option, value in config.options.items():
            kind, _, name = option.removeprefix(_LOGIN).partition("_")
            if not option.startswith(_LOGIN) or not name:
                continue
            if kind == "Extension":
                extensions[name] = value.value
            elif name in ("iat", "exp"):
                raise ConfigError(config.setting, None, f"option {option} cannot be set: it is computed")
            elif kind == "StringClaim":
                claims[name] = value.value
            elif kind == "NumberClaim":
                claims[name] = _number(config, option, value.value)
            elif kind == "ListClaim":
                claims[name] = value.value[1:].split(value.value[0]) if value.value[1:] else []
        principal_claim = _text(config, f"{_LOGIN}PrincipalClaimName", "sub")
        principal_name = claims.get(principal_claim)
        if not isinstance(principal_name, str) or not principal_name.strip():
            required = f"requires the option {_LOGIN}StringClaim_{principal_claim}, the name of the user"
            raise ConfigError(config.setting, None, required)
        lifetime_s = _whole(config, f"{_LOGIN}LifetimeSeconds", 3600)
        return cls(principal_name, claims, extensions, lifetime_s)

    def token(self, now_ms: int) -> OAuthBearerToken:
        """Return a token that is valid from now on."""
        issued_s = now_ms / 1000
        claims = {**self.claims, "iat": issued_s, "exp": issued_s + self.lifetime_s}
        value = ".".join((_encoded({"alg": "none"}), _encoded(claims), ""))
        return OAuthBearerToken(Password(value), self.principal_name, now_ms + self.lifetime_s * 1000)


@dataclass(frozen=True, slots=True)
class UnsecuredValidator:
    """Validates tokens without a signature."""

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    clock_skew_ms: int = 0

    @classmethod
    def from_jaas(cls, config: JaasConfig) -> UnsecuredValidator:
        """Return the validator of options such as ``unsecuredValidatorRequiredScope``. Raises ConfigError."""
        return cls(
            _text(config, f"{_VALIDATOR}PrincipalClaimName", "sub"),
            _text(config, f"{_VALIDATOR}ScopeClaimName", "scope"),
            tuple(_text(config, f"{_VALIDATOR}RequiredScope", "").split()),
            _whole(config, f"{_VALIDATOR}AllowableClockSkewMs", 0),
        )

    def validate(self, value: str, now_ms: int) -> OAuthBearerToken | TokenRefusal:
        """Return the token, or why it is not valid now."""
        try:
            return self._validated(value, now_ms)
        except _Invalid as error:
            return error.refusal

    def _validated(self, value: str, now_ms: int) -> OAuthBearerToken:
        parts = value.split(".")
        if len(parts) != 3:
            raise _Invalid(
                f"the token has {len(parts)} parts: expected a header, claims and an empty signature"
            )
        if _decoded("header", parts[0]).get("alg") != "none" or parts[2]:
            raise _Invalid("the token is signed: unsecured ones have the algorithm 'none' and no signature")
        claims = _decoded("claims", parts[1])
        expires_ms, issued_ms, begins_ms = (_time_ms(claims, name) for name in ("exp", "iat", "nbf"))
        if expires_ms is None:
            raise _Invalid("the token has no claim 'exp'")
        if expires_ms <= now_ms - self.clock_skew_ms:
            raise _Invalid(f"the token expired {now_ms - expires_ms} ms ago")
        for name, time_ms in (("iat", issued_ms), ("nbf", begins_ms)):
            if time_ms is not None and time_ms > now_ms + self.clock_skew_ms:
                raise _Invalid(f"the token's {name!r} is {time_ms - now_ms} ms ahead of this clock")
            if time_ms is not None and time_ms >= expires_ms:
                raise _Invalid(f"the token expires before its {name!r}")
        scope = _scope(claims.get(self.scope_claim))
        missing = [element for element in self.required_scope if element not in scope]
        if missing:
            raise _Invalid(
                f"the token's scope lacks {', '.join(missing)}",
                "insufficient_scope",
                " ".join(self.required_scope),
            )
        return OAuthBearerToken(Password(value), _principal(claims, self.principal_claim), expires_ms, scope)


class _Invalid(Exception):
    def __init__(self, reason: str, status: str = "invalid_token", scope: str | None = None) -> None:
        self.refusal = TokenRefusal(reason, status, scope)


def _encoded(fields: Mapping[str, object]) -> str:
    text = json.dumps(fields, separators=(",", ":")).encode("ascii")
    return urlsafe_b64encode(text).decode("ascii").rstrip("=")


def _decoded(name: str, part: str) -> Mapping[str, Any]:
    try:
        text = b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
        fields = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise _Invalid(f"the token's {name} is not JSON in base64url") from None
    if not isinstance(fields, dict):
        raise _Invalid(f"the token's {name} is not a JSON object")
    return fields


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _MAX_SECONDS:
        raise _Invalid(f"the token's claim {name!r} is not a time in seconds")
    return round(value * 1000)


def _principal(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not value.strip() or not _is_unicode(value):
        raise _Invalid(f"the token has no name of a user in its claim {name!r}")
    return value


def _scope(value: object) -> frozenset[str]:
    """Return the scope: a text with blanks between its elements, or a list. Anything else has none."""
    elements = value.split() if isinstance(value, str) else value if isinstance(value, list) else []
    return frozenset(element.strip() for element in elements if isinstance(element, str) and element.strip())


def _is_unicode(text: str) -> bool:
    """Return False for text with half a character, which JSON can express and UTF-8 cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _text(config: JaasConfig, option: str, default: str) -> str:
    value = config.options.get(option)
    return (value.value.strip() if value else "") or default


def _whole(config: JaasConfig, option: str, default: int) -> int:
    value = whole_number(_text(config, option, str(default)))
    if value is None or not 0 <= value < _MAX_SECONDS:
        raise ConfigError(config.setting, None, f"option {option} must be a whole number of at least 0")
    return value


def _number(config: JaasConfig, option: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise ConfigError(config.setting, None, f"option {option} must be a number")
    return value

"""Unsecured tokens for OAUTHBEARER (RFC 7519, section 6; KIP-255): for development, as everyone can make one.

    base64url({"alg":"none"}).base64url({"sub":"alice","iat":…,"exp":…}).

The options of a JAAS configuration say which claims a client's tokens have (``unsecuredLogin…``), and which a
server wants (``unsecuredValidator…``). Whoever uses ``UnsecuredValidator`` asks for an explicit switch first.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from minikafka.base.config.types import whole_number
from minikafka.base.errors import ConfigError
from minikafka.base.secrets import Password
from minikafka.security.jaas import JaasConfig
from minikafka.security.sasl.oauthbearer import OAuthBearerToken
from minikafka.security.sasl.token_claims import (
    MAX_SECONDS,
    ClaimReader,
    InvalidToken,
    TokenValidator,
    decoded,
    parts_of,
)

_LOGIN = "unsecuredLogin"
_VALIDATOR = "unsecuredValidator"


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
        expires_ms = now_ms + self.lifetime_s * 1000
        return OAuthBearerToken(Password(value), self.principal_name, expires_ms, begins_ms=now_ms)


@dataclass(frozen=True, slots=True)
class UnsecuredValidator(TokenValidator):
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

    def _validated(self, value: str, now_ms: int) -> OAuthBearerToken:
        header, claims, signature = parts_of(value)
        if decoded("header", header).get("alg") != "none" or signature:
            raise InvalidToken("it is signed: unsecured ones have the algorithm 'none' and no signature")
        reader = ClaimReader(self.principal_claim, self.scope_claim, self.clock_skew_ms)
        token = reader.token(value, decoded("claims", claims), now_ms)
        missing = [element for element in self.required_scope if element not in token.scope]
        if missing:
            raise InvalidToken(
                f"its scope lacks {', '.join(missing)}", "insufficient_scope", " ".join(self.required_scope)
            )
        return token


def _encoded(fields: Mapping[str, object]) -> str:
    text = json.dumps(fields, separators=(",", ":")).encode("ascii")
    return urlsafe_b64encode(text).decode("ascii").rstrip("=")


def _text(config: JaasConfig, option: str, default: str) -> str:
    value = config.options.get(option)
    return (value.value.strip() if value else "") or default


def _whole(config: JaasConfig, option: str, default: int) -> int:
    value = whole_number(_text(config, option, str(default)))
    if value is None or not 0 <= value < MAX_SECONDS:
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

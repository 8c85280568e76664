"""Signed tokens for OAUTHBEARER (KIP-768): a broker believes what its identity provider has signed.

    base64url({"alg":"RS256","kid":KEY}).base64url({"sub":"alice","iat":…,"exp":…,…}).base64url(signature)

The provider publishes its public keys as a JSON Web Key Set (RFC 7517). ``read_jwks`` reads one, and
``SignedTokenValidator`` validates tokens with the keys that it is given. As in Kafka a token must have
``exp`` and ``iat``, and its audience must be expected: a token with one is refused where none is configured.

Only algorithms with public keys are accepted, and each key only for the algorithms that fit it. So ``none``
and a signature with the public key as a shared secret (HS256) are refused, whatever the token says.
"""

from __future__ import annotations

import importlib
import json
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from minikafka.base.config.config_def import AbstractConfig, Faults, setting
from minikafka.base.config.types import TEXT, WORDS, int32, int64
from minikafka.base.errors import ConfigError, StoreError
from minikafka.base.printable import printable
from minikafka.base.text import shorten
from minikafka.security.jaas import JaasConfig
from minikafka.security.sasl.oauthbearer import OAuthBearerToken
from minikafka.security.sasl.oidc import HttpRequest
from minikafka.security.sasl.sasl_config import address_fault, allows_http, ssl_options
from minikafka.security.sasl.token_claims import ClaimReader, InvalidToken, TokenValidator, decoded, parts_of

JWKS_ENDPOINT = "sasl.oauthbearer.jwks.endpoint.url"

_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
MAX_HEADER_CHARS = 32_768
"""The limit of a token's header, which is read before anything vouches for it; chains of certificates fit."""
ALGORITHMS = (*_RSA, *_CURVES.values())
"""The algorithms that are accepted."""
MIN_RSA_BITS = 2048
_MAX_KEYS = 1_000
_PUBLIC_FIELDS = {"RSA": ("kty", "n", "e"), "EC": ("kty", "crv", "x", "y")}
_GROUP = "OAUTHBEARER"


@dataclass(frozen=True, slots=True)
class SignedTokenConfig(AbstractConfig):
    """The settings of a listener that validates signed tokens."""

    jwks_endpoint_url: str | None = setting(
        JWKS_ENDPOINT,
        TEXT,
        None,
        "The identity provider's address for its keys, or ``file:`` and the path of a file with them.",
        _GROUP,
    )
    jwks_refresh_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        int64(1),
        3_600_000,
        "The time after which keys are fetched again.",
        _GROUP,
    )
    jwks_retry_backoff_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        int64(0),
        100,
        "The wait before the second request for keys; it doubles with each request.",
        _GROUP,
    )
    jwks_retry_backoff_max_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        int64(0),
        10_000,
        "The time after which a failing request for keys is not repeated at once.",
        _GROUP,
    )
    expected_audience: tuple[str, ...] = setting(
        "sasl.oauthbearer.expected.audience",
        WORDS,
        "",
        "The audiences of which a token must have one; empty: a token must have no audience.",
        _GROUP,
    )
    expected_issuer: str | None = setting(
        "sasl.oauthbearer.expected.issuer",
        TEXT,
        None,
        "The issuer that a token must have; unset: any.",
        _GROUP,
    )
    clock_skew_s: int = setting(
        "sasl.oauthbearer.clock.skew.seconds",
        int32(0),
        30,
        "The difference that the clocks of provider and broker may have, in seconds.",
        _GROUP,
    )
    scope_claim_name: str = setting(
        "sasl.oauthbearer.scope.claim.name", TEXT, "scope", "The claim with a token's scope.", _GROUP
    )
    sub_claim_name: str = setting(
        "sasl.oauthbearer.sub.claim.name", TEXT, "sub", "The claim with the user's name.", _GROUP
    )

    def faults(self, jaas: JaasConfig) -> list[ConfigError]:
        """Return what keeps a listener with these settings from validating tokens.

        It is no part of the constructor, as other listeners do not need these settings.
        """
        if self.jwks_endpoint_url is None:
            text = "must be given: the identity provider's address for its keys, from its documentation"
            return [ConfigError(JWKS_ENDPOINT, None, text)]
        fault = address_fault(JWKS_ENDPOINT, self.jwks_endpoint_url, allows_http(jaas))
        found = Faults()
        found.add([] if fault is None else [fault])
        found.attempt(_imported, None)
        return list(found)

    def request(self, jaas: JaasConfig) -> HttpRequest:
        """Return the request for the keys. The settings have no faults."""
        return HttpRequest(
            self.jwks_endpoint_url or "",
            {"Accept": "application/json"},
            allow_http=allows_http(jaas),
            ssl_options=ssl_options(jaas),
            setting=JWKS_ENDPOINT,
        )


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key of an identity provider."""

    key_id: str | None
    algorithms: tuple[str, ...]
    """The algorithms whose signatures it verifies."""
    key: Any = field(repr=False)


class _UnusableKey(Exception):
    pass


def read_jwks(body: bytes) -> tuple[VerificationKey, ...]:
    """Return the keys of a JSON Web Key Set that can verify signatures; others are passed over.

    Raises StoreError if there is none, with the reasons, and ConfigError if the library is missing.
    """
    _imported()
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise StoreError(f"no JSON Web Key Set: expected an object with 'keys'; check {JWKS_ENDPOINT}")
    found, reasons = [], []
    for row in listed[:_MAX_KEYS]:
        try:
            found.append(_read_key(row))
        except _UnusableKey as reason:
            reasons.append(str(reason))
    if not found:
        problems = printable(shorten(", ".join(dict.fromkeys(reasons)))) or "it is empty"
        raise StoreError(f"no key of the JSON Web Key Set verifies signatures: {problems}")
    return tuple(found)


def _read_key(row: object) -> VerificationKey:
    if not isinstance(row, dict):
        raise _UnusableKey("a key is not an object")
    kind, key_id, algorithm = row.get("kty"), row.get("kid"), row.get("alg")
    operations = row.get("key_ops", ["verify"])
    if row.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        raise _UnusableKey("a key has another use")
    if not isinstance(kind, str) or kind not in _PUBLIC_FIELDS:
        raise _UnusableKey("a key is neither RSA nor EC")
    # A private key would be one as well: only what is public is read.
    public = {name: row[name] for name in _PUBLIC_FIELDS[kind] if isinstance(row.get(name), str)}
    fitting: tuple[str, ...]
    try:
        library = _imported().RSAAlgorithm if kind == "RSA" else _imported().ECAlgorithm
        key = library.from_jwk(public)
        fitting = _RSA if kind == "RSA" else (_CURVES[public["crv"]],)
    except Exception as error:  # noqa: BLE001 - whatever the library finds in it, the other keys are read
        raise _UnusableKey(f"a key is malformed ({type(error).__name__})") from None
    if kind == "RSA" and key.key_size < MIN_RSA_BITS:
        raise _UnusableKey(f"an RSA key has {key.key_size} bits, less than {MIN_RSA_BITS}")
    if algorithm is not None:
        fitting = tuple(name for name in fitting if name == algorithm)
    if not fitting:
        raise _UnusableKey("a key has an algorithm that does not fit it")
    return VerificationKey(key_id if isinstance(key_id, str) else None, fitting, key)


def _imported() -> Any:
    """Return the library of signatures. Raises ConfigError if it is missing."""
    try:
        importlib.import_module("cryptography")  # without it the other lacks what it needs
        return importlib.import_module("jwt.algorithms")
    except ImportError as error:
        text = f"signed tokens need a package ({error}): pip install 'minikafka[oauth]'"
        raise ConfigError(JWKS_ENDPOINT, None, text) from None


class SignedTokenValidator(TokenValidator):
    """Validates signed tokens for a broker."""

    def __init__(
        self,
        config: SignedTokenConfig,
        keys: Callable[[], Sequence[VerificationKey]],
        key_is_missing: Callable[[str], None],
    ) -> None:
        """keys: returns the provider's keys, without waiting for them.

        key_is_missing: takes the id of a key that a token has and the provider had not when it was last
        asked: it may be a new one. Raises ConfigError if the library is missing.
        """
        self._config = config
        self._keys = keys
        self._key_is_missing = key_is_missing
        self._algorithms: Mapping[str, Any] = _imported().get_default_algorithms()
        self._reader = ClaimReader(config.sub_claim_name, config.scope_claim_name, config.clock_skew_s * 1000)

    def _validated(self, value: str, now_ms: int) -> OAuthBearerToken:
        header_part, claims_part, signature_part = parts_of(value)
        if len(header_part) > MAX_HEADER_CHARS:
            raise InvalidToken(f"its header has {len(header_part)} of {MAX_HEADER_CHARS} characters")
        self._check_signature(decoded("header", header_part), value.rpartition(".")[0], signature_part)
        claims = decoded("claims", claims_part)
        if claims.get("iat") is None:
            raise InvalidToken("it has no claim 'iat'")
        token = self._reader.token(value, claims, now_ms)
        self._check_issuer(claims.get("iss"))
        self._check_audience(claims.get("aud"))
        return token

    def _check_signature(self, header: Mapping[str, Any], signed: str, signature_part: str) -> None:
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise InvalidToken(
                f"its algorithm is {_shown(algorithm)}: expected one of {', '.join(ALGORITHMS)}"
            )
        if "crit" in header or "b64" in header:
            raise InvalidToken("its header has extensions, which are not supported")
        if key_id is not None and not isinstance(key_id, str):
            raise InvalidToken("the id of its key is not text")
        keys = [key for key in self._keys() if algorithm in key.algorithms]
        if key_id is not None:
            keys = [key for key in keys if key.key_id == key_id]
        if not keys:
            if key_id is not None:
                self._key_is_missing(key_id)
            raise InvalidToken(f"the identity provider has no key {_shown(key_id)} for {algorithm} as yet")
        if len(keys) > 1 and key_id is None:
            raise InvalidToken(f"it does not name its key, and the identity provider has {len(keys)}")
        if not any(self._fits(key, algorithm, signed, signature_part) for key in keys):
            raise InvalidToken("its signature is wrong")

    def _fits(self, key: VerificationKey, algorithm: str, signed: str, signature_part: str) -> bool:
        try:
            padded = signature_part + "=" * (-len(signature_part) % 4)
            signature = b64decode(padded, altchars=b"-_", validate=True)
        except ValueError:
            return False
        return bool(
            self._algorithms[algorithm].verify(signed.encode("utf-8", "surrogatepass"), key.key, signature)
        )

    def _check_issuer(self, issuer: object) -> None:
        expected = self._config.expected_issuer
        if expected is not None and issuer != expected:
            raise InvalidToken(f"its issuer is {_shown(issuer)}: expected {expected!r}")

    def _check_audience(self, audience: object) -> None:
        expected = self._config.expected_audience
        found = [audience] if isinstance(audience, str) else audience if isinstance(audience, list) else []
        if audience is not None and not expected:
            text = "but sasl.oauthbearer.expected.audience is not set"
            raise InvalidToken(f"its audience is {_shown(audience)}, {text}")
        if expected and not any(name in expected for name in found if isinstance(name, str)):
            raise InvalidToken(f"its audience is {_shown(audience)}: expected {' or '.join(expected)}")


def _shown(value: object) -> str:
    """Return a part of a token for the log."""
    text = value if isinstance(value, str) else json.dumps(value)
    return repr(printable(text if len(text) <= 200 else f"{text[:200]}…"))

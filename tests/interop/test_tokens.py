"""Tokens of identity providers as Kafka's own classes fetch and validate them, beside ours."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from minikafka.net.http import fetch
from minikafka.security.jaas import JaasConfig
from minikafka.security.sasl.oauthbearer import OAuthBearerToken
from minikafka.security.sasl.oidc import token_of_response, token_request
from minikafka.security.sasl.sasl_config import LOGIN_MODULES, SaslConfig
from minikafka.security.sasl.signed_tokens import (
    ALGORITHMS,
    SignedTokenConfig,
    SignedTokenValidator,
    read_jwks,
)
from tests.interop.clients import java
from tests.interop.driver import Program, Refused, decode, encode
from tests.support.identity_provider import IdentityProvider
from tests.unit.security.sasl.test_signed_tokens import jwk, jwks, key_of, part, private_key, signed

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

NOW_S = int(time.time())
SETTINGS = {
    "sasl.oauthbearer.expected.audience": "kafka,connect",
    "sasl.oauthbearer.expected.issuer": "https://example.com",
}
TOKEN = {"aud": "kafka", "iss": "https://example.com", "sub": "alice", "iat": NOW_S - 5, "exp": NOW_S + 3600}


@pytest.fixture(scope="module", params=["3.9", "4"])
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """The program with the classes of a release."""
    variable = {"3.9": "MINIKAFKA_KAFKA3_LIBS", "4": "MINIKAFKA_KAFKA4_LIBS"}[request.param]
    prepare = java(variable, f"kafka-clients-{request.param}.*.jar", "SaslMechanisms")
    prepared = prepare(tmp_path_factory.mktemp("java"))
    program = Program(prepared.command, prepared.environment)
    yield program
    program.close()


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with keys for all algorithms."""
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    path.write_bytes(jwks(*(jwk(key_of(name), kid=name) for name in ("RS256", "ES256", "ES384", "ES512"))))
    return path


def words(settings: dict[str, str]) -> list[str]:
    return [encode(text.encode()) for pair in settings.items() for text in pair]


def theirs(kafka: Program, keys: Path, token: str, settings: dict[str, str]) -> tuple[str, int] | None:
    """Return user and end in ms as Kafka's validator reads them; None for a refusal."""
    given = {"sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(), **settings}
    try:
        ((user, end_ms),) = kafka.ask("validate", encode(token.encode()), *words(given))
    except Refused:
        return None
    return (decode(user) or b"").decode(), int(end_ms)


def ours(keys: Path, token: str, settings: dict[str, str]) -> tuple[str, int] | None:
    found = read_jwks(keys.read_bytes())
    validator = SignedTokenValidator(
        SignedTokenConfig.from_properties(settings), lambda: found, lambda key_id: None
    )
    result = validator.validate(token, int(time.time() * 1000))
    return (result.principal_name, result.expires_ms) if isinstance(result, OAuthBearerToken) else None


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_token_of_each_algorithm_is_valid_for_both(kafka: Program, keys: Path, algorithm: str) -> None:
    key_id = algorithm if algorithm.startswith("ES") else "RS256"
    token = signed(algorithm, headers={"kid": key_id}, **TOKEN)
    expected = ("alice", (NOW_S + 3600) * 1000)
    assert theirs(kafka, keys, token, SETTINGS) == expected
    assert ours(keys, token, SETTINGS) == expected


@pytest.mark.parametrize(
    ("claims", "settings"),
    [
        ({"aud": None}, SETTINGS),
        ({"aud": ["x", "connect"]}, SETTINGS),
        ({"aud": "x"}, SETTINGS),
        ({"iss": None}, SETTINGS),
        ({"iss": "https://example.com/"}, SETTINGS),
        ({"exp": NOW_S - 10}, SETTINGS),
        ({"exp": NOW_S - 120}, SETTINGS),
        ({"exp": None}, SETTINGS),
        ({"iat": None}, SETTINGS),
        ({"nbf": NOW_S + 10}, SETTINGS),
        ({"nbf": NOW_S + 120}, SETTINGS),
        ({"sub": None}, SETTINGS),
        ({"sub": " "}, SETTINGS),
        ({"scope": "a b"}, SETTINGS),
        ({"scp": ["a"], "user": "bob"}, {**SETTINGS, "sasl.oauthbearer.sub.claim.name": "user"}),
        ({"exp": NOW_S - 40}, {**SETTINGS, "sasl.oauthbearer.clock.skew.seconds": "300"}),
    ],
)
def test_claims_are_judged_alike(
    kafka: Program, keys: Path, claims: dict[str, object], settings: dict[str, str]
) -> None:
    token = signed(headers={"kid": "RS256"}, **(TOKEN | claims))
    assert ours(keys, token, settings) == theirs(kafka, keys, token, settings)


@pytest.mark.parametrize("kafka", ["3.9"], indirect=True)
@pytest.mark.parametrize("claims", [{}, {"aud": None}])
def test_without_an_expected_audience_claims_are_judged_alike(
    kafka: Program, keys: Path, claims: dict[str, object]
) -> None:
    """Kafka 4.4 demands an expected audience and issuer, or the setting that allows any."""
    token = signed(headers={"kid": "RS256"}, **(TOKEN | claims))
    assert ours(keys, token, {}) == theirs(kafka, keys, token, {})


@pytest.mark.parametrize(
    "token",
    [
        signed(key=private_key("ES256"), algorithm="ES256", headers={"kid": "RS256"}, **TOKEN),
        signed(headers={"kid": "absent"}, **TOKEN),
        f"{part({'alg': 'none'})}.{part(TOKEN)}.",
        f"{part({'alg': 'HS256', 'kid': 'RS256'})}.{part(TOKEN)}.c2ln",
        signed(headers={"kid": "RS256"}, **TOKEN)[:-8],
        signed(headers={"kid": "RS256"}, **TOKEN).rpartition(".")[0],
        "opaque",
        "a.b.c",
    ],
)
def test_forged_tokens_are_refused_by_both(kafka: Program, keys: Path, token: str) -> None:
    assert theirs(kafka, keys, token, SETTINGS) is None
    assert ours(keys, token, SETTINGS) is None


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    """An identity provider on this host."""
    provider = IdentityProvider()
    yield provider
    provider.close()


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({"clientId": "app", "clientSecret": "tiger"}, {}),
        ({"clientId": "app", "clientSecret": "p&=:é", "scope": "api://x/.default b"}, {}),
        ({"clientId": "a b", "clientSecret": "p&="}, {"sasl.oauthbearer.header.urlencode": "true"}),
    ],
)
def test_provider_gets_the_same_request(
    kafka: Program, provider: IdentityProvider, options: dict[str, str], settings: dict[str, str]
) -> None:
    token = signed(headers={"kid": "RS256"}, **TOKEN)
    provider.answers["/token"] = (200, json.dumps({"access_token": token, "expires_in": 1}).encode())
    settings = {"sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token", **settings}
    ((value, user, end_ms),) = kafka.ask("fetch", *words(settings), "-", *words(options))
    jaas = " ".join(f'{name}="{value}"' for name, value in options.items())
    config = SaslConfig.from_properties(
        {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{LOGIN_MODULES['OAUTHBEARER']} required {jaas};",
            **settings,
        }
    )
    assert isinstance(config.jaas, JaasConfig)
    request = token_request(config)
    ours = token_of_response(request, fetch(request), NOW_S * 1000)
    assert (decode(value), decode(user), int(end_ms)) == (token.encode(), b"alice", ours.expires_ms)
    assert (ours.value.value, ours.principal_name) == (token, "alice")
    (method, _, headers, body), ours_received = provider.received
    names = ("Authorization", "Content-Type", "Accept", "Cache-Control")
    their_headers = {name.lower(): given for name, given in headers.items()}
    our_headers = {name.lower(): given for name, given in ours_received[2].items()}
    # Kafka 4 does not encode the scope, unlike 3.9; servers read both alike.
    assert (method, parse_qs(body)) == (ours_received[0], parse_qs(ours_received[3]))
    assert {name: their_headers.get(name.lower()) for name in names} == {
        name: our_headers.get(name.lower()) for name in names
    }

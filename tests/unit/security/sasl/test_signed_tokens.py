"""Signed tokens: keys of an identity provider, and what a broker believes."""

from __future__ import annotations

import hmac
import json
import sys
from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import cache
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from minikafka.base.errors import ConfigError, ConfigErrors, StoreError
from minikafka.base.secrets import Password
from minikafka.security.jaas import JaasConfig
from minikafka.security.sasl.oauthbearer import OAuthBearerToken, TokenRefusal
from minikafka.security.sasl.signed_tokens import (
    ALGORITHMS,
    SignedTokenConfig,
    SignedTokenValidator,
    read_jwks,
)

NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS // 1000
URL = "https://example.com/keys"
SPKI = PublicFormat.SubjectPublicKeyInfo
CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
NO_OPTIONS = JaasConfig.parse("OAuthBearerLoginModule required;")


def private_key(kind: str = "RSA", bits: int = 2048) -> Any:
    return made_key(kind, bits)


@cache
def made_key(kind: str, bits: int) -> Any:
    return rsa.generate_private_key(65537, bits) if kind == "RSA" else ec.generate_private_key(CURVES[kind])


def key_of(algorithm: str) -> Any:
    return private_key(algorithm if algorithm in CURVES else "RSA")


def jwk(key: Any, **fields: object) -> dict[str, object]:
    library = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
    return {**library.to_jwk(key.public_key(), as_dict=True), "kid": "k1", **fields}


def jwks(*rows: object) -> bytes:
    return json.dumps({"keys": rows}).encode()


def signed(
    algorithm: str = "RS256", key: Any = None, headers: dict[str, object] | None = None, **claims: object
) -> str:
    """Return a token; a claim or header that is None is left out."""
    given = {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 60, **claims}
    return jwt.encode(
        {name: value for name, value in given.items() if value is not None},
        key_of(algorithm) if key is None else key,
        algorithm,
        {"kid": "k1"} if headers is None else headers,
    )


class Broker:
    """A validator with some keys."""

    def __init__(self, *rows: object, **settings: object) -> None:
        self.missing: list[str] = []
        self.keys = read_jwks(jwks(*rows)) if rows else ()
        config = SignedTokenConfig(jwks_endpoint_url=URL, **settings)
        self.validator = SignedTokenValidator(config, lambda: self.keys, self.missing.append)

    def token(self, value: str) -> OAuthBearerToken:
        found = self.validator.validate(value, NOW_MS)
        assert isinstance(found, OAuthBearerToken), found
        return found

    def refusal(self, value: str) -> str:
        found = self.validator.validate(value, NOW_MS)
        assert isinstance(found, TokenRefusal)
        assert found.to_json() == '{"status": "invalid_token"}'
        return found.reason


def broker(**settings: object) -> Broker:
    return Broker(jwk(private_key()), **settings)


# Accepted tokens.


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_signature_of_each_algorithm_is_verified(algorithm: str) -> None:
    value = signed(algorithm, scope="a b")
    token = Broker(jwk(key_of(algorithm))).token(value)
    assert token == OAuthBearerToken(
        Password(value), "alice", NOW_MS + 60_000, frozenset({"a", "b"}), begins_ms=NOW_MS
    )


def test_key_is_chosen_by_its_id() -> None:
    other = rsa.generate_private_key(65537, 2048)
    many = Broker(jwk(other, kid="k0"), jwk(private_key()))
    assert many.token(signed()).principal_name == "alice"
    assert many.refusal(signed(headers={"kid": "k0"})) == "the token is refused: its signature is wrong"


def test_token_without_a_key_id_needs_a_provider_with_one_key() -> None:
    assert broker().token(signed(headers={})).principal_name == "alice"
    assert "does not name its key" in Broker(jwk(private_key()), jwk(private_key(), kid="k2")).refusal(
        signed(headers={})
    )


def test_claims_have_the_names_of_the_settings() -> None:
    token = broker(sub_claim_name="user", scope_claim_name="scp").token(signed(user="bob", scp=["a"]))
    assert (token.principal_name, token.scope) == ("bob", frozenset({"a"}))


@pytest.mark.parametrize("audience", ["kafka", ["other", "kafka"]])
def test_one_expected_audience_is_enough(audience: object) -> None:
    broker(expected_audience="kafka,connect").token(signed(aud=audience))


def test_expected_issuer_is_accepted() -> None:
    broker(expected_issuer="https://example.com").token(signed(iss="https://example.com"))


def test_clocks_may_differ_by_the_skew() -> None:
    broker().token(signed(iat=NOW_S - 90, exp=NOW_S - 29))
    broker().token(signed(iat=NOW_S + 29))


# Refused tokens.


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": NOW_S - 31}, "it expired 31000 ms ago"),
        ({"exp": None}, "no claim 'exp'"),
        ({"iat": None}, "no claim 'iat'"),
        ({"iat": NOW_S + 31}, "'iat' is 31000 ms ahead"),
        ({"nbf": NOW_S + 31}, "'nbf' is 31000 ms ahead"),
        ({"exp": "soon"}, "not a time"),
        ({"sub": None}, "no name of a user in its claim 'sub'"),
        ({"sub": " "}, "no name of a user in its claim 'sub'"),
        ({"aud": "kafka"}, "sasl.oauthbearer.expected.audience is not set"),
    ],
)
def test_claims_that_do_not_hold_are_refused(claims: dict[str, object], reason: str) -> None:
    # pyjwt checks the types of times as well: the bytes are signed directly.
    given = {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 60, **claims}
    payload = json.dumps({name: value for name, value in given.items() if value is not None}).encode()
    value = jwt.api_jws.PyJWS().encode(payload, private_key(), "RS256", {"kid": "k1"})
    assert reason in broker().refusal(value)


@pytest.mark.parametrize("audience", [None, "other", ["other"], [], [1], {"kafka": 1}])
def test_other_audience_is_refused(audience: object) -> None:
    payload = json.dumps({"sub": "a", "iat": NOW_S, "exp": NOW_S + 60, "aud": audience}).encode()
    value = jwt.api_jws.PyJWS().encode(payload, private_key(), "RS256", {"kid": "k1"})
    assert "expected kafka or connect" in broker(expected_audience="kafka,connect").refusal(value)


@pytest.mark.parametrize("issuer", [None, "https://example.com/", "x" * 5_000])
def test_other_issuer_is_refused(issuer: str | None) -> None:
    reason = broker(expected_issuer="https://example.com").refusal(signed(iss=issuer))
    assert "expected 'https://example.com'" in reason
    assert len(reason) < 400


def part(value: object) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


CLAIMS = part({"sub": "alice", "iat": NOW_S, "exp": NOW_S + 60})


@pytest.mark.parametrize(
    "algorithm", ["none", "None", "HS256", "HS512", "EdDSA", "ES256K", None, 5, ["RS256"]]
)
def test_algorithm_outside_the_list_is_refused(algorithm: object) -> None:
    value = f"{part({'alg': algorithm, 'kid': 'k1'})}.{CLAIMS}.c2ln"
    assert "expected one of RS256, " in broker().refusal(value)


def test_public_key_is_no_shared_secret() -> None:
    public = private_key().public_key()
    signing = f"{part({'alg': 'HS256', 'kid': 'k1'})}.{CLAIMS}"
    for secret in (RSAAlgorithm.to_jwk(public).encode(), public.public_bytes(Encoding.PEM, SPKI)):
        signature = urlsafe_b64encode(hmac.digest(secret, signing.encode(), "sha256")).decode().rstrip("=")
        assert "its algorithm is 'HS256'" in broker().refusal(f"{signing}.{signature}")


@pytest.mark.parametrize("algorithm", ["ES256", "RS384", "ES384"])
def test_key_of_another_algorithm_is_not_used(algorithm: str) -> None:
    one = Broker(jwk(private_key(), alg="RS256"))
    assert "no key 'k1'" in one.refusal(signed(algorithm))


def test_token_with_another_key_is_refused() -> None:
    stranger = rsa.generate_private_key(65537, 2048)
    assert broker().refusal(signed(key=stranger)) == "the token is refused: its signature is wrong"


@pytest.mark.parametrize("header", [{"crit": ["exp"]}, {"b64": False}, {"kid": 5}])
def test_header_that_is_not_understood_is_refused(header: dict[str, object]) -> None:
    value = signed()
    _, claims, signature = value.split(".")
    broker().refusal(f"{part({'alg': 'RS256', 'kid': 'k1', **header})}.{claims}.{signature}")


def test_long_header_is_refused_unread() -> None:
    assert "its header has 32769 of 32768 characters" in broker().refusal(f"{'x' * 32_769}.e30.x")


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_no_changed_byte_of_a_token_is_believed(position: int, change: int) -> None:
    good = broker()
    value = signed()
    parts = value.split(".")
    number = position % 3
    data = bytearray(urlsafe_b64decode(parts[number] + "=" * (-len(parts[number]) % 4)))
    data[position % len(data)] ^= change
    parts[number] = urlsafe_b64encode(bytes(data)).decode().rstrip("=")
    assert isinstance(good.validator.validate(".".join(parts), NOW_MS), TokenRefusal)


@given(
    st.text(max_size=40)
    | st.lists(st.sampled_from([CLAIMS, "", "e30", "W10", "=", "é"]), max_size=4).map(".".join)
)
def test_any_text_is_refused(value: str) -> None:
    assert isinstance(broker().validator.validate(value, NOW_MS), TokenRefusal)


def test_key_that_is_missing_is_asked_for() -> None:
    one = broker()
    assert "has no key 'k2' for RS256 as yet" in one.refusal(signed(headers={"kid": "k2"}))
    assert one.missing == ["k2"]
    none = Broker()
    none.refusal(signed())
    assert none.missing == ["k1"]


# Key sets.


@pytest.mark.parametrize(
    "row",
    [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "k1"},
        jwk(private_key(), use="enc"),
        jwk(private_key(), key_ops=["sign"]),
        jwk(private_key(), key_ops="verify"),
        jwk(private_key(), alg="HS256"),
        jwk(private_key(), alg="ES256"),
        jwk(private_key("RSA", 1024)),
        {"kty": "RSA", "n": "AQAB"},
        {"kty": "RSA", "n": "!", "e": "AQAB"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA"},
        {"kty": ["RSA"]},
        OKPAlgorithm.to_jwk(ed25519.Ed25519PrivateKey.generate().public_key(), as_dict=True),
        5,
        None,
    ],
)
def test_key_that_verifies_nothing_is_passed_over(row: object) -> None:
    assert [key.key_id for key in read_jwks(jwks(row, jwk(private_key())))] == ["k1"]
    with pytest.raises(StoreError, match="no key of the JSON Web Key Set verifies signatures: "):
        read_jwks(jwks(row))


def test_private_key_in_a_set_is_read_as_a_public_one() -> None:
    row = {**RSAAlgorithm.to_jwk(private_key(), as_dict=True), "key_ops": ["sign", "verify"]}
    assert "d" in row
    (key,) = read_jwks(jwks(row))
    assert not hasattr(key.key, "private_numbers")


@given(st.binary(max_size=30) | st.sampled_from([b"", b"{}", b'{"keys":5}', b"[" * 100_000, b'{"keys":[]}']))
def test_anything_else_is_no_key_set(body: bytes) -> None:
    with pytest.raises(StoreError):
        read_jwks(body)


def test_key_is_in_no_repr() -> None:
    assert "object" not in repr(read_jwks(jwks(jwk(private_key()))))


# Settings.


def test_settings_have_kafkas_defaults() -> None:
    config = SignedTokenConfig()
    assert (config.jwks_refresh_ms, config.clock_skew_s) == (3_600_000, 30)
    assert (config.jwks_retry_backoff_ms, config.jwks_retry_backoff_max_ms) == (100, 10_000)
    assert (config.scope_claim_name, config.sub_claim_name) == ("scope", "sub")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        (None, "must be given"),
        ("http://example.com/keys", "allowHttp"),
        ("ftp://example.com/", "https://"),
        (URL, None),
        ("file:///etc/keys.json", None),
    ],
)
def test_address_of_the_keys_is_checked(url: str | None, problem: str | None) -> None:
    faults = SignedTokenConfig(jwks_endpoint_url=url).faults(NO_OPTIONS)
    assert [problem in str(fault) for fault in faults] == ([] if problem is None else [True])


def test_options_of_the_jaas_text_are_those_of_the_connection() -> None:
    jaas = JaasConfig.parse('M required allowHttp="true" ssl.truststore.location="ca.pem";')
    config = SignedTokenConfig(jwks_endpoint_url="http://example.com/keys")
    assert config.faults(jaas) == []
    request = config.request(jaas)
    assert (request.allow_http, request.body) == (True, None)
    assert request.ssl_options == {"ssl.truststore.location": Password("ca.pem")}


def test_wrong_value_is_refused_by_name() -> None:
    with pytest.raises(ConfigErrors, match=r"clock\.skew\.seconds"):
        SignedTokenConfig.from_properties({"sasl.oauthbearer.clock.skew.seconds": "-1"})


@pytest.mark.parametrize("module", ["jwt.algorithms", "cryptography"])
def test_missing_library_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=r"pip install 'minikafka\[oauth\]'"):
        SignedTokenValidator(SignedTokenConfig(), lambda: (), lambda key_id: None)
    with pytest.raises(ConfigError, match=r"minikafka\[oauth\]"):
        read_jwks(b"")

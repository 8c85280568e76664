"""Unsecured tokens: made from the options of a client, validated by those of a server."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.errors import ConfigError
from minikafka.base.secrets import Password
from minikafka.security.jaas import JaasConfig
from minikafka.security.sasl.oauthbearer import (
    OAuthBearerSaslClient,
    OAuthBearerSaslServer,
    OAuthBearerToken,
    TokenRefusal,
)
from minikafka.security.sasl.unsecured_tokens import UnsecuredLogin, UnsecuredValidator
from tests.unit.security.sasl.exchange import exchange

NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS // 1000


def jaas(options: str) -> JaasConfig:
    return JaasConfig.parse(
        f"org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required {options};"
    )


def login(options: str = 'unsecuredLoginStringClaim_sub="alice"') -> UnsecuredLogin:
    return UnsecuredLogin.from_jaas(jaas(options))


def validator(options: str = "") -> UnsecuredValidator:
    return UnsecuredValidator.from_jaas(jaas(options))


def part(value: object) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(text).decode().rstrip("=")


def token(header: object = {"alg": "none"}, signature: str = "", **claims: object) -> str:
    return f"{part(header)}.{part({'sub': 'alice', 'exp': NOW_S + 60, **claims})}.{signature}"


def refused(value: str, options: str = "") -> TokenRefusal:
    refusal = validator(options).validate(value, NOW_MS)
    assert isinstance(refusal, TokenRefusal)
    return refusal


def test_token_of_a_client_is_valid_for_an_hour() -> None:
    made = login().token(NOW_MS)
    assert made.expires_ms == NOW_MS + 3_600_000
    assert validator().validate(made.value.value, NOW_MS) == made
    assert isinstance(validator().validate(made.value.value, made.expires_ms - 1), OAuthBearerToken)
    assert isinstance(validator().validate(made.value.value, made.expires_ms), TokenRefusal)


def test_options_become_claims_of_their_types() -> None:
    made = login(
        'unsecuredLoginStringClaim_who="bob" unsecuredLoginPrincipalClaimName="who" '
        'unsecuredLoginListClaim_scope="|a|b" unsecuredLoginNumberClaim_n="1.5" '
        'unsecuredLoginListClaim_none="" '
        'unsecuredLoginLifetimeSeconds="60" other="x" unsecuredLoginExtension_traceId="123"'
    )
    claims = made.token(NOW_MS).value.value.split(".")[1]
    assert json.loads(urlsafe_b64decode(claims + "==")) == {
        "who": "bob",
        "scope": ["a", "b"],
        "n": 1.5,
        "none": [],
        "iat": NOW_S,
        "exp": NOW_S + 60,
    }
    assert made.principal_name == "bob"
    assert made.extensions == {"traceId": "123"}


def test_both_sides_agree_on_the_user() -> None:
    made = login()
    server = OAuthBearerSaslServer(lambda text: validator().validate(text, NOW_MS))
    exchange(OAuthBearerSaslClient(made.token(NOW_MS).value, made.extensions), server)
    assert server.authorization_id == "alice"
    assert server.expires_ms == NOW_MS + 3_600_000


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("", "requires the option unsecuredLoginStringClaim_sub"),
        ('unsecuredLoginStringClaim_sub=" "', "requires the option"),
        ('unsecuredLoginNumberClaim_sub="1"', "requires the option"),
        ('unsecuredLoginStringClaim_exp="1"', "is computed"),
        ('unsecuredLoginNumberClaim_iat="1"', "is computed"),
        ('unsecuredLoginNumberClaim_n="x"', "must be a number"),
        ('unsecuredLoginNumberClaim_n="NaN"', "must be a number"),
        ('unsecuredLoginStringClaim_sub="a" unsecuredLoginLifetimeSeconds="-1"', "whole number"),
        ('unsecuredLoginStringClaim_sub="a" unsecuredLoginLifetimeSeconds="1.5"', "whole number"),
    ],
)
def test_options_that_make_no_token_are_refused(options: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        login(options)


def test_clock_skew_must_be_a_number() -> None:
    with pytest.raises(ConfigError, match="unsecuredValidatorAllowableClockSkewMs"):
        validator('unsecuredValidatorAllowableClockSkewMs="soon"')


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "1 parts"),
        ("a.b", "2 parts"),
        ("a.b.c.d", "4 parts"),
        (token(signature="c2ln"), "is signed"),
        (token(header={"alg": "HS256"}), "is signed"),
        (token(header={"alg": "None"}), "is signed"),
        (token(header={}), "is signed"),
        (token(header=[]), "header is not a JSON object"),
        (token(header=b"\xff"), "header is not JSON"),
        (f"{part({'alg': 'none'})}.x.", "claims is not JSON"),
        (f"{part({'alg': 'none'})}. {part({})}.", "claims is not JSON"),
        (f"{part({'alg': 'none'})}.{part(b'[' * 100_000)}.", "claims is not JSON"),
        (token(exp=None), "no claim 'exp'"),
        (token(exp="1"), "'exp' is not a time"),
        (token(exp=True), "'exp' is not a time"),
        (token(exp=float("nan")), "claims is not JSON"),
        (token(exp=10**400), "'exp' is not a time"),
        (token(exp=NOW_S), "expired 0 ms ago"),
        (token(exp=NOW_S - 1.5), "expired 1500 ms ago"),
        (token(iat=NOW_S + 1), "'iat' is 1000 ms ahead"),
        (token(nbf=NOW_S + 1), "'nbf' is 1000 ms ahead"),
        (token(sub=None), "no name of a user in its claim 'sub'"),
        (token(sub=" "), "no name of a user"),
        (token(sub=7), "no name of a user"),
        (token(sub="\ud800"), "no name of a user"),
    ],
)
def test_token_that_is_not_valid_is_refused_with_the_reason(value: str, reason: str) -> None:
    refusal = refused(value)
    assert reason in refusal.reason
    assert refusal.to_json() == '{"status": "invalid_token"}'


def test_token_must_expire_after_it_begins() -> None:
    skewed = 'unsecuredValidatorAllowableClockSkewMs="90000"'
    assert "expires before its 'iat'" in refused(token(iat=NOW_S + 60), skewed).reason


def test_clock_skew_is_allowed_on_both_ends() -> None:
    allowed = validator('unsecuredValidatorAllowableClockSkewMs="3000"')
    for value in (token(exp=NOW_S - 2), token(iat=NOW_S + 3), token(nbf=NOW_S + 3)):
        assert isinstance(allowed.validate(value, NOW_MS), OAuthBearerToken)
    assert isinstance(allowed.validate(token(exp=NOW_S - 3), NOW_MS), TokenRefusal)


@pytest.mark.parametrize("scope", ["a b c", ["a", " b "], ["b", "a", 1]])
def test_scope_may_be_a_text_or_a_list(scope: object) -> None:
    assert isinstance(
        validator('unsecuredValidatorRequiredScope="a b"').validate(token(scope=scope), NOW_MS),
        OAuthBearerToken,
    )


@pytest.mark.parametrize("scope", [None, "a", ["a"], {"a": 1, "b": 2}, ["ab"]])
def test_token_without_the_scope_learns_which_it_needs(scope: object) -> None:
    refusal = refused(token(scope=scope), 'unsecuredValidatorRequiredScope="a b"')
    assert json.loads(refusal.to_json()) == {"status": "insufficient_scope", "scope": "a b"}


def test_claims_of_other_names_may_hold_user_and_scope() -> None:
    options = 'unsecuredValidatorPrincipalClaimName="who" unsecuredValidatorScopeClaimName="scp" '
    value = token(who="bob", scp="x")
    assert validator(options).validate(value, NOW_MS) == OAuthBearerToken(
        Password(value), "bob", NOW_MS + 60_000, frozenset({"x"})
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@given(
    st.dictionaries(st.sampled_from(["sub", "exp", "iat", "nbf", "scope", "x"]), JSON), st.text(max_size=5)
)
def test_any_claims_are_validated_or_refused(claims: dict, text: str) -> None:
    for value in (f"{part({'alg': 'none'})}.{part(claims)}.", f"{text}.{text}.", text):
        assert isinstance(validator().validate(value, NOW_MS), OAuthBearerToken | TokenRefusal)

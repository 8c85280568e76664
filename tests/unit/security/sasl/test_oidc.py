"""Tokens of identity providers: requests, responses, and when to renew a token."""

from __future__ import annotations

import json
from base64 import b64decode, urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.errors import AuthenticationFailed, NetworkError
from minikafka.base.secrets import Password
from minikafka.security.sasl.oauthbearer import OAuthBearerToken
from minikafka.security.sasl.oidc import (
    DEFAULT_TIMEOUT_MS,
    HttpRequest,
    HttpResponse,
    RefreshPolicy,
    token_of_response,
    token_request,
)
from minikafka.security.sasl.sasl_config import LOGIN_MODULES, SaslConfig

NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS // 1000
URL = "https://example.com/token?tenant=tiger-secret"
REQUEST = HttpRequest(URL, {"Authorization": "Basic tiger-secret"})


def config(options: str = 'clientId="app" clientSecret="p&=é"', **properties: str) -> SaslConfig:
    return SaslConfig.from_properties(
        {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{LOGIN_MODULES['OAUTHBEARER']} required {options};",
            "sasl.oauthbearer.token.endpoint.url": URL,
            **{f"sasl.{name.replace('_', '.')}": value for name, value in properties.items()},
        }
    )


def jwt(**claims: object) -> str:
    parts = [urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({}, claims)]
    return ".".join([*parts, "c2lnbmF0dXJl"])


def answered(status: int = 200, now_ms: int = NOW_MS, **fields: object) -> OAuthBearerToken:
    return token_of_response(REQUEST, HttpResponse(status, json.dumps(fields).encode()), now_ms)


def basic(request: HttpRequest) -> str:
    return b64decode(request.headers["Authorization"].removeprefix("Basic ")).decode()


# Requests.


def test_request_has_the_form_of_kafkas_clients() -> None:
    request = token_request(config())
    assert request.url == URL
    assert basic(request) == "app:p&=é"
    assert request.body == b"grant_type=client_credentials"
    assert request.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert (request.connect_timeout_ms, request.read_timeout_ms) == (DEFAULT_TIMEOUT_MS, DEFAULT_TIMEOUT_MS)
    assert not request.allow_http


def test_scope_is_url_encoded() -> None:
    request = token_request(config('clientId="app" clientSecret="s" scope="api://x/.default b"'))
    assert request.body == b"grant_type=client_credentials&scope=api%3A%2F%2Fx%2F.default+b"


def test_credentials_are_url_encoded_on_demand() -> None:
    assert basic(token_request(config(oauthbearer_header_urlencode="true"))) == "app:p%26%3D%C3%A9"


def test_settings_beat_options_and_time_limits_are_taken() -> None:
    request = token_request(
        config(
            'clientId="app" clientSecret="s" scope="a" allowHttp="true" ssl.truststore.location="ca.pem"',
            oauthbearer_client_credentials_client_id="other",
            oauthbearer_scope="b",
            login_connect_timeout_ms="5",
            login_read_timeout_ms="6",
        )
    )
    assert basic(request) == "other:s"
    assert request.body == b"grant_type=client_credentials&scope=b"
    assert (request.connect_timeout_ms, request.read_timeout_ms, request.allow_http) == (5, 6, True)
    assert request.ssl_options == {"ssl.truststore.location": Password("ca.pem")}


def test_no_secret_is_in_a_repr_of_request_or_response() -> None:
    assert "tiger-secret" not in repr(REQUEST) + repr(HttpResponse(200, b"tiger-secret")) + REQUEST.place


# Responses.


def test_times_and_user_are_those_of_the_token() -> None:
    value = jwt(sub="alice", iat=NOW_S - 10, exp=NOW_S + 60)
    token = answered(access_token=value, expires_in=5)
    assert token == OAuthBearerToken(Password(value), "alice", NOW_MS + 60_000, begins_ms=NOW_MS - 10_000)


@pytest.mark.parametrize("value", ["opaque", "a.b.c", jwt(sub="alice")])
def test_token_of_another_form_has_the_times_of_the_response(value: str) -> None:
    token = answered(access_token=value, expires_in=60)
    assert (token.begins_ms, token.expires_ms) == (NOW_MS, NOW_MS + 60_000)


@pytest.mark.parametrize(
    "fields", [{}, {"access_token": ""}, {"access_token": 5}, {"access_token": "opaque"}]
)
def test_response_without_a_token_or_its_end_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(AuthenticationFailed, match=r"OAUTHBEARER: .*https://example.com/token") as refused:
        answered(**fields)
    assert "tiger-secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (400, "check scope, clientId and clientSecret"),
        (401, "check clientId and clientSecret"),
        (403, "does not permit"),
        (404, "check sasl.oauthbearer.token.endpoint.url"),
        (302, "redirects to another address"),
        (501, "check sasl.oauthbearer.token.endpoint.url"),
    ],
)
def test_refusal_says_what_to_check(status: int, advice: str) -> None:
    with pytest.raises(AuthenticationFailed, match=advice) as refused:
        answered(status, error="invalid_client", error_description="no\nsuch client")
    assert "\n" not in str(refused.value)
    if status != 302:
        assert f"status {status} (invalid_client: no\\nsuch client)" in str(refused.value)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_overloaded_provider_may_be_asked_again(status: int) -> None:
    with pytest.raises(NetworkError, match=f"https://example.com/token: no token: status {status}"):
        answered(status)


def test_provider_that_repeats_the_secret_is_not_quoted() -> None:
    with pytest.raises(AuthenticationFailed) as refused:
        answered(401, error="bad header tiger-secret")
    assert "tiger-secret" not in str(refused.value)


@pytest.mark.parametrize("repeated", ["p&=é", "p%26%3D%C3%A9"])
@pytest.mark.parametrize("urlencode", ["true", "false"])
def test_provider_that_repeats_the_decoded_secret_is_not_quoted(repeated: str, urlencode: str) -> None:
    request = token_request(config(oauthbearer_header_urlencode=urlencode))
    body = json.dumps({"error_description": f"wrong secret {repeated}"}).encode()
    with pytest.raises(AuthenticationFailed) as refused:
        token_of_response(request, HttpResponse(401, body), NOW_MS)
    assert repeated not in str(refused.value)


@given(
    st.integers(100, 599), st.binary(max_size=60) | st.sampled_from([b"[" * 100_000, b'{"access_token":"x"}'])
)
def test_any_response_is_a_token_or_a_clear_error(status: int, body: bytes) -> None:
    with pytest.raises((AuthenticationFailed, NetworkError)) as refused:
        token_of_response(REQUEST, HttpResponse(status, body), NOW_MS)
    assert "\n" not in str(refused.value)


# The time of renewal, with the numbers of Kafka's ExpiringCredentialRefreshingLogin.

HOUR_MS = 3_600_000


def refresh_after(lifetime_ms: int, chance: float = 0.0, age_ms: int = 0) -> int:
    token = OAuthBearerToken(Password("t"), "a", NOW_MS - age_ms + lifetime_ms, begins_ms=NOW_MS - age_ms)
    return RefreshPolicy().refresh_ms(token, NOW_MS, chance) - NOW_MS


@pytest.mark.parametrize(("chance", "expected"), [(0.0, 0.8), (0.5, 0.825), (1.0, 0.85)])
def test_token_is_renewed_after_four_fifths_of_its_life(chance: float, expected: float) -> None:
    assert refresh_after(HOUR_MS, chance) == pytest.approx(HOUR_MS * expected, abs=1)


def test_token_is_renewed_at_the_latest_before_the_buffer() -> None:
    assert refresh_after(20 * 60_000) == 15 * 60_000


def test_token_is_not_renewed_before_the_least_period() -> None:
    assert refresh_after(HOUR_MS, age_ms=50 * 60_000) == 60_000


def test_short_token_is_renewed_by_its_part_alone() -> None:
    assert refresh_after(60_000) == 48_000


def test_policy_has_the_settings() -> None:
    settings = config(
        login_refresh_window_factor="0.5",
        login_refresh_window_jitter="0",
        login_refresh_min_period_seconds="1",
        login_refresh_buffer_seconds="2",
    )
    assert RefreshPolicy.of(settings) == RefreshPolicy(0.5, 0.0, 1_000, 2_000)


@given(st.integers(1, 10**9), st.integers(0, 10**9), st.floats(0, 1))
def test_token_is_renewed_while_it_is_valid(rest_ms: int, age_ms: int, chance: float) -> None:
    assert 0 <= refresh_after(age_ms + rest_ms, chance, age_ms) <= rest_ms

"""The states of a connection to a SASL listener: cases of Kafka's SaslAuthenticatorTest without a socket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.errors import BrokerError, CoordinationLost, ErrorCode
from minikafka.base.secrets import Password
from minikafka.security.sasl.oauthbearer import OAuthBearerSaslServer
from minikafka.security.sasl.plain import PlainSaslServer
from minikafka.security.sasl.scram import (
    ScramCredential,
    ScramMechanism,
    ScramSaslClient,
    ScramSaslServer,
    UnknownUsers,
)
from minikafka.security.sasl.server_states import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    ApiVersionsAnswer,
    AuthenticateAnswer,
    EnabledMechanism,
    HandshakeAnswer,
    SaslServerAuthenticator,
    SaslState,
    Step,
    TokenAnswer,
)
from minikafka.security.sasl.unsecured_tokens import UnsecuredLogin, UnsecuredValidator
from minikafka.wire.api import ApiKey

METADATA = int(ApiKey.METADATA)
NOW_MS = 1_000_000
TIGER, LION = b"\0alice\0tiger", b"\0alice\0lion"
USERS = {"alice": Password("tiger"), "bob": Password("lion")}
SHA_256 = ScramMechanism.SCRAM_SHA_256
CREDENTIAL = ScramCredential.create(SHA_256, Password("tiger"), b"salt", 4096)
FIXED_TEXT = "Authentication failed: Invalid username or password"
VERSIONS = {SASL_HANDSHAKE: range(2), API_VERSIONS: range(3), SASL_AUTHENTICATE: range(2)}
MECHANISMS = {
    "PLAIN": EnabledMechanism(lambda: PlainSaslServer(USERS.get)),
    "SCRAM-SHA-256": EnabledMechanism(
        lambda: ScramSaslServer(SHA_256, {"alice": CREDENTIAL}.get, UnknownUsers(b"s"), "nonce")
    ),
    "OAUTHBEARER": EnabledMechanism(
        lambda: OAuthBearerSaslServer(lambda text: UnsecuredValidator().validate(text, NOW_MS))
    ),
}
NAMES = tuple(MECHANISMS)
GREETED = Step(HandshakeAnswer(ErrorCode.NONE, NAMES))


def supports(api_key: int, version: int) -> bool:
    return version in VERSIONS[api_key]


def connection(max_reauth_ms: int = 0) -> SaslServerAuthenticator:
    mechanisms = {
        name: EnabledMechanism(mechanism.create, max_reauth_ms) for name, mechanism in MECHANISMS.items()
    }
    return SaslServerAuthenticator(mechanisms, supports)


def after_handshake(version: int = 1, mechanism: str = "PLAIN", **options: int) -> SaslServerAuthenticator:
    states = connection(**options)
    assert states.receive_request(SASL_HANDSHAKE, version, NOW_MS) is None
    assert states.receive_handshake(version, mechanism) == GREETED
    return states


def authenticated(version: int = 1, **options: int) -> SaslServerAuthenticator:
    states = after_handshake(**options)
    assert states.receive_request(SASL_AUTHENTICATE, version, NOW_MS) is None
    assert states.receive_authenticate(TIGER, NOW_MS).failure is None
    return states


def assert_failed(states: SaslServerAuthenticator, step: Step | None, answer: object, reason: str) -> None:
    assert step is not None
    assert step.failure is not None
    assert step.answer == answer
    assert reason in step.failure
    assert states.state is SaslState.FAILED
    with pytest.raises(BrokerError, match="ILLEGAL_SASL_STATE"):
        _ = states.authorization_id
    after = states.receive_request(SASL_HANDSHAKE, 1, NOW_MS)
    assert after is not None
    assert after.failure is not None


def test_keys_of_the_apis_are_those_of_the_wire() -> None:
    assert (SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE) == (
        ApiKey.SASL_HANDSHAKE,
        ApiKey.API_VERSIONS,
        ApiKey.SASL_AUTHENTICATE,
    )


# The way to an authenticated client.


@pytest.mark.parametrize("with_api_versions", [True, False])
def test_client_with_handshake_1_authenticates_by_requests(with_api_versions: bool) -> None:
    states = connection()
    if with_api_versions:
        assert states.receive_request(API_VERSIONS, 2, NOW_MS) == Step(ApiVersionsAnswer(ErrorCode.NONE))
        assert states.state is SaslState.HANDSHAKE_REQUEST
    assert states.receive_request(SASL_HANDSHAKE, 1, NOW_MS) is None
    assert states.receive_handshake(1, "PLAIN") == GREETED
    assert not states.expects_bare_token
    assert states.receive_request(SASL_AUTHENTICATE, 0, NOW_MS) is None
    assert states.receive_authenticate(TIGER, NOW_MS) == Step(AuthenticateAnswer())
    assert states.state is SaslState.COMPLETE
    assert states.authorization_id == "alice"
    assert states.receive_request(METADATA, 1, NOW_MS) is None


def test_client_with_handshake_0_authenticates_by_bare_tokens() -> None:
    states = after_handshake(0)
    assert states.expects_bare_token
    assert states.receive_token(TIGER, NOW_MS) == Step(TokenAnswer(b""))
    assert states.state is SaslState.COMPLETE
    assert not states.expects_bare_token
    assert states.authorization_id == "alice"


@pytest.mark.parametrize("version", [0, 1])
def test_mechanism_with_several_messages_completes_at_the_last(version: int) -> None:
    states = after_handshake(version, "SCRAM-SHA-256")
    client = ScramSaslClient(SHA_256, "alice", Password("tiger"), "c")
    response: bytes | None = client.initial_response()
    while response is not None:
        assert states.state is SaslState.AUTHENTICATE
        step = (
            states.receive_authenticate(response, NOW_MS)
            if version
            else states.receive_token(response, NOW_MS)
        )
        challenge = step.answer.auth_bytes if version else step.answer.token
        response = client.evaluate_challenge(challenge)
    assert client.is_complete
    assert states.authorization_id == "alice"


def test_unsupported_version_of_api_versions_may_be_followed_by_another() -> None:
    states = connection()
    assert states.receive_request(API_VERSIONS, 9, NOW_MS) == Step(
        ApiVersionsAnswer(ErrorCode.UNSUPPORTED_VERSION)
    )
    assert states.receive_request(API_VERSIONS, 0, NOW_MS) == Step(ApiVersionsAnswer(ErrorCode.NONE))


# Refusals before authentication.


def test_second_api_versions_is_refused() -> None:
    states = connection()
    states.receive_request(API_VERSIONS, 0, NOW_MS)
    assert_failed(states, states.receive_request(API_VERSIONS, 0, NOW_MS), None, "unexpected API 18")


@pytest.mark.parametrize("api_key", [METADATA, SASL_AUTHENTICATE, 0, 24_576])
def test_other_api_before_the_handshake_is_refused(api_key: int) -> None:
    states = connection()
    step = states.receive_request(api_key, 0, NOW_MS)
    assert_failed(
        states, step, None, f"unexpected API {api_key} version 0 before authentication; the client may have"
    )


def test_client_that_does_not_log_in_is_told_in_the_log_with_what_to_set() -> None:
    states = connection()
    states.receive_request(API_VERSIONS, 0, NOW_MS)
    advice = "the client does not log in; set its security.protocol, sasl.mechanism and sasl.jaas.config"
    assert_failed(states, states.receive_request(METADATA, 0, NOW_MS), None, advice)


@pytest.mark.parametrize("api_key", [METADATA, SASL_HANDSHAKE, API_VERSIONS])
def test_other_api_during_authentication_closes_the_connection(api_key: int) -> None:
    states = after_handshake()
    step = states.receive_request(api_key, 0, NOW_MS)
    assert_failed(states, step, None, f"API {api_key}")


def test_mechanism_that_is_not_enabled_is_answered_with_those_that_are() -> None:
    states = connection()
    answer = HandshakeAnswer(ErrorCode.UNSUPPORTED_SASL_MECHANISM, NAMES)
    assert_failed(
        states,
        states.receive_handshake(1, "GSSAPI"),
        answer,
        "'GSSAPI' is not enabled: expected one of PLAIN, ",
    )


def test_long_name_of_a_mechanism_is_cut_in_the_log() -> None:
    assert len(connection().receive_handshake(1, "x" * 30_000).failure) < 2_000


@pytest.mark.parametrize(
    ("api_key", "version"), [(SASL_HANDSHAKE, 2), (SASL_AUTHENTICATE, 2), (SASL_AUTHENTICATE, -1)]
)
def test_version_that_is_not_supported_closes_the_connection(api_key: int, version: int) -> None:
    states = connection() if api_key == SASL_HANDSHAKE else after_handshake()
    step = states.receive_request(api_key, version, NOW_MS)
    assert_failed(states, step, None, f"version {version} of API {api_key} is not supported")


@pytest.mark.parametrize("api_key", [SASL_HANDSHAKE, SASL_AUTHENTICATE])
def test_version_that_is_not_supported_ends_an_authenticated_session(api_key: int) -> None:
    states = authenticated()
    step = states.receive_request(api_key, 2, NOW_MS + 5_000)
    assert_failed(states, step, None, f"version 2 of API {api_key} is not supported")


def test_first_frame_of_another_protocol_is_refused_with_a_guess() -> None:
    states = connection()
    assert_failed(
        states, states.receive_malformed("no header"), None, "no header; the client may have another"
    )


# Failures of authentication.


def test_wrong_password_is_error_58_with_the_fixed_text() -> None:
    states = after_handshake()
    step = states.receive_authenticate(LION, NOW_MS)
    answer = AuthenticateAnswer(ErrorCode.SASL_AUTHENTICATION_FAILED, FIXED_TEXT)
    assert_failed(states, step, answer, "wrong password of user 'alice'")


def test_wrong_password_in_a_bare_token_closes_without_an_answer() -> None:
    states = after_handshake(0)
    assert_failed(states, states.receive_token(LION, NOW_MS), None, "wrong password of user 'alice'")


def test_token_that_is_refused_is_answered_first_and_fails_then() -> None:
    states = after_handshake(1, "OAUTHBEARER")
    token = UnsecuredLogin("alice", {"sub": "alice"}, {}, 1).token(NOW_MS - 60_000).value.value
    first = states.receive_authenticate(f"n,,\x01auth=Bearer {token}\x01\x01".encode(), NOW_MS)
    assert first == Step(AuthenticateAnswer(auth_bytes=b'{"status": "invalid_token"}'))
    answer = AuthenticateAnswer(ErrorCode.SASL_AUTHENTICATION_FAILED, '{"status": "invalid_token"}')
    assert_failed(states, states.receive_authenticate(b"\x01", NOW_MS), answer, "expired 59000 ms ago")


def test_failed_look_up_of_a_user_tells_the_peer_nothing() -> None:
    def look_up(user: str) -> Password | None:
        raise CoordinationLost(f"no connection to read {user}")

    mechanism = EnabledMechanism(lambda: PlainSaslServer(look_up))
    states = SaslServerAuthenticator({"PLAIN": mechanism}, supports)
    states.receive_handshake(1, "PLAIN")
    step = states.receive_authenticate(TIGER, NOW_MS)
    answer = AuthenticateAnswer(ErrorCode.SASL_AUTHENTICATION_FAILED, "authentication failed")
    assert_failed(states, step, answer, "no verdict: no connection to read alice")


@pytest.mark.parametrize("state", ["initial", "failed", "complete"])
def test_token_in_another_state_is_a_mistake_of_the_caller(state: str) -> None:
    states = authenticated() if state == "complete" else connection()
    if state == "failed":
        states.receive_malformed("x")
    with pytest.raises(BrokerError, match="ILLEGAL_SASL_STATE"):
        states.receive_authenticate(TIGER, NOW_MS)
    with pytest.raises(BrokerError, match="ILLEGAL_SASL_STATE"):
        states.receive_token(TIGER, NOW_MS)


def test_handshake_during_authentication_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(BrokerError, match="ILLEGAL_SASL_STATE"):
        after_handshake().receive_handshake(1, "PLAIN")


# Sessions and re-authentication.


def lifetime(max_reauth_ms: int, token_lifetime_s: int | None) -> int:
    """Return the lifetime that the client learns."""
    mechanism = "PLAIN" if token_lifetime_s is None else "OAUTHBEARER"
    states, response = after_handshake(1, mechanism, max_reauth_ms=max_reauth_ms), TIGER
    if token_lifetime_s is not None:
        token = UnsecuredLogin("alice", {"sub": "alice"}, {}, token_lifetime_s).token(NOW_MS).value.value
        response = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    answer = states.receive_authenticate(response, NOW_MS).answer
    expires_ms = states.session_expires_ms
    assert expires_ms == (NOW_MS + answer.session_lifetime_ms if answer.session_lifetime_ms else None)
    return answer.session_lifetime_ms


@pytest.mark.parametrize(
    ("max_reauth_ms", "token_lifetime_s", "expected"),
    [(0, None, 0), (5_000, None, 5_000), (0, 60, 60_000), (5_000, 60, 5_000), (90_000, 60, 60_000)],
)
def test_session_lasts_as_long_as_token_and_listener_allow(
    max_reauth_ms: int, token_lifetime_s: int | None, expected: int
) -> None:
    assert lifetime(max_reauth_ms, token_lifetime_s) == expected


def test_session_without_reauthentication_ends_at_the_next_request() -> None:
    states = authenticated(max_reauth_ms=5_000)
    assert states.receive_request(METADATA, 1, NOW_MS + 5_000) is None
    step = states.receive_request(METADATA, 1, NOW_MS + 5_001)
    assert_failed(states, step, None, "ended 1 ms ago without a re-authentication")


@pytest.mark.parametrize("handshake", [0, 1])
def test_session_ends_also_for_a_client_that_does_not_learn_its_lifetime(handshake: int) -> None:
    states = after_handshake(handshake, max_reauth_ms=5_000)
    if handshake:
        states.receive_request(SASL_AUTHENTICATE, 0, NOW_MS)
        states.receive_authenticate(TIGER, NOW_MS)
    else:
        states.receive_token(TIGER, NOW_MS)
    assert states.receive_request(METADATA, 1, NOW_MS + 5_000) is None
    step = states.receive_request(METADATA, 1, NOW_MS + 5_001)
    assert_failed(states, step, None, "ended 1 ms ago without a re-authentication")


def test_client_may_authenticate_again_even_late() -> None:
    states = authenticated(max_reauth_ms=5_000)
    assert states.receive_request(SASL_HANDSHAKE, 1, NOW_MS + 6_000) is None
    assert states.receive_handshake(1, "PLAIN") == GREETED
    assert states.receive_authenticate(TIGER, NOW_MS + 6_000).failure is None
    assert states.authorization_id == "alice"
    assert states.session_expires_ms == NOW_MS + 11_000


def test_second_authentication_within_a_second_is_illegal_sasl_state() -> None:
    states = authenticated()
    step = states.receive_request(SASL_HANDSHAKE, 1, NOW_MS + 999)
    assert step == Step(HandshakeAnswer(ErrorCode.ILLEGAL_SASL_STATE, ()))
    assert states.authorization_id == "alice"
    assert states.receive_request(SASL_HANDSHAKE, 1, NOW_MS + 1_000) is None


def test_authentication_without_a_handshake_after_the_first_is_illegal() -> None:
    step = authenticated().receive_request(SASL_AUTHENTICATE, 1, NOW_MS)
    assert step.answer.error_code is ErrorCode.ILLEGAL_SASL_STATE
    assert step.failure is None


def test_principal_may_not_change() -> None:
    states = authenticated()
    states.receive_handshake(1, "PLAIN")
    step = states.receive_authenticate(b"\0bob\0lion", NOW_MS)
    text = "Cannot change the principal in a re-authentication"
    answer = AuthenticateAnswer(ErrorCode.SASL_AUTHENTICATION_FAILED, text)
    assert_failed(states, step, answer, "from 'alice' to 'bob'")


def test_mechanism_may_not_change() -> None:
    states = authenticated()
    assert states.receive_handshake(1, "SCRAM-SHA-256") == GREETED
    step = states.receive_authenticate(b"n,,n=alice,r=c", NOW_MS)
    text = "Cannot change the mechanism from PLAIN to SCRAM-SHA-256 in a re-authentication"
    assert_failed(states, step, AuthenticateAnswer(ErrorCode.SASL_AUTHENTICATION_FAILED, text), text)


def test_failed_reauthentication_closes_the_connection() -> None:
    states = authenticated()
    states.receive_handshake(1, "PLAIN")
    step = states.receive_authenticate(LION, NOW_MS)
    assert_failed(
        states, step, AuthenticateAnswer(ErrorCode.SASL_AUTHENTICATION_FAILED, FIXED_TEXT), "wrong password"
    )


# Any order of any requests.

REQUESTS = st.tuples(
    st.sampled_from([SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE, METADATA]),
    st.integers(0, 2),
    st.sampled_from(["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI"]),
    st.sampled_from([TIGER, b"n,,n=alice,r=c", b"\x01"]) | st.binary(max_size=9),
)


@given(st.lists(REQUESTS, max_size=6))
def test_nobody_is_authenticated_without_the_password(requests: list) -> None:
    states = connection()
    sent_password = False
    for api_key, version, mechanism, token in requests:
        was_complete = states.state is SaslState.COMPLETE
        if states.expects_bare_token:
            step, sent_password = states.receive_token(token, NOW_MS), sent_password or token == TIGER
        else:
            step = states.receive_request(api_key, version, NOW_MS)
            if step is None and api_key == SASL_HANDSHAKE:
                step = states.receive_handshake(version, mechanism)
            elif step is None and api_key == SASL_AUTHENTICATE:
                sent_password = sent_password or token == TIGER
                step = states.receive_authenticate(token, NOW_MS)
        assert step is not None or was_complete
        if step is not None and step.failure is not None:
            assert states.state is SaslState.FAILED
            break
    assert sent_password or states.state is not SaslState.COMPLETE

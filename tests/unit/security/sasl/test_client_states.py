"""The states of a client's connection, against those of a server, and against what other brokers answer."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.errors import AuthenticationFailed, BrokerError, ErrorCode, NetworkError
from minikafka.base.secrets import Password
from minikafka.security.sasl.client_states import (
    ClientState,
    SaslClientAuthenticator,
    SendAuthenticate,
    SendHandshake,
    SendToken,
)
from minikafka.security.sasl.mechanism import SaslClient
from minikafka.security.sasl.oauthbearer import OAuthBearerSaslClient, OAuthBearerSaslServer
from minikafka.security.sasl.plain import PlainSaslClient, PlainSaslServer
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
    EnabledMechanism,
    SaslServerAuthenticator,
)
from minikafka.security.sasl.unsecured_tokens import UnsecuredLogin, UnsecuredValidator

NOW_MS = 1_000_000
PASSWORD = Password("tiger=,x")
NEW = {SASL_HANDSHAKE: (0, 1), API_VERSIONS: (0, 2), SASL_AUTHENTICATE: (0, 2)}
KAFKA_1 = NEW | {SASL_AUTHENTICATE: (0, 0)}
EVENT_HUBS = {SASL_HANDSHAKE: (0, 0), API_VERSIONS: (0, 0)}
HANDSHAKE_1_ALONE = {SASL_HANDSHAKE: (0, 1), API_VERSIONS: (0, 0)}
TABLES = {"new": NEW, "1.0": KAFKA_1, "event hubs": EVENT_HUBS, "no 36": HANDSHAKE_1_ALONE}
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


def oauth_token(lifetime_s: int = 60, now_ms: int = NOW_MS) -> Password:
    return UnsecuredLogin("alice", {"sub": "alice"}, {}, lifetime_s).token(now_ms).value


def sasl_client(mechanism: str, password: Password = PASSWORD) -> SaslClient:
    if mechanism == "PLAIN":
        return PlainSaslClient("alice", password)
    if mechanism == "OAUTHBEARER":
        return OAuthBearerSaslClient(oauth_token(now_ms=NOW_MS if password == PASSWORD else 0))
    return ScramSaslClient(ScramMechanism(mechanism), "alice", password, "client")


def scram_server(mechanism: ScramMechanism) -> ScramSaslServer:
    credential = ScramCredential.create(mechanism, PASSWORD, b"salt", 4096)
    return ScramSaslServer(mechanism, {"alice": credential}.get, UnknownUsers(b"s"), "server")


ENABLED = {
    "PLAIN": EnabledMechanism(lambda: PlainSaslServer({"alice": PASSWORD}.get), 5_000),
    "SCRAM-SHA-256": EnabledMechanism(lambda: scram_server(ScramMechanism.SCRAM_SHA_256), 5_000),
    "SCRAM-SHA-512": EnabledMechanism(lambda: scram_server(ScramMechanism.SCRAM_SHA_512), 5_000),
    "OAUTHBEARER": EnabledMechanism(
        lambda: OAuthBearerSaslServer(lambda text: UnsecuredValidator().validate(text, NOW_MS)), 5_000
    ),
}


def authenticator(
    mechanism: str = "PLAIN",
    versions: dict[int, tuple[int, int]] = NEW,
    create: Callable[[], SaslClient] | None = None,
    is_encrypted: bool = True,
) -> SaslClientAuthenticator:
    return SaslClientAuthenticator(
        mechanism, create or (lambda: sasl_client(mechanism)), versions, is_encrypted=is_encrypted
    )


def run(client: SaslClientAuthenticator, versions: dict[int, tuple[int, int]]) -> SaslServerAuthenticator:
    """Carry the messages of a login, as the network layers of both sides do."""
    server = SaslServerAuthenticator(ENABLED, lambda key, version: version <= versions[key][1])
    sending = client.begin()
    assert server.receive_request(SASL_HANDSHAKE, sending.version, NOW_MS) is None
    answer = server.receive_handshake(sending.version, sending.mechanism).answer
    message = client.receive_handshake(answer.error_code, answer.mechanisms)
    while message is not None:
        if isinstance(message, SendToken):
            assert server.expects_bare_token
            step = server.receive_token(message.token, NOW_MS)
            if step.answer is None:
                raise client.receive_close("closed by the peer")
            message = client.receive_token(step.answer.token)
        else:
            assert server.receive_request(SASL_AUTHENTICATE, message.version, NOW_MS) is None
            answer = server.receive_authenticate(message.auth_bytes, NOW_MS).answer
            lifetime = (answer.session_lifetime_ms,) if message.version else ()
            message = client.receive_authenticate(
                answer.error_code, answer.error_message, answer.auth_bytes, *lifetime
            )
    return server


def raise_(error: Exception) -> None:
    raise error


def reason_of(fails: Callable[[], object]) -> str:
    """Return the one line that a user reads."""
    with pytest.raises(AuthenticationFailed) as raised:
        fails()
    text = str(raised.value)
    assert "\n" not in text
    assert PASSWORD.value not in text
    assert str(pickle.loads(pickle.dumps(raised.value))) == text
    return text


# Against the states of a server.


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("table", TABLES)
def test_client_and_server_agree_on_the_user(mechanism: str, table: str) -> None:
    client = authenticator(mechanism, TABLES[table])
    server = run(client, TABLES[table])
    assert client.state is ClientState.COMPLETE
    assert server.authorization_id == "alice"
    assert client.session_lifetime_ms == (5_000 if table == "new" else 0)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_refusal_by_error_58_has_the_brokers_words_and_a_remedy(mechanism: str) -> None:
    client = authenticator(mechanism, create=lambda: sasl_client(mechanism, Password("lion-king")))
    text = reason_of(lambda: run(client, NEW))
    assert text.startswith(f"SASL_AUTHENTICATION_FAILED: {mechanism}: the broker refuses the login (")
    assert "invalid" in text.lower()
    assert "; check " in text
    assert client.state is ClientState.FAILED


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_close_among_bare_tokens_is_probably_a_wrong_password(mechanism: str) -> None:
    client = authenticator(mechanism, EVENT_HUBS, lambda: sasl_client(mechanism, Password("lion-king")))
    text = reason_of(lambda: run(client, EVENT_HUBS))
    assert "closed by the peer during the login" in text
    assert text.endswith("if it refuses the login; check username and password in sasl.jaas.config")


def test_refusal_of_a_bare_token_has_the_servers_answer() -> None:
    client = authenticator("OAUTHBEARER", EVENT_HUBS, lambda: sasl_client("OAUTHBEARER", Password("expired")))
    assert 'refuses the login ({"status": "invalid_token"})' in reason_of(lambda: run(client, EVENT_HUBS))


def test_mechanism_that_is_not_enabled_is_answered_with_those_that_are() -> None:
    client = authenticator("GSSAPI")
    text = reason_of(lambda: run(client, NEW))
    assert text.startswith("UNSUPPORTED_SASL_MECHANISM: GSSAPI: the broker has not enabled GSSAPI")
    assert text.endswith(f"set sasl.mechanism to one that it has: {', '.join(MECHANISMS)}")


# Answers of brokers with other tables of APIs.


@pytest.mark.parametrize(
    ("versions", "handshake"),
    [(NEW, 1), (KAFKA_1, 1), (EVENT_HUBS, 0), (HANDSHAKE_1_ALONE, 0), ({SASL_HANDSHAKE: (0, 9)}, 0)],
)
def test_version_of_the_handshake_follows_the_brokers_table(
    versions: dict[int, tuple[int, int]], handshake: int
) -> None:
    assert authenticator("PLAIN", versions).begin() == SendHandshake(handshake, "PLAIN")


@pytest.mark.parametrize(
    "versions",
    [
        {SASL_HANDSHAKE: (2, 3), SASL_AUTHENTICATE: (0, 2)},
        {SASL_HANDSHAKE: (0, -1)},
        {SASL_HANDSHAKE: (1, 1)},
        {SASL_HANDSHAKE: (0, 1), SASL_AUTHENTICATE: (3, 4)},
    ],
)
def test_broker_without_a_common_version_is_refused(versions: dict[int, tuple[int, int]]) -> None:
    client = authenticator("PLAIN", versions)
    assert reason_of(client.begin).startswith("UNSUPPORTED_VERSION: PLAIN: no common version of Sasl")


@pytest.mark.parametrize(("is_encrypted", "protocol"), [(True, "SSL"), (False, "PLAINTEXT")])
@pytest.mark.parametrize("has_the_api", [True, False])
def test_listener_without_sasl_is_named_with_the_protocol_to_set(
    is_encrypted: bool, protocol: str, has_the_api: bool
) -> None:
    versions = NEW if has_the_api else {API_VERSIONS: (0, 0)}
    client = authenticator("PLAIN", versions, is_encrypted=is_encrypted)

    def login() -> None:
        client.begin()
        client.receive_handshake(ErrorCode.ILLEGAL_SASL_STATE, [])

    text = reason_of(login)
    assert f"the listener has no SASL; set security.protocol={protocol}, or" in text


def test_other_error_of_the_handshake_is_named() -> None:
    client = authenticator()
    client.begin()
    text = reason_of(lambda: client.receive_handshake(29, ["PLAIN"]))
    assert "refuses SaslHandshake with error 29 (TOPIC_AUTHORIZATION_FAILED)" in text


def intermediate(
    versions: dict[int, tuple[int, int]] = NEW, mechanism: str = "PLAIN"
) -> SaslClientAuthenticator:
    client = authenticator(mechanism, versions)
    client.begin()
    client.receive_handshake(ErrorCode.NONE, MECHANISMS)
    return client


def test_illegal_sasl_state_during_the_login_points_at_the_brokers_log() -> None:
    client = intermediate()
    text = reason_of(lambda: client.receive_authenticate(ErrorCode.ILLEGAL_SASL_STATE, None, b""))
    assert text.startswith("ILLEGAL_SASL_STATE: PLAIN: the broker did not expect")


@pytest.mark.parametrize(
    ("code", "name"), [(-1, "-1"), (999, "999"), (31, "31 (CLUSTER_AUTHORIZATION_FAILED)")]
)
def test_other_error_of_the_login_is_named(code: int, name: str) -> None:
    client = intermediate()
    text = reason_of(lambda: client.receive_authenticate(code, " busy\nlater\x1b[2J ", b""))
    assert f"refuses the login with error {name} (busy\\nlater\\x1b[2J); check" in text


def test_password_that_a_broker_repeats_is_hidden() -> None:
    client = intermediate()
    text = reason_of(lambda: client.receive_authenticate(58, f"no user with {PASSWORD.value}", b""))
    assert "(no user with ***)" in text


def test_long_words_of_a_broker_are_cut() -> None:
    client = intermediate()
    assert len(reason_of(lambda: client.receive_authenticate(58, "x" * 30_000, b""))) < 1_500


def test_broker_that_proves_nothing_is_refused_by_scram() -> None:
    client = intermediate(mechanism="SCRAM-SHA-256")
    assert "first message of the server is malformed" in reason_of(
        lambda: client.receive_authenticate(0, None, b"")
    )


def test_broker_with_another_password_is_refused_by_scram() -> None:
    client = authenticator("SCRAM-SHA-256")
    client.begin()
    first = client.receive_handshake(0, ["SCRAM-SHA-256"])
    assert isinstance(first, SendAuthenticate)
    server = scram_server(ScramMechanism.SCRAM_SHA_256)
    client.receive_authenticate(0, None, server.evaluate_response(first.auth_bytes))
    text = reason_of(lambda: client.receive_authenticate(0, None, b"v=" + b"A" * 43 + b"="))
    assert "wrong signature: the server does not know the password" in text
    assert text.count("SCRAM-SHA-256: ") == 1


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "OAUTHBEARER"])
def test_words_in_a_mechanisms_message_are_one_short_line(mechanism: str) -> None:
    client = authenticator(mechanism)
    client.begin()
    first = client.receive_handshake(0, [mechanism])
    assert isinstance(first, SendAuthenticate)
    words = "\x1b]0;title\x07\nforged line\u202e" + "x" * 100_000
    if mechanism == "OAUTHBEARER":
        client.receive_authenticate(0, None, words.encode())
        text = reason_of(lambda: client.receive_authenticate(0, None, b""))
    else:
        server = scram_server(ScramMechanism.SCRAM_SHA_256)
        client.receive_authenticate(0, None, server.evaluate_response(first.auth_bytes))
        text = reason_of(
            lambda: client.receive_authenticate(0, None, b"e=" + words.replace("=", "").encode())
        )
    assert "refuses" in text
    assert text.isprintable()
    assert len(text) < 1_500


def test_close_during_a_login_with_requests_is_no_refusal() -> None:
    client = intermediate()
    error = client.receive_close("closed by the peer")
    assert isinstance(error, NetworkError)
    assert str(error) == "PLAIN: closed by the peer during the login, without a verdict; see the broker's log"
    assert client.state is ClientState.FAILED


@pytest.mark.parametrize("is_encrypted", [True, False])
def test_close_before_the_login_points_at_port_and_protocol(is_encrypted: bool) -> None:
    client = authenticator(is_encrypted=is_encrypted)
    client.begin()
    error = client.receive_close("closed by the peer")
    assert isinstance(error, NetworkError)
    assert f"security.protocol={'SASL_SSL' if is_encrypted else 'SASL_PLAINTEXT'}" in str(error)


# A mechanism that ends with a message of the client, as GSSAPI does.


class LastWord(SaslClient):
    """Answers the first challenge and is complete."""

    def _initial_response(self) -> bytes:
        return b"first"

    def _evaluate(self, challenge: bytes) -> bytes:
        self.is_complete = True
        return b"last"


def test_last_message_of_the_client_waits_for_the_verdict() -> None:
    client = authenticator("GSSAPI", create=lambda: LastWord("GSSAPI"))
    client.begin()
    client.receive_handshake(0, ["GSSAPI"])
    assert client.receive_authenticate(0, None, b"challenge", 7) == SendAuthenticate(2, b"last")
    assert (client.state, client.session_lifetime_ms) == (ClientState.CLIENT_COMPLETE, 0)
    assert client.receive_authenticate(0, None, b"", 9) is None
    assert (client.state, client.session_lifetime_ms) == (ClientState.COMPLETE, 9)


def test_last_message_of_the_client_can_be_refused() -> None:
    client = authenticator("GSSAPI", create=lambda: LastWord("GSSAPI"))
    client.begin()
    client.receive_handshake(0, ["GSSAPI"])
    client.receive_authenticate(0, None, b"challenge")
    assert "refuses the login (no)" in reason_of(lambda: client.receive_authenticate(58, "no", b""))


def test_last_bare_message_of_the_client_ends_the_login() -> None:
    client = authenticator("GSSAPI", EVENT_HUBS, lambda: LastWord("GSSAPI"))
    client.begin()
    client.receive_handshake(0, ["GSSAPI"])
    assert client.receive_token(b"challenge") == SendToken(b"last")
    assert client.state is ClientState.COMPLETE


# Misuse, and any bytes.


def test_client_that_cannot_be_made_fails_the_connection() -> None:
    client = authenticator(create=lambda: raise_(NetworkError("no token", "127.0.0.1:1")))
    client.begin()
    with pytest.raises(NetworkError, match="no token"):
        client.receive_handshake(0, ["PLAIN"])
    assert client.state is ClientState.FAILED


@pytest.mark.parametrize(
    "misuse",
    [
        lambda client: client.begin(),
        lambda client: client.receive_handshake(0, []),
        lambda client: client.receive_authenticate(0, None, b""),
        lambda client: client.receive_token(b""),
    ],
)
def test_message_in_the_wrong_state_is_a_mistake_of_the_caller(misuse: Callable) -> None:
    client = authenticator()
    run(client, NEW)
    with pytest.raises(BrokerError, match="unexpected message in the state COMPLETE"):
        misuse(client)


def test_tokens_are_in_no_repr() -> None:
    assert repr(SendToken(b"secret")) == "SendToken()"
    assert repr(SendAuthenticate(1, b"secret")) == "SendAuthenticate(version=1)"


MESSAGES = st.binary(max_size=40) | st.sampled_from([b"", b"r=clientx,s=c2FsdA==,i=4096", b"v=AAAA", b"e=no"])


@given(st.sampled_from(MECHANISMS), st.booleans(), st.lists(MESSAGES, min_size=1, max_size=4))
def test_any_bytes_of_a_broker_end_in_a_clear_error_or_go_on(
    mechanism: str, bare: bool, messages: list[bytes]
) -> None:
    client = intermediate(EVENT_HUBS if bare else NEW, mechanism)
    sending: object = True
    for message in messages:
        try:
            if sending:
                sending = (
                    client.receive_token(message) if bare else client.receive_authenticate(0, None, message)
                )
        except AuthenticationFailed:
            assert client.state is ClientState.FAILED
            break
    # Without the proof of a password no broker gets past SCRAM.
    assert client.state is not ClientState.COMPLETE or not mechanism.startswith("SCRAM")


@given(
    st.integers(-(1 << 15), (1 << 15) - 1), st.lists(st.text(max_size=9), max_size=20), st.text(max_size=30)
)
def test_any_error_of_a_broker_is_one_line(code: int, mechanisms: list[str], words: str) -> None:
    client = authenticator()
    client.begin()
    if code != 0:
        reason_of(lambda: client.receive_handshake(code, mechanisms))
        reason_of(lambda: intermediate().receive_authenticate(code, words, b""))


@given(st.dictionaries(st.sampled_from([17, 18, 36]), st.tuples(st.integers(-2, 4), st.integers(-2, 4))))
def test_any_table_of_apis_gives_a_handshake_or_a_clear_error(versions: dict[int, tuple[int, int]]) -> None:
    client = authenticator("PLAIN", versions)
    try:
        sending = client.begin()
    except AuthenticationFailed:
        assert client.state is ClientState.FAILED
        return
    oldest, newest = versions[SASL_HANDSHAKE]
    assert oldest <= sending.version <= newest
    message = client.receive_handshake(0, ["PLAIN"])
    if isinstance(message, SendAuthenticate):
        oldest, newest = versions[SASL_AUTHENTICATE]
        assert oldest <= message.version <= min(newest, 2)

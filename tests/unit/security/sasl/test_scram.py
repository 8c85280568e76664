"""SCRAM, both sides, and the credentials of users."""

from __future__ import annotations

import contextlib
from base64 import b64decode, b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikafka.base.errors import AuthenticationFailed, BrokerError, ConfigError
from minikafka.base.secrets import Password
from minikafka.security.sasl.scram import (
    MAX_ITERATIONS,
    MAX_MESSAGE_BYTES,
    ScramCredential,
    ScramMechanism,
    ScramSaslClient,
    ScramSaslServer,
    UnknownUsers,
    base36,
)
from tests.unit.security.sasl.exchange import exchange

SHA_256, SHA_512 = ScramMechanism
MECHANISMS = pytest.mark.parametrize("mechanism", ScramMechanism)
UNKNOWN = UnknownUsers(b"secret of the cluster")
PASSWORD = Password("pencil")
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")

# The example of RFC 7677.
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
CLIENT_FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=" + PROOF
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="

# Made by ScramFormatter and ScramCredentialUtils of Kafka 4.3.1 for the password "pen=cil,ü".
KAFKAS = {
    SHA_256: (
        "salt=MWZvdGhvaWFjeWJ6a3BzMzd6ZWR4cmF6Ym4=,"
        "stored_key=J5r92UiMy3vgDzvVuy7Fi+ZaxEAiuNALJQE+geKNEr8=,"
        "server_key=6m+CRAqE+bkgVljUVrjZnt+AwXPX8sOlHfgESFPsF9s=,iterations=4096"
    ),
    SHA_512: (
        "salt=czZld2t5cGM1dmZ5Nm1mZWdtbHA1d3pqZg==,"
        "stored_key=Wqf3QVciez48V3Xyls0HuMSManYHfrtnTQIDazGqj00m+AncK2RmpCEt+eyOoDPKRJcRiBrjWEWexiF/V5XNHw==,"
        "server_key=Bi6x+kpFwqm2bAnmKorELOT2f6p7XaEV4mAT5y4E+0QiIhZ2yuQd1d3fW26I1Tf4XgJTYj8hFRc/kHTs78Ty8A==,"
        "iterations=4096"
    ),
}


def credential(mechanism: ScramMechanism = SHA_256) -> ScramCredential:
    return ScramCredential.create(mechanism, PASSWORD, SALT, 4096)


CREDENTIALS = {mechanism: credential(mechanism) for mechanism in ScramMechanism}


def client(user: str = "user", password: Password = PASSWORD, **extensions: str) -> ScramSaslClient:
    return ScramSaslClient(SHA_256, user, password, CLIENT_NONCE, extensions)


def server(**users: ScramCredential) -> ScramSaslServer:
    known = users or {"user": CREDENTIALS[SHA_256]}
    return ScramSaslServer(SHA_256, known.get, UNKNOWN, SERVER_NONCE)


def refusal(scram: ScramSaslServer, *responses: bytes) -> AuthenticationFailed:
    for response in responses[:-1]:
        scram.evaluate_response(response)
    with pytest.raises(AuthenticationFailed) as refused:
        scram.evaluate_response(responses[-1])
    return refused.value


def client_refusal(*challenges: bytes) -> str:
    scram = client()
    scram.initial_response()
    for challenge in challenges[:-1]:
        scram.evaluate_challenge(challenge)
    with pytest.raises(AuthenticationFailed) as refused:
        scram.evaluate_challenge(challenges[-1])
    assert not scram.is_complete
    return refused.value.reason


# The exchange.


def test_client_sends_the_messages_of_rfc_7677() -> None:
    scram = client()
    assert scram.initial_response() == CLIENT_FIRST
    assert scram.evaluate_challenge(SERVER_FIRST) == CLIENT_FINAL
    assert not scram.is_complete
    assert scram.evaluate_challenge(SERVER_FINAL) is None
    assert scram.is_complete


def test_server_sends_the_messages_of_rfc_7677() -> None:
    scram = server()
    assert scram.evaluate_response(CLIENT_FIRST) == SERVER_FIRST
    assert not scram.is_complete
    assert scram.evaluate_response(CLIENT_FINAL) == SERVER_FINAL
    assert scram.is_complete
    assert scram.authorization_id == "user"


@MECHANISMS
def test_user_with_the_password_of_a_credential_of_kafka_is_authenticated(mechanism: ScramMechanism) -> None:
    stored = ScramCredential.parse(mechanism, KAFKAS[mechanism])
    scram = ScramSaslServer(mechanism, {"a,b=c": stored}.get, UNKNOWN, "s")
    exchange(ScramSaslClient(mechanism, "a,b=c", Password("pen=cil,ü"), "c"), scram)
    assert scram.authorization_id == "a,b=c"


# No NUL characters: HMAC appends them to its key, so passwords that differ by those at the end are the same.
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=9)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(ScramMechanism), TEXTS, TEXTS, TEXTS)
def test_both_sides_agree_exactly_on_the_right_password(
    mechanism: ScramMechanism, user: str, password: str, other: str
) -> None:
    stored = ScramCredential.create(mechanism, Password(password), b"salt", 4096)
    scram = ScramSaslClient(mechanism, user, Password(other), base36(bytes(range(20))))
    other_side = ScramSaslServer(mechanism, {user: stored}.get, UNKNOWN, base36(bytes(20)))
    with contextlib.suppress(AuthenticationFailed):
        exchange(scram, other_side)
    assert scram.is_complete == other_side.is_complete == (password == other)


def test_user_names_are_written_with_the_escapes_of_the_rfc() -> None:
    assert client("a=,b").initial_response() == b"n,,n=a=3D=2Cb,r=rOprNGfwEbeRWgbNEkqO"


def test_extensions_of_the_client_reach_the_server_and_are_signed() -> None:
    scram = server()
    exchange(client(owner="x", trace="y"), scram)
    assert scram.extensions == {"owner": "x", "trace": "y"}


# Refusals of the server.


def final_of(first: bytes, challenge: bytes, password: Password = PASSWORD) -> bytes:
    """Return the final message of a client that knows ``password``."""
    scram = client(password=password)
    scram.initial_response()
    return scram.evaluate_challenge(challenge)


def test_wrong_password_and_unknown_user_get_the_same_answers() -> None:
    answers = []
    for user, password in (("user", Password("pen")), ("nobody", PASSWORD)):
        scram, peer = server(), client(user, password)
        challenge = scram.evaluate_response(peer.initial_response())
        error = refusal(scram, peer.evaluate_challenge(challenge))
        answers.append(
            (challenge.partition(b",s=")[0], challenge.rpartition(b",")[2], error.code, error.detail)
        )
        assert error.reason.endswith(
            "user 'nobody' is unknown" if user == "nobody" else "password of user 'user'"
        )
    assert answers[0] == answers[1]
    assert "user" not in answers[0][3]


def test_unknown_user_gets_the_same_salt_whenever_asked() -> None:
    first, second = (server().evaluate_response(b"n,,n=nobody,r=c") for _ in range(2))
    other = server().evaluate_response(b"n,,n=somebody,r=c")
    assert first == second != other
    salt = b64decode(first.split(b",s=")[1].rpartition(b",")[0])
    assert 20 < len(salt) <= 26  # as Kafka's own
    assert salt.isalnum()


@pytest.mark.parametrize("user", [b"user", b"nobody"])
def test_denied_request_gets_the_salt_that_the_user_gets_otherwise(user: bytes) -> None:
    requests = b"n,,n=%b,r=c", b"n,a=other,n=%b,r=c", b"n,,n=%b,r=c,tokenauth=true"
    assert len({server().evaluate_response(request % user) for request in requests}) == 1


def test_long_message_is_refused_unread() -> None:
    longest = b"n,,n=%b,r=c" % (b"x" * (MAX_MESSAGE_BYTES - 9))
    assert server().evaluate_response(longest)
    assert "16385 of 16384 bytes" in refusal(server(), longest + b"c").reason


def test_salt_of_an_unknown_user_depends_on_the_secret_and_the_mechanism() -> None:
    salts = {
        UnknownUsers(secret).credential(mechanism, "nobody").salt
        for secret in (b"a", b"b")
        for mechanism in ScramMechanism
    }
    assert len(salts) == 4


def test_unknown_user_gets_the_iterations_of_the_others() -> None:
    unknown = UnknownUsers(b"s", {SHA_256: (8192,), SHA_512: ()}.__getitem__)
    scram = ScramSaslServer(SHA_256, {}.get, unknown, SERVER_NONCE)
    assert scram.evaluate_response(CLIENT_FIRST).endswith(b",i=8192")
    assert unknown.credential(SHA_512, "nobody").iterations == 4096


def test_unknown_users_get_each_number_of_iterations_as_often_as_others() -> None:
    unknown = UnknownUsers(b"s", lambda mechanism: [4096] + [8192] * 3)
    given = [unknown.credential(SHA_256, f"user-{number}").iterations for number in range(1000)]
    assert set(given) == {4096, 8192}
    assert 200 < given.count(4096) < 300


def test_right_keys_of_a_made_up_credential_do_not_help() -> None:
    scram = ScramSaslServer(SHA_256, {}.get, UNKNOWN, SERVER_NONCE)
    challenge = scram.evaluate_response(CLIENT_FIRST)
    assert "unknown" in refusal(scram, final_of(CLIENT_FIRST, challenge)).reason


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"n,a=other,n=user,r=rOprNGfwEbeRWgbNEkqO", "may not act as 'other'"),
        (b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO,tokenauth=True", "delegation tokens are not supported"),
    ],
)
def test_request_that_a_user_may_not_make_fails_at_the_end(first: bytes, reason: str) -> None:
    scram = server()
    header = b64encode(first.partition(b"n=")[0])
    scram.evaluate_response(first)
    final = CLIENT_FINAL.replace(b"biws", header)
    assert reason in refusal(scram, final).reason


def test_authorization_id_may_be_the_user() -> None:
    scram = server()
    assert scram.evaluate_response(CLIENT_FIRST.replace(b"n,,", b"n,a=user,")) == SERVER_FIRST


def test_credential_with_few_iterations_authenticates_nobody() -> None:
    weak = ScramCredential.create(SHA_256, PASSWORD, SALT, 4095)
    scram = server(user=weak)
    assert scram.evaluate_response(CLIENT_FIRST).endswith(b",i=4096")
    assert "invalid (4095 iterations)" in refusal(scram, CLIENT_FINAL).reason


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"", "malformed"),
        (b"n,,n=user", "malformed"),
        (b"n,,n=,r=c", "malformed"),
        (b"n,,n=us=er,r=c", "malformed"),
        (b"n,,n=us=2cer,r=c", "malformed"),
        (b"n,,n=us\0er,r=c", "malformed"),
        (b"n,,m=must,n=user,r=c", "malformed"),  # an extension that the server must know
        (b"n,,n=user,r=c\n", "malformed"),
        (b"n,,n=user,r=c,=x", "malformed"),
        (b"y,,n=user,r=c", "channel binding"),
        (b"p=tls-unique,,n=user,r=c", "channel binding"),
        (b"n,,n=us\xffer,r=c", "UTF-8"),
    ],
)
def test_malformed_first_message_is_refused(first: bytes, reason: str) -> None:
    assert reason in refusal(server(), first).reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ((b"c=biws", b"c=eSws"), "does not belong"),  # y,,
        ((b"k0,p=", b"k1,p="), "does not belong"),
        ((b"r=rO", b"r=r1"), "does not belong"),
        ((b"p=dHzb", b"p=dHzc"), "wrong password"),
        ((b"p=dHzb", b"p=dHz"), "has 0 bytes"),  # no base64 any more
        ((b"p=dHzb", b"p="), "has 29 bytes"),
        ((PROOF, b""), "has 0 bytes"),
        ((b",p=", b",x=y,p="), "wrong password"),  # an extension that is not signed
        ((b",p=", b",q="), "malformed"),
        ((b"c=", b"\xff="), "UTF-8"),
    ],
)
def test_changed_final_message_is_refused(change: tuple[bytes, bytes], reason: str) -> None:
    assert reason in refusal(server(), CLIENT_FIRST, CLIENT_FINAL.replace(*change)).reason


def test_failed_exchange_takes_no_second_proof() -> None:
    scram = server()
    refusal(scram, CLIENT_FIRST, CLIENT_FINAL.replace(b"dHzb", b"dHzc"))
    with pytest.raises(BrokerError, match="ILLEGAL_SASL_STATE"):
        scram.evaluate_response(CLIENT_FINAL)


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_refused_by_an_own_error(response: bytes, is_final: bool) -> None:
    refusal(server(), *((CLIENT_FIRST, response) if is_final else (response,)))


# Refusals of the client.


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ((b"r=rO", b"r=r1"), "nonce does not begin"),
        ((SERVER_NONCE.encode(), b""), "adds nothing"),
        ((b"i=4096", b"i=4095"), "4095 iterations: expected 4096 to 1000000"),
        ((b"i=4096", b"i=1000001"), "1000001 iterations"),
        ((b"i=4096", b"i=" + b"9" * 5000), "malformed"),
        ((b"i=4096", b"i=-1"), "malformed"),
        ((b"gQ==", b"gQ="), "salt is malformed"),
        ((b"s=W22ZaJ0SNY7soEsUEjb6gQ==", b"s="), "salt is malformed"),
        ((b"r=rO", b"m=x,r=rO"), "malformed"),
        ((b"s=", b"\xff="), "malformed"),
    ],
)
def test_client_refuses_a_changed_challenge(change: tuple[bytes, bytes], reason: str) -> None:
    assert reason in client_refusal(SERVER_FIRST.replace(*change))


@pytest.mark.parametrize(
    ("final", "reason"),
    [
        (SERVER_FINAL.replace(b"6rri", b"6rrj"), "wrong signature"),
        (b"v=", "wrong signature"),
        (b"e=unknown-user", "the server refuses: unknown-user"),
        (b"", "malformed"),
        (b"x", "malformed"),
    ],
)
def test_client_wants_proof_that_the_server_knows_its_password(final: bytes, reason: str) -> None:
    assert reason in client_refusal(SERVER_FIRST, final)


@given(st.binary(max_size=60), st.booleans())
@settings(max_examples=30, deadline=None)
def test_any_challenge_is_refused_by_an_own_error(challenge: bytes, is_final: bool) -> None:
    client_refusal(*((SERVER_FIRST, challenge) if is_final else (challenge,)))


@pytest.mark.parametrize("user", ["", "a\0b", "\ud800"])
def test_client_does_not_send_a_name_that_would_be_misread(user: str) -> None:
    with pytest.raises(AuthenticationFailed):
        client(user).initial_response()


def test_client_does_not_send_an_extension_that_would_be_misread() -> None:
    with pytest.raises(AuthenticationFailed, match="an extension is invalid"):
        client(owner="x,y").initial_response()


# Credentials.


@MECHANISMS
def test_credential_is_written_as_kafka_writes_it(mechanism: ScramMechanism) -> None:
    parsed = ScramCredential.parse(mechanism, KAFKAS[mechanism])
    assert parsed.to_text() == KAFKAS[mechanism]
    assert ScramCredential.create(mechanism, Password("pen=cil,ü"), parsed.salt, 4096) == parsed


def test_credential_may_have_its_parts_in_any_order() -> None:
    text = KAFKAS[SHA_256]
    assert ScramCredential.parse(SHA_256, ",".join(reversed(text.split(",")))).to_text() == text


@pytest.mark.parametrize(
    "change",
    [
        ("iterations=4096", "iterations=4095"),
        ("iterations=4096", f"iterations={MAX_ITERATIONS + 1}"),
        ("iterations=4096", "iterations=x"),
        (",iterations=4096", ""),
        ("iterations=4096", "iterations=4096,more=1"),
        ("salt=MWZv", "salt=MWZ"),
        ("salt=MWZvdGhvaWFjeWJ6a3BzMzd6ZWR4cmF6Ym4=", "salt="),
        ("server_key=6m+C", "server_key="),
        ("stored_key", "storedkey"),
        ("=", ""),
    ],
)
def test_credential_that_authenticates_nobody_is_refused(change: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"SCRAM-SHA-256='\*\*\*': must have a salt") as refused:
        ScramCredential.parse(SHA_256, KAFKAS[SHA_256].replace(*change))
    assert "J5r9" not in str(refused.value)


def test_credential_of_another_mechanism_is_refused() -> None:
    with pytest.raises(ConfigError, match="64 bytes"):
        ScramCredential.parse(SHA_512, KAFKAS[SHA_256])


@given(st.text(alphabet="salt=,stored_key=server_key=iterations=4096AQ=", max_size=60))
def test_any_text_of_a_credential_raises_only_a_configuration_error(text: str) -> None:
    with contextlib.suppress(ConfigError):
        ScramCredential.parse(SHA_256, text)


def test_nothing_secret_is_in_a_representation() -> None:
    assert repr(CREDENTIALS[SHA_256]) == "ScramCredential(iterations=4096)"
    assert repr(UNKNOWN) == "UnknownUsers()"


def test_random_bytes_become_text_as_javas_big_integer_writes_them() -> None:
    assert int(base36(bytes(range(1, 18))), 36) == int.from_bytes(bytes(range(1, 18)), "big") % (1 << 130)
    assert base36(bytes(17)) == "0"
    with pytest.raises(ValueError, match="at least 17 bytes"):
        base36(b"short")

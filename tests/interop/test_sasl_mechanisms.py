"""Both sides of our SASL mechanisms with Kafka's, without a network; and JAAS texts as Kafka reads them."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from minikafka.base.errors import AuthenticationFailed, ConfigError
from minikafka.base.secrets import Password
from minikafka.security.jaas import JaasConfig
from minikafka.security.sasl.mechanism import SaslClient, SaslServer
from minikafka.security.sasl.oauthbearer import OAuthBearerSaslClient, OAuthBearerSaslServer
from minikafka.security.sasl.plain import PlainSaslClient, PlainSaslServer
from minikafka.security.sasl.scram import (
    ScramCredential,
    ScramMechanism,
    ScramSaslClient,
    ScramSaslServer,
    UnknownUsers,
)
from minikafka.security.sasl.unsecured_tokens import UnsecuredLogin, UnsecuredValidator
from tests.interop.clients import java
from tests.interop.driver import Program, Refused, decode, encode

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

USER, PASSWORD = "a,b=c", Password("pen=cil,; x")
NAMES = [mechanism.value for mechanism in ScramMechanism]
MECHANISMS = pytest.mark.parametrize("mechanism", ["PLAIN", *NAMES])
LOGIN = {
    "unsecuredLoginStringClaim_sub": "alice",
    "unsecuredLoginListClaim_scope": "|a|b",
    "unsecuredLoginExtension_traceId": "1 2",
}


@pytest.fixture(scope="module", params=["3.9", "4"])
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """The program with the mechanisms of a release."""
    variable = {"3.9": "MINIKAFKA_KAFKA3_LIBS", "4": "MINIKAFKA_KAFKA4_LIBS"}[request.param]
    prepare = java(variable, f"kafka-clients-{request.param}.*.jar", "SaslMechanisms")
    prepared = prepare(tmp_path_factory.mktemp("java"))
    program = Program(prepared.command, prepared.environment)
    yield program
    program.close()


def words(*texts: str) -> list[str]:
    return [encode(text.encode()) for text in texts]


def with_kafkas_client(kafka: Program, server: SaslServer, mechanism: str, *arguments: str) -> None:
    """Pass messages until Kafka's client is complete."""
    ((first,),) = kafka.ask("client", mechanism, *words(*arguments))
    message, state = decode(first), "continue"
    while state == "continue":
        assert message is not None
        challenge = server.evaluate_response(message)
        ((word, state, _),) = kafka.ask("message", encode(challenge))
        message = decode(word)


def with_kafkas_server(kafka: Program, client: SaslClient, mechanism: str, *arguments: str) -> str:
    """Pass messages until our client is complete; return the name that Kafka's server knows it by."""
    kafka.ask("server", mechanism, *words(*arguments))
    message: bytes | None = client.initial_response()
    name = b""
    while message is not None:
        ((challenge, _, encoded),) = kafka.ask("message", encode(message))
        name = decode(encoded) or b""
        message = client.evaluate_challenge(decode(challenge) or b"")
    return name.decode()


def our_server(mechanism: str) -> SaslServer:
    if mechanism == "PLAIN":
        return PlainSaslServer({USER: PASSWORD}.get)
    scram = ScramMechanism(mechanism)
    credential = ScramCredential.create(scram, PASSWORD, b"salt", 4096)
    return ScramSaslServer(scram, {USER: credential}.get, UnknownUsers(b"secret"), "ours")


def our_client(mechanism: str, password: Password = PASSWORD) -> SaslClient:
    if mechanism == "PLAIN":
        return PlainSaslClient(USER, password)
    return ScramSaslClient(ScramMechanism(mechanism), USER, password, "ours", {"trace": "x"})


@MECHANISMS
def test_kafkas_client_is_authenticated_by_our_server(kafka: Program, mechanism: str) -> None:
    server = our_server(mechanism)
    with_kafkas_client(kafka, server, mechanism, USER, PASSWORD.value)
    assert server.authorization_id == USER


@MECHANISMS
def test_our_client_is_authenticated_by_kafkas_server(kafka: Program, mechanism: str) -> None:
    client = our_client(mechanism)
    assert with_kafkas_server(kafka, client, mechanism, USER, PASSWORD.value) == USER
    assert client.is_complete


@MECHANISMS
def test_kafkas_client_with_a_wrong_password_is_refused(kafka: Program, mechanism: str) -> None:
    with pytest.raises(AuthenticationFailed) as refused:
        with_kafkas_client(kafka, our_server(mechanism), mechanism, USER, "other")
    assert "wrong password" in refused.value.reason


@MECHANISMS
def test_our_client_with_a_wrong_password_is_refused(kafka: Program, mechanism: str) -> None:
    client = our_client(mechanism, Password("other"))
    with pytest.raises(Refused, match=r"Invalid (?:username or password|client credentials)"):
        with_kafkas_server(kafka, client, mechanism, USER, PASSWORD.value)
    assert not client.is_complete


@pytest.mark.parametrize("mechanism", NAMES)
def test_extensions_of_kafkas_client_reach_our_server(kafka: Program, mechanism: str) -> None:
    server = our_server(mechanism)
    with_kafkas_client(kafka, server, mechanism, USER, PASSWORD.value, "trace", "x y")
    assert isinstance(server, ScramSaslServer)
    assert server.extensions == {"trace": "x y"}


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_credential_made_by_kafka_is_ours(kafka: Program, mechanism: ScramMechanism) -> None:
    ((text,),) = kafka.ask("credential", mechanism.value, *words(PASSWORD.value))
    credential = ScramCredential.parse(mechanism, text)
    assert credential == ScramCredential.create(mechanism, PASSWORD, credential.salt, 4096)
    assert credential.to_text() == text


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def oauth_server(**options: str) -> OAuthBearerSaslServer:
    validator = UnsecuredValidator.from_jaas(
        JaasConfig.parse(
            " ".join(["M required", *(f'{name}="{value}"' for name, value in options.items()), ";"])
        )
    )
    return OAuthBearerSaslServer(lambda text: validator.validate(text, now_ms()))


def test_token_of_kafkas_client_is_valid_for_our_server(kafka: Program) -> None:
    server = oauth_server(
        unsecuredValidatorRequiredScope="b a", unsecuredValidatorAllowableClockSkewMs="1000"
    )
    options = [word for option in LOGIN.items() for word in option]
    with_kafkas_client(kafka, server, "OAUTHBEARER", "", "", *options)
    assert server.authorization_id == "alice"
    assert server.extensions == {"traceId": "1 2"}


def test_token_of_our_client_is_valid_for_kafkas_server(kafka: Program) -> None:
    login = UnsecuredLogin("alice", {"sub": "alice", "scope": ["a", "b"]}, {"traceId": "1 2"}, 60)
    client = OAuthBearerSaslClient(login.token(now_ms()).value, login.extensions)
    options = ["unsecuredValidatorRequiredScope", "a b", "unsecuredValidatorAllowableClockSkewMs", "1000"]
    assert with_kafkas_server(kafka, client, "OAUTHBEARER", "", "", *options) == "alice"


def test_token_without_the_scope_is_refused_by_either_server(kafka: Program) -> None:
    options = [word for option in LOGIN.items() for word in option]
    with pytest.raises(AuthenticationFailed, match="insufficient_scope"):
        with_kafkas_client(
            kafka, oauth_server(unsecuredValidatorRequiredScope="c"), "OAUTHBEARER", "", "", *options
        )
    client = OAuthBearerSaslClient(UnsecuredLogin("a", {"sub": "a"}, {}, 60).token(now_ms()).value)
    with pytest.raises(Refused, match="insufficient_scope"):
        with_kafkas_server(kafka, client, "OAUTHBEARER", "", "", "unsecuredValidatorRequiredScope", "c")
    assert client.refusal is not None


PARTS = [
    *(
        "a",
        "b1",
        "-",
        ".",
        "_",
        "$",
        "=",
        ";",
        " ",
        "\n",
        '"',
        "'",
        "\\",
        "\\n",
        "\\101",
        "\\4777",
        "/",
        "//",
        "/*",
    ),
    *(
        "*/",
        "x=1",
        'y="z"',
        "k='v\"'",
        "required",
        "é",
        "\x7f",
        "\x80",
        "\x85",
        "\xa0",
        "漢",
        "@",
        ",",
        "+",
        "p=a",
    ),
]


def test_jaas_texts_that_kafka_reads_are_read_alike_or_refused(kafka: Program) -> None:
    chance = random.Random(20130101)
    compared = 0
    for _ in range(4_000):
        text = f"M required {''.join(chance.choices(PARTS, k=chance.randint(0, 7)))};"
        try:
            (module, flag), *options = kafka.ask("jaas", *words(text))
            config = JaasConfig.parse(text)
        except (Refused, ConfigError):
            continue
        expected = {
            (decode(name) or b"").decode(): (decode(value) or b"").decode() for name, value in options
        }
        if "null" in expected:  # Java's name for a sign that it takes for no word
            continue
        assert (decode(module), flag) == (config.login_module.encode(), config.control_flag.value), text
        assert {name: value.value for name, value in config.options.items()} == expected, text
        compared += 1
    assert compared > 200

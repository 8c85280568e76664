"""Logins of clients from their settings, with effects that a test makes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from minikafka.base.errors import AuthenticationFailed, ConfigErrors
from minikafka.base.secrets import Password
from minikafka.security.jaas import JaasConfig
from minikafka.security.sasl.aws_msk_iam import AwsOptions, Presign
from minikafka.security.sasl.gssapi import SecurityContext
from minikafka.security.sasl.login import ClientLogin, KerberosOptions, LoginPorts, login
from minikafka.security.sasl.oauthbearer import OAuthBearerSaslServer, OAuthBearerToken
from minikafka.security.sasl.oidc import HttpRequest, HttpResponse
from minikafka.security.sasl.plain import PlainSaslServer
from minikafka.security.sasl.sasl_config import LOGIN_MODULES, SaslConfig
from minikafka.security.sasl.scram import ScramCredential, ScramMechanism, ScramSaslServer, UnknownUsers
from minikafka.security.sasl.unsecured_tokens import UnsecuredLogin, UnsecuredValidator
from tests.unit.security.sasl.exchange import exchange
from tests.unit.security.sasl.test_gssapi import Context

NOW_MS = 1_700_000_000_000
TIGER = Password("tiger;=x")
USER = 'username="alice" password="tiger;=x"'
HOST = "b-1.demo.kafka.us-west-2.amazonaws.com"
LIMIT_MS = 10_000


def unused(*arguments: object) -> None:
    raise AssertionError("this login needs no such thing")


PORTS = LoginPorts(
    now_ms=lambda: NOW_MS,
    random_bytes=lambda size: b"\x55" * size,
    read_file=unused,
    fetch=unused,
    keep_token=unused,
    aws_presigner=unused,
    kerberos_context=unused,
    user_agent="minikafka/1",
)


def client_login(mechanism: str, options: str, ports: LoginPorts = PORTS, **properties: str) -> ClientLogin:
    return login(
        SaslConfig.from_properties(
            {
                "sasl.mechanism": mechanism,
                "sasl.jaas.config": f"kafkashaded.{LOGIN_MODULES[mechanism]} required {options};",
                **{f"sasl.{name.replace('_', '.')}": value for name, value in properties.items()},
            }
        ),
        ports,
    )


def unsecured(value: str) -> OAuthBearerToken:
    token = UnsecuredValidator().validate(value, NOW_MS)
    assert isinstance(token, OAuthBearerToken)
    return token


def token_text(lifetime_s: int = 3600) -> str:
    return UnsecuredLogin("alice", {"sub": "alice"}, {}, lifetime_s).token(NOW_MS).value.value


def test_plain_sends_user_and_password_of_the_jaas_text() -> None:
    server = PlainSaslServer({"alice": TIGER}.get)
    exchange(client_login("PLAIN", USER).create_client(HOST, LIMIT_MS), server)
    assert server.authorization_id == "alice"


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_scram_proves_the_password_of_the_jaas_text(mechanism: ScramMechanism) -> None:
    credential = ScramCredential.create(mechanism, TIGER, b"salt", 4096)
    server = ScramSaslServer(mechanism, {"alice": credential}.get, UnknownUsers(b"s"), "server")
    exchange(client_login(mechanism.value, USER).create_client(HOST, LIMIT_MS), server)
    assert server.authorization_id == "alice"
    assert server.extensions == {}


def test_scram_takes_a_delegation_token() -> None:
    client = client_login("SCRAM-SHA-256", f'{USER} tokenauth="true"').create_client(HOST, LIMIT_MS)
    assert client.initial_response().endswith(b",tokenauth=true")


def test_nonces_of_two_exchanges_differ() -> None:
    sizes = iter(range(256))
    ports = replace(PORTS, random_bytes=lambda size: bytes([next(sizes)]) * size)
    made = client_login("SCRAM-SHA-256", USER, ports)
    assert (
        made.create_client(HOST, LIMIT_MS).initial_response()
        != made.create_client(HOST, LIMIT_MS).initial_response()
    )


def test_unsecured_token_is_made_for_each_exchange() -> None:
    made = client_login(
        "OAUTHBEARER", 'unsecuredLoginStringClaim_sub="alice" unsecuredLoginExtension_trace="1"'
    )
    server = OAuthBearerSaslServer(unsecured)
    exchange(made.create_client(HOST, LIMIT_MS), server)
    assert server.authorization_id == "alice"
    assert server.extensions == {"trace": "1"}


# Tokens of an identity provider.

CLIENT = 'clientId="app" clientSecret="tiger" extension_logicalCluster="lkc-1" extension_identityPoolId="p"'


class Provider:
    """An identity provider, and a source that keeps no token."""

    def __init__(self) -> None:
        self.requests: list[HttpRequest] = []
        self.refresh_ms: list[int] = []
        self.ports = replace(PORTS, fetch=self.fetch, keep_token=self.keep)

    def fetch(self, request: HttpRequest) -> HttpResponse:
        self.requests.append(request)
        return HttpResponse(200, json.dumps({"access_token": token_text()}).encode())

    def keep(
        self,
        fetch: Callable[[], OAuthBearerToken],
        refresh_ms: Callable[[OAuthBearerToken], int],
        *others: int | str,
    ) -> Callable[[int], OAuthBearerToken]:
        def current(limit_ms: int) -> OAuthBearerToken:
            token = fetch()
            self.refresh_ms.append(refresh_ms(token))
            return token

        assert others == (100, 10_000, "https://example.com/t")
        return current


def test_token_of_a_provider_is_sent_with_the_extensions() -> None:
    provider = Provider()
    made = client_login(
        "OAUTHBEARER", CLIENT, provider.ports, oauthbearer_token_endpoint_url="https://example.com/t"
    )
    assert provider.requests == []  # only a connection needs a token
    server = OAuthBearerSaslServer(unsecured)
    exchange(made.create_client(HOST, LIMIT_MS), server)
    assert server.authorization_id == "alice"
    assert server.extensions == {"logicalCluster": "lkc-1", "identityPoolId": "p"}
    part = 0.8 + 0.05 / 3  # the random bytes are a third
    assert provider.refresh_ms == [pytest.approx(NOW_MS + 3_600_000 * part, abs=1)]


def in_file(content: bytes | OSError) -> ClientLogin:
    def read_file(path: str) -> bytes:
        assert path == "/run/a token"
        if isinstance(content, OSError):
            raise content
        return content

    ports = replace(PORTS, read_file=read_file)
    return client_login("OAUTHBEARER", "", ports, oauthbearer_token_endpoint_url="file:///run/a%20token")


def test_token_in_a_file_is_read_for_each_exchange() -> None:
    server = OAuthBearerSaslServer(unsecured)
    exchange(in_file(f"{token_text()}\n".encode()).create_client(HOST, LIMIT_MS), server)
    assert server.authorization_id == "alice"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (FileNotFoundError(2, "No such file or directory"), "No such file or directory"),
        (b"\xff", "it is not text"),
        (b"opaque", "says nowhere when it expires"),
        (token_text(0).encode(), "has expired"),
    ],
)
def test_file_without_a_valid_token_is_named(content: bytes | OSError, reason: str) -> None:
    with pytest.raises(
        AuthenticationFailed, match=f"/run/a token.*{reason}|{reason}.*/run/a token"
    ) as refused:
        in_file(content).create_client(HOST, LIMIT_MS)
    assert refused.value.__context__ is None
    assert token_text(0) not in str(refused.value)


# AWS and Kerberos.


def presigner(options: AwsOptions) -> Presign:
    assert options.profile_name == "dev"
    return lambda host, region, limit_ms: f"https://{host}/?X-Amz-Credential=c&region={region}"


AWS = replace(PORTS, aws_presigner=presigner)


def test_amazons_mechanism_signs_the_brokers_address() -> None:
    client = client_login("AWS_MSK_IAM", 'awsProfileName="dev"', AWS).create_client(HOST, LIMIT_MS)
    fields = json.loads(client.initial_response())
    assert (fields["host"], fields["region"], fields["user-agent"]) == (HOST, "us-west-2", "minikafka/1")


def test_amazons_token_signs_the_regions_address() -> None:
    handler = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"
    made = client_login("OAUTHBEARER", 'awsProfileName="dev"', AWS, login_callback_handler_class=handler)
    assert (
        made.create_client(HOST, LIMIT_MS)
        .initial_response()
        .startswith(b"n,,\x01auth=Bearer aHR0cHM6Ly9rYWZrYS57cmVnaW9ufS")
    )


def test_kerberos_has_a_context_with_each_broker() -> None:
    asked: list[object] = []

    def contexts(options: KerberosOptions) -> Callable[[str, int], SecurityContext]:
        asked.append(options)

        def context(host: str, limit_ms: int) -> SecurityContext:
            asked.append((host, limit_ms))
            return Context(b"token")

        return context

    made = client_login(
        "GSSAPI",
        'useKeyTab=true keyTab="/etc/app.keytab" principal="app@EXAMPLE.COM"',
        replace(PORTS, kerberos_context=contexts),
        kerberos_service_name="kafka",
    )
    assert made.create_client(HOST, LIMIT_MS).initial_response() == b"token"
    assert asked == [KerberosOptions("kafka", "app@EXAMPLE.COM", "/etc/app.keytab"), (HOST, LIMIT_MS)]


# Faults.


def test_every_fault_is_in_one_error_before_anything_is_tried() -> None:
    with pytest.raises(ConfigErrors) as refused:
        client_login("PLAIN", "", client_callback_handler_class="a.IAMClientCallbackHandler")
    assert len(refused.value.faults) >= 2


def test_mechanism_and_secrets_of_a_login() -> None:
    made = client_login("PLAIN", USER)
    assert made.mechanism == "PLAIN"
    assert TIGER.value not in repr(made)
    assert isinstance(JaasConfig.parse(f"m required {USER};").options["password"], Password)

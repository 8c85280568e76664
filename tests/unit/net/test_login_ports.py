"""The effects of logins: signatures of AWS beside kafka-python's, and the Kerberos library by a stand-in."""

from __future__ import annotations

import json
import platform
import sys
import threading
import warnings
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest

from minikafka.base.clock import SystemClock
from minikafka.base.errors import AuthenticationFailed, ConfigError, NetworkError
from minikafka.base.secrets import Password
from minikafka.net import login_ports as login_ports_module
from minikafka.net.key_cache import KeyCache
from minikafka.net.login_ports import aws_presigner, kerberos_contexts, login_ports
from minikafka.net.token_cache import THREAD_NAME
from minikafka.security.sasl.aws_msk_iam import TOKEN_HOST, AwsMskIamSaslClient, AwsOptions
from minikafka.security.sasl.login import KerberosOptions, login
from minikafka.security.sasl.oauthbearer import OAuthBearerSaslServer
from minikafka.security.sasl.sasl_config import LOGIN_MODULES, SaslConfig
from minikafka.security.sasl.signed_tokens import SignedTokenConfig, SignedTokenValidator
from tests.support.identity_provider import IdentityProvider
from tests.support.tls import authority, inline_trust
from tests.unit.security.sasl.exchange import exchange
from tests.unit.security.sasl.test_signed_tokens import jwk, jwks, private_key, signed

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from kafka.net.sasl.msk import AwsMskIamClient

HOST = "b-1.demo.kafka.us-west-2.amazonaws.com"
REGION = "us-west-2"
LIMIT_MS = 10_000


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An environment without credentials, and the file for those of profiles."""
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ROLE_ARN"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return tmp_path / "credentials"


def fields_of(presigned: str) -> dict[str, str]:
    return json.loads(AwsMskIamSaslClient(Password(presigned), "kafka-python").initial_response())


@pytest.mark.parametrize("token", [None, "session/token=+"])
def test_signature_is_that_of_another_implementation(
    monkeypatch: pytest.MonkeyPatch, token: str | None
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "KEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "tiger")
    if token is not None:
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)
    ours = fields_of(aws_presigner(AwsOptions())(HOST, REGION, LIMIT_MS))
    theirs = AwsMskIamClient(HOST, "KEY", "tiger", REGION, token)
    theirs.timestamp, theirs.datestamp = ours["x-amz-date"], ours["x-amz-date"][:8]
    assert ours == json.loads(theirs.first_message())


def test_profile_of_the_jaas_text_is_used(aws: Path) -> None:
    aws.write_text("[dev]\naws_access_key_id=DEV\naws_secret_access_key=tiger\n")
    credential = fields_of(aws_presigner(AwsOptions(profile_name="dev"))(HOST, REGION, LIMIT_MS))[
        "x-amz-credential"
    ]
    assert credential.startswith("DEV/")


def test_region_of_the_environment_fills_the_host_of_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "KEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "tiger")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    url = urlsplit(aws_presigner(AwsOptions())(TOKEN_HOST, None, LIMIT_MS))
    assert url.hostname == "kafka.eu-west-1.amazonaws.com"
    assert "/eu-west-1/kafka-cluster/" in parse_qs(url.query)["X-Amz-Credential"][0]


def test_role_is_assumed_with_the_options_of_the_jaas_text(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []

    class Sts:
        def assume_role(self, **arguments: object) -> dict[str, object]:
            asked.append(arguments)
            end = datetime.now(timezone.utc) + timedelta(hours=1)
            keys = {"AccessKeyId": "ROLE", "SecretAccessKey": "s", "SessionToken": "t", "Expiration": end}
            return {"Credentials": keys}

    def create_client(session: object, service: str, **arguments: object) -> Sts:
        asked.append({"service": service, **arguments})
        return Sts()

    monkeypatch.setattr("botocore.session.Session.create_client", create_client)
    options = AwsOptions(
        role_arn="arn:aws:iam::1:role/r",
        role_external_id="e",
        role_access_key_id="KEY",
        role_secret_access_key=Password("tiger"),
        sts_region="eu-west-1",
    )
    presign = aws_presigner(options)
    assert fields_of(presign(HOST, REGION, LIMIT_MS))["x-amz-credential"].startswith("ROLE/")
    presign(HOST, REGION, LIMIT_MS)
    client, role = asked
    assert (client["service"], client["region_name"]) == ("sts", "eu-west-1")
    assert (client["aws_access_key_id"], client["aws_secret_access_key"]) == ("KEY", "tiger")
    assert role == {
        "RoleArn": "arn:aws:iam::1:role/r",
        "RoleSessionName": "aws-msk-iam-auth",
        "ExternalId": "e",
    }


@pytest.mark.parametrize(
    ("options", "region", "text"),
    [
        (AwsOptions(), REGION, "none found; set awsProfileName or awsRoleArn"),
        (AwsOptions(role_arn="arn:aws:iam::1:role/r"), REGION, "none found"),
        (AwsOptions(profile_name="absent"), REGION, "absent"),
    ],
)
def test_missing_credentials_are_a_clear_error(options: AwsOptions, region: str, text: str) -> None:
    with pytest.raises(AuthenticationFailed, match=text):
        aws_presigner(options)(HOST, region, LIMIT_MS)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (AwsOptions(), r"instance metadata service \(169.254.169.254\) answers; set awsProfileName or "),
        (
            AwsOptions(role_arn="r", role_access_key_id="KEY", role_secret_access_key=Password("tiger")),
            "AWS STS does not answer; check .* awsStsRegion",
        ),
    ],
)
def test_credentials_that_do_not_come_in_time_are_a_clear_error(
    monkeypatch: pytest.MonkeyPatch, options: AwsOptions, text: str
) -> None:
    release = threading.Event()
    monkeypatch.setattr(login_ports_module, "_aws_credentials", lambda *_: release.wait(10) and None)
    with pytest.raises(NetworkError, match=f"AWS_MSK_IAM: no AWS credentials within 50 ms: .*{text}"):
        aws_presigner(options)(HOST, REGION, 50)
    release.set()
    for thread in threading.enumerate():
        if thread.name == THREAD_NAME:
            thread.join(10)


def test_unknown_region_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "KEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "tiger")
    with pytest.raises(AuthenticationFailed, match="'localhost' does not name it; set AWS_"):
        aws_presigner(AwsOptions())("localhost", None, LIMIT_MS)


@pytest.mark.parametrize(
    ("mechanism", "module", "extra"),
    [("AWS_MSK_IAM", "botocore.session", "aws"), ("GSSAPI", "gssapi", "kerberos")],
)
def test_missing_library_is_named_with_the_extra(
    monkeypatch: pytest.MonkeyPatch, mechanism: str, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    jaas = Password(f"{LOGIN_MODULES[mechanism]} required useTicketCache=true;")
    config = SaslConfig(mechanism=mechanism, jaas_config=jaas, kerberos_service_name="kafka")
    with pytest.raises(ConfigError) as refused:
        login(config, login_ports())
    assert f"pip install 'minikafka[{extra}]'" in str(refused.value)
    assert str(refused.value).startswith(f"sasl.mechanism='{mechanism}': needs the package ")


def test_user_and_password_need_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("botocore.session", "gssapi"):
        monkeypatch.setitem(sys.modules, module, None)
    jaas = Password(f'{LOGIN_MODULES["SCRAM-SHA-256"]} required username="a" password="b";')
    made = login(SaslConfig(mechanism="SCRAM-SHA-256", jaas_config=jaas), login_ports())
    first, second = (made.create_client(HOST, LIMIT_MS).initial_response() for _ in range(2))
    assert first != second


# A client and a broker with one identity provider, over TLS.


def quoted(text: str) -> str:
    """Return a value of a JAAS text on one line."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    provider = IdentityProvider(authority().issue_cert("127.0.0.1"))
    yield provider
    provider.close()


def test_token_of_a_client_is_believed_by_a_broker(provider: IdentityProvider) -> None:
    clock = SystemClock()
    now_s = clock.now_ms() // 1000
    token = signed(sub="carol", iat=now_s, exp=now_s + 3600)
    provider.answers["/token"] = (200, json.dumps({"access_token": token}).encode())
    provider.answers["/keys"] = (200, jwks(jwk(private_key())))
    trust = " ".join(f"{name}={quoted(value)}" for name, value in inline_trust(authority()).items())
    jaas = f'{LOGIN_MODULES["OAUTHBEARER"]} required clientId="app" clientSecret="tiger" {trust};'
    config = SaslConfig(
        mechanism="OAUTHBEARER", jaas_config=Password(jaas), token_endpoint_url=f"{provider.url}/token"
    )
    made = login(config, login_ports())
    settings = SignedTokenConfig(jwks_endpoint_url=f"{provider.url}/keys")
    keys = KeyCache(settings, config.jaas, clock)
    keys.start()
    validator = SignedTokenValidator(settings, keys.keys, keys.key_is_missing)
    for _ in range(2):
        server = OAuthBearerSaslServer(lambda text: validator.validate(text, clock.now_ms()))
        exchange(made.create_client("localhost", LIMIT_MS), server)
        assert server.authorization_id == "carol"
    assert [path for _, path, _, _ in provider.received] == ["/keys", "/token"]


# Kerberos, with a stand-in for the library. tests/interop/test_kerberos.py has a KDC.


class GssError(Exception):
    """The library's error."""

    def __init__(self, text: str, min_code: int = 1) -> None:
        super().__init__(f"Major (851968): Unspecified GSS failure, Minor ({min_code}): {text}")
        self.maj_code, self.min_code = 851968, min_code
        self._text = text

    def get_all_statuses(self, code: int, is_general: bool) -> list[str]:
        return ["Unspecified GSS failure"] if is_general else [self._text]


class Library(SimpleNamespace):
    """The part of ``gssapi`` that a login uses."""

    def __init__(self) -> None:
        super().__init__(
            NameType=SimpleNamespace(hostbased_service="host", kerberos_principal="principal"),
            MechType=SimpleNamespace(kerberos="krb5"),
            exceptions=SimpleNamespace(GSSError=GssError),
            Name=lambda name, kind: (name, kind),
            Credentials=self._credentials,
            SecurityContext=self._context,
        )
        self.made: list[dict[str, object]] = []
        self.error: Exception | None = None
        self.errors_left = 9
        self.keytab_error: Exception | None = None
        self.answers = threading.Event()
        self.answers.set()

    def _credentials(self, **arguments: object) -> object:
        if arguments["usage"] == "accept" and self.keytab_error is not None:
            raise self.keytab_error
        return arguments

    def _context(self, **arguments: object) -> object:
        self.made.append(arguments)

        def step(token: bytes | None) -> bytes:
            self.answers.wait()
            if self.error is not None and self.errors_left > 0:
                self.errors_left -= 1
                raise self.error
            return b"token"

        return SimpleNamespace(
            complete=False,
            step=step,
            wrap=lambda message, encrypt: SimpleNamespace(message=b"w" + message),
            unwrap=lambda message: SimpleNamespace(message=message[1:]),
        )


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    library = Library()
    monkeypatch.setitem(sys.modules, "gssapi", library)
    return library


BROKER = "broker.example.com"
KEYTAB = KerberosOptions("kafka", "app@EXAMPLE.COM", "/etc/app.keytab")


@pytest.mark.parametrize(
    ("options", "credentials"),
    [
        (KerberosOptions("kafka"), None),
        (
            KEYTAB,
            {
                "name": ("app@EXAMPLE.COM", "principal"),
                "usage": "initiate",
                "store": {
                    "client_keytab": "/etc/app.keytab",
                    "ccache": "MEMORY:minikafka 1 app@EXAMPLE.COM /etc/app.keytab",
                },
            },
        ),
        (
            KerberosOptions("kafka", ticket_cache="/run/cc"),
            {"name": None, "usage": "initiate", "store": {"ccache": "/run/cc"}},
        ),
    ],
)
def test_context_is_that_of_the_service_on_the_brokers_host(
    library: Library, options: KerberosOptions, credentials: object
) -> None:
    context = kerberos_contexts(options)(BROKER, LIMIT_MS)
    assert library.made == [
        {"name": (f"kafka@{BROKER}", "host"), "creds": credentials, "usage": "initiate", "mech": "krb5"}
    ]
    assert (context.complete, context.step(None)) == (False, b"token")
    assert (context.wrap(b"m"), context.unwrap(b"wm")) == (b"wm", b"m")


@pytest.mark.parametrize(
    "other", [KerberosOptions("kafka", "bob", "/app"), KerberosOptions("kafka", None, "/bob")]
)
def test_logins_of_other_principals_share_no_tickets(library: Library, other: KerberosOptions) -> None:
    for options in (KerberosOptions("kafka", "app", "/app"), other):
        kerberos_contexts(options)(BROKER, LIMIT_MS)
    first, second = (made["creds"]["store"]["ccache"] for made in library.made)  # type: ignore[index]
    assert first != second


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (GssError("No Kerberos\ncredentials available"), "No Kerberos\\ncredentials available"),
        (GssError("", min_code=0), "Unspecified GSS failure"),
    ],
)
def test_error_of_the_library_names_the_service_and_what_to_check(
    library: Library, error: Exception, words: str
) -> None:
    library.error = error
    with pytest.raises(AuthenticationFailed) as failed:
        kerberos_contexts(KerberosOptions("kafka"))(BROKER, LIMIT_MS)
    text = str(failed.value)
    assert f"no Kerberos context with kafka/{BROKER}: {words}; check principal and keyTab (or kinit)" in text
    assert "sasl.kerberos.service.name, the brokers' host names, and the clocks" in text


def test_keytab_without_the_principal_is_the_reason_with_its_host(library: Library) -> None:
    library.error = GssError("No credentials cache found")
    library.keytab_error = GssError("No key table entry found for app@EXAMPLE.COM")
    with pytest.raises(AuthenticationFailed) as failed:
        kerberos_contexts(KEYTAB)(BROKER, LIMIT_MS)
    reason = f"keyTab on host {platform.node()}: No key table entry found for app@EXAMPLE.COM; check"
    assert reason in str(failed.value)
    assert "cache" not in str(failed.value)


def test_only_the_first_login_is_refused_while_the_kdc_is_away(library: Library) -> None:
    contexts, unreachable = kerberos_contexts(KEYTAB), GssError("Cannot contact any KDC", 2529639068)
    library.error = unreachable
    with pytest.raises(
        AuthenticationFailed, match=r"the KDC cannot be reached: Cannot .*; check the KDCs in"
    ):
        contexts(BROKER, LIMIT_MS)
    library.error = None
    contexts(BROKER, LIMIT_MS)
    library.error = unreachable
    with pytest.raises(NetworkError, match=r"the KDC cannot be reached: Cannot .*; check the KDCs"):
        contexts(BROKER, LIMIT_MS)


def test_ended_ticket_of_a_keytab_is_replaced(library: Library) -> None:
    contexts = kerberos_contexts(KEYTAB)
    library.error, library.errors_left = GssError("Ticket expired", 2529638944), 1
    assert contexts(BROKER, LIMIT_MS).step(None) == b"token"
    caches = [made["creds"]["store"]["ccache"] for made in library.made]  # type: ignore[index]
    assert len(set(caches)) == 2


def test_ended_ticket_of_a_cache_is_an_error(library: Library) -> None:
    library.error = GssError("Ticket expired", 2529638944)
    with pytest.raises(
        AuthenticationFailed, match=r"Ticket expired; check principal and keyTab \(or kinit\)"
    ):
        kerberos_contexts(KerberosOptions("kafka", ticket_cache="/run/cc"))(BROKER, LIMIT_MS)


def test_ticket_that_has_ended_anew_is_an_error(library: Library) -> None:
    library.error = GssError("Ticket expired", 2529638944)
    with pytest.raises(AuthenticationFailed, match=r"Ticket expired; check .* and the clocks"):
        kerberos_contexts(KEYTAB)(BROKER, LIMIT_MS)


def test_silent_kdc_keeps_one_thread_and_no_caller(library: Library) -> None:
    contexts = kerberos_contexts(KEYTAB)
    library.answers.clear()
    try:
        for _ in range(3):
            with pytest.raises(
                AuthenticationFailed, match="reached: no response within 50 ms; check the KDCs"
            ):
                contexts(BROKER, 50)
        assert len(library.made) == 1
    finally:
        library.answers.set()
    assert contexts(BROKER, LIMIT_MS).step(None) == b"token"

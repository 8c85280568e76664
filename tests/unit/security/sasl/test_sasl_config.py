"""Settings of a client's login: what fits together, and what a fault says."""

from __future__ import annotations

import logging
import pickle

import pytest

from minikafka.base.errors import ConfigErrors
from minikafka.base.secrets import Password
from minikafka.security.sasl.sasl_config import LOGIN_MODULES, LoginKind, SaslConfig, address_fault

PLAIN = LOGIN_MODULES["PLAIN"]
SCRAM = LOGIN_MODULES["SCRAM-SHA-256"]
OAUTH = LOGIN_MODULES["OAUTHBEARER"]
IAM = LOGIN_MODULES["AWS_MSK_IAM"]
KRB5 = LOGIN_MODULES["GSSAPI"]
USER = 'username="alice" password="tiger-secret"'
OIDC = {"sasl.oauthbearer.token.endpoint.url": "https://example.com/token"}
CLIENT = 'clientId="app" clientSecret="tiger-secret"'
SECURED = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"


def config(mechanism: str, module: str = "", options: str = "", **properties: str) -> SaslConfig:
    given = {f"sasl.{name.replace('_', '.')}": value for name, value in properties.items()}
    jaas = {"sasl.jaas.config": f"{module} required {options};"} if module else {}
    return SaslConfig.from_properties({"sasl.mechanism": mechanism, **jaas, **given})


def faults(settings: SaslConfig) -> str:
    """Return the faults as one text, in which no secret may be."""
    text = "; ".join(map(str, settings.faults()))
    assert "tiger-secret" not in text
    return text


def test_default_mechanism_is_that_of_kafka() -> None:
    assert SaslConfig().mechanism == "GSSAPI"


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        (config("PLAIN", PLAIN, USER), LoginKind.PLAIN),
        (config("SCRAM-SHA-256", SCRAM, USER), LoginKind.SCRAM),
        (config("SCRAM-SHA-512", SCRAM, USER), LoginKind.SCRAM),
        (config("OAUTHBEARER", OAUTH, 'unsecuredLoginStringClaim_sub="a"'), LoginKind.UNSECURED_TOKEN),
        (
            config("OAUTHBEARER", OAUTH, CLIENT, oauthbearer_token_endpoint_url="https://example.com/t"),
            LoginKind.OIDC_TOKEN,
        ),
        (
            config(
                "OAUTHBEARER",
                OAUTH,
                CLIENT,
                login_callback_handler_class=SECURED,
                oauthbearer_token_endpoint_url="https://example.com/t",
            ),
            LoginKind.OIDC_TOKEN,
        ),
        (
            config("OAUTHBEARER", OAUTH, oauthbearer_token_endpoint_url="file:///run/token"),
            LoginKind.OIDC_TOKEN,
        ),
        (
            config(
                "OAUTHBEARER",
                OAUTH,
                login_callback_handler_class="software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler",
            ),
            LoginKind.AWS_TOKEN,
        ),
        (
            config(
                "AWS_MSK_IAM",
                IAM,
                client_callback_handler_class="software.amazon.msk.auth.iam.IAMClientCallbackHandler",
            ),
            LoginKind.AWS_MSK_IAM,
        ),
        (config("GSSAPI", KRB5, "useTicketCache=true", kerberos_service_name="kafka"), LoginKind.GSSAPI),
        (config("GSSAPI", KRB5, 'useKeyTab=TRUE keyTab="k" serviceName="kafka"'), LoginKind.GSSAPI),
    ],
)
def test_settings_of_each_kind_of_login_have_no_fault(settings: SaslConfig, kind: LoginKind) -> None:
    assert faults(settings) == ""
    assert settings.kind is kind


@pytest.mark.parametrize(
    ("mechanism", "module", "options"),
    [
        ("PLAIN", f"kafkashaded.{PLAIN}", USER),
        ("SCRAM-SHA-512", f"kafkashaded.{SCRAM}", USER),
        ("AWS_MSK_IAM", f"shadedmskiam.{IAM}", ""),
    ],
)
def test_classes_in_packages_of_vendors_are_known(mechanism: str, module: str, options: str) -> None:
    assert faults(config(mechanism, module, options)) == ""


@pytest.mark.parametrize(
    "handler",
    [
        "shadedmskiam.software.amazon.msk.auth.iam.IAMClientCallbackHandler",
        "kafkashaded.org.apache.kafka.common.security.authenticator.SaslClientCallbackHandler",
    ],
)
def test_handlers_in_packages_of_vendors_are_known(handler: str) -> None:
    assert faults(config("AWS_MSK_IAM", IAM, client_callback_handler_class=handler)) == ""


# Faults.


def test_forgotten_jaas_text_is_named_with_the_module() -> None:
    text = faults(config("PLAIN"))
    assert text.startswith("sasl.jaas.config: must be given for sasl.mechanism=PLAIN: ")
    assert "username and password" in text


def test_forgotten_mechanism_is_named_with_the_one_that_fits() -> None:
    text = faults(SaslConfig(jaas_config=f"{PLAIN} required {USER};"))
    assert "has the login module of PLAIN, not that of sasl.mechanism=GSSAPI (the default)" in text


def test_module_of_another_mechanism_is_named_with_both_ways_out() -> None:
    text = faults(config("PLAIN", SCRAM, USER))
    assert "login module of SCRAM-SHA-256 or SCRAM-SHA-512, not that of sasl.mechanism=PLAIN" in text


def test_unknown_module_is_not_shown_as_it_may_be_a_secret() -> None:
    assert "has an unknown login module" in faults(config("PLAIN", "tiger-secret", USER))


def test_jaas_text_that_cannot_be_read_is_a_fault() -> None:
    assert "sasl.jaas.config" in faults(config("PLAIN", PLAIN, 'username="alice" password="tiger-secret'))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_missing_user_and_password_are_two_faults(mechanism: str) -> None:
    text = faults(config(mechanism, LOGIN_MODULES[mechanism], 'password=""'))
    assert "'username'" in text
    assert "'password'" in text


def test_kerberos_needs_the_name_of_the_service() -> None:
    text = faults(config("GSSAPI", KRB5, "useTicketCache=true"))
    assert text.startswith("sasl.kerberos.service.name: must be given")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", 'requires useKeyTab="true" and keyTab, or useTicketCache="true"'),
        ('keyTab="k" principal="app"', 'requires useKeyTab="true"'),
        ('useTicketCache=true keyTab="k"', 'the option keyTab requires useKeyTab="true"'),
        (
            'useKeyTab=true keyTab="k" ticketCache="c"',
            'the option ticketCache requires useTicketCache="true"',
        ),
        ("useKeyTab=true", 'useKeyTab="true" requires the option keyTab'),
    ],
)
def test_kerberos_options_that_do_not_fit_are_a_fault(options: str, words: str) -> None:
    text = faults(config("GSSAPI", KRB5, f'{options} serviceName="kafka"'))
    assert text.startswith(f"sasl.jaas.config: {words}")


def test_oauthbearer_without_a_source_of_tokens_names_both() -> None:
    text = faults(config("OAUTHBEARER", OAUTH))
    assert text.startswith("sasl.oauthbearer.token.endpoint.url: must be given")
    assert 'unsecuredLoginStringClaim_sub="USER"' in text


def test_handler_of_tokens_without_an_address_is_a_fault() -> None:
    settings = config("OAUTHBEARER", OAUTH, CLIENT, login_callback_handler_class=SECURED)
    assert faults(settings).startswith("sasl.oauthbearer.token.endpoint.url: must be given")


def test_client_credentials_are_required_by_name() -> None:
    settings = SaslConfig.from_properties(
        {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f"{OAUTH} required;", **OIDC}
    )
    assert "'clientId'" in faults(settings)
    assert "'clientSecret'" in faults(settings)


def test_client_credentials_may_be_settings_as_in_kafka_4() -> None:
    settings = SaslConfig.from_properties(
        {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{OAUTH} required;",
            "sasl.oauthbearer.client.credentials.client.id": "app",
            "sasl.oauthbearer.client.credentials.client.secret": "tiger-secret",
            **OIDC,
        }
    )
    assert faults(settings) == ""
    assert "tiger-secret" not in repr(settings)


def test_unsecured_options_are_checked() -> None:
    settings = config(
        "OAUTHBEARER", OAUTH, 'unsecuredLoginLifetimeSeconds="-1" unsecuredLoginStringClaim_sub="a"'
    )
    assert "unsecuredLoginLifetimeSeconds" in faults(settings)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ('awsRoleArn="r" awsRoleAccessKeyId="k"', "belong together"),
        ('awsRoleSessionName="s"', "requires the option awsRoleArn"),
    ],
)
def test_options_of_aws_that_belong_together_are_checked(options: str, named: str) -> None:
    assert named in faults(config("AWS_MSK_IAM", IAM, options))


@pytest.mark.parametrize(
    ("mechanism", "module", "handler"),
    [
        ("PLAIN", PLAIN, {"client_callback_handler_class": "a.IAMClientCallbackHandler"}),
        ("AWS_MSK_IAM", IAM, {"login_callback_handler_class": "a.IAMOAuthBearerLoginCallbackHandler"}),
    ],
)
def test_handler_of_another_mechanism_is_a_fault(
    mechanism: str, module: str, handler: dict[str, str]
) -> None:
    assert "alone" in faults(config(mechanism, module, USER, **handler))


@pytest.mark.parametrize(
    ("name", "value", "advice"),
    [
        ("sasl.login.callback.handler.class", "com.acme.TokenHandler", "token.endpoint.url"),
        ("sasl.client.callback.handler.class", "com.acme.Handler", "leave it unset"),
        ("sasl.login.class", "com.acme.Login", "leave it unset"),
        ("sasl.oauthbearer.jwt.retriever.class", "a.b.JwtBearerJwtRetriever", "token.endpoint.url"),
        ("sasl.mechanism", "plain", "PLAIN"),
        ("sasl.mechanism", "SCRAM-SHA-1", "SCRAM-SHA-256"),
        ("sasl.login.refresh.window.factor", "0.4", "0.5"),
        ("sasl.login.refresh.window.jitter", "0.3", "0.25"),
        ("sasl.login.refresh.buffer.seconds", "3601", "3600"),
    ],
)
def test_value_that_cannot_be_is_refused(name: str, value: str, advice: str) -> None:
    with pytest.raises(ConfigErrors) as refused:
        SaslConfig.from_properties({name: value})
    assert name in str(refused.value)
    assert advice in str(refused.value)


def test_faults_of_several_settings_come_in_one_error() -> None:
    with pytest.raises(ConfigErrors) as refused:
        SaslConfig.from_properties({"sasl.mechanism": "x", "sasl.login.class": "y"})
    assert len(refused.value.faults) == 2


def test_settings_of_kerberos_and_brokers_are_accepted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        SaslConfig.from_properties(
            {
                "sasl.kerberos.kinit.cmd": "/usr/bin/kinit",
                "sasl.kerberos.ticket.renew.jitter": "0.05",
                "sasl.login.class": "org.apache.kafka.common.security.kerberos.KerberosLogin",
                "sasl.oauthbearer.jwks.endpoint.refresh.ms": "3600000",
                "sasl.oauthbearer.expected.audience": "a,b",
            }
        )
    assert caplog.records == []


def test_no_secret_is_in_a_repr() -> None:
    assert "tiger-secret" not in repr(config("PLAIN", PLAIN, USER))


def test_settings_can_be_pickled() -> None:
    settings = config("PLAIN", PLAIN, USER)
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_password_may_be_given_as_a_secret() -> None:
    assert faults(SaslConfig(mechanism="PLAIN", jaas_config=Password(f"{PLAIN} required {USER};"))) == ""


# Addresses of identity providers.


@pytest.mark.parametrize(
    ("url", "allow_http", "problem"),
    [
        ("https://example.com/token?x=1", False, None),
        ("http://127.0.0.1:8080/token", False, None),
        ("http://localhost/token", False, None),
        ("http://[::1]:1/token", False, None),
        ("file:///run/token", False, None),
        ("http://example.com/token", False, 'allowHttp="true"'),
        ("http://example.com/token", True, None),
        ("https://app:tiger-secret@example.com/", True, "must not have a user"),
        ("ftp://example.com/", True, "https://"),
        ("example.com/token", True, "https://"),
        ("https://[::1", True, "not a URL"),
        ("https://example.com:99999/", True, "not a URL"),
        ("file://host/token", True, "file:///PATH"),
        ("https:///token", True, "https://"),
    ],
)
def test_address_has_tls_unless_it_is_on_this_host_or_permitted(
    url: str, allow_http: bool, problem: str | None
) -> None:
    fault = address_fault("sasl.oauthbearer.token.endpoint.url", url, allow_http)
    assert (fault is None) == (problem is None)
    if fault is not None and problem is not None:
        assert problem in str(fault)
        assert "tiger-secret" not in str(fault)

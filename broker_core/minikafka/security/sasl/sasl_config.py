"""Settings of a client's login: Kafka's ``sasl.*``, and whether they fit together.

The mechanism, the JAAS text and the callback handlers say three times how a client proves who it is. Here
they become one ``LoginKind``, or faults that name the setting to change. Java classes are known by their
simple names, as vendors ship them in packages of their own. A class that is not known is refused: it cannot
run in Python.

Values in JAAS texts are secrets: no fault shows a part of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import ClassVar
from urllib.parse import urlsplit

from minikafka.base.config.config_def import AbstractConfig, Faults, setting
from minikafka.base.config.types import (
    ANY_TEXT,
    BOOLEAN,
    PASSWORD,
    TEXT,
    WORDS,
    ConfigType,
    Type,
    int32,
    int64,
    integer,
    one_of,
    real_number,
    text_type,
)
from minikafka.base.errors import ConfigError
from minikafka.base.secrets import Password
from minikafka.security.jaas import LOGIN_MODULES, JaasConfig
from minikafka.security.sasl.unsecured_tokens import UnsecuredLogin

JAAS = "sasl.jaas.config"
LOGIN_HANDLER = "sasl.login.callback.handler.class"
TOKEN_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
ALLOW_HTTP = "allowHttp"
"""The option of a JAAS text that permits an address without TLS. Kafka's classes pass over it."""

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class LoginKind(Enum):
    """A way of logging in."""

    PLAIN = auto()
    SCRAM = auto()
    GSSAPI = auto()
    AWS_MSK_IAM = auto()
    UNSECURED_TOKEN = auto()
    """OAUTHBEARER with a token that the client makes itself, for development."""
    OIDC_TOKEN = auto()
    """OAUTHBEARER with a token of an identity provider."""
    AWS_TOKEN = auto()
    """OAUTHBEARER with a token that AWS credentials sign."""


_KINDS = {
    "GSSAPI": LoginKind.GSSAPI,
    "PLAIN": LoginKind.PLAIN,
    "SCRAM-SHA-256": LoginKind.SCRAM,
    "SCRAM-SHA-512": LoginKind.SCRAM,
    "AWS_MSK_IAM": LoginKind.AWS_MSK_IAM,
}
_CONTENT = {
    "GSSAPI": "useKeyTab and keyTab, or useTicketCache",
    "PLAIN": "username and password",
    "SCRAM-SHA-256": "username and password",
    "SCRAM-SHA-512": "username and password",
    "OAUTHBEARER": "clientId, clientSecret and scope",
    "AWS_MSK_IAM": "options such as awsProfileName, or none",
}
"""Mechanism -> the options in its JAAS text."""
_LOGIN_HANDLERS = {
    "DefaultLoginCallbackHandler": None,
    "OAuthBearerLoginCallbackHandler": LoginKind.OIDC_TOKEN,
    "OAuthBearerUnsecuredLoginCallbackHandler": LoginKind.UNSECURED_TOKEN,
    "IAMOAuthBearerLoginCallbackHandler": LoginKind.AWS_TOKEN,
}
"""Simple name -> the kind of token; None: any mechanism."""
_CLIENT_HANDLERS = {
    "SaslClientCallbackHandler": None,
    "OAuthBearerSaslClientCallbackHandler": "OAUTHBEARER",
    "IAMClientCallbackHandler": "AWS_MSK_IAM",
}
"""Simple name -> mechanism; None: any mechanism."""
_LOGINS = ("DefaultLogin", "KerberosLogin", "OAuthBearerRefreshingLogin")
_RETRIEVERS = ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever")
_VALIDATORS = ("DefaultJwtValidator", "ClientJwtValidator")


def _java_class(known: Collection[str], advice: str) -> Type:
    """Return the type of the name of a Java class whose work is done here; its value is the simple name."""

    def convert(text: str) -> str:
        simple_name = text.replace("$", ".").rpartition(".")[2]
        if simple_name not in known:
            raise ValueError(
                f"is a class that minikafka does not have: expected {', '.join(known)}; {advice}"
            )
        return simple_name

    return text_type(f"the name of one of the classes {', '.join(known)}", convert, ConfigType.CLASS)


_FOR_TOKENS = f"tokens of an identity provider come from {TOKEN_ENDPOINT}"
_FACTOR = real_number("a number from 0.5 to 1", lambda value: 0.5 <= value <= 1)
_JITTER = real_number("a number from 0 to 0.25", lambda value: 0 <= value <= 0.25)
_NUMBER = real_number("a number", lambda value: value == value)
_LOGIN = "Login"
_OAUTH = "OAUTHBEARER"


@dataclass(frozen=True, slots=True)
class SaslConfig(AbstractConfig):
    """The settings of a client's login."""

    CHECKED: ClassVar[Mapping[str, Type]] = {
        # The Kerberos library renews tickets, and brokers validate tokens.
        "sasl.kerberos.kinit.cmd": ANY_TEXT,
        "sasl.kerberos.ticket.renew.window.factor": _NUMBER,
        "sasl.kerberos.ticket.renew.jitter": _NUMBER,
        "sasl.kerberos.min.time.before.relogin": int64(0),
        "sasl.login.class": _java_class(_LOGINS, "leave it unset"),
        "sasl.oauthbearer.jwt.retriever.class": _java_class(_RETRIEVERS, _FOR_TOKENS),
        "sasl.oauthbearer.jwt.validator.class": _java_class(_VALIDATORS, "leave it unset"),
        "sasl.oauthbearer.scope.claim.name": TEXT,
        "sasl.oauthbearer.clock.skew.seconds": int32(0),
        "sasl.oauthbearer.expected.audience": WORDS,
        "sasl.oauthbearer.expected.issuer": ANY_TEXT,
        "sasl.oauthbearer.jwks.endpoint.url": ANY_TEXT,
        "sasl.oauthbearer.jwks.endpoint.refresh.ms": int64(0),
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": int64(0),
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": int64(0),
    }
    UNSUPPORTED: ClassVar[Mapping[str, str]] = {
        "sasl.oauthbearer.assertion.": "the grant type jwt-bearer is not supported; use client credentials"
    }

    mechanism: str = setting(
        "sasl.mechanism",
        one_of(*LOGIN_MODULES, exact=True),
        "GSSAPI",
        "The SASL mechanism of connections to brokers.",
        _LOGIN,
    )
    jaas_config: Password | None = setting(
        JAAS,
        PASSWORD,
        None,
        "The login module with its options, such as user name and password, in JAAS form.",
        _LOGIN,
    )
    client_callback_handler: str | None = setting(
        "sasl.client.callback.handler.class",
        _java_class(_CLIENT_HANDLERS, "leave it unset"),
        None,
        "A known Java class, such as Amazon's ``IAMClientCallbackHandler``; the mechanism says as much.",
        _LOGIN,
    )
    login_callback_handler: str | None = setting(
        LOGIN_HANDLER,
        _java_class(_LOGIN_HANDLERS, _FOR_TOKENS),
        None,
        "A known Java class, which says where a token for OAUTHBEARER comes from.",
        _LOGIN,
    )
    kerberos_service_name: str | None = setting(
        "sasl.kerberos.service.name",
        TEXT,
        None,
        "The name of the brokers' Kerberos principal; ``serviceName`` in the JAAS text is the same.",
        _LOGIN,
    )
    refresh_window_factor: float = setting(
        "sasl.login.refresh.window.factor",
        _FACTOR,
        0.8,
        "The part of a token's lifetime after which it is renewed.",
        _OAUTH,
    )
    refresh_window_jitter: float = setting(
        "sasl.login.refresh.window.jitter",
        _JITTER,
        0.05,
        "The largest random part of a token's lifetime that is added to the factor.",
        _OAUTH,
    )
    refresh_min_period_s: int = setting(
        "sasl.login.refresh.min.period.seconds",
        integer(0, 900).as_kind(ConfigType.SHORT),
        60,
        "The least time before a token is renewed, in seconds.",
        _OAUTH,
    )
    refresh_buffer_s: int = setting(
        "sasl.login.refresh.buffer.seconds",
        integer(0, 3600).as_kind(ConfigType.SHORT),
        300,
        "The time before a token's end at which it is renewed at the latest, in seconds.",
        _OAUTH,
    )
    connect_timeout_ms: int | None = setting(
        "sasl.login.connect.timeout.ms",
        int32(1),
        None,
        "The time limit of a connection to the identity provider; unset: 10 s.",
        _OAUTH,
    )
    read_timeout_ms: int | None = setting(
        "sasl.login.read.timeout.ms",
        int32(1),
        None,
        "The time limit of the identity provider's response; unset: 10 s.",
        _OAUTH,
    )
    retry_backoff_ms: int = setting(
        "sasl.login.retry.backoff.ms",
        int64(0),
        100,
        "The wait before the second request to the identity provider; it doubles with each request.",
        _OAUTH,
    )
    retry_backoff_max_ms: int = setting(
        "sasl.login.retry.backoff.max.ms",
        int64(0),
        10_000,
        "The time after which a failing request to the identity provider is not repeated.",
        _OAUTH,
    )
    token_endpoint_url: str | None = setting(
        TOKEN_ENDPOINT,
        TEXT,
        None,
        "The identity provider's address for tokens, or ``file:`` and the path of a token.",
        _OAUTH,
    )
    client_id: str | None = setting(
        "sasl.oauthbearer.client.credentials.client.id",
        TEXT,
        None,
        "The client's name at the identity provider; it beats ``clientId`` in the JAAS text.",
        _OAUTH,
    )
    client_secret: Password | None = setting(
        "sasl.oauthbearer.client.credentials.client.secret",
        PASSWORD,
        None,
        "The client's secret at the identity provider; it beats ``clientSecret`` in the JAAS text.",
        _OAUTH,
    )
    scope: str | None = setting(
        "sasl.oauthbearer.scope",
        TEXT,
        None,
        "The scope of a token; it beats ``scope`` in the JAAS text.",
        _OAUTH,
    )
    header_urlencode: bool = setting(
        "sasl.oauthbearer.header.urlencode",
        BOOLEAN,
        False,
        "Whether name and secret are URL-encoded in the request, as RFC 6749 demands.",
        _OAUTH,
    )
    sub_claim_name: str = setting(
        "sasl.oauthbearer.sub.claim.name",
        TEXT,
        "sub",
        "The claim of a token that has the user's name.",
        _OAUTH,
    )

    @property
    def jaas(self) -> JaasConfig:
        """The login module and its options. Raises ConfigError."""
        if self.jaas_config is None or not self.jaas_config.value:
            text = f"must be given for {self._mechanism}: its login module with {_CONTENT[self.mechanism]}"
            raise ConfigError(JAAS, None, text)
        return JaasConfig.parse(self.jaas_config, JAAS)

    @property
    def _mechanism(self) -> str:
        """The mechanism, for a fault: most who see it as GSSAPI have forgotten to set it."""
        return f"sasl.mechanism={self.mechanism}{' (the default)' if self.mechanism == 'GSSAPI' else ''}"

    @property
    def kind(self) -> LoginKind | None:
        """The way of logging in; None if neither handler nor options say where a token comes from."""
        if self.mechanism != _OAUTH:
            return _KINDS[self.mechanism]
        by_handler = _LOGIN_HANDLERS.get(self.login_callback_handler or "")
        if by_handler is not None:
            return by_handler
        if self.token_endpoint_url is not None:
            return LoginKind.OIDC_TOKEN
        unsecured = any(option.startswith("unsecuredLogin") for option in self.jaas.options)
        return LoginKind.UNSECURED_TOKEN if unsecured else None

    def option(self, name: str, given: str | None = None) -> str | None:
        """Return ``given``, or else the option of the JAAS text; None for neither, or an empty one."""
        value = self.jaas.options.get(name)
        return given or (value.value if value else None) or None

    def faults(self) -> list[ConfigError]:
        """Return what keeps a client with these settings from logging in.

        It is no part of the constructor: with security.protocol=PLAINTEXT or SSL nobody logs in.
        """
        found = Faults()
        found.add(self._handler_faults())
        jaas = found.attempt(lambda: self.jaas, None)
        if jaas is None:
            return list(found)
        if not jaas.is_of(self.mechanism):
            found.add([self._module_fault(jaas)])
            return list(found)
        kind = self.kind
        if kind in (LoginKind.PLAIN, LoginKind.SCRAM):
            for option in ("username", "password"):
                found.attempt(partial(jaas.required, option), None)
        elif kind is LoginKind.UNSECURED_TOKEN:
            found.attempt(lambda: UnsecuredLogin.from_jaas(jaas), None)
        elif kind is LoginKind.OIDC_TOKEN:
            found.add(self._oidc_faults(jaas))
        elif kind in (LoginKind.AWS_TOKEN, LoginKind.AWS_MSK_IAM):
            found.add(_aws_faults(jaas))
        elif kind is LoginKind.GSSAPI:
            found.add(self._kerberos_faults())
        elif kind is None:
            text = (
                f"must be given, with {LOGIN_HANDLER}=org.apache.kafka.common.security.oauthbearer."
                "OAuthBearerLoginCallbackHandler; or for development the option "
                f'unsecuredLoginStringClaim_sub="USER" in {JAAS}'
            )
            found.add([ConfigError(TOKEN_ENDPOINT, None, text)])
        return list(found)

    def _module_fault(self, jaas: JaasConfig) -> ConfigError:
        """Return the fault, without the module's name: one that is not known may be a part of a secret."""
        fitting = list(filter(jaas.is_of, LOGIN_MODULES))
        if fitting:
            text = (
                f"has the login module of {' or '.join(fitting)}, not that of {self._mechanism}; change one"
            )
        else:
            text = f"has an unknown login module: expected Kafka's for {self._mechanism}"
        return ConfigError(JAAS, None, text)

    def _handler_faults(self) -> Iterator[ConfigError]:
        mechanism = _CLIENT_HANDLERS.get(self.client_callback_handler or "")
        if mechanism not in (None, self.mechanism):
            name = "sasl.client.callback.handler.class"
            yield ConfigError(name, self.client_callback_handler, f"fits sasl.mechanism={mechanism} alone")
        if _LOGIN_HANDLERS.get(self.login_callback_handler or "") and self.mechanism != _OAUTH:
            text = f"fits sasl.mechanism={_OAUTH} alone, not {self.mechanism}"
            yield ConfigError(LOGIN_HANDLER, self.login_callback_handler, text)

    def is_true(self, option: str) -> bool:
        """Return True if the option of the JAAS text is true."""
        return str(self.option(option)).lower() == "true"

    def _kerberos_faults(self) -> Iterator[ConfigError]:
        if not self.option("serviceName", self.kerberos_service_name):
            text = "must be given for GSSAPI: the first part of the brokers' principal, such as kafka"
            yield ConfigError("sasl.kerberos.service.name", None, text)
        if not self.is_true("useKeyTab") and not self.is_true("useTicketCache"):
            text = 'requires useKeyTab="true" and keyTab, or useTicketCache="true" (after kinit)'
            yield ConfigError(JAAS, None, text)
            return
        for use, file in (("useKeyTab", "keyTab"), ("useTicketCache", "ticketCache")):
            if self.option(file) and not self.is_true(use):
                yield ConfigError(JAAS, None, f'the option {file} requires {use}="true"')
        if self.is_true("useKeyTab") and not self.option("keyTab"):
            yield ConfigError(JAAS, None, 'useKeyTab="true" requires the option keyTab, the file\'s path')

    def _oidc_faults(self, jaas: JaasConfig) -> Iterator[ConfigError]:
        url = self.token_endpoint_url
        if url is None:
            text = "must be given: the identity provider's address for tokens, from its documentation"
            yield ConfigError(TOKEN_ENDPOINT, None, text)
            return
        fault = address_fault(TOKEN_ENDPOINT, url, allows_http(jaas))
        if fault is not None:
            yield fault
        if urlsplit(url).scheme.lower() == "file":
            return
        for option, given in (("clientId", self.client_id), ("clientSecret", self.client_secret)):
            if given is None and not self.option(option):
                text = f"requires the option {option!r} with a value, for the identity provider"
                yield ConfigError(jaas.setting, None, text)


def _aws_faults(jaas: JaasConfig) -> Iterator[ConfigError]:
    pair = ("awsRoleAccessKeyId", "awsRoleSecretAccessKey")
    given = [option for option in pair if option in jaas.options]
    if len(given) == 1:
        yield ConfigError(jaas.setting, None, f"the options {pair[0]} and {pair[1]} belong together")
    roles = [option for option in jaas.options if option.startswith("awsRole") and option != "awsRoleArn"]
    if roles and "awsRoleArn" not in jaas.options:
        yield ConfigError(jaas.setting, None, f"the option {roles[0]} requires the option awsRoleArn")


def allows_http(jaas: JaasConfig) -> bool:
    """Return True if a JAAS text permits addresses without TLS."""
    value = jaas.options.get(ALLOW_HTTP)
    return value is not None and value.value.strip().lower() == "true"


def ssl_options(jaas: JaasConfig) -> dict[str, Password]:
    """Return the options ``ssl.…`` of a JAAS text, which are those of connections to identity providers."""
    return {name: value for name, value in jaas.options.items() if name.startswith("ssl.")}


def address_fault(name: str, url: str, allow_http: bool) -> ConfigError | None:
    """Return the fault of an identity provider's address in the setting ``name``; None for a good one.

    Without TLS, who listens gets the client's secret or forges the keys of a server: only on this host, or
    where the JAAS text says ``allowHttp="true"``.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return ConfigError(name, None, "is not a URL")
    scheme = parts.scheme.lower()
    if scheme == "file":
        return None if parts.path and not parts.netloc else ConfigError(name, None, "expected file:///PATH")
    if scheme not in ("http", "https") or not host:
        return ConfigError(name, None, "must be a URL with https:// or file://")
    if parts.username is not None or parts.password is not None:
        return ConfigError(name, None, f"must not have a user: put name and secret into {JAAS}")
    if scheme == "http" and host not in _LOOPBACK and not allow_http:
        text = f'must have https://, as secrets are sent there; {ALLOW_HTTP}="true" in {JAAS} permits http://'
        return ConfigError(name, None, text)
    return None

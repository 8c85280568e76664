"""Logins of clients: what the settings say, turned into the client's side of each exchange.

``login`` is called once for a client, ``create_client`` for each connection. All that reaches beyond this
process is passed in as ``LoginPorts``: an identity provider, files, AWS credentials, the Kerberos library.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote, urlsplit

from minikafka.base.errors import AuthenticationFailed, ConfigErrors
from minikafka.base.secrets import Password
from minikafka.security.jaas import JaasConfig
from minikafka.security.sasl import aws_msk_iam, oauthbearer
from minikafka.security.sasl.aws_msk_iam import AwsMskIamSaslClient, AwsOptions, Presign
from minikafka.security.sasl.gssapi import GssapiSaslClient, SecurityContext
from minikafka.security.sasl.mechanism import SaslClient
from minikafka.security.sasl.oauthbearer import OAuthBearerSaslClient, OAuthBearerToken
from minikafka.security.sasl.oidc import (
    HttpRequest,
    HttpResponse,
    RefreshPolicy,
    read_token,
    token_of_response,
    token_request,
)
from minikafka.security.sasl.plain import PlainSaslClient
from minikafka.security.sasl.sasl_config import TOKEN_ENDPOINT, LoginKind, SaslConfig
from minikafka.security.sasl.scram import TOKEN_AUTHENTICATION, ScramMechanism, ScramSaslClient, base36
from minikafka.security.sasl.unsecured_tokens import UnsecuredLogin

_EXTENSION = "extension_"
_NONCE_BYTES = 17
_CHANCE_BITS = 32


@dataclass(frozen=True, slots=True)
class KerberosOptions:
    """The options of a JAAS text with ``Krb5LoginModule``, and the name of the service. None: not given."""

    service_name: str
    principal: str | None = None
    keytab: str | None = None
    ticket_cache: str | None = None

    @classmethod
    def of(cls, config: SaslConfig) -> KerberosOptions:
        """Return the options of ``config``, which has no faults."""
        service = config.option("serviceName", config.kerberos_service_name)
        found = (config.option(option) for option in ("principal", "keyTab", "ticketCache"))
        return cls(service or "", *found)


class KeepToken(Protocol):
    """Makes a source of one valid token: it fetches the first one, and renews it in the background."""

    def __call__(
        self,
        fetch: Callable[[], OAuthBearerToken],
        refresh_ms: Callable[[OAuthBearerToken], int],
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
        place: str,
        /,
    ) -> Callable[[int], OAuthBearerToken]:
        """Return a source that takes the time to wait for a token at most, in ms.

        fetch: raises NetworkError if it is to be repeated, after the backoff.
        refresh_ms: returns the time in epoch milliseconds at which a token is to be renewed.
        place: the address of the identity provider, for messages.
        """


@dataclass(frozen=True, slots=True)
class LoginPorts:
    """The effects of logins. ``net.login_ports`` has the real ones."""

    now_ms: Callable[[], int]
    random_bytes: Callable[[int], bytes]
    read_file: Callable[[str], bytes]
    fetch: Callable[[HttpRequest], HttpResponse]
    keep_token: KeepToken
    aws_presigner: Callable[[AwsOptions], Presign]
    """Raises ConfigError if the library is missing."""
    kerberos_context: Callable[[KerberosOptions], Callable[[str, int], SecurityContext]]
    """Returns what makes the context with a host. Raises ConfigError if the library is missing."""
    user_agent: str = "minikafka"


Creator = Callable[[str, int], SaslClient]
"""Makes the client's side of an exchange, as ``ClientLogin.create_client``."""


@dataclass(frozen=True, slots=True)
class ClientLogin:
    """The way in which one client logs in to brokers."""

    mechanism: str
    _create: Creator

    def create_client(self, host: str, limit_ms: int) -> SaslClient:
        """Return the client's side of one exchange with the broker at ``host``.

        May block for ``limit_ms``, to fetch a token or credentials. Raises AuthenticationFailed, or
        NetworkError if another attempt may succeed.
        """
        return self._create(host, limit_ms)


def login(config: SaslConfig, ports: LoginPorts) -> ClientLogin:
    """Return the login that ``config`` describes. Raises ConfigErrors, which has every fault."""
    faults = config.faults()
    if faults:
        raise ConfigErrors(faults)
    kind = config.kind
    assert kind is not None, "there is no fault"
    return ClientLogin(config.mechanism, _CREATORS[kind](config, ports))


def _plain(config: SaslConfig, ports: LoginPorts) -> Creator:
    jaas = config.jaas
    username, password = jaas.required("username").value, jaas.required("password")
    return lambda host, limit_ms: PlainSaslClient(username, password)


def _scram(config: SaslConfig, ports: LoginPorts) -> Creator:
    jaas, mechanism = config.jaas, ScramMechanism(config.mechanism)
    username, password = jaas.required("username").value, jaas.required("password")
    is_token = config.is_true(TOKEN_AUTHENTICATION)
    extensions = {TOKEN_AUTHENTICATION: "true"} if is_token else {}

    def create(host: str, limit_ms: int) -> SaslClient:
        nonce = base36(ports.random_bytes(_NONCE_BYTES))
        return ScramSaslClient(mechanism, username, password, nonce, extensions)

    return create


def _unsecured_token(config: SaslConfig, ports: LoginPorts) -> Creator:
    unsecured = UnsecuredLogin.from_jaas(config.jaas)

    def create(host: str, limit_ms: int) -> SaslClient:
        return OAuthBearerSaslClient(unsecured.token(ports.now_ms()).value, unsecured.extensions)

    return create


def _oidc_token(config: SaslConfig, ports: LoginPorts) -> Creator:
    extensions = _extensions(config.jaas)
    if urlsplit(config.token_endpoint_url or "").scheme.lower() == "file":
        return lambda host, limit_ms: OAuthBearerSaslClient(_token_in_file(config, ports), extensions)
    request, policy = token_request(config), RefreshPolicy.of(config)

    def fetch() -> OAuthBearerToken:
        return token_of_response(request, ports.fetch(request), ports.now_ms(), config.sub_claim_name)

    def refresh_ms(token: OAuthBearerToken) -> int:
        chance = int.from_bytes(ports.random_bytes(_CHANCE_BITS // 8), "big") / (1 << _CHANCE_BITS)
        return policy.refresh_ms(token, ports.now_ms(), chance)

    backoff = config.retry_backoff_ms, config.retry_backoff_max_ms
    current = ports.keep_token(fetch, refresh_ms, *backoff, request.place)
    return lambda host, limit_ms: OAuthBearerSaslClient(current(limit_ms).value, extensions)


def _token_in_file(config: SaslConfig, ports: LoginPorts) -> Password:
    """Return the token in a file, which another program renews."""
    path = unquote(urlsplit(config.token_endpoint_url or "").path)
    value, reason = "", ""
    try:
        value = ports.read_file(path).decode("utf-8").strip()
    except OSError as error:
        reason = error.strerror or "it cannot be opened"
    except UnicodeDecodeError:
        reason = "it is not text"
    if reason:  # not inside, where the content would be in the context of this error
        raise _token_failure(f"cannot read the token in {path}: {reason}; check {TOKEN_ENDPOINT}")
    token = read_token(value, ports.now_ms(), config.sub_claim_name, place=path)
    if token.expires_ms <= ports.now_ms():
        raise _token_failure(f"the token in {path} has expired; renew it, or check the clock")
    return token.value


def _token_failure(reason: str) -> AuthenticationFailed:
    text = f"{oauthbearer.MECHANISM}: {reason}"
    return AuthenticationFailed(text, text)


def _extensions(jaas: JaasConfig) -> dict[str, str]:
    return {
        option.removeprefix(_EXTENSION): value.value
        for option, value in jaas.options.items()
        if option.startswith(_EXTENSION)
    }


def _aws_msk_iam(config: SaslConfig, ports: LoginPorts) -> Creator:
    presign = ports.aws_presigner(AwsOptions.of(config.jaas))

    def create(host: str, limit_ms: int) -> SaslClient:
        presigned = Password(presign(host, aws_msk_iam.region_of(host), limit_ms))
        return AwsMskIamSaslClient(presigned, ports.user_agent)

    return create


def _aws_token(config: SaslConfig, ports: LoginPorts) -> Creator:
    presign = ports.aws_presigner(AwsOptions.of(config.jaas))
    extensions = _extensions(config.jaas)

    def create(host: str, limit_ms: int) -> SaslClient:
        presigned = presign(aws_msk_iam.TOKEN_HOST, aws_msk_iam.region_of(host), limit_ms)
        return OAuthBearerSaslClient(aws_msk_iam.token_of(presigned, ports.user_agent), extensions)

    return create


def _gssapi(config: SaslConfig, ports: LoginPorts) -> Creator:
    context_with = ports.kerberos_context(KerberosOptions.of(config))
    return lambda host, limit_ms: GssapiSaslClient(context_with(host, limit_ms))


_CREATORS: dict[LoginKind, Callable[[SaslConfig, LoginPorts], Creator]] = {
    LoginKind.PLAIN: _plain,
    LoginKind.SCRAM: _scram,
    LoginKind.GSSAPI: _gssapi,
    LoginKind.AWS_MSK_IAM: _aws_msk_iam,
    LoginKind.UNSECURED_TOKEN: _unsecured_token,
    LoginKind.OIDC_TOKEN: _oidc_token,
    LoginKind.AWS_TOKEN: _aws_token,
}

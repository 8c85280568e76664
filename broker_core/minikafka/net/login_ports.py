"""The effects of logins: the clock, files, identity providers, and the libraries of AWS and Kerberos.

``login_ports`` gives them to ``security.sasl.login``. The two libraries are extras (``minikafka[aws]``,
``minikafka[kerberos]``), imported when a login needs them; an error says which one to install.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

from minikafka.base import __version__
from minikafka.base.clock import Clock, SystemClock
from minikafka.base.errors import AuthenticationFailed, ConfigError
from minikafka.base.printable import printable
from minikafka.base.text import shorten
from minikafka.net.http import fetch
from minikafka.net.tls import read_file
from minikafka.net.token_cache import TokenCache
from minikafka.security.sasl import aws_msk_iam, gssapi
from minikafka.security.sasl.aws_msk_iam import AwsOptions, Presign
from minikafka.security.sasl.gssapi import SecurityContext
from minikafka.security.sasl.login import KerberosOptions, LoginPorts
from minikafka.security.sasl.oauthbearer import OAuthBearerToken

USER_AGENT = f"minikafka/{__version__}"

_STS_OF_ALL_REGIONS = "aws-global"


def login_ports(clock: Clock | None = None) -> LoginPorts:
    """Return the effects of this process."""
    clock = clock or SystemClock()

    def keep_token(
        fetch_token: Callable[[], OAuthBearerToken],
        refresh_ms: Callable[[OAuthBearerToken], int],
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
    ) -> Callable[[], OAuthBearerToken]:
        return TokenCache(fetch_token, refresh_ms, retry_backoff_ms, retry_backoff_max_ms, clock)

    return LoginPorts(
        clock.now_ms, os.urandom, read_file, fetch, keep_token, aws_presigner, kerberos_contexts, USER_AGENT
    )


def _imported(name: str, mechanism: str, extra: str) -> Any:
    """Import a library. Raises ConfigError with the command that installs it."""
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:  # OSError: the C library below it is missing
        text = f"needs the package {name.partition('.')[0]} ({error}): pip install 'minikafka[{extra}]'"
        raise ConfigError("sasl.mechanism", mechanism, text) from None


def _failed(mechanism: str, problem: str, error: object, advice: str) -> AuthenticationFailed:
    text = f"{mechanism}: {problem}: {printable(shorten(str(error)))}; {advice}"
    return AuthenticationFailed(text, text)


def aws_presigner(options: AwsOptions) -> Presign:
    """Return what signs addresses with the credentials that ``options`` name, or those of the environment.

    A role's credentials are renewed by the library, as are those of an instance.
    """
    mechanism = aws_msk_iam.MECHANISM
    sessions = _imported("botocore.session", mechanism, "aws")
    auth = importlib.import_module("botocore.auth")
    requests = importlib.import_module("botocore.awsrequest")
    errors: tuple[type[Exception], ...] = (
        importlib.import_module("botocore.exceptions").BotoCoreError,
        importlib.import_module("botocore.exceptions").ClientError,
    )
    session = sessions.Session(profile=options.profile_name)
    credentials: Any = None

    def presign(host: str, region: str | None) -> str:
        nonlocal credentials
        try:
            region = region or session.get_config_variable("region")
            if credentials is None:  # two threads may both find them: both are good
                credentials = _aws_credentials(session, options)
            found = credentials and credentials.get_frozen_credentials()
        except errors as error:
            advice = "check the options aws… in sasl.jaas.config, and the AWS configuration of this host"
            raise _failed(mechanism, "cannot get AWS credentials", error, advice) from None
        if not found:
            advice = (
                "set awsProfileName or awsRoleArn in sasl.jaas.config, AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or run where an instance role is"
            )
            raise _failed(mechanism, "cannot get AWS credentials", "none found", advice)
        if not region:
            advice = "set AWS_REGION and AWS_DEFAULT_REGION, or use the cluster's own bootstrap address"
            raise _failed(mechanism, "unknown AWS region", f"{host!r} does not name it", advice)
        url = f"https://{host.replace('{region}', region)}/"
        request = requests.AWSRequest("GET", url, params={"Action": aws_msk_iam.ACTION})
        signer = auth.SigV4QueryAuth(found, aws_msk_iam.SERVICE, region, expires=aws_msk_iam.LIFETIME_S)
        signer.add_auth(request)
        return str(request.url)

    return presign


def _aws_credentials(session: Any, options: AwsOptions) -> Any:
    """Return the credentials of the role in ``options``, or else those that the session finds; or None."""
    library = importlib.import_module("botocore.credentials")
    if options.role_arn is None:
        return session.get_credentials()
    source = session.get_credentials()
    if options.role_access_key_id is not None and options.role_secret_access_key is not None:
        token = options.role_session_token
        source = library.Credentials(
            options.role_access_key_id, options.role_secret_access_key.value, token.value if token else None
        )
    if source is None:
        return None
    region = options.sts_region or session.get_config_variable("region") or _STS_OF_ALL_REGIONS

    def create_client(service: str, **arguments: Any) -> Any:
        return session.create_client(service, region_name=region, **arguments)

    arguments = {"RoleSessionName": options.role_session_name}
    if options.role_external_id is not None:
        arguments["ExternalId"] = options.role_external_id
    fetcher = library.AssumeRoleCredentialFetcher(create_client, source, options.role_arn, arguments)
    return library.DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")


def kerberos_contexts(options: KerberosOptions) -> Callable[[str], SecurityContext]:
    """Return what makes the context with the broker at a host: by a keytab, or the ticket cache."""
    library = _imported("gssapi", gssapi.MECHANISM, "kerberos")

    def context(host: str) -> SecurityContext:
        service = f"{options.service_name}@{host}"
        try:
            name = library.Name(service, library.NameType.hostbased_service)
            credentials = _kerberos_credentials(library, options)
            made = library.SecurityContext(
                name=name, creds=credentials, usage="initiate", mech=library.MechType.kerberos
            )
        except library.exceptions.GSSError as error:
            raise _kerberos_failure(options, host, error) from None
        return _KerberosContext(made, library.exceptions.GSSError, options, host)

    return context


def _kerberos_credentials(library: Any, options: KerberosOptions) -> Any:
    """Return the credentials; None for those of the default ticket cache."""
    store = {}
    if options.keytab is not None:
        # Tickets go into memory: another program's cache stays as it is.
        store = {"client_keytab": options.keytab, "ccache": "MEMORY:minikafka"}
    elif options.ticket_cache is not None:
        store = {"ccache": options.ticket_cache}
    if not store and options.principal is None:
        return None
    name = None
    if options.principal is not None:
        name = library.Name(options.principal, library.NameType.kerberos_principal)
    return library.Credentials(name=name, usage="initiate", store=store or None)


def _kerberos_failure(options: KerberosOptions, host: str, error: object) -> AuthenticationFailed:
    problem = f"no Kerberos context with {options.service_name}/{host}"
    return _failed(gssapi.MECHANISM, problem, error, gssapi.GssapiSaslClient.ADVICE)


class _KerberosContext:
    """The library's context, whose errors become AuthenticationFailed."""

    def __init__(self, context: Any, error: type[Exception], options: KerberosOptions, host: str) -> None:
        self._context = context
        self._error = error
        self._options = options
        self._host = host

    @property
    def complete(self) -> bool:
        return bool(self._context.complete)

    def step(self, token: bytes | None) -> bytes | None:
        return self._attempt(lambda: self._context.step(token))

    def wrap(self, message: bytes) -> bytes:
        return self._attempt(lambda: self._context.wrap(message, False).message) or b""

    def unwrap(self, message: bytes) -> bytes:
        return self._attempt(lambda: self._context.unwrap(message).message) or b""

    def _attempt(self, call: Callable[[], bytes | None]) -> bytes | None:
        try:
            return call()
        except self._error as error:
            raise _kerberos_failure(self._options, self._host, error) from None

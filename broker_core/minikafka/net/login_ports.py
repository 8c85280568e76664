"""The effects of logins: the clock, files, identity providers, and the libraries of AWS and Kerberos.

``login_ports`` gives them to ``security.sasl.login``. The two libraries are extras (``minikafka[aws]``,
``minikafka[kerberos]``), imported when a login needs them; an error says which one to install.
"""

from __future__ import annotations

import importlib
import os
import platform
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, TypeVar

from minikafka.base import __version__
from minikafka.base.clock import Clock, SystemClock
from minikafka.base.errors import AuthenticationFailed, ConfigError, NetworkError
from minikafka.base.printable import printable
from minikafka.base.text import shorten
from minikafka.net.http import fetch
from minikafka.net.tls import read_file
from minikafka.net.token_cache import TokenCache, in_background
from minikafka.security.sasl import aws_msk_iam, gssapi
from minikafka.security.sasl.aws_msk_iam import AwsOptions, Presign
from minikafka.security.sasl.gssapi import SecurityContext
from minikafka.security.sasl.login import KerberosOptions, LoginPorts
from minikafka.security.sasl.oauthbearer import OAuthBearerToken

T = TypeVar("T")

USER_AGENT = f"minikafka/{__version__}"

_STS_OF_ALL_REGIONS = "aws-global"

KDC_LIMIT_MS = 3_500
"""The time limit of a login's requests to the KDC, of which there are three. The library asks the next KDC
after a second.
"""
_KDC_UNREACHABLE = -1765328228 & 0xFFFFFFFF
"""The library's code KRB5_KDC_UNREACH."""
_TICKET_EXPIRED = -1765328352 & 0xFFFFFFFF
"""The library's code KRB5KRB_AP_ERR_TKT_EXPIRED."""
_KDC_ADVICE = "check the KDCs in krb5.conf of this host, and that it can connect to them"


def login_ports(clock: Clock | None = None) -> LoginPorts:
    """Return the effects of this process."""
    clock = clock or SystemClock()

    def keep_token(
        fetch_token: Callable[[], OAuthBearerToken],
        refresh_ms: Callable[[OAuthBearerToken], int],
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
        place: str,
    ) -> Callable[[int], OAuthBearerToken]:
        return TokenCache(fetch_token, refresh_ms, retry_backoff_ms, retry_backoff_max_ms, clock, place)

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


class _LimitedCalls:
    """Runs calls of a library, each for a limited time, and one at a time.

    The libraries wait for silent servers for a minute or more; a thread is left to that. Two calls of one
    login would leave two threads, and could replace each other's tickets.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()

    def run(self, call: Callable[[], T], limit_s: float) -> T:
        """Return what ``call`` returns. Raises its error, or that of a Future that is not done in time."""
        end_s, result = time.monotonic() + limit_s, Future[T]()

        def run() -> None:
            try:
                result.set_result(call())
            except Exception as error:  # noqa: BLE001 - raised by the thread that waits for it
                result.set_exception(error)
            finally:
                self._turn.release()

        if not self._turn.acquire(timeout=limit_s):
            raise FutureTimeout
        try:
            in_background(run)
        except RuntimeError as error:  # the system has no thread left
            self._turn.release()
            raise NetworkError(f"the login cannot be prepared: {error}") from None
        return result.result(max(0.0, end_s - time.monotonic()))


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
    calls = _LimitedCalls()
    credentials: Any = None

    def find() -> Any:
        nonlocal credentials
        if credentials is None:
            credentials = _aws_credentials(session, options)
        return credentials and credentials.get_frozen_credentials()

    def presign(host: str, region: str | None, limit_ms: int) -> str:
        try:
            region = region or session.get_config_variable("region")
            found = calls.run(find, limit_ms / 1000)
        except FutureTimeout:
            raise _aws_away(options, limit_ms) from None
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


def _aws_away(options: AwsOptions, limit_ms: int) -> NetworkError:
    """Return the error of credentials that do not come in time."""
    problem = f"{aws_msk_iam.MECHANISM}: no AWS credentials within {limit_ms} ms"
    if options.role_arn is not None:
        advice = "check that this host may connect to it, and awsStsRegion in sasl.jaas.config"
        return NetworkError(f"{problem}: AWS STS does not answer", advice=advice)
    advice = (
        "set awsProfileName or awsRoleArn in sasl.jaas.config, or AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY; without an instance role also AWS_EC2_METADATA_DISABLED=true"
    )
    away = "neither AWS STS nor the instance metadata service (169.254.169.254) answers"
    return NetworkError(f"{problem}: {away}", advice=advice)


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


def kerberos_contexts(options: KerberosOptions) -> Callable[[str, int], SecurityContext]:
    """Return what makes the context with the broker at a host: by a keytab, or the ticket cache."""
    return _KerberosLogin(_imported("gssapi", gssapi.MECHANISM, "kerberos"), options).context


class _KerberosLogin:
    """The login of one client, with the tickets that its keytab gets."""

    def __init__(self, library: Any, options: KerberosOptions) -> None:
        self._library = library
        self._options = options
        self._calls = _LimitedCalls()
        self._caches = 1
        self._has_logged_in = False

    def context(self, host: str, limit_ms: int) -> SecurityContext:
        """Return a new context with the broker at ``host``.

        As in Kafka, the first login must reach a KDC; later ones raise NetworkError without it.
        """
        limit_ms = min(limit_ms, KDC_LIMIT_MS)
        try:
            made = self._calls.run(lambda: self._begin(host), limit_ms / 1000)
        except FutureTimeout:
            raise self._no_kdc(host, f"no response within {limit_ms} ms") from None
        except _NoKdc as error:
            raise self._no_kdc(host, str(error)) from None
        self._has_logged_in = True
        return made

    def _begin(self, host: str) -> _KerberosContext:
        try:
            return _KerberosContext(self._library, self._options, self._credentials, host)
        except _EndedTicket:
            # The KDC was away when the ticket was to be renewed. The library would not ask it again for 30 s.
            self._caches += 1
            return _KerberosContext(self._library, self._options, self._credentials, host)

    def _credentials(self) -> Any:
        """Return the credentials; None for those of the default ticket cache."""
        options, store = self._options, {}
        if options.keytab is not None:
            # Tickets go into memory: another program's cache stays as it is. Each login has its own cache, as
            # one of another principal would log in as that.
            cache = f"MEMORY:minikafka {self._caches} {options.principal or ''} {options.keytab}"
            store = {"client_keytab": options.keytab, "ccache": cache}
        elif options.ticket_cache is not None:
            store = {"ccache": options.ticket_cache}
        if not store and options.principal is None:
            return None
        name = _principal(self._library, options)
        return self._library.Credentials(name=name, usage="initiate", store=store or None)

    def _no_kdc(self, host: str, reason: str) -> AuthenticationFailed | NetworkError:
        problem = f"{_no_context(self._options, host)}: the KDC cannot be reached"
        if not self._has_logged_in:
            return _failed(gssapi.MECHANISM, problem, reason, _KDC_ADVICE)
        return NetworkError(f"{gssapi.MECHANISM}: {problem}: {printable(reason)}", advice=_KDC_ADVICE)


class _NoKdc(Exception):
    """The library found no KDC that answers."""


class _EndedTicket(AuthenticationFailed):
    """A keytab's ticket has ended."""


class _KerberosContext:
    """The library's context, whose errors become AuthenticationFailed."""

    def __init__(
        self, library: Any, options: KerberosOptions, credentials: Callable[[], Any], host: str
    ) -> None:
        """Make the context with its first token, so that the KDC is asked before there is a connection.

        Raises _NoKdc and _EndedTicket.
        """
        self._library = library
        self._options = options
        self._host = host
        self._context = self._attempt(lambda: self._make(credentials()))
        self._first_token = self._attempt(lambda: self._context.step(None))

    @property
    def complete(self) -> bool:
        return bool(self._context.complete)

    def step(self, token: bytes | None) -> bytes | None:
        if self._first_token is not None:
            first, self._first_token = self._first_token, None
            return bytes(first)
        answer: bytes | None = self._attempt(lambda: self._context.step(token))
        return answer

    def wrap(self, message: bytes) -> bytes:
        return self._attempt(lambda: self._context.wrap(message, False).message) or b""

    def unwrap(self, message: bytes) -> bytes:
        return self._attempt(lambda: self._context.unwrap(message).message) or b""

    def _make(self, credentials: Any) -> Any:
        service = f"{self._options.service_name}@{self._host}"
        name = self._library.Name(service, self._library.NameType.hostbased_service)
        kerberos = self._library.MechType.kerberos
        return self._library.SecurityContext(name=name, creds=credentials, usage="initiate", mech=kerberos)

    def _attempt(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except self._library.exceptions.GSSError as error:
            raise self._failure(error) from None

    def _failure(self, error: Any) -> Exception:
        if error.min_code == _KDC_UNREACHABLE:
            return _NoKdc(_text_of(error))
        problem, reason = _no_context(self._options, self._host), error
        fault = self._keytab_fault()
        if fault is not None:
            problem, reason = f"{problem}: keyTab on host {platform.node()}", fault
        failed = _failed(gssapi.MECHANISM, problem, _text_of(reason), gssapi.GssapiSaslClient.ADVICE)
        if error.min_code == _TICKET_EXPIRED and self._options.keytab is not None:
            return _EndedTicket(failed.reason, failed.detail)
        return failed

    def _keytab_fault(self) -> Any:
        """Return the error of a keytab that has no key of the principal; None if that is not the reason.

        The library's error is that the cache for the tickets is not there.
        """
        if self._options.keytab is None:
            return None
        try:
            self._library.Credentials(
                name=_principal(self._library, self._options),
                usage="accept",
                store={"keytab": self._options.keytab},
            )
        except self._library.exceptions.GSSError as error:
            return error
        return None


def _principal(library: Any, options: KerberosOptions) -> Any:
    """Return the name of the client; None if the options do not say it."""
    if options.principal is None:
        return None
    return library.Name(options.principal, library.NameType.kerberos_principal)


def _text_of(error: Any) -> str:
    """Return what the mechanism says about an error; without that, the library's general text."""
    general = error.get_all_statuses(error.maj_code, True)
    return "; ".join(error.get_all_statuses(error.min_code, False) if error.min_code else general)


def _no_context(options: KerberosOptions, host: str) -> str:
    return f"no Kerberos context with {options.service_name}/{host}"

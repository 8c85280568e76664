"""TLS by OpenSSL with Kafka's settings: the contexts of clients and listeners.

Only ``net`` knows ``ssl``. OpenSSL reads private keys from files alone: a key reaches it by a file in memory,
or where the system has none by one in a private directory that is removed at once.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import socket
import ssl
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from minikafka.base.cache_dirs import read_regular
from minikafka.base.clock import Clock, SystemClock
from minikafka.base.config.config_def import Faults
from minikafka.base.errors import ConfigError, StoreError
from minikafka.security.certificates import Certificate
from minikafka.security.cipher_suites import OPENSSL_NAMES, is_tls_1_3
from minikafka.security.ssl_config import TLS_1_2, TLS_1_3, ClientAuth, ReadFile, SslConfig
from minikafka.security.stores.key_material import KeyMaterial

_log = logging.getLogger(__name__)

_VERIFY = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}
_VERSIONS = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}


def read_file(location: str) -> bytes:
    """Return the content of a file of this host. Raises OSError, also for what is no regular file."""
    return read_regular(location)


def client_context(config: SslConfig, read: ReadFile = read_file) -> ssl.SSLContext:
    """Return the context of connections to brokers: one for all that have the same settings.

    Give ``server_hostname`` for each connection: it is sent (SNI) and, unless the settings say otherwise,
    must be in the broker's certificate. Raises ConfigErrors.
    """
    faults = Faults()
    keys = faults.attempt(lambda: config.key_material(read), None)
    trusted = faults.attempt(lambda: config.trusted(read), None)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = config.endpoint_identification_algorithm != ""
    _configure(context, config, keys, trusted, faults)
    if trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def shared_client_context(config: SslConfig) -> ssl.SSLContext:
    """Return the one context of this process for ``config``: a new one when a file of its stores changes."""
    return _shared_context(config, tuple(map(_file_state, config.files)))


@functools.lru_cache(16)
def _shared_context(config: SslConfig, files: object) -> ssl.SSLContext:
    return client_context(config)


def _file_state(location: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(location)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


class CurrentTls:
    """TLS of a client that lives long, as the files of its stores say now: they are renewed without a
    restart.
    """

    def __init__(self, config: SslConfig, connections: str) -> None:
        """Read the stores. Raises ConfigErrors. connections: what they are for, for messages."""
        self._config = config
        self._connections = connections
        self._context = shared_client_context(config)
        self._complaint = ""

    def context(self) -> ssl.SSLContext:
        """Return the context of new connections: the earlier one if the files cannot be used, of which a
        warning tells once.
        """
        complaint, self._complaint = self._complaint, ""
        try:
            self._context = shared_client_context(self._config)
        except ConfigError as error:
            self._complaint = str(error)
            if complaint != self._complaint:
                _log.warning("%s keep their certificate: %s", self._connections, error)
        return self._context

    def wrap_socket(self, sock: socket.socket, *, server_hostname: str | None) -> ssl.SSLSocket:
        """Return as that of ``context``."""
        return self.context().wrap_socket(sock, server_hostname=server_hostname)


EXPIRY_WARNING_DAYS, EXPIRY_ERROR_DAYS = 30, 7
"""The days before the end of a certificate from which a line in the log tells of it, and as an error."""
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class _Stores:
    """A context, and what it was made of."""

    context: ssl.SSLContext
    chain: tuple[Certificate, ...]
    """The listener's own certificate first."""
    trusted: tuple[Certificate, ...]
    """Empty for the CAs of the system."""
    fault: str | None
    """The reason why the chain is not valid now; None if it is."""


class ServerTls:
    """TLS of a listener: the context of new connections, made anew when the files of its stores change."""

    def __init__(
        self,
        config: SslConfig,
        listener: str = "",
        read: ReadFile = read_file,
        clock: Clock | None = None,
        *,
        host: str | None = None,
    ) -> None:
        """Read the stores. A certificate that is not valid now, or not of ``host``, is a warning.

        Raises ConfigErrors. listener: its name, for messages. host: the one that it advertises.
        """
        self._host = host
        self._config = config
        self._listener = listener
        self._read = read
        self._clock = clock or SystemClock()
        self._contents = self._files()
        self._stores = self._created(self._contents)
        self._warned_ms: int | None = None
        self.warn_of_expiry()
        is_expired = any(certificate.days_left(self._now()) < 0 for certificate in self._stores.chain)
        if self._stores.fault is not None and not is_expired:
            _log.warning("listener %s: %s; clients refuse it: renew it", listener, self._stores.fault)
        self._warn_of_another_host()

    @property
    def context(self) -> ssl.SSLContext:
        """The context of new connections; earlier connections keep theirs."""
        return self._stores.context

    @property
    def client_auth(self) -> ClientAuth:
        """The demand for certificates of clients."""
        return self._config.client_auth

    def reload(self) -> bool:
        """Make a new context if a file has changed. Return whether there is one.

        If the new files cannot be used, or their certificate is not valid now, the context stays as it is,
        and a warning says why: once for each change. Sessions of TLS end with their context.
        """
        contents = self._files()
        if contents == self._contents:
            return False
        self._contents = contents
        stores = None
        try:
            stores = self._created(contents)
            fault = stores.fault
        except ConfigError as error:
            fault = str(error)
        if stores is None or fault is not None:
            _log.warning("listener %s keeps its earlier certificates: %s", self._listener, fault)
            return False
        self._stores, self._warned_ms = stores, None
        self._warn_of_another_host()
        _log.info("listener %s uses the new content of %s", self._listener, ", ".join(contents))
        return True

    def warn_of_expiry(self) -> None:
        """Log each certificate in use that expires soon, or has: once a day, and after a change."""
        now_ms = self._clock.monotonic_ms()
        if self._warned_ms is not None and now_ms - self._warned_ms < _DAY_MS:
            return
        self._warned_ms = now_ms
        config = self._config
        self._log_expiry(self._stores.chain, config.keystore_property, config.keystore_location)
        self._log_expiry(self._stores.trusted, config.truststore_property, config.truststore_location)

    def _log_expiry(self, certificates: Iterable[Certificate], setting: str, location: str | None) -> None:
        now = self._now()
        for certificate in certificates:
            days = certificate.days_left(now)
            if days < EXPIRY_WARNING_DAYS:
                try:
                    end = certificate.expiry(now)
                except (StoreError, ValueError):  # OpenSSL reads names that cannot be read here
                    continue
                level = logging.WARNING if days >= EXPIRY_ERROR_DAYS else logging.ERROR
                place = setting if location is None else f"{setting}={location}"
                effect = "; it is refused" if days < 0 else ""
                text = "listener %s: %s (in %s)%s: renew it"
                _log.log(level, text, self._listener, end, place, effect)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, timezone.utc)

    def _warn_of_another_host(self) -> None:
        """Log a warning if clients that connect to the advertised host refuse the certificate in use."""
        certificate = self._stores.chain[0]
        if self._host is None or certificate.is_of(self._host):
            return
        _log.warning(
            "listener %s: advertises %s, but its certificate is of %s; clients refuse it: get one of that "
            "host, or set advertised.listeners",
            self._listener,
            self._host,
            ", ".join(certificate.hosts) or "no host",
        )

    def _files(self) -> dict[str, bytes | None]:
        """Return the content of each file; None if it cannot be read."""
        contents: dict[str, bytes | None] = {}
        for location in self._config.files:
            try:
                contents[location] = self._read(location)
            except OSError:
                contents[location] = None
        return contents

    def _created(self, contents: Mapping[str, bytes | None]) -> _Stores:
        """Return a context, made of files with these contents. Raises ConfigErrors."""

        def read(location: str) -> bytes:
            content = contents[location]
            return self._read(location) if content is None else content  # raises the error again

        config, faults = self._config, Faults()
        keys = faults.attempt(lambda: config.key_material(read), None)
        trusted = faults.attempt(lambda: config.trusted(read), None)
        if not config.has_keys:
            text = "must be given: a listener with TLS has a private key and a certificate"
            faults.add([ConfigError("ssl.keystore.location", None, text)])
        if config.client_auth is not ClientAuth.NONE and not config.has_trust:
            text = f"must be given with ssl.client.auth={config.client_auth.value}: the CAs of the clients"
            faults.add([ConfigError("ssl.truststore.location", None, text)])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
        _configure(context, config, keys, trusted, faults)
        context.verify_mode = _VERIFY[config.client_auth]
        assert keys is not None, "checked with the faults"
        return _Stores(
            context,
            tuple(map(Certificate.parse, keys.chain)),
            tuple(_readable(trusted or ())),
            keys.validity_fault(self._now()),
        )


def _readable(trusted: Iterable[bytes]) -> Iterator[Certificate]:
    """Yield the certificates that can be read here: OpenSSL may read more."""
    for der in trusted:
        with contextlib.suppress(StoreError):
            yield Certificate.parse(der)


def _configure(
    context: ssl.SSLContext,
    config: SslConfig,
    keys: KeyMaterial | None,
    trusted: tuple[bytes, ...] | None,
    faults: Faults,
) -> None:
    """Set what both ends have. Raises ConfigErrors with ``faults`` and those found here."""
    context.options |= ssl.OP_NO_RENEGOTIATION
    versions = [_VERSIONS[name] for name in config.enabled_protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    faults.attempt(lambda: _set_cipher_suites(context, config), None)
    # As in Java, a certificate in the trust store is trusted itself, whoever signed it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if keys is not None:
        faults.attempt(lambda: _set_keys(context, config, keys), None)
    if trusted is not None:
        faults.attempt(lambda: _set_trusted(context, config, trusted), None)
    faults.check()


def _set_cipher_suites(context: ssl.SSLContext, config: SslConfig) -> None:
    given = config.cipher_suites
    if not given:
        return
    new = [name for name in given if is_tls_1_3(name)]
    old = [OPENSSL_NAMES[name] for name in given if not is_tls_1_3(name)]

    def fault(allowed: str) -> ConfigError:
        return ConfigError("ssl.cipher.suites", ",".join(given), allowed)

    # A version without a suite is not offered, as in Java.
    if not new:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if not old:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if context.minimum_version > context.maximum_version:
        only = TLS_1_2 if TLS_1_3 not in config.enabled_protocols else TLS_1_3
        raise fault(f"has no suite of {only}, the only version in ssl.enabled.protocols")
    if old:
        try:
            context.set_ciphers(":".join(old))
        except ssl.SSLError:
            raise fault("none of the suites is in this OpenSSL") from None
    enabled = {str(suite["name"]) for suite in context.get_ciphers()}
    if missing := [name for name in given if not is_tls_1_3(name) and OPENSSL_NAMES[name] not in enabled]:
        raise fault(f"not in this OpenSSL: {', '.join(missing)}")
    if new and set(new) != (available := {name for name in enabled if is_tls_1_3(name)}):
        if not hasattr(context, "set_ciphersuites"):  # it came with Python 3.15
            allowed = ", ".join(sorted(available))
            raise fault(
                f"this Python cannot choose among the suites of {TLS_1_3}: give all of {allowed}, or none"
            )
        context.set_ciphersuites(":".join(new))


def _set_keys(context: ssl.SSLContext, config: SslConfig, keys: KeyMaterial) -> None:
    try:
        with _file_of(keys.to_pem().value.encode()) as path:
            context.load_cert_chain(path)
    except ssl.SSLError as error:
        text = f"OpenSSL refuses it: {_reason(error)}"
    except OSError as error:  # a full disk
        text = f"cannot be passed to OpenSSL, which takes a file: {error.strerror or error}"
    else:
        return
    raise ConfigError(config.keystore_property, config.keystore_location, text)


def _set_trusted(context: ssl.SSLContext, config: SslConfig, trusted: tuple[bytes, ...]) -> None:
    try:
        context.load_verify_locations(cadata=b"".join(trusted))
    except ssl.SSLError as error:
        raise ConfigError(
            config.truststore_property, config.truststore_location, f"OpenSSL refuses it: {_reason(error)}"
        ) from None


@contextlib.contextmanager
def _file_of(content: bytes) -> Iterator[str]:
    """Give a file with ``content`` that no other user can read, until the block ends. Raises OSError."""
    with contextlib.ExitStack() as stack:
        descriptor = _memory_file()
        path = f"/proc/self/fd/{descriptor}"
        if descriptor is None:
            path = os.path.join(stack.enter_context(tempfile.TemporaryDirectory()), "key.pem")
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        file = stack.enter_context(open(descriptor, "wb"))
        file.write(content)
        file.flush()
        yield path


def _memory_file() -> int | None:
    """Return a file in memory; None where none has a path: anywhere but on Linux, or without /proc."""
    try:
        descriptor = os.memfd_create("key", os.MFD_CLOEXEC)
    except (AttributeError, OSError):
        return None
    if os.path.exists(f"/proc/self/fd/{descriptor}"):
        return descriptor
    os.close(descriptor)
    return None


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()

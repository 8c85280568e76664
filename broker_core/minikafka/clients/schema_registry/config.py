"""The settings of a schema registry's client, with the names of Confluent's clients.

They are read from properties that begin with ``schema.registry.``; TLS is that of all clients, below
``schema.registry.ssl.``. The user of an address, and every other secret, becomes a Password at once.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar
from urllib.parse import SplitResult, unquote, urlsplit

from minikafka.base.config.config_def import Faults, definition_of, setting
from minikafka.base.config.types import PASSWORD, WORDS, capped_int64, choice, int32
from minikafka.base.config.unknown_names import unknown_names
from minikafka.base.errors import ConfigError
from minikafka.base.secrets import Password
from minikafka.clients.common_client_configs import PROTOCOL, ClientSecurity

NAMESPACE = "schema.registry."
URL = NAMESPACE + "url"
_SSL = "ssl."
_BASIC = NAMESPACE + "basic.auth.credentials.source"
_USER_INFO = NAMESPACE + "basic.auth.user.info"
_BEARER = NAMESPACE + "bearer.auth.credentials.source"
_TOKEN = NAMESPACE + "bearer.auth.token"
_SETTING = re.compile(r"(?<![\w./-])(?:schema\.registry|ssl)\.(?=[a-z])")
_SASL_INHERIT = "is not supported: give the user by USER_INFO or URL"


@dataclass(frozen=True, slots=True)
class RegistryAddress:
    """One address of a registry, without its user, and the header that logs in there."""

    url: str
    authorization: Password | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRegistryConfig:
    """The settings of one registry. A value: it can be compared, hashed, and sent to another process.

    addresses: of the same registry, tried in turn. ssl: the settings of TLS. namespace: before the name of
    each setting in messages. url_name: the name of the setting that has the addresses.
    """

    UNSUPPORTED: ClassVar[Mapping[str, str]] = {
        NAMESPACE + "proxy.host": "set the environment's https_proxy",
        NAMESPACE + "proxy.port": "set the environment's https_proxy",
    }

    addresses: tuple[RegistryAddress, ...]
    ssl: tuple[tuple[str, Password], ...] = ()
    namespace: str = NAMESPACE
    url_name: str = URL
    connect_timeout_ms: int = setting(
        NAMESPACE + "http.connect.timeout.ms", capped_int64(1), 60_000, "How long a connection may take."
    )
    read_timeout_ms: int = setting(
        NAMESPACE + "http.read.timeout.ms", capped_int64(1), 60_000, "How long a response may take."
    )
    max_retries: int = setting(
        NAMESPACE + "max.retries",
        int32(0),
        3,
        "How often a request is repeated, at every address, after a failure that may pass.",
    )
    retry_wait_ms: int = setting(
        NAMESPACE + "retries.wait.ms", int32(0), 1_000, "The pause before the first repetition; it doubles."
    )
    retry_max_wait_ms: int = setting(
        NAMESPACE + "retries.max.wait.ms", int32(0), 20_000, "The longest pause."
    )


@dataclass(frozen=True, slots=True)
class _Login:
    urls: list[str] = setting(
        URL, WORDS, "", "The addresses of a schema registry with Confluent's interface, separated by commas."
    )
    basic: str = setting(
        _BASIC,
        choice({"URL": "URL", "USER_INFO": "USER_INFO", "SASL_INHERIT": "SASL_INHERIT"}),
        "URL",
        "Where the user is: `URL` (http://USER:PASSWORD@HOST) or `USER_INFO`.",
    )
    user_info: Password | None = setting(
        _USER_INFO, PASSWORD, None, "USER:PASSWORD, with the credentials source `USER_INFO`."
    )
    bearer: str | None = setting(
        _BEARER, choice({"STATIC_TOKEN": "STATIC_TOKEN"}), None, "`STATIC_TOKEN`: log in with a token."
    )
    token: Password | None = setting(_TOKEN, PASSWORD, None, "The token, with `STATIC_TOKEN`.")


SETTINGS = (*definition_of(_Login).keys.values(), *definition_of(SchemaRegistryConfig).keys.values())
"""The settings but those of TLS."""


def in_namespace(faults: Iterable[ConfigError], namespace: str) -> Iterator[ConfigError]:
    """Yield ``faults`` with the names of all settings below ``namespace``, also those in their texts."""

    def named(text: str) -> str:
        return _SETTING.sub(lambda found: namespace + found[0].removeprefix(NAMESPACE), text)

    for fault in faults:
        yield ConfigError(named(fault.name), fault.value, named(fault.allowed))


def registry_config(properties: Mapping[str, str], prefix: str = "") -> SchemaRegistryConfig:
    """Return the settings among ``properties``, whose names are in lower case; others are passed over.

    ``prefix`` is put before the names in messages. Raises ConfigErrors with every fault.
    """
    given = {name: value for name, value in properties.items() if name.startswith(NAMESPACE)}
    found = Faults()
    login = _Login(**found.take(definition_of(_Login).read(given)))
    values: dict[str, Any] = found.take(definition_of(SchemaRegistryConfig).read(given))
    ssl = {name.removeprefix(NAMESPACE): given[name] for name in given if name.startswith(NAMESPACE + _SSL)}
    tls = Faults()
    unused = tls.attempt(lambda: ClientSecurity.read({PROTOCOL: "SSL", **ssl})[1], [])
    found.add([*tls, *unused])
    known = {key.name for key in SETTINGS}
    others = [name for name in given if not name.startswith(NAMESPACE + _SSL)]
    found.add(unknown_names(others, known, SchemaRegistryConfig.UNSUPPORTED))
    if not login.urls and not any(fault.name == URL for fault in found):
        found.add([ConfigError(URL, None, "must be given: HTTPS://HOST:PORT of the schema registry")])
    header = found.attempt(lambda: _authorization(login), None)
    addresses = [found.attempt(partial(_address, url, login, header), None) for url in login.urls]
    faults = Faults()
    faults.add(in_namespace(found, prefix + NAMESPACE))
    faults.check([prefix + name for name in given])
    return SchemaRegistryConfig(
        addresses=tuple(address for address in addresses if address is not None),
        ssl=tuple((name, Password(value)) for name, value in sorted(ssl.items())),
        namespace=prefix + NAMESPACE,
        url_name=prefix + URL,
        **values,
    )


def _authorization(login: _Login) -> Password | None:
    """Return the header for every address. Raises ConfigError."""
    if login.basic == "SASL_INHERIT":
        raise ConfigError(_BASIC, login.basic, _SASL_INHERIT)
    if login.bearer is not None:
        if login.token is None or not login.token.value:
            raise ConfigError(_TOKEN, None, f"must be given, as {_BEARER} is {login.bearer}")
        if login.user_info is not None:
            raise ConfigError(_USER_INFO, None, f"conflicts with {_BEARER}: log in with one of the two")
        return Password(f"Bearer {login.token.value}")
    if login.token is not None:
        raise ConfigError(_TOKEN, None, f"has an effect only if {_BEARER} is STATIC_TOKEN")
    if login.basic == "URL":
        if login.user_info is not None:
            raise ConfigError(_USER_INFO, None, f"has an effect only if {_BASIC} is USER_INFO")
        return None
    if login.user_info is None or ":" not in login.user_info.value:
        raise ConfigError(_USER_INFO, None, f"must be USER:PASSWORD, as {_BASIC} is USER_INFO")
    return _basic(login.user_info.value)


def _basic(user_info: str) -> Password:
    return Password(f"Basic {b64encode(user_info.encode()).decode('ascii')}")


def _address(text: str, login: _Login, header: Password | None) -> RegistryAddress:
    """Return one address of ``schema.registry.url``. Raises ConfigError, which has no user."""
    try:
        url = urlsplit(text)
        host, port = url.hostname, url.port
    except ValueError:
        raise ConfigError(URL, None, "is not a URL; expected http://HOST:PORT or https://HOST:PORT") from None
    if url.scheme.lower() not in ("http", "https") or not host:
        shown = text.rpartition("@")[2]
        raise ConfigError(URL, shown, "must begin with http:// or https://, and have a host")
    if url.query or url.fragment:
        raise ConfigError(URL, _without_user(url, host, port), "must not have a query or a fragment")
    if url.username is None:
        return RegistryAddress(_without_user(url, host, port), header)
    if login.basic != "URL" or header is not None:
        allowed = f"has a user, and so has {_USER_INFO if login.bearer is None else _TOKEN}: give one of them"
        raise ConfigError(URL, None, allowed)
    user_info = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return RegistryAddress(_without_user(url, host, port), _basic(user_info))


def _without_user(url: SplitResult, host: str, port: int | None) -> str:
    host = f"[{host}]" if ":" in host else host
    return f"{url.scheme}://{host}{f':{port}' if port is not None else ''}{url.path.rstrip('/')}"

"""The security of one listener: its ``ssl.*`` and ``sasl.*``.

``listener.name.NAME.`` before the name of such a setting (the listener's name in lower case) is for that
listener alone, and takes precedence over the setting without it. What a mechanism has for itself stands
behind the mechanism's name in lower case: ``listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config``.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from minikafka.base.config.config_def import Faults, definition_of, setting
from minikafka.base.config.types import PASSWORD, TEXT, WORDS, ConfigType, int32, int64
from minikafka.base.errors import ConfigError
from minikafka.base.secrets import Password
from minikafka.net.connection_quotas import UNLIMITED, ConnectionLimits
from minikafka.security.jaas import LOGIN_MODULES, JaasConfig
from minikafka.security.sasl import oauthbearer, plain
from minikafka.security.sasl.sasl_config import SaslConfig
from minikafka.security.sasl.scram import ScramMechanism
from minikafka.security.sasl.server_states import MAX_REQUEST_BYTES
from minikafka.security.sasl.signed_tokens import JWKS_ENDPOINT, SignedTokenConfig
from minikafka.security.sasl.unsecured_tokens import UnsecuredValidator
from minikafka.security.ssl_config import SslConfig
from minikafka.server.config.listeners import Listener, Protocol
from minikafka.server.quotas.client_quotas import QuotaConfig

Section = TypeVar("Section")

PREFIX = "listener.name."
_JAAS = "sasl.jaas.config"
_MECHANISMS = "sasl.enabled.mechanisms"
_CALLBACKS = "sasl.server.callback.handler.class"

_SERVED = (plain.MECHANISM, oauthbearer.MECHANISM, *(mechanism.value for mechanism in ScramMechanism))
"""The mechanisms of which a broker has the server's side."""
_MECHANISM_PREFIXES = frozenset(map(str.lower, _SERVED))
_UNSECURED = "OAuthBearerUnsecuredValidatorCallbackHandler"
_SIGNED = "OAuthBearerValidatorCallbackHandler"
_DEFAULT_CALLBACKS = {
    plain.MECHANISM: "PlainServerCallbackHandler",
    **{mechanism.value: "ScramServerCallbackHandler" for mechanism in ScramMechanism},
}
"""Kafka's handlers that do what this broker does without one."""


@dataclass(frozen=True, slots=True)
class AuthenticationConfig:
    """The settings that all listeners with SASL have in common."""

    receive_max_bytes: int = setting(
        "sasl.server.max.receive.size",
        int32(1),
        MAX_REQUEST_BYTES,
        "The largest request of a client that has not authenticated.",
    )
    failure_delay_ms: int = setting(
        "connection.failed.authentication.delay.ms",
        int32(0),
        100,
        "How long the answer to a failed authentication is held back. The connection is closed then.",
    )


@dataclass(frozen=True, slots=True)
class SaslServerConfig:
    """The settings of a listener with SASL, or those of one of its mechanisms."""

    enabled_mechanisms: tuple[str, ...] = setting(
        _MECHANISMS,
        WORDS,
        "GSSAPI",
        f"The SASL mechanisms that clients may use: {', '.join(_SERVED)}. Kafka's default, GSSAPI, is "
        "not supported, so a listener with SASL needs another value.",
    )
    jaas: Password | None = setting(
        _JAAS,
        PASSWORD,
        None,
        "The JAAS configuration of a mechanism, with `listener.name.NAME.MECHANISM.` before it. For PLAIN it "
        "has the users: `org.apache.kafka.common.security.plain.PlainLoginModule required "
        'user_alice="SECRET";`.',
    )
    callback_handler: str | None = setting(
        _CALLBACKS,
        TEXT.as_kind(ConfigType.CLASS),
        None,
        "The class that checks clients, with `listener.name.NAME.MECHANISM.` before it. OAUTHBEARER needs "
        f"it: `org.apache.kafka.common.security.oauthbearer.{_SIGNED}` for tokens of a provider, or "
        f"`org.apache.kafka.common.security.oauthbearer.internals.unsecured.{_UNSECURED}` for tokens that "
        "anyone can make, for development.",
    )
    max_reauth_ms: int = setting(
        "connections.max.reauth.ms",
        int64(0),
        0,
        "How long a client with SASL may go on before it has to authenticate again. 0: without a limit.",
    )


_SSL_NAMES = frozenset({*definition_of(SslConfig).keys, *SslConfig.CHECKED})
_LIMITS = frozenset({"max.connections", "max.connection.creation.rate"})
LOGIN_NAMES = tuple(
    name for name in definition_of(SaslConfig).keys if name.startswith(("sasl.login.", "sasl.oauthbearer."))
)
"""Settings of a client's login that a broker has too, for its login to other brokers."""
_SASL_NAMES = frozenset(
    {*definition_of(SaslServerConfig).keys, *definition_of(SignedTokenConfig).keys, *LOGIN_NAMES}
)


@dataclass(frozen=True, slots=True)
class ServerMechanism:
    """A mechanism of a listener."""

    name: str
    jaas: JaasConfig | None
    """None for SCRAM without one: its users are in ZooKeeper."""
    max_reauth_ms: int
    unsecured_validator: UnsecuredValidator | None = None
    """For OAUTHBEARER with tokens that have no signature."""
    signed_tokens: SignedTokenConfig | None = None
    """For OAUTHBEARER with tokens that an identity provider has signed."""


@dataclass(frozen=True, slots=True)
class SaslListener:
    """SASL on a listener."""

    mechanisms: tuple[ServerMechanism, ...]


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """The security of a listener."""

    ssl: SslConfig | None = None
    """None: without TLS."""
    sasl: SaslListener | None = None
    """None: without SASL."""


class ListenerProperties:
    """The properties of a broker as one of its listeners sees them."""

    def __init__(self, properties: Mapping[str, object], listener: str) -> None:
        self._properties = properties
        self._prefix = f"{PREFIX}{listener.lower()}."

    def of(self, mechanism: str | None = None) -> dict[str, object]:
        """Return the settings by their plain names, with those of a mechanism; the longest prefix wins."""
        found = {name: value for name, value in self._properties.items() if not name.startswith(PREFIX)}
        for prefix in self._prefixes(mechanism):
            begin = len(prefix)
            found |= {
                name[begin:]: value for name, value in self._properties.items() if name.startswith(prefix)
            }
        return found

    def read(self, section: type[Section], faults: Faults, mechanism: str | None = None) -> Section:
        """Return the settings of ``section``; faults have the names under which the settings were given."""
        values, found = definition_of(section).read(self.of(mechanism))
        made = section()
        try:
            made = section(**values)
        except ConfigError as error:  # settings that are valid alone
            found += error.faults
        faults.add(self.faults_as_given(found, mechanism))
        return made

    def faults_as_given(
        self, faults: Iterable[ConfigError], mechanism: str | None = None
    ) -> list[ConfigError]:
        """Return ``faults`` with the names under which the settings were given."""
        return [ConfigError(self.name(fault.name, mechanism), fault.value, fault.allowed) for fault in faults]

    def name(self, plain_name: str, mechanism: str | None = None) -> str:
        """Return the name under which a setting was given; the plain one if it was not."""
        for prefix in reversed(self._prefixes(mechanism)):
            if prefix + plain_name in self._properties:
                return prefix + plain_name
        return plain_name

    def own_name(self, plain_name: str, mechanism: str | None = None) -> str:
        """Return the name of a setting that is for this listener, and this mechanism, alone."""
        return self._prefixes(mechanism)[-1] + plain_name

    def named(self, plain_names: Container[str]) -> set[str]:
        """Return the names of ``plain_names`` that were given for this listener alone, with their prefix."""
        found = set()
        for name in self._properties:
            if name.startswith(self._prefix):
                rest = name.removeprefix(self._prefix)
                mechanism, _, setting_name = rest.partition(".")
                if (setting_name if mechanism in _MECHANISM_PREFIXES else rest) in plain_names:
                    found.add(name)
        return found

    def _prefixes(self, mechanism: str | None) -> tuple[str, ...]:
        if mechanism is None:
            return (self._prefix,)
        return self._prefix, f"{mechanism.lower()}.", f"{self._prefix}{mechanism.lower()}."


def security_of(
    listeners: Iterable[Listener], properties: Mapping[str, object]
) -> dict[str, ListenerSecurity]:
    """Return the security of each listener, by its name. Raises ConfigErrors with what is to be set."""
    faults, found = Faults(), {}
    # A wrong value is a fault even if no listener uses it.
    for section in (SslConfig, SaslServerConfig, SignedTokenConfig):
        faults.add(definition_of(section).read(properties)[1])
    given = {name: value for name, value in properties.items() if name in LOGIN_NAMES}
    faults.add(definition_of(SaslConfig).read(given)[1])
    for listener in listeners:
        protocol, own = listener.protocol, ListenerProperties(properties, listener.name)
        if protocol is Protocol.CLASSIC:
            refusal = f"the listener {listener.name} is CLASSIC, which has neither TLS nor SASL"
            faults.add([ConfigError(name, None, refusal) for name in own.named(_SSL_NAMES | _SASL_NAMES)])
        found[listener.name] = ListenerSecurity(
            own.read(SslConfig, faults) if protocol.has_tls else None,
            faults.attempt(partial(_sasl_listener, own), None) if protocol.has_sasl else None,
        )
    faults.check()
    return found


def limits_of(
    listeners: Collection[Listener], properties: Mapping[str, object], inter_broker: str, quotas: QuotaConfig
) -> ConnectionLimits:
    """Return the limits of connections, with those of each listener. Raises ConfigErrors.

    inter_broker: the name of the listener of brokers.
    """
    faults, rates, totals = Faults(), {}, {}
    limits = ConnectionLimits(**faults.take(definition_of(ConnectionLimits).read(properties)))
    for listener in listeners:
        own = ListenerProperties(properties, listener.name).read(ConnectionLimits, faults)
        if own.creation_rate != UNLIMITED:
            rates[listener.name] = own.creation_rate
        if own.total != limits.total:
            totals[listener.name] = own.total
    faults.check()
    return replace(
        limits,
        totals=totals,
        creation_rates=rates,
        inter_broker_listener=inter_broker if len(listeners) > 1 else "",
        rate_windows=quotas.windows,
        rate_window_ms=quotas.window_ms,
    )


def names_of_listeners(listeners: Iterable[Listener], properties: Mapping[str, object]) -> set[str]:
    """Return the names of settings that are for one of ``listeners`` alone, and have an effect there."""
    found: set[str] = set()
    for listener in listeners:
        own, protocol = ListenerProperties(properties, listener.name), listener.protocol
        found |= own.named(_LIMITS)
        found |= own.named(_SSL_NAMES if protocol.has_tls else frozenset())
        found |= own.named(_SASL_NAMES if protocol.has_sasl else frozenset())
    return found


def _sasl_listener(properties: ListenerProperties) -> SaslListener:
    """Return the SASL settings of a listener. Raises ConfigErrors with what is to be set."""
    faults = Faults()
    config = properties.read(SaslServerConfig, faults)
    names = config.enabled_mechanisms
    unknown = [name for name in names if name not in _SERVED]
    if unknown or not names:
        faults.add([_not_served(properties, names, unknown)])
    mechanisms = [
        faults.attempt(partial(_mechanism, properties, name, faults), None)
        for name in names
        if name in _SERVED
    ]
    faults.check()
    return SaslListener(tuple(filter(None, mechanisms)))


def _not_served(properties: ListenerProperties, names: tuple[str, ...], unknown: list[str]) -> ConfigError:
    given = properties.name(_MECHANISMS)
    what = f"{', '.join(unknown)} is not supported" if names else "a listener with SASL needs a mechanism"
    known = ", ".join(_SERVED)
    return ConfigError(
        given, ",".join(names), f"{what}: set {properties.own_name(_MECHANISMS)} to some of {known}"
    )


def _mechanism(properties: ListenerProperties, name: str, faults: Faults) -> ServerMechanism:
    config = properties.read(SaslServerConfig, faults, name)
    mechanism = ServerMechanism(name, _jaas(properties, name, config.jaas), config.max_reauth_ms)
    handler = (config.callback_handler or "").rpartition(".")[2]
    if name == oauthbearer.MECHANISM:
        return _with_tokens(properties, mechanism, handler, faults)
    if handler not in ("", _DEFAULT_CALLBACKS[name]):
        raise ConfigError(
            properties.name(_CALLBACKS, name),
            config.callback_handler,
            f"must be {_DEFAULT_CALLBACKS[name]} or unset: other classes are not supported",
        )
    return mechanism


def _jaas(properties: ListenerProperties, mechanism: str, text: Password | None) -> JaasConfig | None:
    """Return the JAAS configuration of a mechanism: its own, or the one for all if it fits."""
    given = properties.name(_JAAS, mechanism)
    jaas = None if text is None else JaasConfig.parse(text, given)
    if jaas is not None and not jaas.is_of(mechanism):
        if f"{mechanism.lower()}.{_JAAS}" in given:
            raise ConfigError(given, text, f"must have Kafka's login module for {mechanism}, not another one")
        jaas = None
    if jaas is None and mechanism == plain.MECHANISM:
        raise ConfigError(
            properties.own_name(_JAAS, mechanism),
            None,
            "must be set, as PLAIN is enabled: Kafka's login module for PLAIN with an option user_NAME for "
            "the password of each user (a file of java.security.auth.login.config is not read)",
        )
    return jaas


def _with_tokens(
    properties: ListenerProperties, mechanism: ServerMechanism, handler: str, faults: Faults
) -> ServerMechanism:
    """Return OAUTHBEARER with what makes tokens valid, which must be chosen: there is no default."""
    name = mechanism.name
    jaas = mechanism.jaas or JaasConfig.parse(f"{LOGIN_MODULES[name]} required;")
    if handler == _UNSECURED:
        return replace(mechanism, jaas=jaas, unsecured_validator=UnsecuredValidator.from_jaas(jaas))
    if handler == _SIGNED:
        config = properties.read(SignedTokenConfig, faults, name)
        name_of = properties.own_name if config.jwks_endpoint_url is None else properties.name
        faults.add(
            ConfigError(name_of(fault.name, name), fault.value, fault.allowed)
            for fault in config.faults(jaas)
        )
        return replace(mechanism, jaas=jaas, signed_tokens=config)
    raise ConfigError(
        properties.own_name(_CALLBACKS, name),
        handler or None,
        f"must be set, as OAUTHBEARER is enabled, to Kafka's class {_SIGNED}, with {JWKS_ENDPOINT}; or, for "
        f"development only, to {_UNSECURED}: it accepts tokens without a signature, which anyone can make",
    )

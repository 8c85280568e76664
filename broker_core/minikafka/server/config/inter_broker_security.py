"""The security of connections to other brokers: that of the inter-broker listener, from a client's side.

The same ``ssl.*`` count as for the listener: its certificate is the client's too, and the CAs that it trusts
must have issued the other brokers' certificates. With SASL a broker is a user: ``username`` and ``password``
are in the JAAS configuration of the listener's mechanism, beside what checks clients. For tokens of an
identity provider, ``clientId`` and ``clientSecret`` are there, and the address is a setting, as for clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from minikafka.base.config.config_def import setting
from minikafka.base.config.types import TEXT
from minikafka.base.endpoints import SecurityProtocol
from minikafka.base.errors import ConfigError, ConfigErrors
from minikafka.security.sasl.sasl_config import JAAS, SaslConfig
from minikafka.security.ssl_config import SslConfig
from minikafka.server.config.listener_security import LOGIN_NAMES, ListenerProperties, ListenerSecurity
from minikafka.server.config.listeners import Listener

_MECHANISM = "sasl.mechanism.inter.broker.protocol"
_ENABLED = "sasl.enabled.mechanisms"


@dataclass(frozen=True, slots=True)
class InterBrokerSaslConfig:
    """The SASL mechanism between brokers."""

    mechanism: str | None = setting(
        _MECHANISM,
        TEXT,
        None,
        "The SASL mechanism between brokers, one of `sasl.enabled.mechanisms`. By default the first of them "
        "for which this broker has credentials: `username` and `password` in "
        "`listener.name.NAME.MECHANISM.sasl.jaas.config`, or for OAUTHBEARER `clientId` and `clientSecret`, "
        "with `sasl.oauthbearer.token.endpoint.url`.",
    )


@dataclass(frozen=True, slots=True)
class InterBrokerSecurity:
    """The listener, TLS and login of this broker's connections to others."""

    listener: str
    """The name of the listener on which brokers connect to each other."""
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    ssl: SslConfig | None = None
    """None: without TLS."""
    sasl: SaslConfig | None = None
    """None: without SASL, or without credentials."""
    advice: str = ""
    """The advice for a broker that needs credentials and has none."""
    login_property: str = ""
    """The name of the property with the credentials; "" without."""

    @classmethod
    def of(
        cls,
        listener: Listener,
        by_listener: Mapping[str, ListenerSecurity],
        config: InterBrokerSaslConfig,
        properties: Mapping[str, object],
    ) -> InterBrokerSecurity:
        """Return the security of connections on ``listener``, of a broker with these ``properties``.

        Raises ConfigErrors.
        """
        protocol, security = SecurityProtocol[listener.protocol.value], by_listener[listener.name]
        if security.sasl is None:
            return cls(listener.name, protocol, security.ssl)
        own = ListenerProperties(properties, listener.name)
        enabled = [mechanism.name for mechanism in security.sasl.mechanisms]
        if config.mechanism is not None:
            if config.mechanism not in enabled:
                problem = (
                    f"must be included in {own.name(_ENABLED)} ({', '.join(enabled)}), because brokers "
                    f"connect to each other on {listener.name}, a listener with SASL"
                )
                raise ConfigError(_MECHANISM, config.mechanism, problem)
            sasl, faults = _login(own, config.mechanism)
            if faults:
                raise ConfigErrors(_named(own, config.mechanism, faults))
        else:
            candidates = (_login(own, mechanism) for mechanism in enabled)
            sasl = next((sasl for sasl, faults in candidates if not faults), None)
        if sasl is None:
            names = " or ".join(own.own_name(JAAS, mechanism) for mechanism in enabled)
            advice = f"set {_MECHANISM}, and username and password in {names}"
            return cls(listener.name, protocol, security.ssl, advice=advice)
        name = own.name(JAAS, sasl.mechanism)
        return cls(listener.name, protocol, security.ssl, sasl, login_property=name)


def _login(own: ListenerProperties, mechanism: str) -> tuple[SaslConfig | None, list[ConfigError]]:
    """Return the configuration of this broker's login, and its faults. None: it cannot be read."""
    given = own.of(mechanism)
    named = {name: given[name] for name in (JAAS, *LOGIN_NAMES) if name in given}
    try:
        sasl = SaslConfig.from_properties({**named, "sasl.mechanism": mechanism})
    except ConfigError as error:
        return None, list(error.faults)
    return sasl, sasl.faults()


def _named(own: ListenerProperties, mechanism: str, faults: Iterable[ConfigError]) -> list[ConfigError]:
    """Return ``faults`` with the names of this broker's properties, as given or as they are best given."""
    given = own.of(mechanism)
    return [
        ConfigError(
            own.name(fault.name, mechanism)
            if fault.name in given and fault.name != JAAS
            else own.own_name(fault.name, mechanism),
            fault.value,
            fault.allowed,
        )
        for fault in faults
    ]

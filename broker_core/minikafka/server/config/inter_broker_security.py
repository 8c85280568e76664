"""The security of connections to other brokers: that of the inter-broker listener, from a client's side.

The same ``ssl.*`` count as for the listener: its certificate is the client's too, and the CAs that it trusts
must have issued the other brokers' certificates. With SASL a broker is a user: ``username`` and ``password``
are in the JAAS configuration of the listener's mechanism, beside what checks clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from minikafka.base.config.config_def import setting
from minikafka.base.config.types import TEXT
from minikafka.base.endpoints import SecurityProtocol
from minikafka.base.errors import ConfigError, ConfigErrors
from minikafka.base.secrets import Password
from minikafka.security.sasl.sasl_config import JAAS, LOGIN_HANDLER, TOKEN_ENDPOINT, SaslConfig
from minikafka.security.ssl_config import SslConfig
from minikafka.server.config.listener_security import ListenerProperties, ListenerSecurity
from minikafka.server.config.listeners import Listener

_MECHANISM = "sasl.mechanism.inter.broker.protocol"
_ENABLED = "sasl.enabled.mechanisms"
_NO_PROVIDER = (
    "brokers do not fetch tokens of an identity provider to log in to each other; use SCRAM-SHA-512 or PLAIN "
    "between them"
)


@dataclass(frozen=True, slots=True)
class InterBrokerSaslConfig:
    """The SASL mechanism between brokers."""

    mechanism: str | None = setting(
        _MECHANISM,
        TEXT,
        None,
        "The SASL mechanism between brokers, one of `sasl.enabled.mechanisms`. By default the first of them "
        "for which this broker has credentials: `username` and `password` in "
        "`listener.name.NAME.MECHANISM.sasl.jaas.config`.",
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
            sasl = _credentials(own, config.mechanism)
            faults = sasl.faults()
            if any(fault.name in (TOKEN_ENDPOINT, LOGIN_HANDLER) for fault in faults):
                raise ConfigError(_MECHANISM, config.mechanism, _NO_PROVIDER)
            if faults:
                raise ConfigErrors(_named(own, config.mechanism, faults))
            return cls(listener.name, protocol, security.ssl, sasl)
        candidates = (_credentials(own, mechanism) for mechanism in enabled)
        found = next((sasl for sasl in candidates if not sasl.faults()), None)
        names = " or ".join(own.own_name(JAAS, mechanism) for mechanism in enabled)
        advice = f"set {_MECHANISM}, and username and password in {names}"
        return cls(listener.name, protocol, security.ssl, found, "" if found else advice)


def _credentials(own: ListenerProperties, mechanism: str) -> SaslConfig:
    """Return what this broker logs in with; without a JAAS configuration if it has none for the mechanism."""
    text = own.of(mechanism).get(JAAS)
    return SaslConfig(mechanism=mechanism, jaas_config=None if text is None else Password.of(text))


def _named(own: ListenerProperties, mechanism: str, faults: Iterable[ConfigError]) -> list[ConfigError]:
    """Return ``faults`` with the names of this broker's properties."""
    return [
        ConfigError(
            own.own_name(JAAS, mechanism) if fault.name == JAAS else fault.name, fault.value, fault.allowed
        )
        for fault in faults
    ]

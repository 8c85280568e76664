"""The listeners of a broker and their advertised addresses: ``listeners``, ``advertised.listeners``.

A listener has a name, and by ``listener.security.protocol.map`` (as since 0.10.2) a protocol; a listener with
the name of a protocol needs no entry there. Two networks, for example a container's and its host's, are two
listeners: a client gets the address that is advertised for the listener that received its request.

All listeners but those of Kafka 0.7 are registered in ZooKeeper, so that every broker knows each broker's
address on each of them. Brokers connect to each other on one of them (``ListenerConfig.inter_broker``).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from minikafka.base.config.config_def import Faults, setting
from minikafka.base.config.types import TEXT, integer, one_of
from minikafka.base.endpoints import BrokerEndpoint, LiveBroker, SecurityProtocol
from minikafka.base.errors import ConfigError
from minikafka.base.ids import host_port

WILDCARDS = frozenset({"", "0.0.0.0", "::"})

_ENTRY = re.compile(r"([A-Za-z0-9_.-]+)://(?:\[([0-9A-Fa-f:.%]+)\]|([^:/\[\]\s]*)):(\d{1,5})")
_FORM = "NAME://HOST:PORT, separated by commas (the host may be left out)"


class Protocol(Enum):
    """The protocol of a listener."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"
    CLASSIC = "CLASSIC"
    """The framing of Kafka 0.7, ``minikafka.wire.classic``."""

    @property
    def has_tls(self) -> bool:
        """True if connections are encrypted."""
        return self in (Protocol.SSL, Protocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """True if clients authenticate by SASL."""
        return self in (Protocol.SASL_PLAINTEXT, Protocol.SASL_SSL)


PORT = integer(0, 65535)
_INTER_BROKER_NAME = "inter.broker.listener.name"
_INTER_BROKER_PROTOCOL = "security.inter.broker.protocol"


@dataclass(frozen=True, slots=True)
class Listener:
    """One listener. Port 0: any free port; as ``advertised_port``: the port that was bound."""

    name: str
    protocol: Protocol
    host: str
    """Empty: all addresses."""
    port: int
    advertised_host: str
    advertised_port: int


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """The properties of listeners. Those of 0.8, ``host.name`` and ``port``, apply without ``listeners``."""

    listeners: str | None = setting(
        "listeners", TEXT, None, "The addresses to listen on: NAME://HOST:PORT, separated by commas."
    )
    advertised_listeners: str | None = setting(
        "advertised.listeners", TEXT, None, "The addresses that clients get; `listeners` by default."
    )
    protocol_map: str | None = setting(
        "listener.security.protocol.map", TEXT, None, "The protocol of each listener's name."
    )
    inter_broker_protocol: str = setting(
        _INTER_BROKER_PROTOCOL,
        one_of(*SecurityProtocol.__members__),
        SecurityProtocol.PLAINTEXT.name,
        "The protocol between brokers, on the listener of this name. Not with `inter.broker.listener.name`.",
    )
    inter_broker_name: str | None = setting(
        _INTER_BROKER_NAME,
        TEXT,
        None,
        "The listener on which brokers connect to each other. By default the one that is named as "
        "`security.inter.broker.protocol`; if there is none and neither is set, the first of `listeners`.",
    )
    host: str | None = setting("host.name", TEXT, None, "The host to listen on, if `listeners` is not set.")
    port: int = setting(
        "port", PORT, 9092, "The port to listen on, if `listeners` is not set. 0: a free one."
    )
    advertised_host: str | None = setting(
        "advertised.host.name", TEXT, None, "The host that clients get, if `advertised.listeners` is not set."
    )
    advertised_port: int | None = setting(
        "advertised.port", PORT, None, "The port that clients get, if `advertised.listeners` is not set."
    )

    def parse(self, node_name: str) -> tuple[Listener, ...]:
        """Return the listeners; see ``parse_listeners``."""
        bound = self.listeners or _plaintext(self.host or "", self.port)
        advertised, host, port = self.advertised_listeners, self.advertised_host, self.advertised_port
        if advertised is None and (host is not None or port is not None):
            (own,) = parse_listeners(bound, None, self.protocol_map, "")[:1]
            advertised = _plaintext(host or own.host, own.port if port is None else port)
        return parse_listeners(bound, advertised, self.protocol_map, node_name)

    def inter_broker(self, listeners: Iterable[Listener], given: Container[str]) -> Listener:
        """Return the listener on which brokers connect to each other.

        ``given``: the properties that are set. Raises ConfigError if there is no such listener.
        """
        names = {listener.name: listener for listener in _of_kafka(listeners)}
        wanted = self.inter_broker_protocol
        if self.inter_broker_name is not None:
            if _INTER_BROKER_PROTOCOL in given:
                problem = f"only one of {_INTER_BROKER_NAME} and {_INTER_BROKER_PROTOCOL} may be set"
                raise ConfigError(_INTER_BROKER_NAME, self.inter_broker_name, problem)
            wanted = self.inter_broker_name.upper()
        if wanted in names:
            return names[wanted]
        options = f"the valid options based on the configured listeners are {', '.join(names)}"
        if self.inter_broker_name is not None:
            problem = f"must be a listener name defined in advertised.listeners: {options}"
            raise ConfigError(_INTER_BROKER_NAME, self.inter_broker_name, problem)
        if _INTER_BROKER_PROTOCOL in given:
            problem = f"no listener is named {wanted}: set {_INTER_BROKER_NAME} instead; {options}"
            raise ConfigError(_INTER_BROKER_PROTOCOL, wanted, problem)
        return next(iter(names.values()))


def check_names_beside_0_10(listeners: Iterable[Listener]) -> None:
    """Raise ConfigError for a listener that 0.10.1 brokers could not know: it has a name of its own."""
    for listener in _of_kafka(listeners):
        if listener.name != listener.protocol.value:
            raise ConfigError(
                "listeners",
                listener.name,
                "0.10.1 brokers, for which inter.broker.protocol.version is set, know a listener by its "
                f"security protocol alone: name it {listener.protocol.value}, or leave it out",
            )


def _plaintext(host: str, port: int) -> str:
    host = "" if host in WILDCARDS else host
    return f"PLAINTEXT://{host_port(host, port)}"


def parse_listeners(
    listeners: str, advertised: str | None, protocol_map: str | None, node_name: str
) -> tuple[Listener, ...]:
    """Return the listeners in order. Raises ConfigErrors with the properties, values and what is expected.

    ``node_name``: the host to advertise for a listener on all addresses if no other is configured.
    """
    faults = Faults()
    protocols = faults.attempt(lambda: _protocols(protocol_map), {})
    bound = faults.attempt(lambda: _entries("listeners", listeners), {})
    given = None
    if advertised is not None:
        given = faults.attempt(lambda: _entries("advertised.listeners", advertised), {})
    faults.check()
    ports = [port for _, port in bound.values() if port]
    if len(set(ports)) != len(ports):
        raise ConfigError("listeners", listeners, "each listener must have a different port")
    made = []
    for name, (host, port) in bound.items():
        protocol = _protocol(listeners, name, protocols)
        if given is None:
            advertised_host, advertised_port = host, port
        else:
            if name not in given and protocol is not Protocol.CLASSIC:
                problem = f"no address for listener {name}: add {name}://HOST:PORT"
                raise ConfigError("advertised.listeners", advertised or "", problem)
            advertised_host, advertised_port = given.get(name, (host, port))
            if name in given and advertised_host in WILDCARDS - {""}:
                problem = f"clients cannot connect to {advertised_host}: name an address of this broker"
                raise ConfigError("advertised.listeners", advertised or "", problem)
        advertised_host = node_name if advertised_host in WILDCARDS else advertised_host
        made.append(Listener(name, protocol, host, port, advertised_host, advertised_port))
    unknown = sorted(set(given or ()) - set(bound))
    if unknown:
        problem = f"unknown listener {', '.join(unknown)}: listeners has {', '.join(bound)}"
        raise ConfigError("advertised.listeners", advertised or "", problem)
    if all(listener.protocol is Protocol.CLASSIC for listener in made):
        problem = "another listener is required for other brokers and current clients, such as PLAINTEXT"
        raise ConfigError("listeners", listeners, problem)
    return tuple(made)


def registered_endpoints(
    listeners: Iterable[Listener], ports: Mapping[str, int]
) -> tuple[BrokerEndpoint, ...]:
    """Return the endpoints to register in ZooKeeper. ``ports``: the ports that are bound, by listener.

    The framing of Kafka 0.7 has no place there: its clients get no addresses.
    """
    return tuple(
        BrokerEndpoint(
            listener.name,
            SecurityProtocol[listener.protocol.value],
            listener.advertised_host,
            listener.advertised_port or ports[listener.name],
        )
        for listener in _of_kafka(listeners)
    )


def check_not_registered(listeners: Iterable[Listener], others: Iterable[LiveBroker]) -> None:
    """Raise ConfigError if another broker has registered an address that ``listeners`` advertise.

    Clients that look for one of the two brokers would find the other one. As in Kafka, addresses are compared
    as they are written, and a port that the system chooses is taken to be free.
    """
    own = {(listener.advertised_host, listener.advertised_port) for listener in _of_kafka(listeners)}
    for broker in others:
        found = [endpoint for endpoint in broker.endpoints if (endpoint.host, endpoint.port) in own]
        if found:
            raise ConfigError(
                "advertised.listeners",
                ",".join(host_port(endpoint.host, endpoint.port) for endpoint in found),
                f"is already registered by {broker}, and clients would reach only one of the two; configure "
                "another host or port, or stop that broker (if it was killed, its registration ends when its "
                "ZooKeeper session times out)",
            )


def _of_kafka(listeners: Iterable[Listener]) -> list[Listener]:
    return [listener for listener in listeners if listener.protocol is not Protocol.CLASSIC]


def unreachable(
    listener: Listener,
    port: int,
    addresses_of: Callable[[str], Sequence[str]],
    answers: Callable[[str, int], bool],
) -> str | None:
    """Return a warning if clients may connect to ``listener`` and then time out; None if all looks right.

    ``port`` is the advertised one. ``addresses_of`` returns none for a name that cannot be resolved.
    """
    if listener.protocol is Protocol.CLASSIC:
        return None  # its clients get no addresses
    host = listener.advertised_host
    addresses = addresses_of(host)
    if not addresses:
        problem = "which this host cannot resolve"
    elif all(map(_is_loopback, addresses)) and not all(map(_is_loopback, _bound(listener, addresses_of))):
        problem = "which is the client itself on every other host and container"
    elif not answers(host, port):
        problem = "which does not accept connections from this host"
    else:
        return None
    return (
        f"listener {listener.name} advertises {host_port(host, port)}, {problem}: clients may connect and "
        f"then time out. If they do, set advertised.listeners={listener.name}://HOST:PORT to an address at "
        "which they can reach this broker"
    )


def _bound(listener: Listener, addresses_of: Callable[[str], Sequence[str]]) -> Sequence[str]:
    return ["0.0.0.0"] if listener.host in WILDCARDS else addresses_of(listener.host)


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _entries(key: str, text: str) -> dict[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    for entry in _parts(text):
        match = _ENTRY.fullmatch(entry)
        if match is None or int(match[4]) > 65535:
            raise ConfigError(key, text, _FORM)
        name = match[1].upper()
        if name in found:
            raise ConfigError(key, text, f"listener {name} appears twice")
        found[name] = match[2] or match[3] or "", int(match[4])
    if not found:
        raise ConfigError(key, text, _FORM)
    return found


def _protocols(text: str | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in _parts(text or ""):
        name, separator, protocol = (part.strip().upper() for part in entry.partition(":"))
        if not (name and separator and protocol) or name in found:
            key = "listener.security.protocol.map"
            raise ConfigError(key, text or "", "must be NAME:PROTOCOL, separated by commas, each name once")
        found[name] = protocol
    return found


def _protocol(listeners: str, name: str, protocols: dict[str, str]) -> Protocol:
    wanted = protocols.get(name, name)
    supported = ", ".join(Protocol.__members__)
    if wanted in Protocol.__members__:
        return Protocol[wanted]
    if name in protocols:
        key, text = "listener.security.protocol.map", f"{name}:{wanted}"
        raise ConfigError(key, text, f"unknown protocol {wanted}: expected {supported}")
    hint = f"set listener.security.protocol.map={name}:PLAINTEXT"
    raise ConfigError("listeners", listeners, f"no protocol for listener {name} ({supported}): {hint}")


def _parts(text: str) -> Iterator[str]:
    return filter(None, (part.strip() for part in text.split(",")))

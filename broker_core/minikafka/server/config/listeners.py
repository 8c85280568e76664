"""Where a broker listens, and what it tells its clients to go to: ``listeners``, ``advertised.listeners``.

A listener has a name, and by ``listener.security.protocol.map`` (as from 0.10.2 on) a protocol; one that is
called like a protocol needs no entry there. Two networks, for instance a container's and its host's, are two
listeners: a client is told the address that is advertised for the listener that it asked by.

The registry's JSON holds one endpoint, which a 0.10.1.1 broker can parse: ``registered``. The others are
known to this broker alone, which is all that a cluster of one broker needs.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from minikafka.base.errors import ConfigError
from minikafka.base.ids import host_port

WILDCARDS = frozenset({"", "0.0.0.0", "::"})

_ENTRY = re.compile(r"([A-Za-z0-9_.-]+)://(?:\[([0-9A-Fa-f:.%]+)\]|([^:/\[\]\s]*)):(\d{1,5})")
_FORM = "NAME://HOST:PORT, with commas between (the host may be left out)"


class Protocol(Enum):
    """What is spoken on a listener."""

    PLAINTEXT = "PLAINTEXT"
    CLASSIC = "CLASSIC"
    """The framing of Kafka 0.7, ``minikafka.wire.classic``."""


_NOT_SPOKEN = {"SSL", "SASL_PLAINTEXT", "SASL_SSL"}


@dataclass(frozen=True, slots=True)
class Listener:
    """One listener. Port 0: a free one, and for ``advertised_port`` the one that was bound."""

    name: str
    protocol: Protocol
    host: str
    """Empty: all addresses."""
    port: int
    advertised_host: str
    advertised_port: int


def parse_listeners(
    listeners: str, advertised: str | None, protocol_map: str | None, node_name: str
) -> tuple[Listener, ...]:
    """The listeners, in their order. ConfigError with the name, the text and what is allowed.

    ``node_name``: the host to advertise for a listener on all addresses when nothing else is said.
    """
    protocols = _protocols(protocol_map)
    bound = _entries("listeners", listeners)
    ports = [port for _, port in bound.values() if port]
    if len(set(ports)) != len(ports):
        raise ConfigError("listeners", listeners, "each listener must have a port of its own")
    told = None if advertised is None else _entries("advertised.listeners", advertised)
    made = []
    for name, (host, port) in bound.items():
        protocol = _protocol(listeners, name, protocols)
        if told is None:
            told_host, told_port = host, port
        else:
            if name not in told and protocol is Protocol.PLAINTEXT:
                allowed = f"must say where clients of listener {name} are to go: {name}://HOST:PORT"
                raise ConfigError("advertised.listeners", advertised or "", allowed)
            told_host, told_port = told.get(name, (host, port))
            if name in told and told_host in WILDCARDS - {""}:
                allowed = "must name addresses that clients can go to, which 'all addresses' is not"
                raise ConfigError("advertised.listeners", advertised or "", allowed)
        told_host = node_name if told_host in WILDCARDS else told_host
        made.append(Listener(name, protocol, host, port, told_host, told_port))
    unknown = sorted(set(told or ()) - set(bound))
    if unknown:
        allowed = f"names {', '.join(unknown)}, which listeners does not: it has {', '.join(bound)}"
        raise ConfigError("advertised.listeners", advertised or "", allowed)
    if all(listener.protocol is not Protocol.PLAINTEXT for listener in made):
        allowed = "must have a PLAINTEXT listener, by which brokers and today's clients come"
        raise ConfigError("listeners", listeners, allowed)
    return tuple(made)


def registered(listeners: Sequence[Listener]) -> Listener:
    """The one that ZooKeeper is told of: called PLAINTEXT, or else the first that speaks it."""
    spoken = [listener for listener in listeners if listener.protocol is Protocol.PLAINTEXT]
    named = [listener for listener in spoken if listener.name == Protocol.PLAINTEXT.value]
    return (named or spoken)[0]


def unreachable(
    listener: Listener,
    port: int,
    addresses_of: Callable[[str], Sequence[str]],
    answers: Callable[[str, int], bool],
) -> str | None:
    """Why clients may connect by ``listener`` and then time out, and what to do; None where nothing is odd.

    ``port``: what is advertised. ``addresses_of`` gives none for a name that cannot be resolved.
    """
    if listener.protocol is not Protocol.PLAINTEXT:
        return None  # its clients are told no addresses
    host = listener.advertised_host
    addresses = addresses_of(host)
    if not addresses:
        problem = "a name that this machine cannot resolve"
    elif all(map(_is_loopback, addresses)) and not all(map(_is_loopback, _bound(listener, addresses_of))):
        problem = "which leads every machine and container to itself"
    elif not answers(host, port):
        problem = "where nothing answers this machine"
    else:
        return None
    told = host_port(host, port)
    return (
        f"clients that connect by listener {listener.name} are told to go on to {told}, {problem}: "
        f"elsewhere they may connect, and then time out. If they do, set "
        f"advertised.listeners={listener.name}://HOST:PORT to an address that reaches this broker from there"
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
            raise ConfigError(key, text, f"has two listeners called {name}")
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
            raise ConfigError(key, text or "", "NAME:PROTOCOL, with commas between, each name once")
        found[name] = protocol
    return found


def _protocol(listeners: str, name: str, protocols: dict[str, str]) -> Protocol:
    wanted = protocols.get(name, name)
    spoken = " and ".join(Protocol.__members__)
    if wanted in Protocol.__members__:
        return Protocol[wanted]
    if wanted in _NOT_SPOKEN:
        raise ConfigError("listeners", listeners, f"{name} is to speak {wanted}: this version has {spoken}")
    if name in protocols:
        key, text = "listener.security.protocol.map", f"{name}:{wanted}"
        raise ConfigError(key, text, f"{wanted} is no protocol: there are {spoken}")
    hint = f"set listener.security.protocol.map={name}:PLAINTEXT"
    raise ConfigError("listeners", listeners, f"{name} is no protocol ({spoken}): {hint}")


def _parts(text: str) -> Iterator[str]:
    return filter(None, (part.strip() for part in text.split(",")))

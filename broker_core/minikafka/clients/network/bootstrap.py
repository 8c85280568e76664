"""The bootstrap list: parses ``host:port,host:port`` to addresses."""

from __future__ import annotations

import re
from typing import NamedTuple

from minikafka.base.config.types import digits
from minikafka.base.endpoints import SecurityProtocol
from minikafka.base.errors import ConfigError
from minikafka.base.ids import host_port

OPTION = "bootstrap.servers"

_ALLOWED = "a comma-separated list of host:port, such as localhost:9092 or [::1]:9092"
_ENTRY = re.compile(
    r"(?:(?P<protocol>[A-Za-z_]+)://)?(?:\[(?P<six>[^\]]+)\]|(?P<host>[^:\[\]/]*)):(?P<port>[^:]*)"
)


class HostPort(NamedTuple):
    """A host and a port; the broker behind them is not known yet."""

    host: str
    port: int

    def __str__(self) -> str:
        return host_port(self.host, self.port)


def parse_bootstrap(
    text: str, option: str = OPTION, protocol: SecurityProtocol | None = None
) -> tuple[HostPort, ...]:
    """Return the endpoints of a bootstrap list, in order, without duplicates.

    protocol: the security protocol, with which an entry may begin, as in ``SSL://localhost:9093``; None: any.

    Raises ConfigError under the name ``option``, with the invalid entry.
    """
    entries = [entry.strip() for entry in text.split(",")]
    # A comma at the end is allowed, as in Kafka's clients.
    found = [_endpoint(entry, text, option, protocol) for entry in entries if entry]
    if not found:
        raise ConfigError(option, text, f"no address; expected {_ALLOWED}")
    return tuple(dict.fromkeys(found))


def _endpoint(entry: str, text: str, option: str, protocol: SecurityProtocol | None) -> HostPort:
    match = _ENTRY.fullmatch(entry)
    if match is None:
        raise ConfigError(option, text, f"{entry!r} has no port or is not an address; expected {_ALLOWED}")
    given = (match["protocol"] or "").upper()
    if given and given not in SecurityProtocol.__members__:
        known = ", ".join(SecurityProtocol.__members__)
        raise ConfigError(option, text, f"{entry!r}: {given} is not a security protocol: expected {known}")
    if given and protocol is not None and given != protocol.name:
        allowed = f"{entry!r} conflicts with security.protocol={protocol.name}; set the protocol there"
        raise ConfigError(option, text, allowed)
    host = match["six"] or match["host"]
    if not host:
        raise ConfigError(option, text, f"{entry!r} has no host; expected {_ALLOWED}")
    port = digits(match["port"], 65535)
    if not port:
        raise ConfigError(option, text, f"{entry!r}: the port must be a number from 1 to 65535")
    return HostPort(host, port)

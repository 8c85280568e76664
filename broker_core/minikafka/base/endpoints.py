"""Brokers and their endpoints, one for each listener of a broker (``Broker`` and ``EndPoint`` of Kafka).

The text of an endpoint is ``LISTENER://HOST:PORT``, as in ``/brokers/ids/N``. Before Kafka 0.10.2 a listener
had no name of its own: it is named as its security protocol.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from minikafka.base.ids import BrokerAddress, host_port

_ENDPOINT = re.compile(r"([^:/\s]+)://\[?([0-9a-zA-Z\-%._:]*?)\]?:([0-9]{1,5})")


class SecurityProtocol(IntEnum):
    """The security protocol of a listener. The number is that of UpdateMetadata."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def uses_tls(self) -> bool:
        """True for SSL and SASL_SSL."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def uses_sasl(self) -> bool:
        """True for SASL_PLAINTEXT and SASL_SSL."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """The address of one listener, as clients of that listener get it."""

    listener: str
    protocol: SecurityProtocol
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.listener}://{host_port(self.host, self.port)}"

    @property
    def is_named_by_protocol(self) -> bool:
        """True if releases without names of listeners know the endpoint, by its security protocol."""
        return self.listener == self.protocol.name

    @classmethod
    def parse(cls, text: str, protocols: Mapping[str, object]) -> BrokerEndpoint | None:
        """Return the endpoint in ``LISTENER://HOST:PORT``; None if it is not one.

        ``protocols``: the security protocols by listener. A listener that is not in it is named as its own.
        """
        match = _ENDPOINT.fullmatch(text)
        if match is None or int(match[3]) > 65535:
            return None
        protocol = str(protocols.get(match[1], match[1]))
        if protocol not in SecurityProtocol.__members__:
            return None
        return cls(match[1], SecurityProtocol[protocol], match[2], int(match[3]))


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A live broker and its endpoints, of which each has another listener."""

    broker_id: int
    endpoints: tuple[BrokerEndpoint, ...]
    rack: str | None = None

    def __str__(self) -> str:
        return f"broker {self.broker_id} at {', '.join(map(str, self.endpoints)) or 'no known endpoint'}"

    @classmethod
    def plaintext(cls, broker_id: int, host: str, port: int, rack: str | None = None) -> LiveBroker:
        """Return a broker with one endpoint, of the listener PLAINTEXT."""
        protocol = SecurityProtocol.PLAINTEXT
        return cls(broker_id, (BrokerEndpoint(protocol.name, protocol, host, port),), rack)

    def address(self, listener: str) -> BrokerAddress | None:
        """Return the address of a listener; None if the broker has no such listener."""
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return BrokerAddress(self.broker_id, endpoint.host, endpoint.port, self.rack)
        return None

    def endpoint_with(self, protocol: SecurityProtocol) -> BrokerEndpoint | None:
        """Return the first endpoint with a security protocol; None if there is none."""
        return next((endpoint for endpoint in self.endpoints if endpoint.protocol is protocol), None)


def addresses_on(listener: str, brokers: Mapping[int, LiveBroker]) -> dict[int, BrokerAddress]:
    """Return the addresses of those ``brokers`` that have the listener, by broker id, in their order."""
    found = ((broker_id, broker.address(listener)) for broker_id, broker in brokers.items())
    return {broker_id: address for broker_id, address in found if address is not None}

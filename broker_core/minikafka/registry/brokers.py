"""The live brokers: ``/brokers/ids/N``."""

from __future__ import annotations

from dataclasses import dataclass, replace

from minikafka.base.endpoints import BrokerEndpoint, LiveBroker, SecurityProtocol
from minikafka.base.errors import CoordinationError
from minikafka.base.ids import BrokerAddress, host_port
from minikafka.registry import paths
from minikafka.registry.node import Node, dump, id_in
from minikafka.registry.store import Stat, Store
from minikafka.registry.znodes import Kind, Znodes, children

VERSION = 4
"""The version of the JSON since 0.10.2, with the security protocol of each listener."""
VERSION_IN_0_10_1 = 3
"""The newest version of 0.10.1, whose brokers know an endpoint by its security protocol alone."""


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A live broker with its endpoints: version 4 or 3 of the JSON; 1, 2 and later ones are read too."""

    broker: LiveBroker
    timestamp_ms: int = -1
    """The time at which it registered; -1: unknown."""
    jmx_port: int = -1
    version: int = VERSION

    @classmethod
    def beside_0_10(cls, broker: LiveBroker, timestamp_ms: int = -1) -> BrokerRegistration:
        """Return the registration that a 0.10.1 broker can parse, without the endpoints that it cannot."""
        known = tuple(endpoint for endpoint in broker.endpoints if endpoint.is_named_by_protocol)
        return cls(replace(broker, endpoints=known), timestamp_ms, version=VERSION_IN_0_10_1)

    @property
    def address(self) -> BrokerAddress | None:
        """The address of the first plain-text listener; None if there is none."""
        endpoint = self.broker.endpoint_with(SecurityProtocol.PLAINTEXT)
        return None if endpoint is None else self.broker.address(endpoint.listener)

    def to_json(self) -> bytes:
        """Return the data for ``broker_path(broker_id)``."""
        endpoints, plaintext = self.broker.endpoints, self.broker.endpoint_with(SecurityProtocol.PLAINTEXT)
        fields: dict[str, object] = {
            "jmx_port": self.jmx_port,
            "timestamp": str(self.timestamp_ms),
            "endpoints": list(map(str, endpoints)),
            "host": None if plaintext is None else plaintext.host,
            "version": self.version,
            "port": -1 if plaintext is None else plaintext.port,
        }
        if self.version > VERSION_IN_0_10_1:
            protocols = {endpoint.listener: endpoint.protocol.name for endpoint in endpoints}
            fields = {"listener_security_protocol_map": protocols, **fields}
        if self.broker.rack is not None:
            fields["rack"] = self.broker.rack
        return dump(fields)

    @classmethod
    def from_json(cls, data: bytes, path: str) -> BrokerRegistration:
        """Parse the registration in ``data``; the broker's id is the last part of ``path``.

        Endpoints that cannot be parsed are left out: a later release may have other security protocols.
        """
        node = Node(data, path)
        name = path.rpartition("/")[2]
        broker_id = id_in(name)
        if broker_id is None or name != str(broker_id):
            raise CoordinationError(f"{path}: invalid broker id {name!r}")
        version = node.integer("version")
        host, port = node.optional_text("host"), node.integer("port")
        texts = node.texts("endpoints") if version >= 2 else ()
        protocols = node.mapping("listener_security_protocol_map") if version >= VERSION else {}
        parsed = (BrokerEndpoint.parse(text, protocols) for text in texts)
        # Of two endpoints of one listener the last, as Kafka's brokers keep them by name.
        endpoints = tuple({endpoint.listener: endpoint for endpoint in parsed if endpoint}.values())
        if not endpoints and host and port >= 0:
            protocol = SecurityProtocol.PLAINTEXT
            endpoints = (BrokerEndpoint(protocol.name, protocol, host, port),)
        return cls(
            LiveBroker(broker_id, endpoints, node.optional_text("rack")),
            timestamp_ms=node.number_as_text("timestamp", -1),
            jmx_port=node.integer("jmx_port", -1),
            version=version,
        )


BROKER = Kind(
    f"{paths.BROKER_IDS}/N",
    "a live broker with its listeners; ephemeral",
    "0.10.2 (version 4 of the JSON; 3 beside 0.10.1 brokers); 1, 2 and later ones are read",
    BrokerRegistration.from_json,
    BrokerRegistration.to_json,
    "the broker counts as dead until it is restarted, or rewrites the znode as this project's brokers do",
)
"""A broker's own registration is the exception: it does not serve without one that others can read, and
rewrites it (``server.zookeeper.registrations``).
"""


def read_registrations(store: Store) -> dict[int, tuple[BrokerRegistration, Stat]]:
    """Return the readable registrations and their stats by broker id, in ascending order."""
    names = children(store, paths.BROKER_IDS)
    found = Znodes(store).read_all((f"{paths.BROKER_IDS}/{name}" for name in names), BROKER)
    by_id = {registration.broker.broker_id: (registration, stat) for registration, stat in found.values()}
    return dict(sorted(by_id.items()))


def live_brokers(store: Store) -> dict[int, BrokerRegistration]:
    """Return the readable registrations by broker id, in ascending order."""
    return {broker_id: registration for broker_id, (registration, _) in read_registrations(store).items()}


def addresses_with(protocol: SecurityProtocol, store: Store) -> list[str]:
    """Return ``host:port`` of each live broker's first listener with ``protocol``, in order of the ids."""
    found = (registration.broker.endpoint_with(protocol) for registration in live_brokers(store).values())
    return [host_port(endpoint.host, endpoint.port) for endpoint in found if endpoint is not None]

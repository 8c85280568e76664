"""The live brokers: ``/brokers/ids/N``."""

from __future__ import annotations

from dataclasses import dataclass

from minikafka.base.errors import CoordinationError
from minikafka.base.ids import BrokerAddress, host_port
from minikafka.registry import paths
from minikafka.registry.node import Node, dump, id_in
from minikafka.registry.store import Stat, Store
from minikafka.registry.znodes import Kind, Znodes, children


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A live broker: version 3 of the JSON, or 4 of later releases; 1 and 2 of earlier ones are read too."""

    broker_id: int
    host: str | None
    """Host and port of the plain-text listener; None and -1 if the broker has none."""
    port: int
    endpoints: tuple[str, ...]
    """One ``PROTOCOL://host:port`` for each listener."""
    timestamp_ms: int
    """When it registered."""
    jmx_port: int = -1
    rack: str | None = None
    version: int = 3

    @classmethod
    def of(cls, address: BrokerAddress, timestamp_ms: int) -> BrokerRegistration:
        """Return the registration of a broker with one plain-text listener."""
        endpoint = f"PLAINTEXT://{host_port(address.host, address.port)}"
        return cls(
            address.broker_id, address.host, address.port, (endpoint,), timestamp_ms, rack=address.rack
        )

    @property
    def address(self) -> BrokerAddress | None:
        """The address of the plain-text listener; None if there is none."""
        for endpoint in self.endpoints:
            scheme, _, location = endpoint.partition("://")
            host, _, port = location.rpartition(":")
            number = id_in(port)
            if scheme == "PLAINTEXT" and number is not None:
                return BrokerAddress(self.broker_id, host.strip("[]"), number, self.rack)
        if self.host and self.port >= 0:
            return BrokerAddress(self.broker_id, self.host, self.port, self.rack)
        return None

    def to_json(self) -> bytes:
        """Return the data for ``broker_path(broker_id)``."""
        fields: dict[str, object] = {
            "jmx_port": self.jmx_port,
            "timestamp": str(self.timestamp_ms),
            "endpoints": list(self.endpoints),
            "host": self.host,
            "version": self.version,
            "port": self.port,
        }
        if self.rack is not None:
            fields["rack"] = self.rack
        return dump(fields)

    @classmethod
    def from_json(cls, data: bytes, path: str) -> BrokerRegistration:
        """Parse the registration in ``data``; the broker's id is the last part of ``path``."""
        node = Node(data, path)
        name = path.rpartition("/")[2]
        broker_id = id_in(name)
        if broker_id is None or name != str(broker_id):
            raise CoordinationError(f"{path}: invalid broker id {name!r}")
        version = node.integer("version")
        host, port = node.optional_text("host"), node.integer("port")
        endpoints = node.texts("endpoints") if version >= 2 else (f"PLAINTEXT://{host}:{port}",)
        return cls(
            broker_id=broker_id,
            host=host,
            port=port,
            endpoints=endpoints,
            timestamp_ms=node.number_as_text("timestamp", -1),
            jmx_port=node.integer("jmx_port", -1),
            rack=node.optional_text("rack"),
            version=version,
        )


BROKER = Kind(
    f"{paths.BROKER_IDS}/N",
    "a live broker with its listeners; ephemeral",
    "0.10.1 (version 3 of the JSON); 1, 2 and 4 are read",
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
    by_id = {registration.broker_id: (registration, stat) for registration, stat in found.values()}
    return dict(sorted(by_id.items()))


def live_brokers(store: Store) -> dict[int, BrokerRegistration]:
    """Return the readable registrations by broker id, in ascending order."""
    return {broker_id: registration for broker_id, (registration, _) in read_registrations(store).items()}


def plaintext_addresses(store: Store) -> list[str]:
    """Return ``host:port`` of each live broker that has a plain-text listener, in order of the ids."""
    addresses = (registration.address for registration in live_brokers(store).values())
    return [host_port(address.host, address.port) for address in addresses if address is not None]

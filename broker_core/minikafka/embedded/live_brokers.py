"""The live brokers of a cluster: its own child processes, and brokers that were started elsewhere.

A broker that died may be restarted from another terminal, by the command that ``up`` prints. It is not a
child process then, but it is registered in ZooKeeper, so it counts. A registration alone is not enough: that
of a killed broker stays until its session times out. Such a broker accepts no connections, however.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minikafka.base.errors import MinikafkaError
from minikafka.net.ports import can_connect
from minikafka.registry.brokers import BrokerRegistration, live_brokers
from minikafka.security.zookeeper_config import ZooKeeperClientConfig

if TYPE_CHECKING:
    from minikafka.registry.zookeeper import ZooKeeperStore

Addresses = tuple[tuple[str, int], ...]
"""The host and port of each listener, as a broker registered them."""

_CONNECT_MS = 2_000
_PROBE_MS = 500


class RegisteredBrokers:
    """Reads the registrations in the ZooKeeper at ``connect``, with one session. Not thread-safe.

    only: the ids to return; None: all. properties: those of a client of ZooKeeper, if it is closed to others.
    """

    def __init__(
        self, connect: str, only: Collection[int] | None = None, properties: Mapping[str, str] | None = None
    ) -> None:
        self._connect = connect
        self._properties = properties or {}
        self._only = only
        self._store: ZooKeeperStore | None = None

    def read(self) -> dict[int, Addresses] | None:
        """Return the registered brokers; None if ZooKeeper does not respond."""
        # Imported late: the client takes as long to import as everything else, and would delay the start.
        from minikafka.net.zookeeper_tls import zookeeper_security
        from minikafka.registry.zookeeper import ZooKeeperStore

        try:
            if self._store is None:
                security = zookeeper_security(ZooKeeperClientConfig.among(self._properties))
                self._store = ZooKeeperStore(
                    self._connect, connect_timeout_ms=_CONNECT_MS, make_chroot=False, security=security
                )
            found = live_brokers(self._store)
        except MinikafkaError:
            self.close()
            return None
        return {
            number: addresses_of(broker)
            for number, broker in found.items()
            if self._only is None or number in self._only
        }

    def close(self) -> None:
        """End the session. The next ``read`` opens another one."""
        store, self._store = self._store, None
        if store is not None:
            store.close()


def addresses_of(broker: BrokerRegistration) -> Addresses:
    """Return host and port of each listener."""
    return tuple((endpoint.host, endpoint.port) for endpoint in broker.broker.endpoints)


def accepts_connections(addresses: Addresses) -> bool:
    """Return True if a server listens on one of the addresses."""
    return any(can_connect(host, port, _PROBE_MS) for host, port in addresses)


@dataclass(frozen=True, slots=True)
class BrokerChanges:
    """The changes since the last refresh, among brokers that were started elsewhere."""

    started: Sequence[int] = ()
    ended: Sequence[int] = ()


class LiveBrokers:
    """The live brokers by number: ``own`` child processes, and brokers that were started ``elsewhere``.

    registered: reads the registrations, see ``RegisteredBrokers.read``; reachable: ``accepts_connections``.
    """

    def __init__(
        self,
        own: Collection[int],
        registered: Callable[[], Mapping[int, Addresses] | None],
        reachable: Callable[[Addresses], bool] = accepts_connections,
    ) -> None:
        self.own = set(own)
        self.elsewhere: dict[int, Addresses] = {}
        self.known = True
        """True if ZooKeeper responded at the last refresh."""
        self._registered = registered
        self._reachable = reachable

    @property
    def count(self) -> int:
        """The number of live brokers."""
        return len(self.own) + len(self.elsewhere)

    def refresh(self) -> BrokerChanges:
        """Find the live brokers that were started elsewhere.

        A broker that was found before counts as ended only when it accepts no connections: its session may
        have timed out while its process was stopped.
        """
        registered = self._registered()
        self.known = registered is not None
        before, now = self.elsewhere, dict[int, Addresses]()
        for number, addresses in sorted({**before, **(registered or {})}.items()):
            if number not in self.own and self._reachable(addresses):
                now[number] = addresses
        self.elsewhere = now
        return BrokerChanges(
            [number for number in now if number not in before],
            [number for number in before if number not in now and number not in self.own],
        )

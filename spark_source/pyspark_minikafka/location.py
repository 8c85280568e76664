"""The brokers of a query: named servers, or the embedded broker of a data directory.

Only driver-side workers call ``locate``, which starts the embedded broker. Its result is pickled for the
executors, which call ``check_reachable``: the embedded broker serves only the host that it runs on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from minikafka.base.errors import MinikafkaError
from minikafka.clients.common_client_configs import ClientSecurity
from pyspark_minikafka import cache, report
from pyspark_minikafka.options.kafka_options import ConnectionOptions
from pyspark_minikafka.options.options import Location

if TYPE_CHECKING:
    from minikafka.embedded.local_files import LocalCluster
    from minikafka.registry.zookeeper import ZooKeeperStore


class WrongHost(MinikafkaError):
    """A task runs on a different host from the embedded broker that it should read or write."""


@dataclass(frozen=True, slots=True)
class Target:
    """Addresses to connect to.

    data_dir, boot_id, cluster_id: of the embedded broker; None for named servers. A boot id identifies one
    boot of one host.
    zookeeper_connect: the ZooKeeper of consumer groups, where one is known; that of zookeeper_data_dir, if it
    is the embedded one. security: of the embedded broker, if it is secured, with secrets and without paths.
    """

    bootstrap_servers: str
    data_dir: str | None = None
    boot_id: str | None = None
    cluster_id: str | None = None
    zookeeper_connect: str | None = None
    zookeeper_data_dir: str | None = None
    security: ClientSecurity | None = None

    def connection(self, options: ConnectionOptions) -> ConnectionOptions:
        """Return ``options``, with the login of an embedded broker that is secured."""
        return options if self.security is None else replace(options, security=self.security)

    def zookeeper_store(self, session_timeout_ms: int = 6_000) -> ZooKeeperStore:
        """Open a session with ZooKeeper; close it after use. Driver only."""
        from minikafka.embedded import zookeeper_access
        from minikafka.registry.zookeeper import ZooKeeperStore

        assert self.zookeeper_connect is not None
        if self.zookeeper_data_dir is None:
            return ZooKeeperStore(self.zookeeper_connect, session_timeout_ms, make_chroot=False)
        security = zookeeper_access.security_of(self.zookeeper_data_dir)
        return ZooKeeperStore(
            self.zookeeper_connect, session_timeout_ms, make_chroot=False, security=security
        )


def locate(location: Location) -> Target:
    """Return the brokers of ``location``. Start the embedded cluster, and report that, when it does not run.
    Driver only.
    """
    if location.bootstrap_servers is not None:
        return _named(location)
    from minikafka.embedded import local

    assert location.data_dir is not None
    runs = local.running(location.data_dir) is not None
    if not runs:
        report.warn([f"starting a local Kafka cluster in {location.data_dir} …"])
    address = local.ensure(location.data_dir, on_progress=lambda state: report.note(state, shown=True))
    if not runs:
        report.note(f"the local Kafka cluster is ready at {address.bootstrap_servers}", shown=True)
    return _embedded(location, address)


def find_running(location: Location) -> Target | None:
    """Return the brokers of ``location``; None for an embedded cluster that does not run. Start nothing."""
    if location.bootstrap_servers is not None:
        return _named(location)
    from minikafka.embedded import local

    assert location.data_dir is not None
    address = local.running(location.data_dir)
    return None if address is None else _embedded(location, address)


def _named(location: Location) -> Target:
    assert location.bootstrap_servers is not None
    return Target(location.bootstrap_servers, zookeeper_connect=location.zookeeper_connect)


def _embedded(location: Location, address: LocalCluster) -> Target:
    from minikafka.embedded import secured_directory

    assert location.data_dir is not None
    return Target(
        address.bootstrap_servers,
        location.data_dir,
        address.boot_id,
        address.cluster_id,
        location.zookeeper_connect or address.zookeeper_connect,
        None if location.zookeeper_connect else location.data_dir,
        secured_directory.client_security(location.data_dir),
    )


def check_login(location: Location, connection: ConnectionOptions) -> None:
    """Raise AuthenticationFailed if named servers refuse this client. Driver only."""
    if location.bootstrap_servers is not None:
        cache.check_login(location.bootstrap_servers, connection)


def check_reachable(target: Target) -> None:
    """Raise WrongHost when ``target`` is an embedded broker of another host."""
    if target.boot_id is None:
        return
    from minikafka.embedded.owners import host_boot_id

    here = host_boot_id()
    if here != target.boot_id:
        raise WrongHost(
            f"the embedded broker of {target.data_dir} listens only on the driver's host, but this task runs "
            "on another host; start brokers that all hosts can reach (minikafka up --host …) and set the "
            "option kafka.bootstrap.servers"
        )

"""The brokers of a query: named servers, or the embedded broker of a data directory.

Only driver-side workers call ``locate``, which starts the embedded broker. Its result is pickled for the
executors, which call ``check_reachable``: the embedded broker serves only the host that it runs on.
"""

from __future__ import annotations

from dataclasses import dataclass

from minikafka.base.errors import MinikafkaError
from pyspark_minikafka import cache, report
from pyspark_minikafka.options.kafka_options import ConnectionOptions
from pyspark_minikafka.options.options import Location


class WrongHost(MinikafkaError):
    """A task runs on a different host from the embedded broker that it should read or write."""


@dataclass(frozen=True, slots=True)
class Target:
    """Addresses to connect to.

    data_dir, boot_id, cluster_id: of the embedded broker; None for named servers. A boot id identifies one
    boot of one host.
    zookeeper_connect: the ZooKeeper of consumer groups, where one is known.
    """

    bootstrap_servers: str
    data_dir: str | None = None
    boot_id: str | None = None
    cluster_id: str | None = None
    zookeeper_connect: str | None = None


def locate(location: Location) -> Target:
    """Return the brokers of ``location``. Start the embedded cluster, and report that, when it does not run.
    Driver only.
    """
    if location.bootstrap_servers is not None:
        return Target(location.bootstrap_servers, zookeeper_connect=location.zookeeper_connect)
    from minikafka.embedded import local

    assert location.data_dir is not None
    runs = local.running(location.data_dir) is not None
    if not runs:
        report.warn([f"starting a local Kafka cluster in {location.data_dir} …"])
    address = local.ensure(location.data_dir, on_progress=lambda state: report.note(state, shown=True))
    if not runs:
        report.note(f"the local Kafka cluster is ready at {address.bootstrap_servers}", shown=True)
    return Target(
        address.bootstrap_servers,
        location.data_dir,
        address.boot_id,
        address.cluster_id,
        location.zookeeper_connect or address.zookeeper_connect,
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

"""A cluster on this machine: ZooKeeper and N brokers, each in its own process, in one data directory.

    D/.lock                 held by this process and by every process of the cluster
    D/zookeeper/            ZooKeeper's data
    D/broker-N/             the log of broker N: topic directories, checkpoints, meta.properties
    D/broker-N.properties   written at every start
    D/logs/                 output of every process, rotated
    D/security/             only if it is secured: certificates and passwords (see ``secured_directory``)

The processes end with this process, however it ends. As they hold the lock too, another cluster on the same
directory waits until the last of them has ended; a directory in use by a living cluster is an error.

The brokers are stopped one after the other, the controller last, so that the others can take over the
partitions that a stopping broker leads.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from minikafka.base.cache_dirs import make_private
from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.embedded import data_directory, lock, secured_directory, strays, zookeeper_access
from minikafka.embedded.broker import BrokerProcess, Ready
from minikafka.embedded.live_brokers import RegisteredBrokers
from minikafka.embedded.process import wait_until
from minikafka.embedded.zookeeper import EmbeddedZooKeeper, PortInUse

if TYPE_CHECKING:
    from minikafka.clients.network.cluster import ClusterClient as Client
    from minikafka.embedded.cluster_security import ClusterSecurity

ZOOKEEPER_TIMEOUT_MS = 60_000
"""The time that a broker waits for ZooKeeper, which is started together with it."""
EXTERNAL_ZOOKEEPER_TIMEOUT_MS = 10_000
"""The same for a ZooKeeper that should be running already."""
REBALANCE_DELAY_MS = 100
"""With Kafka's default, every new group waits for three seconds. Without a delay, the first of several
consumers that start together would get all partitions, and learn of the others with its next heartbeat,
three seconds later."""

SHUTDOWN_BACKOFF_MS = 200
"""The pause before a stopping broker retries the controlled shutdown. With Kafka's default, five seconds, a
partition whose other replicas have died would delay the end of a cluster by 15 seconds."""
CONTROLLER_TIMEOUT_MS = 1_000
"""To look up the controller, which is stopped last."""

CLIENT_ID = "minikafka-embedded"

ZOOKEEPER_CHECK_S = 2.0
"""The interval of ZooKeeper's health checks."""
ZOOKEEPER_SILENT_S = 10.0
"""The time without an answer before it is reported: on a busy machine ZooKeeper may be slow."""
RESTART_PAUSE_S = 5.0
"""The pause between two attempts to restart ZooKeeper."""


class Cluster:
    """ZooKeeper and brokers for tests, notebooks and ``minikafka up``; a context manager.

    brokers: the number of brokers; None: as many as data_dir has, 1 in a new one. data_dir: None creates a
    temporary one, which is removed at the end. config: broker properties by Kafka's names, for all brokers;
    broker_configs: properties of single brokers, by number, such as ``{1: {"broker.rack": "b"}}``. zookeeper:
    HOST:PORT/CHROOT of a running one; None starts one. port: of broker 0, the others get the next ones; 0
    picks free ports. secure: brokers encrypt, and serve only known users (``client_properties``); a data
    directory that was secured once stays so. on_exit: called on another thread with the broker's number and
    exit code whenever a broker ends.

    Raises ConfigError for fewer brokers than data_dir has, and for properties that brokers cannot share.
    """

    def __init__(
        self,
        brokers: int | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        config: Mapping[str, str] | None = None,
        zookeeper: str | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        broker_configs: Mapping[int, Mapping[str, str]] | None = None,
        secure: bool = False,
        on_exit: Callable[[int, int], None] | None = None,
    ) -> None:
        if data_dir is not None and not os.fspath(data_dir).strip():
            raise ConfigError(
                "data_dir",
                data_dir,
                "must name a directory; use '.' for the current one, None for a temporary one",
            )
        count = data_directory.broker_count(None if data_dir is None else Path(data_dir).absolute(), brokers)
        data_directory.check_shared_config(config or (), count)
        data_directory.check_broker_configs(broker_configs or {}, count)
        self._count = count
        self._ports = data_directory.broker_ports(port, count)
        self._temporary = data_dir is None
        self.data_dir = Path(
            tempfile.mkdtemp(prefix="minikafka-") if data_dir is None else data_dir
        ).absolute()
        shared = {name: str(value) for name, value in (config or {}).items()}
        self._configs = [
            data_directory.with_own_metrics_port(shared, number)
            | {name: str(value) for name, value in (broker_configs or {}).get(number, {}).items()}
            for number in range(count)
        ]
        self._external_zookeeper = zookeeper
        self._host = host.strip("[]")
        self._secure = secure
        self._security: ClusterSecurity | None = None
        self._on_exit = on_exit
        self._lock: int | None = None
        self._zookeeper: EmbeddedZooKeeper | None = None
        self._zookeeper_connect = zookeeper
        self._brokers: dict[int, BrokerProcess] = {}
        self._ready: dict[int, Ready] = {}
        self._client: Client | None = None
        self._restart_at_s = self._check_at_s = 0.0
        self._silent_since_s: float | None = None
        self._silence_reported = self._removal_reported = False
        self._restart_failure = ""
        """The reason why ZooKeeper could not be restarted, as reported last."""

    def __enter__(self) -> Cluster:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def count(self) -> int:
        """The number of brokers, alive or not."""
        return self._count

    @property
    def bootstrap_servers(self) -> str:
        """``HOST:PORT[,HOST:PORT…]`` of the brokers, also of those that are down at the moment."""
        return ",".join(self._ready[number].address for number in sorted(self._ready))

    @property
    def client_properties(self) -> dict[str, str]:
        """The properties of clients, by Kafka's names and with a password; none if it is not secured."""
        return {} if self._security is None else self._security.client_properties()

    @property
    def zookeeper_connect(self) -> str:
        """``HOST:PORT`` of ZooKeeper, with the chroot where one was given."""
        if self._zookeeper_connect is None:
            raise RuntimeError("the cluster has not been started")
        return self._zookeeper_connect

    @property
    def has_embedded_zookeeper(self) -> bool:
        """True if ZooKeeper starts and ends with this cluster."""
        return self._external_zookeeper is None

    @property
    def cluster_id(self) -> str:
        """The cluster id: 22 characters, which never change."""
        return next(iter(self._ready.values())).cluster_id

    @property
    def metrics_urls(self) -> list[str]:
        """The addresses of the brokers' metrics; empty if ``metrics.listeners`` is not set."""
        ready = (self._ready[number] for number in sorted(self._ready))
        return [f"{url}/metrics" for broker in ready for url in broker.metrics.split(",") if url]

    @property
    def ready_line(self) -> str:
        """The line that ``minikafka up`` prints once all brokers are ready; scripts read it."""
        return f"ready {self.bootstrap_servers} zookeeper {self.zookeeper_connect} cluster {self.cluster_id}"

    def start(self, on_progress: Callable[[str], None] = lambda state: None) -> Cluster:
        """Start, and return when every broker is ready. ``on_progress`` gets the progress of a long recovery.

        ZooKeeper and the brokers start at the same time: a broker imports its modules while the JVM starts,
        and then waits for ZooKeeper. Raises DirectoryLocked if another cluster uses the directory, and
        BrokerFailed or ProcessFailed, with the end of its log, for a process that did not start.
        """
        make_private(self.data_dir)
        self._lock = lock.hold(str(self.data_dir / ".lock"))
        strays.check_no_strays(self.data_dir)
        if self._secure or secured_directory.is_secured(self.data_dir):
            self._security = secured_directory.secure(
                self.data_dir,
                self._host,
                self._configs,
                datetime.now(timezone.utc),
                own_zookeeper=self._external_zookeeper is None,
            )
        if self._external_zookeeper is not None:
            self._add_first_user()  # brokers that are ready already may know a new user a moment later
            self._spawn_all()
        else:
            self._zookeeper = EmbeddedZooKeeper(str(self.data_dir))
            self._close_if_new(self._zookeeper)
            if self._security is not None and not secured_directory.has_users(self.data_dir):
                access = self._zookeeper_properties()
                secured_directory.take_zookeeper(
                    self.data_dir, self._zookeeper.start(), access, self._security
                )
            self._start_with_zookeeper(self._zookeeper)
            self._add_first_user()
        for number, broker in self._brokers.items():
            self._ready[number] = broker.wait_ready(on_progress=on_progress)
        return self

    def _add_first_user(self) -> None:
        if self._security is not None:
            own = self._external_zookeeper is None
            properties = self._zookeeper_properties() or self._configs[0]
            secured_directory.add_first_user(
                self.zookeeper_connect, properties, self._security, own_zookeeper=own
            )

    def _close_if_new(self, zookeeper: EmbeddedZooKeeper) -> None:
        """Start and close a new ZooKeeper that is to be closed to others, before anybody relies on it."""
        access = zookeeper_access.properties_of(self.data_dir)
        if access and zookeeper.is_new:
            try:
                zookeeper_access.close_new(zookeeper.start(), access)
            except BaseException:
                zookeeper.remove_data()
                raise

    def _start_with_zookeeper(self, zookeeper: EmbeddedZooKeeper) -> None:
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="minikafka-zookeeper") as pool:
            starting = pool.submit(zookeeper.start)
            # Its port is known long before it serves.
            wait_until(
                lambda: zookeeper.port > 0 or starting.done(), ZOOKEEPER_TIMEOUT_MS / 1000, every_s=0.002
            )
            if not starting.done():
                self._zookeeper_connect = zookeeper.connect
                self._spawn_all()
            connect = starting.result()
        if connect != self._zookeeper_connect:
            # Another process took the port meanwhile, so ZooKeeper uses another one: restart the brokers.
            for number in list(self._brokers):
                self.kill(number)
            self._zookeeper_connect = connect
            self._spawn_all()

    def close(self) -> None:
        """Stop the brokers cleanly, then ZooKeeper, and remove a temporary directory. May be called again."""
        last = self._controller()
        if self._client is not None:
            self._client.close()
            self._client = None
        # Brokers that are not ready yet lead no partitions that others could take over.
        starting = [self._brokers.pop(number) for number in self._brokers.keys() - self._ready.keys()]
        with ThreadPoolExecutor(max_workers=max(1, len(starting))) as pool:
            list(pool.map(BrokerProcess.stop, starting))
        for number in sorted(self._brokers, key=lambda number: (number == last, -number)):
            self._brokers.pop(number).stop()
        if self._zookeeper is not None:
            self._zookeeper.stop()
            self._zookeeper = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if self._temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def broker(self, number: int) -> BrokerProcess:
        """Return the process of broker ``number``. Raises KeyError if it was stopped or killed."""
        return self._brokers[number]

    def stop_broker(self, number: int) -> int:
        """Stop one broker cleanly and return its exit code."""
        return self._brokers.pop(number).stop()

    def kill(self, number: int) -> None:
        """Send SIGKILL to one broker."""
        self._brokers.pop(number).kill()

    def restart(self, number: int) -> None:
        """Restart a broker on its port and its log. A running one is stopped cleanly first."""
        if number not in range(self._count):
            raise KeyError(number)
        if number in self._brokers:
            self.stop_broker(number)
        self._spawn(number)
        self._ready[number] = self._brokers[number].wait_ready()

    def command_to_start(self, number: int) -> str:
        """Return the command to restart broker ``number`` by hand on its port and log.

        It outlives this cluster.
        """
        command = ["minikafka", "broker", str(data_directory.broker_properties_path(self.data_dir, number))]
        if not self._ports[number] and number in self._ready and "listeners" not in self._configs[number]:
            command += ["--set", f"listeners={self._listener(self._ready[number].port)}"]
        return shlex.join(command)

    def registered_brokers(self) -> RegisteredBrokers:
        """Return a reader of this cluster's registered brokers, whoever started them. Close it after use.

        In the cluster's own ZooKeeper all brokers count, as they end with it. A given ZooKeeper may have
        other users, so only brokers with the ids of this cluster count.
        """
        ids = {
            int(own) if (own := config.get("broker.id", "")).isdecimal() else number
            for number, config in enumerate(self._configs)
        }
        if self._external_zookeeper is None:
            return RegisteredBrokers(self.zookeeper_connect, None, self._zookeeper_properties())
        return RegisteredBrokers(self.zookeeper_connect, ids, self._configs[0])

    def restart_zookeeper(self, report: Callable[[str], None] = lambda text: None) -> bool:
        """Restart ZooKeeper on its port and data if it has ended. Return True if it was restarted.

        ``report`` gets a message about a restart, or the reason why it is not possible yet: brokers know
        ZooKeeper by its port, so a port in use is waited for. It also gets a message if ZooKeeper does not
        respond or its data was removed. Call this periodically.
        """
        zookeeper = self._zookeeper
        if zookeeper is None or time.monotonic() < self._restart_at_s:
            return False
        if not zookeeper.ended:
            self._check_zookeeper(zookeeper, report)
            return False
        try:
            zookeeper.restart()
        except MinikafkaError as error:
            # For other reasons, each attempt may cost a Java process and half a minute.
            taken = isinstance(error, PortInUse)
            self._restart_at_s = time.monotonic() + (0.0 if taken else RESTART_PAUSE_S)
            reason = "another process uses its port" if taken else str(error)
            if reason != self._restart_failure:
                self._restart_failure = reason
                report(f"ZooKeeper at {zookeeper.connect} ended and cannot be restarted yet: {reason}")
            return False
        self._restart_failure = ""
        report(f"ZooKeeper at {zookeeper.connect} had ended and was restarted")
        return True

    def _check_zookeeper(self, zookeeper: EmbeddedZooKeeper, report: Callable[[str], None]) -> None:
        now_s = time.monotonic()
        if now_s < self._check_at_s:
            return
        self._check_at_s = now_s + ZOOKEEPER_CHECK_S
        if zookeeper.answers:
            if zookeeper.is_data_removed and not self._removal_reported:
                self._removal_reported = True
                report(
                    f"{zookeeper.data_path} was removed: ZooKeeper still runs from memory, but when it ends, "
                    "topics, groups and settings are lost; the brokers' logs are kept"
                )
            if self._silence_reported:
                report(f"ZooKeeper at {zookeeper.connect} responds again")
            self._silent_since_s, self._silence_reported = None, False
        elif self._silent_since_s is None:
            self._silent_since_s = now_s
        elif (
            not self._silence_reported
            and now_s - self._silent_since_s >= ZOOKEEPER_SILENT_S
            and zookeeper.process
        ):
            self._silence_reported = True
            name = f"ZooKeeper at {zookeeper.connect} (process {zookeeper.process.pid})"
            report(f"{name} does not respond: brokers wait for it (see {self.data_dir / 'logs'})")

    def create_topic(
        self, name: str, partitions: int = 1, replicas: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic and return when it can be used."""
        from minikafka.clients.admin.admin import Admin, NewTopic

        Admin(self._connected()).create_topic(NewTopic(name, partitions, replicas, configs=config or {}))

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its messages."""
        from minikafka.clients.admin.admin import Admin

        error = Admin(self._connected()).delete_topics([name])[name]
        if error is not None:
            raise error

    def _controller(self) -> int | None:
        """Return the id of the controller; None if it does not matter or is unknown."""
        if len(self._ready) < 2 or len(self._brokers) < 2:
            return None
        try:
            client = self._connected()
            return client.controller(client.deadline(CONTROLLER_TIMEOUT_MS))
        except MinikafkaError:
            return None

    def _connected(self) -> Client:
        from minikafka.clients.network.cluster import ClusterClient as Client

        if self._client is None:
            from minikafka.clients.common_client_configs import ClientSecurity

            security = ClientSecurity.from_properties(self.client_properties)
            self._client = Client(self.bootstrap_servers, client_id=CLIENT_ID, security=security)
        return self._client

    def _listener(self, port: int) -> str:
        return secured_directory.listener_text(self._host, port, secured=self._security is not None)

    def _zookeeper_properties(self) -> dict[str, str]:
        """Return the properties of clients of its own ZooKeeper."""
        return {} if self._external_zookeeper else zookeeper_access.properties_of(self.data_dir)

    def _spawn_all(self) -> None:
        for number in range(self._count):
            self._spawn(number)

    def _spawn(self, number: int) -> None:
        # An advertised port may be that of a proxy: it is used only to keep the free port of the last start.
        port = self._ports[number] or (self._ready[number].port if number in self._ready else 0)
        properties = {
            "listeners": self._listener(port),
            "log.dirs": str(data_directory.broker_directory(self.data_dir, number)),
            "zookeeper.connect": self.zookeeper_connect,
            "zookeeper.connection.timeout.ms": str(
                ZOOKEEPER_TIMEOUT_MS if self._external_zookeeper is None else EXTERNAL_ZOOKEEPER_TIMEOUT_MS
            ),
            "group.initial.rebalance.delay.ms": str(REBALANCE_DELAY_MS),
            "controlled.shutdown.retry.backoff.ms": str(SHUTDOWN_BACKOFF_MS),
            **self._zookeeper_properties(),
            **(
                self._configs[number]
                if self._security is None
                else secured_directory.broker_properties(self._security, self._configs[number])
            ),
        }
        on_exit = self._on_exit
        self._brokers[number] = BrokerProcess(
            number,
            str(self.data_dir),
            properties,
            keep_open=() if self._lock is None else (self._lock,),
            on_exit=None if on_exit is None else lambda exit_code: on_exit(number, exit_code),
        )

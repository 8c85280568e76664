"""Connects to the cluster, or its ZooKeeper, that the options of a command name."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from minikafka.base.errors import (
    AuthenticationFailed,
    BrokerError,
    ConfigError,
    ErrorCode,
    MinikafkaError,
    NetworkError,
)
from minikafka.base.ids import OFFSETS_TOPIC
from minikafka.cli.options import (
    BOOTSTRAP_VARIABLE,
    COMMAND_CONFIG_OPTION,
    COMMAND_CONFIG_VARIABLE,
    DATA_DIR_OPTION,
    DEFAULT_BOOTSTRAP,
    check_data_dir,
    check_has_cluster,
    make_data_dir,
)
from minikafka.cli.terminal.output import note

if TYPE_CHECKING:
    from minikafka.cli.connection.command_config import CommandConfig
    from minikafka.clients.admin.admin import Admin
    from minikafka.clients.admin.group_stores import GroupStores
    from minikafka.clients.admin.partitions import PartitionsBackend
    from minikafka.clients.network.cluster import ClusterClient
    from minikafka.clients.network.metadata import TopicMetadata
    from minikafka.embedded.local_files import LocalCluster
    from minikafka.registry.store import Store
    from minikafka.registry.zookeeper import ZooKeeperStore
    from minikafka.registry.zookeeper_security import ZooKeeperSecurity

CLIENT_ID = "minikafka-cli"
REACH_TIMEOUT_MS = 4_000
"""The time to find a cluster: users get an answer within five seconds from the start of the process."""
UNKNOWN_TOPIC_TIMEOUT_MS = 800
"""The time to wait for the metadata of a topic that seems not to exist: users want a quick answer."""
ZOOKEEPER_ADVICE = "use --zookeeper HOST:PORT/CHROOT"
A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster that the options of a command name, and how it connects there.

    option: names the address in errors. own: the data directory whose login is used, if it is one.
    """

    servers: str
    option: str
    config: CommandConfig
    own: Path | None = None

    def client(self, *, writes: bool = False) -> ClusterClient:
        """Return a client, which has not connected yet. Only one that ``writes`` creates topics."""
        from minikafka.clients.network.cluster import ClusterClient

        return ClusterClient(
            self.servers,
            security=self.config.security,
            client_id=self.config.client_id,
            request_timeout_ms=self.config.request_timeout_ms,
            connect_timeout_ms=REACH_TIMEOUT_MS,  # so that its error comes in time
            creates_topics=writes,
            unknown_topic_timeout_ms=UNKNOWN_TOPIC_TIMEOUT_MS,
            option=self.option,
        )


def target_of(
    bootstrap: str | None,
    data_dir: Path | None,
    command_config: str | None = None,
    *,
    writes: bool = False,
    own_login: bool = True,
) -> Target:
    """Return the cluster that the options name. A data directory's cluster is started if it does not run.

    Without ``own_login`` the file of properties may lack the user: others will log in.
    """
    from minikafka.cli.connection.command_config import CommandConfig

    bootstrap, command_config = with_profile(bootstrap, command_config, data_dir)
    config = CommandConfig.read(command_config, own_login=own_login)
    if bootstrap is None and data_dir is None and config.bootstrap_servers is not None:
        return Target(config.bootstrap_servers, f"{command_config}: bootstrap.servers", config)
    option = BOOTSTRAP_VARIABLE if bootstrap and not is_typed(bootstrap) else "--bootstrap"
    servers = bootstrap_address(bootstrap, data_dir, writes=writes)
    if data_dir is None or is_typed(command_config, COMMAND_CONFIG_VARIABLE):
        return Target(servers, option, config)
    made = _with_security_of(data_dir, config)
    return Target(servers, option, made, data_dir if made is not config else None)


@contextlib.contextmanager
def cluster_client(
    bootstrap: str | None, data_dir: Path | None, command_config: str | None = None, *, writes: bool = False
) -> Iterator[ClusterClient]:
    """Yield a client of the cluster that the options name. It is closed at the end of the block.

    Only a command that ``writes`` creates what does not exist: a cluster in ``data_dir``, or a topic.
    """
    target = target_of(bootstrap, data_dir, command_config, writes=writes)
    cluster, own = target.client(writes=writes), target.own
    try:
        # Report an unreachable address quickly; requests may take longer.
        try:
            cluster.metadata(None, timeout_ms=REACH_TIMEOUT_MS)
        except AuthenticationFailed as error:
            raise error if own is None else _login_failure(own, error) from None
        except NetworkError as error:
            if data_dir is None:
                raise
            raise MinikafkaError(
                f"{error.problem}; the cluster of {data_dir} advertises this address "
                "(advertised.listeners); use another of its addresses with --bootstrap"
            ) from error
        yield cluster
    finally:
        cluster.close()


def with_profile(
    bootstrap: str | None, command_config: str | None, data_dir: Path | None, zookeeper: str | None = None
) -> tuple[str | None, str | None]:
    """Return ``bootstrap`` and ``command_config``, or in their place those of the profile that applies.
    Raise ConfigError for a profile that does not exist, or that conflicts with other options.
    """
    from minikafka.cli.connection import profiles

    names_cluster = bool(bootstrap or command_config or data_dir or zookeeper)
    profile = profiles.active(names_cluster=names_cluster)
    if profile is None or command_config == str(profile.path):
        return bootstrap, command_config
    conflicts = {
        COMMAND_CONFIG_OPTION: command_config if is_typed(command_config, COMMAND_CONFIG_VARIABLE) else None,
        DATA_DIR_OPTION: data_dir,
    }
    for option, value in conflicts.items():
        if value is not None:
            allowed = f"conflicts with {option} {value}; set only one of them"
            raise ConfigError(profile.origin, profile.name, allowed)
    properties = profile.read()
    if profiles.BOOTSTRAP_SERVERS in properties and not (
        is_typed(bootstrap) or profile.origin == profiles.PROFILE_VARIABLE
    ):
        bootstrap = None  # of MINIKAFKA_BOOTSTRAP: the option --profile wins
    return bootstrap, str(profile.path)


def _with_security_of(data_dir: Path, config: CommandConfig) -> CommandConfig:
    """Return ``config`` with the security of a data directory, if it is secured.

    The directory is one whose cluster runs: its start completes the files.
    """
    from minikafka.embedded import secured_directory

    security = secured_directory.client_security(data_dir)
    return config if security is None else replace(config, security=security)


def _login_failure(data_dir: Path, error: AuthenticationFailed) -> AuthenticationFailed:
    """Return an error of the login that a command takes from a data directory."""
    from minikafka.embedded import secured_directory

    return secured_directory.login_failure(data_dir, error)


@contextlib.contextmanager
def admin_client(
    bootstrap: str | None, data_dir: Path | None, command_config: str | None = None, *, writes: bool = False
) -> Iterator[Admin]:
    """Yield an ``Admin`` with the client of ``cluster_client``."""
    from minikafka.clients.admin.admin import Admin

    with cluster_client(bootstrap, data_dir, command_config, writes=writes) as cluster:
        yield Admin(cluster)


def bootstrap_address(bootstrap: str | None, data_dir: Path | None, *, writes: bool) -> str:
    """Return the bootstrap list. A data directory takes precedence over MINIKAFKA_BOOTSTRAP."""
    if data_dir is None:
        return bootstrap or DEFAULT_BOOTSTRAP
    _check_conflict(bootstrap, data_dir)
    return _local_cluster(data_dir, writes=writes).bootstrap_servers


def _check_conflict(bootstrap: str | None, data_dir: Path) -> None:
    if is_typed(bootstrap):
        allowed = f"conflicts with --data-dir {data_dir}; set only one of them"
        raise ConfigError("--bootstrap", bootstrap, allowed)


def is_typed(given: str | None, variable: str = BOOTSTRAP_VARIABLE) -> bool:
    """Return True if ``given`` was set as an option, not by the environment."""
    return bool(given) and given != os.environ.get(variable)


@contextlib.contextmanager
def zookeeper_store(
    zookeeper: str | None,
    bootstrap: str | None,
    data_dir: Path | None,
    command_config: str | None = None,
    *,
    may_be_new: bool = False,
) -> Iterator[ZooKeeperStore]:
    """Yield a store in the ZooKeeper of the cluster that the options name. It is closed at the end of the
    block. Raise ConfigError if they name none, or CoordinationError if no cluster uses it, unless the cluster
    ``may_be_new``: then an absent chroot is created, as a broker does.
    """
    if is_typed(bootstrap):
        allowed = f"conflicts with --zookeeper {zookeeper}; set only one of them"
        raise ConfigError("--bootstrap", bootstrap, allowed)
    if zookeeper and data_dir is not None:
        allowed = f"conflicts with --data-dir {data_dir}; set only one of them"
        raise ConfigError("--zookeeper", zookeeper, allowed)
    from minikafka.registry.entity_configs import check_cluster as check_coordinated
    from minikafka.registry.zookeeper import ZooKeeperStore

    _, command_config = with_profile(None, command_config, data_dir, zookeeper)
    security = _zookeeper_security(data_dir, command_config)
    if zookeeper:
        connect = zookeeper
    elif data_dir is not None:
        connect = _local_cluster(data_dir, writes=False).zookeeper_connect
    else:
        allowed = "required (the address that `minikafka up` printed); or set --data-dir D"
        raise ConfigError("--zookeeper", None, allowed)
    store = ZooKeeperStore(
        connect, connect_timeout_ms=REACH_TIMEOUT_MS, make_chroot=may_be_new, security=security
    )
    try:
        if not may_be_new:
            check_coordinated(store, connect)
        yield store
    finally:
        store.close()


def _zookeeper_security(data_dir: Path | None, command_config: str | None) -> ZooKeeperSecurity:
    """Return the security of ZooKeeper's client: that of the data directory, or of the file of properties."""
    from minikafka.cli.connection.command_config import read_command_config
    from minikafka.embedded import zookeeper_access
    from minikafka.net.zookeeper_tls import zookeeper_security
    from minikafka.security.zookeeper_config import ZooKeeperClientConfig

    properties: Mapping[str, str] = {} if data_dir is None else zookeeper_access.properties_of(data_dir)
    if not properties and command_config is not None:
        properties = read_command_config(command_config)
    return zookeeper_security(ZooKeeperClientConfig.among(properties))


@contextlib.contextmanager
def backend(
    at_brokers: Callable[[ClusterClient], A],
    in_zookeeper: Callable[[Store], B],
    bootstrap: str | None,
    zookeeper: str | None,
    data_dir: Path | None,
    command_config: str | None = None,
    *,
    may_be_new: bool = False,
) -> Iterator[A | B]:
    """Yield what ``in_zookeeper`` makes of the cluster's ZooKeeper if an option names that, or else what
    ``at_brokers`` makes of a client of its brokers. ``may_be_new``: as for ``zookeeper_store``.
    """
    if zookeeper:
        with zookeeper_store(zookeeper, bootstrap, data_dir, command_config, may_be_new=may_be_new) as store:
            yield in_zookeeper(store)
        return
    with cluster_client(bootstrap, data_dir, command_config) as cluster:
        try:
            yield at_brokers(cluster)
        except BrokerError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            raise BrokerError(error.code, f"{error.detail}; {ZOOKEEPER_ADVICE}") from None


def partitions(
    bootstrap: str | None, zookeeper: str | None, data_dir: Path | None, command_config: str | None
) -> contextlib.AbstractContextManager[PartitionsBackend]:
    """Return the partitions as the brokers know them, or with ``zookeeper`` as they are stored there."""
    from minikafka.clients.admin.partitions import BrokerPartitions
    from minikafka.clients.admin.zookeeper.partitions import ZooKeeperPartitions

    return backend(BrokerPartitions, ZooKeeperPartitions, bootstrap, zookeeper, data_dir, command_config)


@dataclass(frozen=True, slots=True)
class GroupAccess:
    """Access to the groups of a cluster.

    cluster: None if its brokers are unreachable, for the reason ``why``.
    store: None if its ZooKeeper is unknown.
    """

    cluster: ClusterClient | None
    store: Store | None
    why: str = ""

    @property
    def stores(self) -> GroupStores:
        """The group stores that are reachable."""
        from minikafka.clients.admin.group_stores import GroupStores
        from minikafka.clients.admin.groups import GroupAdmin
        from minikafka.clients.admin.zookeeper.groups import ZooKeeperGroups
        from minikafka.registry.paths import topic_path

        kept = self.store is None or self.store.exists(topic_path(OFFSETS_TOPIC)) is not None
        return GroupStores(
            None if self.cluster is None else GroupAdmin(self.cluster),
            None if self.store is None else ZooKeeperGroups(self.store),
            keeps_offsets=kept,
        )

    @property
    def brokers(self) -> ClusterClient:
        """The client of the brokers. Raises MinikafkaError if they are unreachable."""
        if self.cluster is None:
            raise MinikafkaError(f"cannot reach the brokers: {self.why}")
        return self.cluster


@contextlib.contextmanager
def group_access(
    zookeeper: str | None, bootstrap: str | None, data_dir: Path | None, command_config: str | None = None
) -> Iterator[GroupAccess]:
    """Yield access to the groups of the cluster that the options name, at its brokers and, if it is known, in
    its ZooKeeper.

    With ``zookeeper`` the brokers are those that are registered there, unless an option names some.
    """
    bootstrap, command_config = with_profile(bootstrap, command_config, data_dir, zookeeper)
    with contextlib.ExitStack() as stack:
        if data_dir is not None:
            _check_conflict(bootstrap, data_dir)
            store = stack.enter_context(zookeeper_store(zookeeper, None, data_dir, command_config))
            yield GroupAccess(stack.enter_context(cluster_client(None, data_dir, command_config)), store)
        elif not zookeeper:
            yield GroupAccess(stack.enter_context(cluster_client(bootstrap, None, command_config)), None)
        else:
            store = stack.enter_context(zookeeper_store(zookeeper, None, None, command_config))
            if is_typed(bootstrap):
                yield GroupAccess(stack.enter_context(cluster_client(bootstrap, None, command_config)), store)
                return
            yield _with_registered_brokers(store, str(zookeeper), command_config, stack)


def _with_registered_brokers(
    store: Store, zookeeper: str, command_config: str | None, stack: contextlib.ExitStack
) -> GroupAccess:
    """Return access to ZooKeeper and, if they are reachable, the brokers that are registered there."""
    try:
        found = registered_brokers(store, zookeeper, command_config)
        return GroupAccess(stack.enter_context(cluster_client(found, None, command_config)), store)
    except NetworkError as error:
        return GroupAccess(None, store, str(error))


def registered_brokers(store: Store, zookeeper: str, command_config: str | None) -> str:
    """Return the addresses of the brokers that are registered in ZooKeeper. Raises NetworkError for none."""
    from minikafka.cli.connection.command_config import CommandConfig
    from minikafka.registry.brokers import addresses_with

    protocol = CommandConfig.read(command_config).security.protocol
    found = ",".join(addresses_with(protocol, store))
    if not found:
        raise NetworkError(f"no broker with a listener for {protocol.name} is registered at {zookeeper}")
    return found


def _local_cluster(data_dir: Path, *, writes: bool) -> LocalCluster:
    (check_data_dir if writes else check_has_cluster)(data_dir)
    make_data_dir(data_dir)
    from minikafka.embedded import local, owners

    # Owned by this command, not by the nearest parent JVM, which may be the editor.
    itself = owners.owner_of(os.getpid())
    assert itself is not None
    if local.running(str(data_dir)) is None:
        note(f"minikafka: starting a local Kafka cluster in {data_dir.absolute()} …")
    return local.ensure(str(data_dir), [itself], lambda state: note(f"minikafka: {state}"))


def existing_topic(admin: Admin, name: str) -> TopicMetadata:
    """Return the metadata of a topic. Raise BrokerError if it does not exist; never create it."""
    return admin.describe_topic(name)

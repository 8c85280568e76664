"""A data directory that is secured: it has ``D/security``, and all listeners of its brokers have SASL_SSL.

``secure`` makes what such a cluster needs (``cluster_security``), and closes its ZooKeeper. Once the folder
is there, no listener without a login is started on this directory, whoever starts it: to open a cluster
again, its user moves the folder away. Commands and Spark on the same host log in by ``client_security``.

It imports little: every start of every cluster asks whether a directory is secured.
"""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Iterable, Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minikafka.base.config.property_files import read_properties
from minikafka.base.errors import AuthenticationFailed, ConfigError
from minikafka.base.ids import host_port

if TYPE_CHECKING:
    from minikafka.base.secrets import Password
    from minikafka.clients.common_client_configs import ClientSecurity
    from minikafka.embedded.cluster_security import ClusterSecurity
    from minikafka.registry.zookeeper import ZooKeeperStore
    from minikafka.server.config.listeners import Listener
    from minikafka.server.config.properties import BrokerConfig

LISTENERS = "listeners"
USERS_ADDED = "users-added"
"""The file that says that the users in ZooKeeper are those of the folder."""
PLAINTEXT, SASL_SSL = "PLAINTEXT", "SASL_SSL"


def folder_of(data_dir: str | Path) -> Path:
    """Return the path of the folder that a secured data directory has."""
    return Path(data_dir).absolute() / "security"


def is_secured(data_dir: str | Path) -> bool:
    """Return True if the data directory is secured, also if making its folder was interrupted."""
    return os.path.lexists(folder_of(data_dir))


def client_properties_path(data_dir: str | Path) -> str | None:
    """Return the path of the properties of clients; None if the directory is not secured."""
    return str(folder_of(data_dir) / "client.properties") if is_secured(data_dir) else None


def client_security(data_dir: str | Path) -> ClientSecurity | None:
    """Return the security of clients, which holds no path, so that it works in another process and host.

    None if the directory is not secured. Raises ConfigError if a file cannot be read.
    """
    path = client_properties_path(data_dir)
    if path is None:
        return None
    from minikafka.clients.common_client_configs import ClientSecurity
    from minikafka.embedded.cluster_security import CA_CERTIFICATE, with_certificate

    certificate = folder_of(data_dir) / CA_CERTIFICATE
    try:
        text = certificate.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("security", str(certificate), f"cannot be read: {error}") from None
    return ClientSecurity.from_properties(with_certificate(read_properties(path, "security"), text))


def login_failure(data_dir: str | Path, error: AuthenticationFailed) -> AuthenticationFailed:
    """Return the error of a login by ``client_security`` with the file that has its password.

    An error with another cause stays as it is.
    """
    from minikafka.embedded.cluster_security import FIRST_USER, USERS
    from minikafka.security.sasl.mechanism import SaslClient

    if SaslClient.ADVICE not in error.reason:
        return error
    advice = (
        f"the password of {FIRST_USER} is that in {folder_of(data_dir) / USERS}; restart the cluster, which "
        "sets it in ZooKeeper"
    )
    text = error.reason.replace(SaslClient.ADVICE, advice)
    return AuthenticationFailed(text, text, error.code)


def secure(
    data_dir: Path, host: str, configs: Iterable[Mapping[str, str]], now: datetime, *, own_zookeeper: bool
) -> ClusterSecurity:
    """Make the files of a secured cluster, and close its own ZooKeeper. It can be repeated.

    host: that brokers listen on unless ``configs``, their properties, have listeners. Call it with the data
    directory's lock. Raises StoreError and ConfigError, see ``cluster_security.prepare``, and ConfigError for
    a directory in which other users could put files or links, to be written to, in place of these.
    """
    from minikafka.base.files import RealFiles
    from minikafka.embedded import cluster_security, zookeeper_access
    from minikafka.server.config.listeners import WILDCARDS

    hosts: list[str] = []
    for config in configs:
        check_stays_closed(config, own_zookeeper=own_zookeeper)
        for listener in listeners_of({LISTENERS: listener_text(host, 0, secured=True), **config}):
            check_has_login(data_dir, listener)
            hosts += [listener.advertised_host, listener.host]
    for directory in (data_dir, folder_of(data_dir), data_dir / "zookeeper"):
        _check_nobody_else_writes(directory)
    wanted = [name for name in dict.fromkeys(hosts) if name not in WILDCARDS]
    security = cluster_security.prepare(RealFiles(), str(folder_of(data_dir)), wanted, now)
    if own_zookeeper:
        zookeeper_access.protect(data_dir)
    return security


def _check_nobody_else_writes(directory: Path) -> None:
    """Raise ConfigError for a directory in which other users can create files. It need not exist."""
    try:
        found = os.stat(directory)
    except FileNotFoundError:
        return
    if found.st_uid not in (0, os.getuid()):
        fault = "belongs to another user; use a directory of your own"
    elif found.st_mode & 0o022:
        command = f"chmod go-w {shlex.quote(str(directory))}"
        fault = f"other users can write it, and so replace its secrets; run `{command}`"
    else:
        return
    raise ConfigError("data_dir", str(directory), fault)


def listener_text(host: str, port: int, *, secured: bool) -> str:
    """Return the one listener of a broker."""
    return f"{SASL_SSL if secured else PLAINTEXT}://{host_port(host, port)}"


def listeners_of(properties: Mapping[str, str]) -> tuple[Listener, ...]:
    """Return the listeners of a broker. Raises ConfigErrors."""
    from minikafka.base.config.config_def import Faults, definition_of
    from minikafka.server.config.listeners import ListenerConfig

    faults = Faults()
    fields: dict[str, Any] = faults.take(definition_of(ListenerConfig).fields(properties))
    faults.check()
    return ListenerConfig(**fields).parse(platform.node() or "localhost")


def check_has_login(data_dir: str | Path, listener: Listener) -> None:
    """Raise ConfigError for a listener that a secured data directory may not have."""
    if listener.protocol.name != SASL_SSL:
        name = f"{listener.name}://{host_port(listener.host, listener.port)}"
        problem = "all listeners of a secured cluster must have the protocol SASL_SSL"
        if is_secured(data_dir):
            problem += f"; {data_dir} is secured: move {folder_of(data_dir)} away to open it to everybody"
        raise ConfigError(LISTENERS, name, problem)


def check_stays_closed(properties: Mapping[str, str], *, own_zookeeper: bool) -> None:
    """Raise ConfigError for properties of a broker that open a secured cluster, or shut its own users out."""
    from minikafka.embedded import cluster_security as own
    from minikafka.security.zookeeper_config import PRIVATE, SET_ACL

    authorizer, acl = properties.get(own.AUTHORIZER), properties.get(SET_ACL)
    if authorizer not in {None, own.AUTHORIZER_CLASS}:
        why = "in a secured cluster: without it, every user may do everything; leave the setting out"
        raise ConfigError(own.AUTHORIZER, authorizer, f"must be {own.AUTHORIZER_CLASS} {why}")
    if own_zookeeper and acl not in {None, PRIVATE}:
        why = "in a secured cluster: others could read or change its users and rules; leave the setting out"
        raise ConfigError(SET_ACL, acl, f"must be {PRIVATE} {why}")
    for name, needed in (
        (own.MECHANISMS, {own.MECHANISM: "clients"}),
        (own.MECHANISMS_OF_LISTENER, {own.MECHANISM: "clients", own.BROKER_MECHANISM: "brokers"}),
    ):
        given = properties.get(name)
        for mechanism, whose in needed.items():
            if given is not None and mechanism not in (word.strip() for word in given.split(",")):
                why = f"by which the {whose} of a secured cluster log in; add it"
                raise ConfigError(name, given, f"must have {mechanism}, {why}")


def broker_properties(security: ClusterSecurity, config: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a broker: those of a secured cluster, and ``config``, which wins.

    Super users of ``config`` are added, as brokers that are none could not control each other. Its mechanisms
    are those of users; that of the brokers is added.
    """
    from minikafka.embedded.cluster_security import (
        BROKER_MECHANISM,
        MECHANISMS,
        MECHANISMS_OF_LISTENER,
        SUPER_USERS,
    )

    own = security.broker_properties()
    if given := config.get(MECHANISMS):
        names = [*(word.strip() for word in given.split(",")), BROKER_MECHANISM]
        own[MECHANISMS_OF_LISTENER] = ",".join(dict.fromkeys(names))
    if config.get(SUPER_USERS):
        config = {**config, SUPER_USERS: f"{own[SUPER_USERS]};{config[SUPER_USERS]}"}
    return {**own, **config}


def checked_config(
    data_dir: str | Path, host: str, port: int, config: Mapping[str, str], *, secured: bool
) -> BrokerConfig:
    """Return the configuration of a broker of the directory, checked before there are any files.

    Raises ConfigErrors with every fault of ``config``.
    """
    from minikafka.server.config.properties import BrokerConfig

    own = {
        "zookeeper.connect": "localhost:2181",
        LISTENERS: listener_text(host.strip("[]"), port, secured=secured),
    }
    if not secured:
        return BrokerConfig.from_properties({**own, **config})
    from minikafka.base.secrets import Password
    from minikafka.embedded.cluster_security import BROKER_USER, FIRST_USER, ClusterSecurity

    check_stays_closed(config, own_zookeeper=False)  # whose it is, ``secure`` knows
    for listener in listeners_of({**own, **config}):
        check_has_login(data_dir, listener)
    unknown = dict.fromkeys((BROKER_USER, FIRST_USER), Password("not made yet"))
    security = ClusterSecurity(str(folder_of(data_dir)), unknown)
    return BrokerConfig.from_properties({**own, **broker_properties(security, config)})


def has_users(data_dir: Path) -> bool:
    """Return True if the users of the data directory's own ZooKeeper are those of the folder."""
    return (folder_of(data_dir) / USERS_ADDED).exists()


def take_zookeeper(
    data_dir: Path, connect: str, properties: Mapping[str, str], security: ClusterSecurity
) -> None:
    """Close the ZooKeeper of a data directory, and replace users that others may have added to it.

    Call it before brokers trust these users, until ``has_users``. Raises MinikafkaError.
    """
    from minikafka.base.files import RealFiles, replace_file
    from minikafka.embedded.cluster_security import delete_super_users

    with closing(_store(connect, properties)) as store:
        store.close_to_others()
        delete_super_users(store)
    add_first_user(connect, properties, security, own_zookeeper=True)
    replace_file(RealFiles(), str(folder_of(data_dir) / USERS_ADDED), b"", private=True)


def add_first_user(
    connect: str, properties: Mapping[str, str], security: ClusterSecurity, *, own_zookeeper: bool
) -> None:
    """Add the first user of clients to ZooKeeper, or set its password there. Raises MinikafkaError.

    properties: those of a client of ZooKeeper.
    """
    from minikafka.embedded import cluster_security

    with closing(_store(connect, properties)) as store:
        cluster_security.add_first_user(store, security, own_zookeeper=own_zookeeper)


def write_first_password(data_dir: str | Path, user: str, password: Password) -> None:
    """Write the new password of a user to the files of the folder if it is the first user's.

    Raises StoreError and StorageError.
    """
    if not is_secured(data_dir):
        return
    from minikafka.base.files import RealFiles
    from minikafka.embedded import cluster_security

    if user == cluster_security.FIRST_USER:
        cluster_security.write_first_password(RealFiles(), str(folder_of(data_dir)), password)


def check_may_be_deleted(data_dir: str | Path, user: str) -> None:
    """Raise ConfigError for the first user of a secured data directory."""
    if not is_secured(data_dir):
        return
    from minikafka.embedded.cluster_security import FIRST_USER

    if user == FIRST_USER:
        raise ConfigError(
            "NAME",
            user,
            f"is the user of commands and clients of {data_dir}, which each start of the cluster adds again; "
            f"change its password with `minikafka user passwd {user}`",
        )


def _store(connect: str, properties: Mapping[str, str]) -> ZooKeeperStore:
    from minikafka.net.zookeeper_tls import zookeeper_security
    from minikafka.registry.zookeeper import ZooKeeperStore
    from minikafka.security.zookeeper_config import ZooKeeperClientConfig

    access = zookeeper_security(ZooKeeperClientConfig.among(properties))
    return ZooKeeperStore(connect, security=access)

"""The password of an embedded ZooKeeper that is closed to the other users of this machine.

    D/zookeeper/client.properties       zookeeper.set.acl=private, and generated zookeeper.digest.credentials

ZooKeeper listens on loopback, where every user of the machine can connect. With this file in the directory,
brokers and commands have the credentials, and leave nobody else anything: the first broker also takes the
znodes that exist. The file can be read by its owner alone, from its first byte on; without it the cluster
cannot use its ZooKeeper any more. The format is that of ``--command-config``.

A new ZooKeeper is closed before the brokers start. Until then, which is half a second, everybody could have
created znodes, such as those of users; then the start fails, and the new data is removed.

Clusters that are secured as a whole have it, see ``secured_directory``.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from minikafka.base.cache_dirs import make_private, open_own
from minikafka.base.config.property_files import parse_properties, properties_text
from minikafka.base.errors import ConfigError, CoordinationError
from minikafka.base.files import RealFiles, replace_file
from minikafka.base.printable import printable
from minikafka.base.text import first_of
from minikafka.security.zookeeper_config import CREDENTIALS, PRIVATE, SET_ACL, ZooKeeperClientConfig

if TYPE_CHECKING:
    from minikafka.registry.zookeeper_security import ZooKeeperSecurity

_USER = "minikafka"
_PASSWORD_BYTES = 24


def protect(data_dir: str | Path) -> dict[str, str]:
    """Close the ZooKeeper of a data directory from its next start on; return the properties of its clients.

    Does nothing if it is closed already.
    """
    found = properties_of(data_dir)
    if found:
        return found
    made = {SET_ACL: PRIVATE, CREDENTIALS: f"{_USER}:{secrets.token_urlsafe(_PASSWORD_BYTES)}"}
    path = _path(data_dir)
    make_private(path.parent)
    replace_file(RealFiles(), str(path), properties_text(made).encode(), private=True)
    return made


def properties_of(data_dir: str | Path) -> dict[str, str]:
    """Return the properties of clients of a data directory's ZooKeeper; none if it is open to everybody.

    Raises ConfigError if the file cannot be read.
    """
    path = _path(data_dir)
    try:
        with open_own(path) as file:
            return parse_properties(file.read().decode("utf-8"), str(path))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError("zookeeper", str(path), f"cannot be read: {reason}") from None


def close_new(connect: str, properties: Mapping[str, str]) -> None:
    """Close a ZooKeeper that has just been started without data.

    Raises CoordinationError if it is not empty: another user of this machine has been there before.
    """
    from minikafka.net.zookeeper_tls import zookeeper_security
    from minikafka.registry.zookeeper import ZooKeeperStore

    security = zookeeper_security(ZooKeeperClientConfig.among(properties))
    with closing(ZooKeeperStore(connect, security=security)) as store:
        store.close_to_others()
        found = sorted({*store.children("/")} - {"zookeeper"})
    if found:
        raise CoordinationError(
            "another user of this host has created znodes in the new ZooKeeper: "
            f"{printable(first_of(found, 3))}; start again"
        )


def security_of(data_dir: str | Path) -> ZooKeeperSecurity:
    """Return the security of clients of a data directory's ZooKeeper. Raises ConfigError as above."""
    from minikafka.net.zookeeper_tls import zookeeper_security

    return zookeeper_security(ZooKeeperClientConfig.among(properties_of(data_dir)))


def _path(data_dir: str | Path) -> Path:
    return Path(data_dir).absolute() / "zookeeper" / "client.properties"

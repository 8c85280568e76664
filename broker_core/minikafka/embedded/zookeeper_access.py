"""The password of an embedded ZooKeeper that is closed to the other users of this machine.

    D/zookeeper/client.properties       zookeeper.set.acl=private, and generated zookeeper.digest.credentials

ZooKeeper listens on loopback, where every user of the machine can connect. With this file in the directory,
brokers and commands have the credentials, and leave nobody else anything: the first broker also takes the
znodes that exist. The file can be read by its owner alone, from its first byte on; without it the cluster
cannot use its ZooKeeper any more. The format is that of ``--command-config``.

Clusters that are secured as a whole have it, see ``secured_directory``.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from minikafka.base.cache_dirs import make_private, open_own
from minikafka.base.config.property_files import parse_properties, properties_text
from minikafka.base.errors import ConfigError
from minikafka.base.files import RealFiles, replace_file
from minikafka.security.zookeeper_config import CREDENTIALS, PRIVATE, SET_ACL

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


def _path(data_dir: str | Path) -> Path:
    return Path(data_dir).absolute() / "zookeeper" / "client.properties"

"""The security of a client of ZooKeeper, made from its settings."""

from __future__ import annotations

from minikafka.base.errors import ConfigError, ConfigErrors
from minikafka.net.tls import client_context, read_file
from minikafka.registry.zookeeper_security import AclPolicy, ZooKeeperSecurity
from minikafka.security.ssl_config import ReadFile
from minikafka.security.zookeeper_config import ZooKeeperClientConfig, prefixed


def zookeeper_security(config: ZooKeeperClientConfig, read: ReadFile = read_file) -> ZooKeeperSecurity:
    """Return the security that the settings describe. Raises ConfigErrors for stores that cannot be read."""
    tls = None
    if config.ssl is not None:
        try:
            tls = client_context(config.ssl, read)
        except ConfigError as error:
            raise ConfigErrors(prefixed(error)) from None
    return ZooKeeperSecurity(config.credentials, AclPolicy(config.set_acl), tls)

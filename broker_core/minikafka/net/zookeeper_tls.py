"""The security of a client of ZooKeeper, made from its settings."""

from __future__ import annotations

from minikafka.base.errors import ConfigError, ConfigErrors
from minikafka.net.tls import CurrentTls
from minikafka.registry.zookeeper_security import AclPolicy, ZooKeeperSecurity
from minikafka.security.zookeeper_config import ZooKeeperClientConfig, prefixed


def zookeeper_security(config: ZooKeeperClientConfig) -> ZooKeeperSecurity:
    """Return the security that the settings describe. Raises ConfigErrors for stores that cannot be read."""
    tls = None
    if config.ssl is not None:
        try:
            tls = CurrentTls(config.ssl, "connections to ZooKeeper")
        except ConfigError as error:
            raise ConfigErrors(prefixed(error)) from None
    return ZooKeeperSecurity(config.credentials, AclPolicy(config.set_acl), tls)

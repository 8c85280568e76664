"""SCRAM credentials of users in ZooKeeper, as by ``kafka-configs --zookeeper --entity-type users``.

The quotas in the same znode stay as they are. As with Kafka's tool, the znode of a deleted user stays, empty.
"""

from __future__ import annotations

from collections.abc import Callable

from minikafka.base.errors import ConfigError
from minikafka.base.secrets import Password
from minikafka.clients.admin.users import CredentialChanges, Mechanisms, UserCredential
from minikafka.registry import paths
from minikafka.registry.entity_configs import ENTITY_CONFIG, change_config, read_config
from minikafka.registry.store import Store
from minikafka.registry.users import sanitize, user_names
from minikafka.registry.znodes import read_values
from minikafka.security.sasl.scram import ScramCredential, ScramMechanism

Settings = dict[str, str]


class ZooKeeperUsers:
    """The credentials in ZooKeeper. Running brokers are notified of changes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def credentials(self) -> list[UserCredential]:
        """See ``UsersBackend``."""
        by_path = {paths.config_path(paths.USERS, sanitize(name)): name for name in user_names(self._store)}
        found = read_values(self._store, by_path, ENTITY_CONFIG)
        return [
            UserCredential(user, mechanism, _iterations(mechanism, config.config[mechanism.value]))
            for user, config in sorted(found.items())
            for mechanism in ScramMechanism
            if mechanism.value in config.config
        ]

    def change(self, user: str, change: Callable[[Mechanisms], CredentialChanges]) -> None:
        """See ``UsersBackend``. No change of others is lost."""

        def changed(settings: Settings) -> Settings:
            held = tuple(mechanism for mechanism in ScramMechanism if mechanism.value in settings)
            for mechanism, new in change(held).items():
                settings.pop(mechanism.value, None)
                if new is not None:
                    credential = ScramCredential.of_salted_password(
                        mechanism, new.salted_password, new.salt, new.iterations
                    )
                    settings[mechanism.value] = credential.to_text()
            return settings

        change_config(self._store, paths.USERS, sanitize(user), changed)


def has_password(store: Store, user: str, password: Password) -> bool:
    """Return True if this is the password of a user for all mechanisms that the user has."""
    settings = read_config(store, paths.USERS, sanitize(user))
    return all(
        _fits(mechanism, settings[mechanism.value], password)
        for mechanism in ScramMechanism
        if mechanism.value in settings
    )


def _fits(mechanism: ScramMechanism, text: str, password: Password) -> bool:
    try:
        held = ScramCredential.parse(mechanism, text)
    except ConfigError:
        return False
    return held == ScramCredential.create(mechanism, password, held.salt, held.iterations)


def _iterations(mechanism: ScramMechanism, text: str) -> int | None:
    try:
        return ScramCredential.parse(mechanism, text).iterations
    except ConfigError:
        return None

"""Users with passwords: their SCRAM credentials in ZooKeeper, as by ``kafka-configs --entity-type users``.

A user has a credential for each mechanism; the password itself is not kept. Brokers use a change at once.
The quotas in the same znode stay as they are. As with Kafka's tool, the znode of a deleted user stays, empty.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from minikafka.base import acls
from minikafka.base.errors import ConfigError, NoSuchUser, UserExists
from minikafka.base.secrets import Password
from minikafka.registry import paths
from minikafka.registry.entity_configs import ENTITY_CONFIG, change_config, read_config
from minikafka.registry.store import Store, is_znode_name
from minikafka.registry.users import DEFAULT_ENTITY, sanitize, user_names
from minikafka.registry.znodes import read_values
from minikafka.security.principals import KafkaPrincipal
from minikafka.security.sasl.scram import MIN_ITERATIONS, ScramCredential, ScramMechanism, base36

MAX_ITERATIONS = 16_384
"""The limit of Kafka's tool: a broker does this work at each login, also for a wrong password."""
_SALT_ENTROPY_BYTES = 17

Settings = dict[str, str]


@dataclass(frozen=True, slots=True)
class UserCredential:
    """A credential of a user, without its secrets."""

    user: str
    mechanism: ScramMechanism
    iterations: int | None
    """None: the credential is invalid, so that the user cannot log in with it."""


def list_credentials(store: Store) -> list[UserCredential]:
    """Return the credentials of all users, by user and mechanism."""
    by_path = {paths.config_path(paths.USERS, sanitize(name)): name for name in user_names(store)}
    found = read_values(store, by_path, ENTITY_CONFIG)
    return [
        UserCredential(user, mechanism, _iterations(mechanism, config.config[mechanism.value]))
        for user, config in sorted(found.items())
        for mechanism in ScramMechanism
        if mechanism.value in config.config
    ]


def _iterations(mechanism: ScramMechanism, text: str) -> int | None:
    try:
        return ScramCredential.parse(mechanism, text).iterations
    except ConfigError:
        return None


@dataclass(frozen=True, slots=True)
class NewPassword:
    """A password that is to be set, and how it is to be kept."""

    password: Password
    iterations: int = MIN_ITERATIONS

    def __post_init__(self) -> None:
        if not self.password.value:
            raise ConfigError("password", self.password, "must not be empty")
        if not MIN_ITERATIONS <= self.iterations <= MAX_ITERATIONS:
            raise ConfigError(
                "iterations", self.iterations, f"must be from {MIN_ITERATIONS} to {MAX_ITERATIONS}"
            )

    def credentials(
        self, mechanisms: Collection[ScramMechanism], random_bytes: Callable[[int], bytes]
    ) -> Settings:
        """Return the settings of a user with this password, each with a salt of its own."""
        found = {}
        for mechanism in mechanisms:
            salt = base36(random_bytes(_SALT_ENTROPY_BYTES)).encode("ascii")
            credential = ScramCredential.create(mechanism, self.password, salt, self.iterations)
            found[mechanism.value] = credential.to_text()
        return found


def add_user(
    store: Store,
    user: str,
    new: NewPassword,
    random_bytes: Callable[[int], bytes],
    mechanisms: Collection[ScramMechanism] = tuple(ScramMechanism),
) -> None:
    """Add a user, or mechanisms to one. Raises UserExists if the user has one of them already.

    Raises ConfigError for the name that clients without authentication have: rules would be for both.
    """
    if str(KafkaPrincipal.user(user)) == acls.ANONYMOUS:
        reason = (
            f"is the name of all clients that do not authenticate: access rules of {acls.ANONYMOUS} "
            "would be for them and for this user; choose another name"
        )
        raise ConfigError("NAME", user, reason)
    credentials = new.credentials(mechanisms, random_bytes)

    def added(settings: Settings) -> Settings:
        held = credentials.keys() & settings.keys()
        if held:
            raise UserExists(
                f"user {user} exists already, with {_listed(held)}; change the password with "
                f"`minikafka user passwd {user}`"
            )
        return {**settings, **credentials}

    change_config(store, paths.USERS, _node_name(user), added)


def change_password(
    store: Store,
    user: str,
    new: NewPassword,
    random_bytes: Callable[[int], bytes],
    mechanisms: Collection[ScramMechanism] = (),
) -> tuple[ScramMechanism, ...]:
    """Set the password of a user for ``mechanisms``, or all that the user has; return them.

    Raises NoSuchUser if the user has none.
    """
    changed: tuple[ScramMechanism, ...] = ()

    def with_new_password(settings: Settings) -> Settings:
        nonlocal changed
        held = _held(user, settings)
        changed = tuple(mechanisms) or held
        return {**settings, **new.credentials(changed, random_bytes)}

    change_config(store, paths.USERS, _node_name(user), with_new_password)
    return changed


def has_password(store: Store, user: str, password: Password) -> bool:
    """Return True if this is the password of a user for all mechanisms that the user has."""
    settings = read_config(store, paths.USERS, _node_name(user))
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


def delete_user(
    store: Store, user: str, mechanisms: Collection[ScramMechanism] = ()
) -> tuple[ScramMechanism, ...]:
    """Delete the credentials of a user for ``mechanisms``, or all; return those that were deleted.

    Raises NoSuchUser if there is none of them.
    """
    deleted: tuple[ScramMechanism, ...] = ()

    def without(settings: Settings) -> Settings:
        nonlocal deleted
        held = _held(user, settings)
        deleted = tuple(mechanism for mechanism in held if mechanism in mechanisms or not mechanisms)
        if not deleted:
            names = _listed([mechanism.value for mechanism in mechanisms])
            raise NoSuchUser(f"user {user} has no password for {names}; see `minikafka user list`")
        return {
            name: value for name, value in settings.items() if name not in {held.value for held in deleted}
        }

    change_config(store, paths.USERS, _node_name(user), without)
    return deleted


def _held(user: str, settings: Settings) -> tuple[ScramMechanism, ...]:
    held = tuple(mechanism for mechanism in ScramMechanism if mechanism.value in settings)
    if not held:
        raise NoSuchUser(
            f"there is no user {user} with a password; add one with `minikafka user add {user}`, or see "
            "`minikafka user list`"
        )
    return held


def _listed(names: Collection[str]) -> str:
    return " and ".join(sorted(names))


def _node_name(user: str) -> str:
    """Return the name of a user's znode. Raises ConfigError for one that cannot be a user with a password."""
    name = sanitize(user)
    if user == DEFAULT_ENTITY or "\0" in user or not is_znode_name(name):
        raise ConfigError("user", user, "must be the name of a user: not empty, '.', '..' or <default>")
    return name

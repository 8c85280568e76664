"""Users with passwords: their SCRAM credentials, which brokers keep (KIP-554; Kafka 2.7).

A user has a credential for each mechanism; the password itself is not kept, and not sent. Brokers use a
change at once. ``UsersBackend`` is the way to the credentials: the brokers (``BrokerUsers``), or ZooKeeper
before the first broker runs (``zookeeper.users``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from minikafka.base import acls
from minikafka.base.errors import BrokerError, ConfigError, ErrorCode, NoSuchUser, UserExists
from minikafka.base.secrets import Password
from minikafka.clients.admin.controller_requests import ask_controller
from minikafka.clients.network.response_errors import error_of, raise_for_code
from minikafka.registry.store import is_znode_name
from minikafka.registry.users import DEFAULT_ENTITY, sanitize
from minikafka.security.principals import KafkaPrincipal
from minikafka.security.sasl.scram import MAX_NEW_ITERATIONS, MIN_ITERATIONS, ScramMechanism, base36
from minikafka.wire.apis.alter_user_scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from minikafka.wire.apis.describe_user_scram_credentials import (
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResult,
    ScramUserName,
)

if TYPE_CHECKING:
    from minikafka.clients.network.cluster import ClusterClient

_SALT_ENTROPY_BYTES = 17

Mechanisms = tuple[ScramMechanism, ...]


@dataclass(frozen=True, slots=True)
class UserCredential:
    """A credential of a user, without its secrets."""

    user: str
    mechanism: ScramMechanism | None
    """None: a broker does not tell which credential of the user is invalid."""
    iterations: int | None
    """None: the credential is invalid, so that the user cannot log in with it."""


@dataclass(frozen=True, slots=True)
class SaltedPassword:
    """A password that is to be set for one mechanism, salted and hashed (RFC 5802's SaltedPassword)."""

    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)
    iterations: int


CredentialChanges = Mapping[ScramMechanism, SaltedPassword | None]
"""The new credentials of a user; None deletes one."""


class UsersBackend(Protocol):
    """The way to the credentials of users: the brokers, or ZooKeeper."""

    def credentials(self) -> list[UserCredential]:
        """Return the credentials of all users, by user and mechanism."""

    def change(self, user: str, change: Callable[[Mechanisms], CredentialChanges]) -> None:
        """Make the changes that ``change`` returns for the mechanisms that the user has."""


@dataclass(frozen=True, slots=True)
class NewPassword:
    """A password that is to be set, and how it is to be kept."""

    password: Password
    iterations: int = MIN_ITERATIONS

    def __post_init__(self) -> None:
        if not self.password.value:
            raise ConfigError("password", self.password, "must not be empty")
        if not MIN_ITERATIONS <= self.iterations <= MAX_NEW_ITERATIONS:
            raise ConfigError(
                "iterations", self.iterations, f"must be from {MIN_ITERATIONS} to {MAX_NEW_ITERATIONS}"
            )

    def salted(
        self, mechanisms: Collection[ScramMechanism], random_bytes: Callable[[int], bytes]
    ) -> CredentialChanges:
        """Return the password for each mechanism, each with a salt of its own."""
        return {mechanism: self._salted(mechanism, random_bytes) for mechanism in mechanisms}

    def _salted(self, mechanism: ScramMechanism, random_bytes: Callable[[int], bytes]) -> SaltedPassword:
        salt = base36(random_bytes(_SALT_ENTROPY_BYTES)).encode("ascii")
        salted = mechanism.salted_password(self.password.value.encode("utf-8"), salt, self.iterations)
        return SaltedPassword(salt, salted, self.iterations)


def add_user(
    users: UsersBackend,
    user: str,
    new: NewPassword,
    random_bytes: Callable[[int], bytes],
    mechanisms: Collection[ScramMechanism] = tuple(ScramMechanism),
) -> None:
    """Add a user, or mechanisms to one. Raises UserExists if the user has one of them already.

    Raises ConfigError for the name that clients without authentication have: rules would be for both.
    """
    _check_name(user)
    if str(KafkaPrincipal.user(user)) == acls.ANONYMOUS:
        reason = (
            f"is the name of all clients that do not authenticate: access rules of {acls.ANONYMOUS} "
            "would be for them and for this user; choose another name"
        )
        raise ConfigError("NAME", user, reason)
    salted = new.salted(mechanisms, random_bytes)

    def added(held: Mechanisms) -> CredentialChanges:
        known = [mechanism for mechanism in held if mechanism in salted]
        if known:
            raise UserExists(
                f"user {user} exists already, with {_listed(known)}; change the password with "
                f"`minikafka user passwd {user}`"
            )
        return salted

    users.change(user, added)


def change_password(
    users: UsersBackend,
    user: str,
    new: NewPassword,
    random_bytes: Callable[[int], bytes],
    mechanisms: Collection[ScramMechanism] = (),
) -> Mechanisms:
    """Set the password of a user for ``mechanisms``, or all that the user has; return them.

    Raises NoSuchUser if the user has none.
    """
    _check_name(user)
    changed: Mechanisms = ()

    def with_new_password(held: Mechanisms) -> CredentialChanges:
        nonlocal changed
        _check_exists(user, held)
        changed = tuple(mechanisms) or held
        return new.salted(changed, random_bytes)

    users.change(user, with_new_password)
    return changed


def delete_user(users: UsersBackend, user: str, mechanisms: Collection[ScramMechanism] = ()) -> Mechanisms:
    """Delete the credentials of a user for ``mechanisms``, or all; return those that were deleted.

    Raises NoSuchUser if there is none of them.
    """
    _check_name(user)
    deleted: Mechanisms = ()

    def without(held: Mechanisms) -> CredentialChanges:
        nonlocal deleted
        _check_exists(user, held)
        deleted = tuple(mechanism for mechanism in held if mechanism in mechanisms or not mechanisms)
        if not deleted:
            raise NoSuchUser(
                f"user {user} has no password for {_listed(mechanisms)}; see `minikafka user list`"
            )
        return dict.fromkeys(deleted)

    users.change(user, without)
    return deleted


def _check_exists(user: str, held: Mechanisms) -> None:
    if not held:
        raise NoSuchUser(
            f"there is no user {user} with a password; add one with `minikafka user add {user}`, or see "
            "`minikafka user list`"
        )


def _listed(mechanisms: Collection[ScramMechanism]) -> str:
    return " and ".join(sorted(mechanism.value for mechanism in mechanisms))


def _check_name(user: str) -> None:
    """Raise ConfigError for a name that cannot be that of a user with a password."""
    if user == DEFAULT_ENTITY or "\0" in user or not is_znode_name(sanitize(user)):
        raise ConfigError("user", user, "must be the name of a user: not empty, '.', '..' or <default>")


class BrokerUsers:
    """The credentials as brokers tell and change them."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    def credentials(self) -> list[UserCredential]:
        """See ``UsersBackend``."""
        return [row for result in self._describe(None) for row in _credentials(result)]

    def change(self, user: str, change: Callable[[Mechanisms], CredentialChanges]) -> None:
        """See ``UsersBackend``. What others change between the two requests is overwritten."""
        held: Mechanisms = ()
        for result in self._describe((ScramUserName(user),)):
            error = error_of(result.error_code, result.error_message, f"user {user}")
            if error is not None and error.code is ErrorCode.UNKNOWN:
                held = tuple(ScramMechanism)  # one of them is invalid: a new password mends it
            elif error is not None and error.code is not ErrorCode.RESOURCE_NOT_FOUND:
                raise error
            else:
                held = _mechanisms(result)
        for mechanism, new in change(held).items():
            self._alter(user, mechanism, new)

    def _alter(self, user: str, mechanism: ScramMechanism, new: SaltedPassword | None) -> None:
        """Change one credential: Kafka 4 takes no two of a user in a request."""
        deletions: tuple[ScramCredentialDeletion, ...] = ()
        upsertions: tuple[ScramCredentialUpsertion, ...] = ()
        if new is None:
            deletions = (ScramCredentialDeletion(user, mechanism.number),)
        else:
            number, work = mechanism.number, new.iterations
            upsertions = (ScramCredentialUpsertion(user, number, work, new.salt, new.salted_password),)
        request = AlterUserScramCredentialsRequest(deletions, upsertions)
        deadline = self._cluster.deadline()
        ask_controller(self._cluster, ALTER_USER_SCRAM_CREDENTIALS, lambda: request, deadline, _first_error)

    def _describe(
        self, users: tuple[ScramUserName, ...] | None
    ) -> tuple[DescribeUserScramCredentialsResult, ...]:
        request = DescribeUserScramCredentialsRequest(users)
        response = self._cluster.call(None, DESCRIBE_USER_SCRAM_CREDENTIALS, request)
        raise_for_code(response.error_code, response.error_message)
        return response.results


def _first_error(response: AlterUserScramCredentialsResponse) -> BrokerError | None:
    errors = (error_of(row.error_code, row.error_message, f"user {row.user}") for row in response.results)
    return next((error for error in errors if error is not None), None)


def _mechanisms(result: DescribeUserScramCredentialsResult) -> Mechanisms:
    held = {info.mechanism for info in result.credential_infos}
    return tuple(mechanism for mechanism in ScramMechanism if mechanism.number in held)


def _credentials(result: DescribeUserScramCredentialsResult) -> list[UserCredential]:
    if result.error_code != ErrorCode.NONE:
        return [UserCredential(result.user, None, None)]
    iterations = {info.mechanism: info.iterations for info in result.credential_infos}
    return [
        UserCredential(result.user, mechanism, iterations[mechanism.number])
        for mechanism in _mechanisms(result)
    ]

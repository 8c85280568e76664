"""SCRAM credentials of users as clients read and change them (KIP-554). For the jobs of the worker.

    /config/users/USER    SCRAM-SHA-256, SCRAM-SHA-512: salt=…,stored_key=…,server_key=…,iterations=…

The client sends the salted password, of which brokers keep two hashes. The quotas in the same znode stay.
"""

from __future__ import annotations

from collections import Counter

from minikafka.base import acls
from minikafka.base.errors import BrokerError, ConfigError, ErrorCode
from minikafka.registry import paths
from minikafka.registry.store import is_znode_name
from minikafka.registry.users import DEFAULT_ENTITY, sanitize
from minikafka.security.principals import KafkaPrincipal
from minikafka.security.sasl.scram import MAX_NEW_ITERATIONS, MIN_ITERATIONS, ScramCredential, ScramMechanism
from minikafka.server.admin.dynamic_config import Settings, change_entity
from minikafka.server.core.broker import Broker
from minikafka.wire.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramChange,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    changes_of,
)
from minikafka.wire.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsResult,
    ScramCredentialInfo,
)

MECHANISMS = {mechanism.number: mechanism for mechanism in ScramMechanism}
"""The protocol's numbers."""


def describe_user(user: str, configs: Settings) -> DescribeUserScramCredentialsResult:
    """Return the credentials of a user without secrets. Raises BrokerError if one is invalid, or for none."""
    infos = []
    for number, mechanism in MECHANISMS.items():
        if mechanism.value in configs:
            try:
                credential = ScramCredential.parse(mechanism, configs[mechanism.value])
            except ConfigError:
                raise BrokerError(
                    ErrorCode.UNKNOWN,
                    f"the {mechanism.value} credential of user {user} is invalid; set the password again",
                ) from None
            infos.append(ScramCredentialInfo(number, credential.iterations))
    if not infos:
        raise BrokerError(ErrorCode.RESOURCE_NOT_FOUND, f"user {user!r} has no SCRAM credentials")
    return DescribeUserScramCredentialsResult(user, ErrorCode.NONE, None, tuple(infos))


class ScramAlteration:
    """The changes of a request, by user."""

    def __init__(self, request: AlterUserScramCredentialsRequest) -> None:
        self._changes: dict[str, list[ScramChange]] = {}
        for change in changes_of(request):
            self._changes.setdefault(change.name, []).append(change)

    @property
    def users(self) -> tuple[str, ...]:
        """The users whose credentials are to be changed."""
        return tuple(self._changes)

    def apply(self, broker: Broker, user: str) -> None:
        """Make all changes of one user, or none and raise BrokerError."""
        changes = self._changes[user]
        for change in changes:
            _check(change)
        for number, times in Counter(change.mechanism for change in changes).items():
            if times > 1:
                raise BrokerError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    f"the {MECHANISMS[number].value} credential of user {user} appears {times} times",
                )

        def changed(before: dict[str, str]) -> Settings:
            after = dict(before)
            for change in changes:
                name = MECHANISMS[change.mechanism].value
                if isinstance(change, ScramCredentialUpsertion):
                    after[name] = _credential(change).to_text()
                elif name in after:
                    del after[name]
                else:
                    raise BrokerError(
                        ErrorCode.RESOURCE_NOT_FOUND, f"user {user} has no {name} credential to delete"
                    )
            return after

        change_entity(broker, paths.USERS, sanitize(user), changed)


def _check(change: ScramChange) -> None:
    user, mechanism = change.name, MECHANISMS.get(change.mechanism)
    if not user or "\0" in user or user == DEFAULT_ENTITY or not is_znode_name(sanitize(user)):
        raise BrokerError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"{user!r} cannot be the name of a user")
    if mechanism is None:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            f"unknown SCRAM mechanism {change.mechanism}: expected 1 (SCRAM-SHA-256) or 2 (SCRAM-SHA-512)",
        )
    if isinstance(change, ScramCredentialDeletion):
        return
    if str(KafkaPrincipal.user(user)) == acls.ANONYMOUS:
        raise BrokerError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"{user} is the name of all clients that do not authenticate: choose another one",
        )
    if not MIN_ITERATIONS <= change.iterations <= MAX_NEW_ITERATIONS:
        raise BrokerError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"iterations must be from {MIN_ITERATIONS} to {MAX_NEW_ITERATIONS}, not {change.iterations}",
        )
    if not change.salt or not change.salted_password:
        raise BrokerError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL, f"{mechanism.value} needs a salt and a salted password"
        )


def _credential(upsertion: ScramCredentialUpsertion) -> ScramCredential:
    mechanism = MECHANISMS[upsertion.mechanism]
    return ScramCredential.of_salted_password(
        mechanism, upsertion.salted_password, upsertion.salt, upsertion.iterations
    )

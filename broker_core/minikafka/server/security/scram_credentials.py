"""SCRAM credentials of users, as they are in ZooKeeper: what the broker checks passwords against.

    /config/users/USER      SCRAM-SHA-256, SCRAM-SHA-512: salt=…,stored_key=…,server_key=…,iterations=…

They are read before the broker serves, at each notification about a user, and again after an expired session,
together with the quotas in the same znodes. So a changed password holds at once for those who connect from
then on; connections that are authenticated stay so, as with Kafka.

A credential that cannot be used is passed over, as if the user had none: what it says never reaches the log.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from minikafka.base.errors import ConfigError
from minikafka.registry.users import ClientEntity
from minikafka.security.sasl.scram import ScramCredential, ScramMechanism

_log = logging.getLogger(__name__)

_OfUser = Mapping[ScramMechanism, ScramCredential]


class ScramCredentials:
    """The credentials of all users. Jobs of the worker change them, one at a time; any thread may read."""

    def __init__(self) -> None:
        self._of_users: dict[str, _OfUser] = {}
        self._iterations: Mapping[ScramMechanism, Sequence[int]] = {}
        self._problems: dict[str, list[str]] = {}
        """The problems of credentials that were logged, so that each is logged once."""

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """Return the credential of a user; None if the user has none, or one that cannot be used."""
        return self._of_users.get(user, {}).get(mechanism)

    def iterations(self, mechanism: ScramMechanism) -> Sequence[int]:
        """Return the iterations of all credentials of a mechanism, in ascending order."""
        return self._iterations.get(mechanism, ())

    def replace(self, settings: Mapping[ClientEntity, Mapping[str, str]]) -> None:
        """Replace the credentials of all users by those in the configs of all entities."""
        of_users = {}
        for entity, configs in settings.items():
            user = entity.user_name
            credentials = {} if user is None else self._parsed(user, configs)
            if user is not None and credentials:
                of_users[user] = credentials
        self._of_users = of_users
        self._note_iterations()

    def change(self, entity: ClientEntity, settings: Mapping[str, str]) -> None:
        """Replace the credentials of the user that ``entity`` is; other entities have none."""
        user = entity.user_name
        if user is None:
            return
        credentials = self._parsed(user, settings)
        if credentials == self._of_users.get(user, {}):
            return
        names = ", ".join(mechanism.value for mechanism in credentials) or "none"
        _log.info("credentials of user %r changed: %s", user, names)
        if credentials:
            self._of_users[user] = credentials
        else:
            del self._of_users[user]
        self._note_iterations()

    def _note_iterations(self) -> None:
        self._iterations = {
            mechanism: sorted(
                credentials[mechanism].iterations
                for credentials in self._of_users.values()
                if mechanism in credentials
            )
            for mechanism in ScramMechanism
        }

    def _parsed(self, user: str, settings: Mapping[str, str]) -> _OfUser:
        credentials: dict[ScramMechanism, ScramCredential] = {}
        problems = []
        for mechanism in ScramMechanism:
            text = settings.get(mechanism.value)
            if text is None:
                continue
            try:
                credentials[mechanism] = ScramCredential.parse(mechanism, text)
            except ConfigError as error:
                problems.append(str(error))
        before = self._problems.pop(user, [])
        if problems:
            self._problems[user] = problems
        for problem in problems:
            if problem not in before:
                _log.warning(
                    "ignored an invalid credential of user %r: %s; set the password anew", user, problem
                )
        return credentials

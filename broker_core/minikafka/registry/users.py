"""Users and client ids in ZooKeeper: the entities that have quotas, and users also SCRAM credentials.

    /config/users/USER                  SCRAM credentials of a user, and the quotas that its clients share
    /config/users/USER/clients/ID       the quotas of a client id of a user
    /config/clients/ID                  the quotas of a client id of any user

USER and ID are encoded as in a URL, as by Kafka's ``Sanitizer``, or ``<default>``: all that have no znode of
their own. A user's znode is like the other ones (``EntityConfig``):

    {"version":1,"config":{"SCRAM-SHA-256":"salt=…,stored_key=…,server_key=…,iterations=4096",
                           "producer_byte_rate":"1024"}}

so whoever changes it must keep what the others have put there (``change_config``). A SCRAM credential is a
secret: guesses of the password can be tested with it, and ``server_key`` lets others pose as a broker.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import NamedTuple
from urllib.parse import quote, unquote_plus

from minikafka.base.config.types import LONG_MAX, Type, int64, real_number, text_type
from minikafka.registry import paths
from minikafka.registry.entity_configs import ConfigChange
from minikafka.registry.store import Store
from minikafka.registry.znodes import children

DEFAULT_ENTITY = "<default>"
"""In place of a user or a client id: all without a znode of their own."""
_DIGITS_MAX = 100


def _whole(text: str) -> int:
    # Kafka 2.x writes what it parsed as a number with a fraction.
    digits = text.removeprefix("+").removesuffix(".0")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS_MAX) or int(digits) == 0:
        raise ValueError
    return min(int(digits), LONG_MAX)


class QuotaType(Enum):
    """The type of a quota; the value is Kafka's name of the config."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    CONTROLLER_MUTATION = "controller_mutation_rate"

    @property
    def is_whole(self) -> bool:
        """True for Kafka's type LONG, False for DOUBLE."""
        return self in {QuotaType.PRODUCE, QuotaType.FETCH}

    @property
    def type(self) -> Type:
        """The type of the values that brokers read."""
        return _STORED[self]

    @property
    def new_type(self) -> Type:
        """The type of the values that are written: brokers of 0.10.1 read no other byte rates."""
        return _NEW_BYTES if self.is_whole else _STORED[self]


def _positive(allowed: str) -> Type:
    return real_number(allowed, lambda value: 0 < value < math.inf)


_BYTES = text_type("bytes per second, at least 1", _whole)
"""More than a LONG counts as its largest value: no limit."""
_NEW_BYTES = Type(_BYTES.allowed, int64(1).convert)
_STORED = {
    QuotaType.PRODUCE: _BYTES,
    QuotaType.FETCH: _BYTES,
    QuotaType.REQUEST: _positive("a percentage of one thread's time, above 0"),
    QuotaType.CONTROLLER_MUTATION: _positive("partitions per second, above 0"),
}


def sanitize(name: str) -> str:
    """Return the name of a user or client id as a part of a path, as Java's ``URLEncoder`` with ``%20``."""
    return quote(name, safe="", errors="replace").replace("~", "%7E")


def desanitize(encoded: str) -> str:
    """Return the name of a user or client id from a part of a path."""
    return unquote_plus(encoded)


class ClientEntity(NamedTuple):
    """A user, a client id, or a client id of a user; each encoded, or ``DEFAULT_ENTITY``."""

    user: str | None
    """None: any user."""
    client_id: str | None
    """None: all clients of the user together."""

    def __str__(self) -> str:
        """Return the entity's path below ``/config/``, such as ``users/alice/clients/app``."""
        client = "" if self.client_id is None else f"{paths.CLIENTS}/{self.client_id}"
        return client if self.user is None else f"{paths.USERS}/{self.user}{'/' * bool(client)}{client}"

    @classmethod
    def of(cls, *, user: str | None = None, client_id: str | None = None) -> ClientEntity:
        """Return the entity of names that are not encoded; ``DEFAULT_ENTITY`` stays as it is."""
        return cls(
            *(name if name in {None, DEFAULT_ENTITY} else sanitize(str(name)) for name in (user, client_id))
        )

    @classmethod
    def changed(cls, change: ConfigChange) -> ClientEntity:
        """Return the entity of a notification about a user or client."""
        if change.entity_type == paths.CLIENTS:
            return cls(None, _normal(change.entity_name))
        user, _, client = change.entity_name.partition(f"/{paths.CLIENTS}/")
        return cls(_normal(user), _normal(client) if client else None)

    @property
    def kind_and_name(self) -> tuple[str, str]:
        """The type of the entity and its name, as in a notification."""
        kind, _, name = str(self).partition("/")
        return kind, name

    @property
    def user_name(self) -> str | None:
        """The user that the entity is; None if it is another one."""
        if self.user in {None, DEFAULT_ENTITY} or self.client_id is not None:
            return None
        return desanitize(str(self.user))


def user_names(store: Store) -> list[str]:
    """Return the names of the users that have a znode, sorted."""
    return sorted(desanitize(name) for name in children(store, paths.USER_CONFIGS) if name != DEFAULT_ENTITY)


def client_entities(store: Store) -> dict[str, ClientEntity]:
    """Return all users, client ids, and client ids of users that have a znode, by its path."""
    found = {
        f"{paths.CLIENT_CONFIGS}/{name}": ClientEntity(None, _normal(name))
        for name in children(store, paths.CLIENT_CONFIGS)
    }
    parents = {}
    for name in children(store, paths.USER_CONFIGS):
        path = f"{paths.USER_CONFIGS}/{name}"
        found[path] = ClientEntity(_normal(name), None)
        parents[f"{path}/{paths.CLIENTS}"] = _normal(name)
    for parent in store.read_all(parents):
        for name in children(store, parent):
            found[f"{parent}/{name}"] = ClientEntity(parents[parent], _normal(name))
    return found


def _normal(encoded: str) -> str:
    """Return a part of a path as ``sanitize`` writes it: others encode more characters, or fewer."""
    return encoded if encoded == DEFAULT_ENTITY else sanitize(desanitize(encoded))

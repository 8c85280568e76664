"""The security of a session with ZooKeeper: who the client is, what others may do, and TLS.

ZooKeeper knows a client by its credentials (the scheme ``digest``) or by the certificate of its connection
(``x509``), and each znode has its own ACL; those of its parents do not count. As Kafka with
``zookeeper.set.acl``, a client leaves to everybody else

    nothing     in /config/users, /config/brokers, /delegation_token and /cluster/unknown_users: secrets
    everything  in /consumers, where consumers of any kind write
    reading     in all other znodes

or, if they are ``PRIVATE``, nothing at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from kazoo.security import (
    ACL,
    CREATOR_ALL_ACL,
    OPEN_ACL_UNSAFE,
    READ_ACL_UNSAFE,
    make_acl,
    make_digest_acl_credential,
)

from minikafka.base.secrets import Password
from minikafka.registry.paths import BROKERS, CONSUMERS, UNKNOWN_USERS, USERS

SENSITIVE = (f"/config/{USERS}", f"/config/{BROKERS}", "/delegation_token", UNKNOWN_USERS)
"""The znodes that Kafka lets nobody else read, and one of ours; with all that begins like them."""


class Access(Enum):
    """The access of others to a znode."""

    ALL = "all"
    READ = "read"
    NONE = "none"

    @property
    def acl(self) -> list[ACL]:
        """The ACL that gives it, and everything to the client that creates the znode."""
        if self is Access.ALL:
            return list(OPEN_ACL_UNSAFE)
        return [*CREATOR_ALL_ACL, *(READ_ACL_UNSAFE if self is Access.READ else ())]


class AclPolicy(Enum):
    """The rule for the ACLs of znodes that a client creates: ``zookeeper.set.acl``."""

    OPEN = "false"
    KAFKA = "true"
    PRIVATE = "private"

    def access(self, path: str) -> Access:
        """Return what others may do with the znode at ``path``, which is below the chroot."""
        if self is AclPolicy.PRIVATE:
            return Access.NONE
        if self is AclPolicy.OPEN or path == CONSUMERS or path.startswith(f"{CONSUMERS}/"):
            return Access.ALL
        return Access.NONE if path.startswith(SENSITIVE) else Access.READ


class TlsContext(Protocol):
    """The part of ``ssl.SSLContext`` that is used here."""

    def wrap_socket(self, sock: Any, *, server_hostname: str | None) -> Any: ...


@dataclass(frozen=True, slots=True)
class ZooKeeperSecurity:
    """The security of a client of ZooKeeper; without arguments there is none."""

    credentials: Password | None = None
    """``USER:PASSWORD`` of the scheme ``digest``."""
    acl: AclPolicy = AclPolicy.OPEN
    tls: TlsContext | None = None

    @property
    def auth_data(self) -> list[tuple[str, str]]:
        """The credentials for kazoo."""
        return [] if self.credentials is None else [("digest", _Hidden(self.credentials.value))]

    def is_of_another(self, acls: Iterable[ACL]) -> bool:
        """Return True if another client may change a znode that is not open to everybody.

        False without credentials: a client does not know its name as the owner of a certificate.
        """
        if self.credentials is None or is_open(acls):
            return False
        user, _, password = self.credentials.value.partition(":")
        own = make_acl("digest", make_digest_acl_credential(user, password), all=True)
        return any(acl.id != own.id and acl not in READ_ACL_UNSAFE for acl in acls)


UNSECURED = ZooKeeperSecurity()


class _Hidden(str):
    """A secret that kazoo sends: its log shows requests by their ``repr``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(Password(self))


def is_open(acls: Iterable[ACL]) -> bool:
    """Return True if everybody may do everything with a znode."""
    return bool(list(acls) == OPEN_ACL_UNSAFE)

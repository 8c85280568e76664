"""The cluster's id, the producer ids that were allocated to its brokers, and a secret of theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from minikafka.registry.node import Node, dump
from minikafka.registry.paths import CLUSTER_ID, PRODUCER_IDS, UNKNOWN_USERS
from minikafka.registry.store import Store
from minikafka.registry.znodes import Kind, Znodes, make

_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class ClusterId:
    """The cluster's id: 22 characters of URL-safe base64, created once and never replaced."""

    id: str

    def to_json(self) -> bytes:
        """Return the data for ``CLUSTER_ID``."""
        return dump({"version": "1", "id": self.id})

    @classmethod
    def from_json(cls, data: bytes, path: str = CLUSTER_ID) -> ClusterId:
        """Parse the id in ``data``."""
        node = Node(data, path)
        return cls(node.text("id"))


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """The block of producer ids that was allocated last, both ends included. The next block follows it."""

    broker_id: int
    first: int
    last: int

    def to_json(self) -> bytes:
        """Return the data for ``PRODUCER_IDS``."""
        return dump(
            {
                "version": 1,
                "broker": self.broker_id,
                "block_start": str(self.first),
                "block_end": str(self.last),
            }
        )

    @classmethod
    def from_json(cls, data: bytes, path: str = PRODUCER_IDS) -> ProducerIdBlock:
        """Parse the block in ``data``."""
        node = Node(data, path)
        block = cls(
            node.integer("broker"), node.number_as_text("block_start"), node.number_as_text("block_end")
        )
        if not 0 <= block.first <= block.last < 1 << 63:
            raise node.error("block_end", "between block_start and 2^63 - 1")
        return block


@dataclass(frozen=True, slots=True)
class UnknownUsersSecret:
    """Random bytes that all brokers of a cluster know."""

    secret: bytes = field(repr=False)

    def to_json(self) -> bytes:
        """Return the data for ``UNKNOWN_USERS``."""
        return dump({"version": 1, "secret": self.secret.hex()})

    @classmethod
    def from_json(cls, data: bytes, path: str = UNKNOWN_USERS) -> UnknownUsersSecret:
        """Parse the secret in ``data``."""
        node = Node(data, path)
        try:
            secret = bytes.fromhex(node.text("secret"))
        except ValueError:
            secret = b""
        if len(secret) < _SECRET_BYTES:
            raise node.error("secret", f"at least {_SECRET_BYTES} bytes in hexadecimal digits")
        return cls(secret)


CLUSTER = Kind(
    CLUSTER_ID,
    "the cluster's id, created once and never replaced; its version is a string",
    "0.10.1 (version 1)",
    ClusterId.from_json,
    ClusterId.to_json,
    "restore it from a copy: brokers do not start without it",
)
"""A broker that starts needs its value, and stops without it. One that runs goes on: an invalid id does not
mean another cluster.
"""

PRODUCER_ID_BLOCK = Kind(
    PRODUCER_IDS,
    "the last block of producer ids; written conditionally on the znode's version",
    "0.11 (version 1)",
    ProducerIdBlock.from_json,
    ProducerIdBlock.to_json,
    "no producer ids are allocated until you fix it",
)
"""It is never passed over: ids that are in use would be allocated again."""

UNKNOWN_USERS_SECRET = Kind(
    UNKNOWN_USERS,
    "a secret, from which brokers make the salts of SCRAM users that do not exist",
    "this project's own (version 1), if a listener has SCRAM",
    UnknownUsersSecret.from_json,
    UnknownUsersSecret.to_json,
    "each broker makes salts of its own, which tell who does not exist; remove it, and restart the brokers",
)


def unknown_users_secret(store: Store, random_bytes: Callable[[int], bytes]) -> bytes:
    """Return the secret that the brokers of a cluster share, created by the first that asks."""
    own = UnknownUsersSecret(random_bytes(_SECRET_BYTES))
    make(store, UNKNOWN_USERS, own.to_json())
    return (Znodes(store).read(UNKNOWN_USERS, UNKNOWN_USERS_SECRET) or own).secret

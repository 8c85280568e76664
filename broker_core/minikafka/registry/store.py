"""The store port: the operations that the project needs of ZooKeeper.

``memory.MemoryStore`` and ``zookeeper.ZooKeeperStore`` behave alike, and one test suite runs over both.

A znode has up to 1 MiB of data, a version that every write raises by one, and children. A path starts with
``/`` and does not end with it. An ephemeral znode lives as long as the session that created it and has no
children.

Watches are persistent, unlike ZooKeeper's own: a callback gets the current state first, and later every state
that differs from the last one that it got. Intermediate states may be skipped, the last one never is. A watch
survives lost connections and the end of the session.

Callbacks run one at a time, in the order in which the store learned of the changes, never inside a call of
the store: on the store's own thread (ZooKeeper) or inside ``deliver`` (memory). They may call the store, but
should be short, as no other callback runs meanwhile: hand the change on and return.

Every failure is a ``CoordinationError``. After ``CoordinationLost`` it is unknown whether a write took
effect: read again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Protocol

from minikafka.base.errors import CoordinationError

DATA_MAX_BYTES = 1_000_000
"""Most bytes of one znode. ZooKeeper drops a connection that sends a packet above 1 MiB, so larger data is
refused here.
"""

_ILLEGAL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")
"""Characters that ZooKeeper accepts in no path. It checks UTF-16, so those beyond 16 bits are surrogates."""


class SessionState(Enum):
    """The state of the connection and session, which ``on_session`` reports."""

    CONNECTED = "connected"
    """Connected, after SUSPENDED with the same session, after EXPIRED with a new one."""
    SUSPENDED = "suspended"
    """No connection at the moment. The session and its ephemeral znodes may still exist."""
    EXPIRED = "expired"
    """The session has ended, with its ephemeral znodes. CONNECTED follows once there is a new one."""


@dataclass(frozen=True, slots=True)
class Stat:
    """The metadata of a znode."""

    version: int
    """Number of writes since it was created."""
    ephemeral_owner: int
    """Id of the session that owns it; 0 for a persistent znode."""
    created_ms: int
    modified_ms: int
    created_at: int = 0
    """The id of the change that created it (``czxid``). Later changes have larger ids."""
    modified_at: int = 0
    """The id of the change that wrote it last (``mzxid``)."""
    child_changes: int = 0
    """The number of creations and deletions of its children (``cversion``)."""
    child_changed_at: int = 0
    """The id of the last creation or deletion of a child (``pzxid``)."""


@dataclass(frozen=True, slots=True)
class SessionTicket:
    """The id and password of a session: its holder can end the session (``Store.end_session``).

    A broker keeps it in its data directory, so that after a crash it can remove its own registration at once
    instead of waiting for the session to time out.
    """

    session_id: int
    """Signed 64 bits."""
    password: bytes

    def to_json(self) -> bytes:
        """Return one line of JSON, with the password in hexadecimal."""
        text = json.dumps({"session_id": self.session_id, "password": self.password.hex()})
        return text.encode("ascii") + b"\n"

    @classmethod
    def from_json(cls, data: bytes, path: str) -> SessionTicket:
        """Parse the ticket in ``data``, read from the file ``path``.

        Raises CoordinationError for invalid data.
        """
        try:
            fields = json.loads(data)
            session_id, password = fields["session_id"], bytes.fromhex(fields["password"])
        except (ValueError, KeyError, TypeError):
            session_id, password = None, b""
        if type(session_id) is not int:
            raise CoordinationError(f"{path}: invalid ticket of a ZooKeeper session: {data[:200]!r}")
        return cls(session_id, password)


class Watch(Protocol):
    """A handle of a watch."""

    def cancel(self) -> None:
        """Stop the watch. A callback that is running or just starting on another thread still completes."""


ChildrenCallback = Callable[[list[str] | None], None]
"""Called with the names of the children, sorted; None if the znode does not exist."""
DataCallback = Callable[[bytes | None, Stat | None], None]
"""Called with data and stat; None twice if the znode does not exist."""


class Store(Protocol):
    """One session with ZooKeeper, below a chroot. Thread-safe unless the implementation says otherwise."""

    @property
    def session_id(self) -> int:
        """The id of the current session, as in ``Stat.ephemeral_owner``; it changes after an expiry."""

    @property
    def ticket(self) -> SessionTicket:
        """The current session's id and password."""

    @property
    def session_timeout_ms(self) -> int:
        """The session time-out that ZooKeeper has granted."""

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Create a znode and return its path, which ends with ten more digits if ``sequential``.

        Raises NodeExists, and NoNode if the parent does not exist; ``make_parents`` creates missing parents,
        without data.
        """

    def create_all(self, nodes: Mapping[str, bytes]) -> frozenset[str]:
        """Create persistent znodes, in their order, many in flight at once. Return the paths that existed
        before or have no parent.
        """

    def read(self, path: str) -> tuple[bytes, Stat]:
        """Return data and stat. Raises NoNode."""

    def read_all(self, paths: Iterable[str]) -> dict[str, tuple[bytes, Stat]]:
        """Read znodes, many requests in flight at once. Return data and stat of those that exist."""

    def write(self, path: str, data: bytes, version: int = -1) -> Stat:
        """Replace the data, only at ``version`` unless that is -1. Raises NoNode, BadVersion."""

    def write_all(self, nodes: Mapping[str, tuple[bytes, int]]) -> frozenset[str]:
        """Replace the data of znodes, each at its version, many in flight at once. Return the paths that do
        not exist or have another version.
        """

    def delete(self, path: str, version: int = -1, *, recursive: bool = False) -> None:
        """Delete a znode, only at ``version`` unless that is -1; ``recursive`` deletes its descendants first.

        Raises NoNode, BadVersion, NotEmpty. A recursive delete is not atomic.
        """

    def delete_if_exists(self, path: str, guard_path: str) -> None:
        """Delete a znode if ``guard_path`` exists, atomically. If that is a session's ephemeral znode,
        nothing is deleted after the session's end. Raises NotEmpty, and NoNode if either does not exist.
        """

    def exists(self, path: str) -> Stat | None:
        """Return the stat; None if the znode does not exist."""

    def sync(self) -> None:
        """Bring this server up to date: a later read is no older than this call. A server of an ensemble may
        lag behind the others.
        """

    def children(self, path: str) -> list[str]:
        """Return the names (not paths) of the children, sorted. Raises NoNode."""

    def watch_children(self, path: str, callback: ChildrenCallback) -> Watch:
        """Call ``callback`` with the children, soon and after every change. The znode need not exist.

        One call may stand for several changes, also for a child that was deleted and created again.
        """

    def watch_data(self, path: str, callback: DataCallback) -> Watch:
        """Call ``callback`` with data and stat, soon and after every change. The znode need not exist."""

    def on_session(self, callback: Callable[[SessionState], None]) -> None:
        """Call ``callback`` at every later change of the session's state. A new store is connected."""

    def end_session(self, ticket: SessionTicket) -> bool:
        """End the session of ``ticket`` and delete its ephemeral znodes at once.

        Return True if it was alive. Only for a session whose process is known to be dead.
        """

    def close(self) -> None:
        """End the session and delete its ephemeral znodes at once. A second call does nothing."""


@lru_cache(4_096)  # a broker asks for the same few paths over and over
def check_path(path: str) -> None:
    """Raise CoordinationError unless ``path`` is one that ZooKeeper accepts."""
    if path == "/":
        return
    first, *names = path.split("/")
    if first or not names or not all(map(is_znode_name, names)):
        raise CoordinationError(
            f"invalid znode path {path!r}: expected a path that starts with '/', does not end with '/', "
            "and has no part that is empty, '.', '..' or has a control character"
        )


def is_znode_name(name: str) -> bool:
    """Return True if ``name`` can be one part of a path, by ZooKeeper's ``PathUtils.validatePath``."""
    return name not in {"", ".", ".."} and "/" not in name and _ILLEGAL.search(name) is None


def check_data(path: str, data: bytes) -> None:
    """Raise CoordinationError if ``data`` is too large for a znode."""
    if len(data) > DATA_MAX_BYTES:
        raise CoordinationError(
            f"data too large for {path}: {len(data)} bytes, the limit of a znode is {DATA_MAX_BYTES}"
        )


def parent_of(path: str) -> str:
    """Return the path of the znode above ``path``."""
    return path.rpartition("/")[0] or "/"

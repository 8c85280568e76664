"""The store port: what the project asks of ZooKeeper.

``memory.MemoryZooKeeper`` and ``zookeeper.ZooKeeperStore`` behave alike, and one test suite runs over both.

A znode has up to 1 MiB of data, a version that every write raises by one, and children. A path starts with
``/`` and does not end with it. An ephemeral znode lives as long as the session that made it and has no
children.

Watches are persistent, unlike ZooKeeper's own: a callback gets the present state first and later every state
that is seen to differ from the one that it got last. States that follow each other quickly may be left out,
the last one never is. A watch survives lost connections and the end of the session.

Callbacks run one at a time, in the order in which the store learned of the changes, never inside a call of
the store: on one thread of the store's own (ZooKeeper) or inside ``deliver`` (memory). They may call the
store, but should be short, for no other callback runs meanwhile: hand the news on and return.

Every failure is a ``CoordinationError``. After ``CoordinationLost`` it is unknown whether a write took
effect: read again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from minikafka.base.errors import CoordinationError

DATA_MAX_BYTES = 1_000_000
"""Most bytes of one znode. ZooKeeper drops the connection of whoever sends a packet above 1 MiB, so we refuse
before.
"""

_ILLEGAL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")
"""Characters that ZooKeeper takes in no path: it looks at UTF-16, so those beyond 16 bits are surrogates."""


class SessionState(Enum):
    """What ``on_session`` reports."""

    CONNECTED = "connected"
    """Connected, after SUSPENDED with the same session, after EXPIRED with a new one."""
    SUSPENDED = "suspended"
    """No connection at the moment. The session, and its ephemeral znodes, may still be there."""
    EXPIRED = "expired"
    """The session is gone with its ephemeral znodes. CONNECTED follows once there is a new one."""


@dataclass(frozen=True, slots=True)
class Stat:
    """What ZooKeeper knows of a znode beside its data."""

    version: int
    """Number of writes since it was created."""
    ephemeral_owner: int
    """Id of the session that it lives with; 0 for a persistent znode."""
    created_ms: int
    modified_ms: int
    created_at: int = 0
    """Of ZooKeeper's changes, the one that made it (``czxid``): what happened later has a larger number."""
    modified_at: int = 0
    """The one that wrote it last (``mzxid``)."""
    child_changes: int = 0
    """How often a child of it was created or deleted (``cversion``)."""
    child_changed_at: int = 0
    """The change that did it last (``pzxid``)."""


@dataclass(frozen=True, slots=True)
class SessionTicket:
    """What proves a session to be one's own: whoever has it can end the session (``Store.end_session``).

    A broker keeps it in its data directory, so that after a crash it can remove its own registration at once
    instead of waiting for the session to time out.
    """

    session_id: int
    """Signed 64 bits."""
    password: bytes

    def to_json(self) -> bytes:
        """One line of JSON, the password in hexadecimal."""
        text = json.dumps({"session_id": self.session_id, "password": self.password.hex()})
        return text.encode("ascii") + b"\n"

    @classmethod
    def from_json(cls, data: bytes, path: str) -> SessionTicket:
        """The ticket in ``data``, which came from the file ``path``. Raises CoordinationError when it is
        none.
        """
        try:
            fields = json.loads(data)
            session_id, password = fields["session_id"], bytes.fromhex(fields["password"])
        except (ValueError, KeyError, TypeError):
            session_id, password = None, b""
        if type(session_id) is not int:
            raise CoordinationError(f"{path} is not the ticket of a ZooKeeper session: {data[:200]!r}")
        return cls(session_id, password)


class Watch(Protocol):
    """A watch that was set."""

    def cancel(self) -> None:
        """Stop it. A call that is under way, or just starting, on the thread of the callbacks still ends."""


ChildrenCallback = Callable[[list[str] | None], None]
"""Gets the names of the children, sorted; None when there is no such znode."""
DataCallback = Callable[[bytes | None, Stat | None], None]
"""Gets data and stat; None twice when there is no such znode."""


class Store(Protocol):
    """One session with ZooKeeper, below a chroot. Thread-safe unless the implementation says otherwise."""

    @property
    def session_id(self) -> int:
        """Id of the present session, as it stands in ``Stat.ephemeral_owner``; another one after expiry."""

    @property
    def ticket(self) -> SessionTicket:
        """The present session's id and password."""

    @property
    def session_timeout_ms(self) -> int:
        """How long the session lasts when nothing is heard of it: what ZooKeeper has granted."""

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Create a znode and return its path, which ends with ten more digits when ``sequential``.

        Raises NodeExists, and NoNode when the parent is not there; ``make_parents`` makes those, without
        data.
        """

    def create_all(self, nodes: Mapping[str, bytes]) -> frozenset[str]:
        """Create persistent znodes, in their order, many under way at once; give those that were there before
        or have no parent.
        """

    def read(self, path: str) -> tuple[bytes, Stat]:
        """Data and stat. Raises NoNode."""

    def read_all(self, paths: Iterable[str]) -> dict[str, tuple[bytes, Stat]]:
        """Data and stat of those znodes that are there, many under way at once."""

    def write(self, path: str, data: bytes, version: int = -1) -> Stat:
        """Replace the data, only at ``version`` unless that is -1. Raises NoNode, BadVersion."""

    def write_all(self, nodes: Mapping[str, tuple[bytes, int]]) -> frozenset[str]:
        """Replace the data of znodes, each at its version, many under way at once; give those that are not
        there or have another version.
        """

    def delete(self, path: str, version: int = -1, *, recursive: bool = False) -> None:
        """Delete a znode, only at ``version`` unless that is -1; ``recursive`` deletes what is below it
        first.

        Raises NoNode, BadVersion, NotEmpty. A recursive delete is not atomic.
        """

    def delete_if_exists(self, path: str, beside: str) -> None:
        """Delete a znode if ``beside`` is there at that very moment: as long as that is a session's ephemeral
        znode, nothing is deleted after the session's end. Raises NotEmpty, and NoNode where either is not
        there.
        """

    def exists(self, path: str) -> Stat | None:
        """The stat; None when there is no such znode."""

    def sync(self) -> None:
        """Have what is read next be no older than this call: a server of an ensemble may be behind the
        others.
        """

    def children(self, path: str) -> list[str]:
        """Names (not paths) of the children, sorted. Raises NoNode."""

    def watch_children(self, path: str, callback: ChildrenCallback) -> Watch:
        """Call ``callback`` with the children, soon and after every change. The znode need not exist.

        One call may stand for several changes, also for a child that went and came back.
        """

    def watch_data(self, path: str, callback: DataCallback) -> Watch:
        """Call ``callback`` with data and stat, soon and after every change. The znode need not exist."""

    def on_session(self, callback: Callable[[SessionState], None]) -> None:
        """Call ``callback`` at every later change of the session's state; a new store is connected."""

    def end_session(self, ticket: SessionTicket) -> bool:
        """End the session of ``ticket``, and no other, so that its ephemeral znodes go at once.

        Returns whether it was still alive. Only for a session whose process is known to be dead.
        """

    def close(self) -> None:
        """End the session: its ephemeral znodes go at once. A second call does nothing."""


def check_path(path: str) -> None:
    """Raise CoordinationError unless ``path`` is one that ZooKeeper takes."""
    if path == "/":
        return
    first, *names = path.split("/")
    if first or not names or not all(map(is_znode_name, names)):
        raise CoordinationError(
            f"{path!r} is not a znode path: it starts with '/', does not end with it, "
            "and has no part that is empty, dots, or holds a control character"
        )


def is_znode_name(name: str) -> bool:
    """Whether ``name`` can be one part of a path, by the rules of ZooKeeper's ``PathUtils.validatePath``."""
    return name not in {"", ".", ".."} and "/" not in name and _ILLEGAL.search(name) is None


def check_data(path: str, data: bytes) -> None:
    """Raise CoordinationError when ``data`` is more than a znode takes."""
    if len(data) > DATA_MAX_BYTES:
        raise CoordinationError(f"{path} cannot take {len(data)} bytes: a znode has at most {DATA_MAX_BYTES}")


def parent_of(path: str) -> str:
    """The path of the znode above ``path``."""
    return path.rpartition("/")[0] or "/"

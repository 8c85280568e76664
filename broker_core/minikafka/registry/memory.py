"""ZooKeeper in memory, for tests and simulations: sessions, watches, ephemeral znodes, faults, and no thread.

``MemoryZooKeeper`` is the server; ``connect`` returns a store. Nothing happens by itself: callbacks run
inside ``deliver``, sessions end by ``expire``, connections are lost by ``suspend`` and come back by
``resume``. Everything runs on the caller's thread, so that a run can be repeated exactly. An exception of a
callback propagates to the caller of ``deliver``.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from minikafka.base.clock import Clock, ManualClock
from minikafka.base.errors import (
    BadVersion,
    CoordinationError,
    CoordinationLost,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
)
from minikafka.registry.store import (
    ChildrenCallback,
    DataCallback,
    SessionState,
    SessionTicket,
    Stat,
    check_data,
    check_path,
    parent_of,
)


@dataclass(slots=True)
class _Znode:
    data: bytes
    ephemeral_owner: int
    created_ms: int
    modified_ms: int
    created_at: int
    modified_at: int
    version: int = 0
    created_children: int = 0
    """The number of children ever created: the next sequential child's number."""
    deleted_children: int = 0
    children_changed_at: int = 0
    children: set[str] = field(default_factory=set)

    def stat(self) -> Stat:
        return Stat(
            self.version,
            self.ephemeral_owner,
            self.created_ms,
            self.modified_ms,
            self.created_at,
            self.modified_at,
            self.created_children + self.deleted_children,
            self.children_changed_at,
        )


@dataclass(frozen=True, slots=True)
class MemoryCopy:
    """A copy of a ``MemoryZooKeeper`` at one moment."""

    nodes: Mapping[str, _Znode]
    sessions: Mapping[int, bytes]
    changes: int


class MemoryZooKeeper:
    """The server: one tree of znodes and the sessions on it. Not thread-safe."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or ManualClock()
        self._znodes: dict[str, _Znode] = {"/": _Znode(b"", 0, 0, 0, 0, 0)}
        self._stores: list[MemoryStore] = []
        self._sessions: dict[int, bytes] = {}
        self._last_session_id = 0x1000
        self._changes = 0
        """The number of changes so far: the last ``zxid``."""
        self._queue: deque[Callable[[], None]] = deque()

    def connect(self, chroot: str = "") -> MemoryStore:
        """Open a session whose paths are below ``chroot``, which is created if absent."""
        if chroot:
            check_path(chroot)
        store = MemoryStore(self, chroot)
        self._stores.append(store)
        if chroot:
            self._make_parents(chroot + "/x")
        return store

    @property
    def idle(self) -> bool:
        """True if no callback is due."""
        return not self._queue

    def deliver(self) -> int:
        """Run all callbacks that are due, also those that the callbacks cause; return the number that ran."""
        count = 0
        while self._queue:
            self._queue.popleft()()
            count += 1
        return count

    def expire(self, store: MemoryStore) -> None:
        """End the session of ``store``, as ZooKeeper does after the session time-out.

        A connected store reports SUSPENDED, EXPIRED and CONNECTED; a suspended one reports EXPIRED when it is
        resumed.
        """
        self._end(store.session_id)

    def suspend(self, store: MemoryStore) -> None:
        """Cut the connection of ``store``: its calls raise CoordinationLost until ``resume``."""
        store._suspend()

    def resume(self, store: MemoryStore) -> None:
        """Reconnect ``store``, with a new session if the old one has ended."""
        store._resume()

    def lose_next_answer(self, store: MemoryStore) -> None:
        """Let the next write of ``store`` take effect and raise CoordinationLost."""
        store._lose_answer = True

    def suspend_at_next_write(self, store: MemoryStore) -> None:
        """Let the next write of ``store`` take effect, and cut the connection before the answer."""
        store._lose_answer = store._cut_then = True

    def copy(self) -> MemoryCopy:
        """Return a copy of the whole state, for ``restore``."""
        nodes = {path: replace(node, children={*node.children}) for path, node in self._znodes.items()}
        return MemoryCopy(nodes, dict(self._sessions), self._changes)

    def restore(self, copy: MemoryCopy | None) -> None:
        """Go back to an earlier copy; None: to an empty tree.

        Every client gets a new session, as it has seen changes that are lost. Sessions of the copy, with
        their ephemeral znodes, live again until ``end_stray_sessions``.
        """
        for store in self._stores:
            store._suspend()
        if copy is None:
            copy = MemoryCopy({"/": _Znode(b"", 0, 0, 0, 0, 0)}, {}, 0)
        self._znodes = {path: replace(node, children={*node.children}) for path, node in copy.nodes.items()}
        self._sessions, self._changes = dict(copy.sessions), copy.changes
        for store in self._stores:
            self._end(store.session_id)
            store._resume()

    def end_stray_sessions(self) -> None:
        """End the sessions that no client has, as a time-out would."""
        for session_id in self._sessions.keys() - {store.session_id for store in self._stores}:
            self._end(session_id)

    def alive(self, session_id: int) -> bool:
        """Return True if the session exists."""
        return session_id in self._sessions

    def _open(self) -> SessionTicket:
        self._last_session_id += 1
        password = b"password-%d" % self._last_session_id
        self._sessions[self._last_session_id] = password
        return SessionTicket(self._last_session_id, password)

    def _end(self, session_id: int) -> None:
        """End a session, delete its ephemeral znodes and report the expiry to its client."""
        if self._sessions.pop(session_id, None) is None:
            return
        for path in sorted(path for path, node in self._znodes.items() if node.ephemeral_owner == session_id):
            self._delete(path, -1)
        for store in self._stores:
            if store.session_id == session_id and store._connected:
                store._suspend()
                store._resume()

    def _node(self, path: str) -> _Znode:
        try:
            return self._znodes[path]
        except KeyError:
            raise NoNode(f"{path} does not exist") from None

    def _create(self, path: str, data: bytes, owner: int, sequential: bool) -> str:
        parent_path = parent_of(path)
        if parent_path not in self._znodes:
            raise NoNode(f"cannot create {path}: {parent_path} does not exist")
        parent = self._znodes[parent_path]
        if parent.ephemeral_owner:
            raise CoordinationError(
                f"cannot create {path}: {parent_path} is ephemeral and cannot have children"
            )
        if sequential:
            path = f"{path}{parent.created_children:010d}"
        if path in self._znodes:
            raise NodeExists(f"{path} already exists")
        now_ms = self._clock.now_ms()
        self._changes += 1
        self._znodes[path] = made = _Znode(data, owner, now_ms, now_ms, self._changes, self._changes)
        made.children_changed_at = self._changes
        parent.children.add(path.rpartition("/")[2])
        parent.created_children += 1
        parent.children_changed_at = self._changes
        self._changed(path)
        return path

    def _make_parents(self, path: str) -> None:
        parts = path.split("/")[1:-1]
        for end in range(1, len(parts) + 1):
            above = "/" + "/".join(parts[:end])
            if above not in self._znodes:
                self._create(above, b"", 0, sequential=False)

    def _write(self, path: str, data: bytes, version: int) -> Stat:
        node = self._node(path)
        self._check_version(path, node, version)
        node.data = data
        node.version += 1
        node.modified_ms = self._clock.now_ms()
        self._changes += 1
        node.modified_at = self._changes
        self._changed(path)
        return node.stat()

    def _delete(self, path: str, version: int) -> None:
        node = self._node(path)
        self._check_version(path, node, version)
        if node.children:
            raise NotEmpty(f"{path} has children: {', '.join(sorted(node.children)[:5])}")
        del self._znodes[path]
        parent = self._znodes[parent_of(path)]
        parent.children.discard(path.rpartition("/")[2])
        parent.deleted_children += 1
        self._changes += 1
        parent.children_changed_at = self._changes
        self._changed(path)

    @staticmethod
    def _check_version(path: str, node: _Znode, version: int) -> None:
        if version not in (-1, node.version):
            raise BadVersion(f"version conflict at {path}: expected {version}, found {node.version}")

    def _changed(self, path: str) -> None:
        paths = {path, parent_of(path)}
        for store in self._stores:
            store._changed(paths)


class _MemoryWatch:
    """A watch; ``read`` returns the state as the arguments of the callback."""

    def __init__(self, path: str, read: Callable[[], tuple[object, ...]], call: Callable[..., None]) -> None:
        self.path = path
        self._read = read
        self._call = call
        self._last: tuple[object, ...] | None = None
        self._cancelled = False

    def refresh(self) -> None:
        if self._cancelled:
            return
        try:
            state = self._read()
        except (CoordinationLost, SessionExpired):
            return  # refreshed after the reconnection
        if state != self._last:
            self._last = state
            self._call(*state)

    def cancel(self) -> None:
        self._cancelled = True


class MemoryStore:
    """A session with a ``MemoryZooKeeper``: the port ``Store``. Not thread-safe."""

    session_timeout_ms = 40_000
    """The most that ZooKeeper grants by default. Here sessions end only when a test ends them."""

    def __init__(self, server: MemoryZooKeeper, chroot: str) -> None:
        self._server = server
        self._chroot = chroot
        self._ticket = server._open()
        self._connected = True
        self._closed = False
        self._lose_answer = False
        self._cut_then = False
        self._watches: list[_MemoryWatch] = []
        self._session_callbacks: list[Callable[[SessionState], None]] = []

    @property
    def session_id(self) -> int:
        """The id of the current session."""
        return self._ticket.session_id

    @property
    def ticket(self) -> SessionTicket:
        """The current session's id and password."""
        return self._ticket

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """See ``Store.create``."""
        check_data(path, data)
        full = self._full(path)
        if make_parents:
            self._server._make_parents(full)
        made = self._server._create(full, bytes(data), self.session_id if ephemeral else 0, sequential)
        self._answer(path)
        return made[len(self._chroot) :]

    def create_all(self, nodes: Mapping[str, bytes]) -> frozenset[str]:
        """See ``Store.create_all``."""
        refused = set()
        for path, data in nodes.items():
            try:
                self.create(path, data)
            except (NodeExists, NoNode):
                refused.add(path)
        return frozenset(refused)

    def read_all(self, paths: Iterable[str]) -> dict[str, tuple[bytes, Stat]]:
        """See ``Store.read_all``."""
        found = {}
        for path in paths:
            with contextlib.suppress(NoNode):
                found[path] = self.read(path)
        return found

    def read(self, path: str) -> tuple[bytes, Stat]:
        """See ``Store.read``."""
        node = self._server._node(self._full(path))
        return node.data, node.stat()

    def write(self, path: str, data: bytes, version: int = -1) -> Stat:
        """See ``Store.write``."""
        check_data(path, data)
        stat = self._server._write(self._full(path), bytes(data), version)
        self._answer(path)
        return stat

    def write_all(self, nodes: Mapping[str, tuple[bytes, int]]) -> frozenset[str]:
        """See ``Store.write_all``."""
        refused = set()
        for path, (data, version) in nodes.items():
            try:
                self.write(path, data, version)
            except (BadVersion, NoNode):
                refused.add(path)
        return frozenset(refused)

    def delete(self, path: str, version: int = -1, *, recursive: bool = False) -> None:
        """See ``Store.delete``."""
        full = self._full(path)
        if recursive:
            for name in sorted(self._server._node(full).children):
                self.delete(f"{path.rstrip('/')}/{name}", recursive=True)
        self._server._delete(full, version)
        self._answer(path)

    def delete_if_exists(self, path: str, guard_path: str) -> None:
        """See ``Store.delete_if_exists``."""
        full, guard = self._full(path), self._full(guard_path)
        self._server._node(guard)
        self._server._delete(full, -1)
        self._answer(path)

    def exists(self, path: str) -> Stat | None:
        """See ``Store.exists``."""
        node = self._server._znodes.get(self._full(path))
        return None if node is None else node.stat()

    def sync(self) -> None:
        """See ``Store.sync``. There is one server."""
        self._full("/")

    def children(self, path: str) -> list[str]:
        """See ``Store.children``."""
        return sorted(self._server._node(self._full(path)).children)

    def watch_children(self, path: str, callback: ChildrenCallback) -> _MemoryWatch:
        """See ``Store.watch_children``."""

        def read() -> tuple[object, ...]:
            try:
                node = self._server._node(self._full(path))
            except NoNode:
                return None, None
            # The counts also change for a child that was deleted and created again in between.
            return sorted(node.children), (node.created_children, node.deleted_children)

        return self._watch(path, read, lambda names, version: callback(names))

    def watch_data(self, path: str, callback: DataCallback) -> _MemoryWatch:
        """See ``Store.watch_data``."""

        def read() -> tuple[object, ...]:
            try:
                return self.read(path)
            except NoNode:
                return None, None

        return self._watch(path, read, callback)

    def on_session(self, callback: Callable[[SessionState], None]) -> None:
        """See ``Store.on_session``."""
        self._session_callbacks.append(callback)

    def end_session(self, ticket: SessionTicket) -> bool:
        """See ``Store.end_session``."""
        self._full("/")
        if self._server._sessions.get(ticket.session_id) != ticket.password:
            return False
        self._server._end(ticket.session_id)
        return True

    def close(self) -> None:
        """See ``Store.close``. Without a connection the session lasts until the server ends it."""
        if self._closed:
            return
        self._closed = True
        for watch in self._watches:
            watch.cancel()
        self._session_callbacks.clear()
        self._server._stores.remove(self)
        if self._connected:
            self._server._end(self.session_id)

    def _full(self, path: str) -> str:
        """Return the path below the server's root. Raises CoordinationLost without a connection."""
        check_path(path)
        if self._closed:
            raise CoordinationError("the ZooKeeper session is closed")
        if not self._connected:
            raise CoordinationLost(f"no connection to ZooKeeper for {path}")
        return self._chroot + path if path != "/" else self._chroot or "/"

    def _answer(self, path: str) -> None:
        if self._lose_answer:
            self._lose_answer = False
            if self._cut_then:
                self._cut_then = False
                self._suspend()
            raise CoordinationLost(f"lost the connection to ZooKeeper before the answer for {path}")

    def _watch(
        self, path: str, read: Callable[[], tuple[object, ...]], callback: Callable[..., None]
    ) -> _MemoryWatch:
        check_path(path)
        watch = _MemoryWatch(self._chroot + path if path != "/" else self._chroot or "/", read, callback)
        self._watches.append(watch)
        self._server._queue.append(watch.refresh)
        return watch

    def _changed(self, paths: set[str]) -> None:
        for watch in self._watches:
            if watch.path in paths:
                self._server._queue.append(watch.refresh)

    def _report(self, state: SessionState) -> None:
        for callback in self._session_callbacks:
            self._server._queue.append(partial(self._call_back, callback, state))

    def _call_back(self, callback: Callable[[SessionState], None], state: SessionState) -> None:
        if not self._closed:
            callback(state)

    def _suspend(self) -> None:
        if self._connected:
            self._connected = False
            self._report(SessionState.SUSPENDED)

    def _resume(self) -> None:
        if self._connected or self._closed:
            return
        if not self._server.alive(self.session_id):
            self._report(SessionState.EXPIRED)
            self._ticket = self._server._open()
        self._connected = True
        self._report(SessionState.CONNECTED)
        for watch in self._watches:
            self._server._queue.append(watch.refresh)

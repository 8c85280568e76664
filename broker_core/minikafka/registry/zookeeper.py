"""The store over a real ZooKeeper, by kazoo.

Threads: kazoo has a connection thread and two for callbacks; here they only put work into a queue. One thread
of the store (``minikafka-zookeeper``) reads what changed and runs the store's callbacks. So session and znode
changes have one order, a callback may call the store, and a slow callback delays other callbacks but not the
heartbeat of the connection. Any thread may call the store; a call blocks until ZooKeeper has answered.

Time: a call waits up to ``request_timeout_ms`` for a connection, then raises CoordinationLost. A request that
was sent is answered, or fails when the connection breaks; a silent server is noticed within two thirds of the
session time-out. Nothing is sent twice. Without a connection, kazoo reconnects after 50 ms, then with pauses
up to 1 s. ``zookeeper_rollback`` handles a ZooKeeper that was restored from an older copy and refuses this
client.

Watches: a ZooKeeper watch fires once. Each watch here reads the znode again and sets a new one; the server
does both in one step, so no change is missed. After a lost connection all watches read again, in the order in
which they were set, many at a time (``zookeeper_watches``).

Each change of the session is logged once; for kazoo's own log see ``kazoo_clients``.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from kazoo import exceptions as kazoo_errors
from kazoo.protocol.states import KazooState

from minikafka.base.errors import BadVersion, CoordinationError, CoordinationLost, NodeExists, NoNode
from minikafka.base.metrics import TimeHistogram
from minikafka.registry import kazoo_clients
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
from minikafka.registry.zookeeper_address import parse_connect
from minikafka.registry.zookeeper_rollback import RollbackWatch
from minikafka.registry.zookeeper_security import UNSECURED, AclPolicy, ZooKeeperSecurity, is_open
from minikafka.registry.zookeeper_watches import Fired, PersistentWatch, read_again

DEFAULT_SESSION_TIMEOUT_MS = 6000
"""Kafka's ``zookeeper.session.timeout.ms``."""

_log = logging.getLogger(__name__)

_IN_FLIGHT_MAX = 256
"""Requests sent before the first is answered; ZooKeeper flushes them together."""

Item = TypeVar("Item")

_Work = Callable[[], None] | PersistentWatch | None
"""Work of the store's thread: run a callback, read a watch's znode, or (None) stop."""

_TRANSACTION_SIDE_ERRORS = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
"""Results of a transaction's other operations after one has failed."""


class ZooKeeperStore:
    """A session with ZooKeeper that implements ``Store``. Thread-safe.

    Raises ConfigError for an invalid ``connect``, and CoordinationLost if no server answers within
    ``connect_timeout_ms`` (default: the session time-out), of which ``waited_ms`` have passed already.
    Creates the chroot if it is absent and ``make_chroot`` is True. ZooKeeper may grant a session time-out
    other than the requested one.
    """

    def __init__(
        self,
        connect: str,
        session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
        *,
        connect_timeout_ms: int | None = None,
        waited_ms: int = 0,
        request_timeout_ms: int | None = None,
        make_chroot: bool = True,
        security: ZooKeeperSecurity = UNSECURED,
        request_times: TimeHistogram | None = None,
    ) -> None:
        """request_times: gets the time of each request until its answer."""
        self._request_times = request_times
        self.security = security
        self._hosts, self._chroot = parse_connect(connect)
        self._session_timeout_ms = session_timeout_ms
        self._granted_ms = session_timeout_ms
        self._connect_timeout_ms = connect_timeout_ms or session_timeout_ms
        self._request_timeout_s = (request_timeout_ms or session_timeout_ms) / 1000
        self._connected = threading.Event()
        self._closed = False
        self._lock = threading.Lock()
        self._watches: dict[PersistentWatch, None] = {}
        """In the order of creation."""
        self._session_callbacks: list[Callable[[SessionState], None]] = []
        self._queue: queue.SimpleQueue[_Work] = queue.SimpleQueue()
        self._client = self._new_client()
        self._track_granted_timeout(self._client)
        self._rollback = RollbackWatch(
            self._client,
            self._hosts,
            self._connected,
            connect=self._started_client,
            disconnect=kazoo_clients.stop,
            end_session=self.end_session,
            check_interval_s=lambda: self._granted_ms / 1000,
        )
        self._client.add_listener(self._on_kazoo_state)
        kazoo_clients.start(self._client, self._hosts, self._connect_timeout_ms, waited_ms)
        self._thread = threading.Thread(target=self._run, name="minikafka-zookeeper", daemon=True)
        self._thread.start()
        try:
            if self._chroot and make_chroot:
                self._make_parents(self._chroot + "/x")
        except BaseException:
            self.close()
            raise

    @property
    def session_id(self) -> int:
        """The id of the current session."""
        return self.ticket.session_id

    @property
    def ticket(self) -> SessionTicket:
        """The current session's id and password. Raises CoordinationLost without a connection."""
        self._check_open()
        identity = self._client.client_id
        if identity is None and self._connected.wait(self._request_timeout_s):
            identity = self._client.client_id
        if identity is None or identity[0] is None:
            raise CoordinationLost(f"no session: no connection to ZooKeeper at {self._hosts}")
        return SessionTicket(identity[0], identity[1])

    @property
    def session_timeout_ms(self) -> int:
        """The time-out that ZooKeeper granted; before the first connection the requested one."""
        return self._granted_ms

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

        def send() -> Any:
            return self._client.create_async(full, bytes(data), self._acl(full), ephemeral, sequential)

        try:
            made = self._submit("create", path, send)()
        except NoNode:
            if not make_parents:
                raise
            self._make_parents(full)
            made = self._submit("create", path, send)()
        return str(made)[len(self._chroot) :]

    def create_all(self, nodes: Mapping[str, bytes]) -> frozenset[str]:
        """See ``Store.create_all``."""
        for path, data in nodes.items():
            check_data(path, data)
        requests = {path: (bytes(data), self._acl(self._full(path))) for path, data in nodes.items()}
        answers = self._send_all("create", self._client.create_async, requests)
        return _refused(answers, (NodeExists, NoNode))

    def read_all(self, paths: Iterable[str]) -> dict[str, tuple[bytes, Stat]]:
        """See ``Store.read_all``."""
        answers = self._send_all("read", self._client.get_async, dict.fromkeys(paths, ()))
        return {path: _state(answer) for path, answer in _present(answers)}

    def read(self, path: str) -> tuple[bytes, Stat]:
        """See ``Store.read``."""
        return _state(self._send("read", path, self._client.get_async)())

    def write(self, path: str, data: bytes, version: int = -1) -> Stat:
        """See ``Store.write``."""
        check_data(path, data)
        return _stat(self._send("write", path, self._client.set_async, bytes(data), version)())

    def write_all(self, nodes: Mapping[str, tuple[bytes, int]]) -> frozenset[str]:
        """See ``Store.write_all``."""
        for path, (data, _) in nodes.items():
            check_data(path, data)
        answers = self._send_all("write", self._client.set_async, nodes)
        return _refused(answers, (BadVersion, NoNode))

    def delete(self, path: str, version: int = -1, *, recursive: bool = False) -> None:
        """See ``Store.delete``."""
        full = self._full(path)
        if recursive:
            for name in self.children(path):
                # Another client may be deleting the same tree.
                with contextlib.suppress(NoNode):
                    self.delete(f"{path.rstrip('/')}/{name}", recursive=True)
        self._submit("delete", path, lambda: self._client.delete_async(full, version))()

    def delete_if_exists(self, path: str, guard_path: str) -> None:
        """See ``Store.delete_if_exists``."""
        places = self._full(guard_path), self._full(path)

        def send() -> Any:
            both = self._client.transaction()
            both.check(places[0], -1)
            both.delete(places[1])
            return both.commit_async()

        answers = self._submit("delete", path, send)()
        for doing, place, answer in zip(("find", "delete"), (guard_path, path), answers, strict=True):
            # Errors of an operation that was not tried or was undone carry no information.
            if isinstance(answer, Exception) and not isinstance(answer, _TRANSACTION_SIDE_ERRORS):
                with kazoo_clients.translate_errors(doing, place):
                    raise answer

    def exists(self, path: str) -> Stat | None:
        """See ``Store.exists``."""
        found = self._send("check", path, self._client.exists_async)()
        return None if found is None else _stat(found)

    def sync(self) -> None:
        """See ``Store.sync``."""
        self._send("sync with", "/", self._client.sync_async)()

    def children(self, path: str) -> list[str]:
        """See ``Store.children``."""
        return sorted(self._send("list", path, self._client.get_children_async)())

    def close_to_others(self) -> int:
        """Leave nobody else any znode, with ``AclPolicy.PRIVATE``; return the number that were changed.

        Does nothing if the topmost znode, which ``set_acls`` does last, is closed. Raises CoordinationError
        for a znode that is another client's: it could be changed behind our back.
        """
        acl, _ = self._send("read the ACL of", "/", self._client.get_acls_async)()
        self._check_own("/", acl)
        changed = 0
        if is_open(acl):
            # More than once: others may create znodes until the topmost one is closed.
            while found := self.set_acls():
                changed += found
        return changed

    def _check_own(self, path: str, acl: Any) -> None:
        if self.security.acl is AclPolicy.PRIVATE and self.security.is_of_another(acl):
            raise CoordinationError(
                f"znode {path} is not closed to others: another client has created it, or given it an ACL; "
                "if you do not know the client, use another ZooKeeper or an empty one"
            )

    def set_acls(self) -> int:
        """Give all open znodes the ACLs of new ones; return the number that were changed.

        Those below a znode come first, so that a run that was interrupted is continued by another one.
        Those that have another ACL stay as they are, and ZooKeeper's own. With ``AclPolicy.PRIVATE`` the
        first are an error, and the second are closed too: others could fill them.
        """
        is_private = self.security.acl is AclPolicy.PRIVATE
        levels, paths = [], ["/"]
        own = {"/zookeeper/config" if is_private else "/zookeeper"} if not self._chroot else set()
        while paths:
            levels.append(paths)
            answers = self._send_all("list", self._client.get_children_async, dict.fromkeys(paths, ()))
            found = {f"{above.rstrip('/')}/{name}" for above, names in _present(answers) for name in names}
            paths = sorted(found - own)
        client, changed = self._client, 0
        for paths in reversed(levels):
            answers = self._send_all("read the ACL of", client.get_acls_async, dict.fromkeys(paths, ()))
            unprotected = []
            for path, (acl, _) in _present(answers):
                self._check_own(path, acl)
                if is_open(acl):
                    unprotected.append(path)
            acls = {path: (self._acl(self._full(path)),) for path in unprotected}
            changes = {path: acl for path, acl in acls.items() if not is_open(*acl)}
            changed += sum(1 for _ in _present(self._send_all("protect", client.set_acls_async, changes)))
        return changed

    def watch_children(self, path: str, callback: ChildrenCallback) -> PersistentWatch:
        """See ``Store.watch_children``."""
        full = self._full(path)

        def read(fired: Fired) -> Any:
            return self._client.get_children_async(full, watch=fired, include_data=True)

        def state_in(answer: Any) -> tuple[object, ...]:
            names, stat = answer
            # The version shows a child that was deleted and created again in between.
            return sorted(names), (stat.czxid, stat.cversion)

        return self._watch(path, full, read, state_in, lambda names, version: callback(names))

    def watch_data(self, path: str, callback: DataCallback) -> PersistentWatch:
        """See ``Store.watch_data``."""
        full = self._full(path)
        return self._watch(
            path, full, lambda fired: self._client.get_async(full, watch=fired), _state, callback
        )

    def on_session(self, callback: Callable[[SessionState], None]) -> None:
        """See ``Store.on_session``."""
        self._session_callbacks.append(callback)

    def end_session(self, ticket: SessionTicket) -> bool:
        """See ``Store.end_session``."""
        self._check_open()
        alive = False
        # A live client takes its session back from another connection, possibly before ZooKeeper has read
        # the request to close it. So the session has ended only when it is not found any more.
        deadline = time.monotonic() + self._connect_timeout_ms / 1000
        while self._close_session(ticket):
            if time.monotonic() > deadline:
                raise CoordinationLost(
                    f"session {ticket.session_id:#x} cannot be ended: its client reconnects each time"
                )
            alive = True
        return alive

    def _close_session(self, ticket: SessionTicket) -> bool:
        """Ask ZooKeeper to end a session; return False if it does not exist."""
        client = self._started_client((ticket.session_id, ticket.password))
        identity = client.client_id  # a new one if the old one has expired
        kazoo_clients.stop(client)
        return identity is not None and identity[0] == ticket.session_id

    def close(self) -> None:
        """See ``Store.close``. Without a connection the session remains until it times out."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._watches.clear()
        self._session_callbacks.clear()
        kazoo_clients.stop(self._client)
        self._connected.set()  # wakes the callers that wait for a connection
        self._queue.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _started_client(self, identity: tuple[int, bytes] | None = None) -> Any:
        """Return another client, of the given session or a new one. Raises CoordinationLost."""
        client = self._new_client(identity)
        kazoo_clients.start(client, self._hosts, self._connect_timeout_ms)
        return client

    def _new_client(self, identity: tuple[int, bytes] | None = None) -> Any:
        return kazoo_clients.new_client(self._hosts, self._session_timeout_ms, self.security, identity)

    def _track_granted_timeout(self, client: Any) -> None:
        """Derive the granted time-out from the read time-out, which is two thirds of it; kazoo hides it."""
        handler = client._connection
        connect = handler._connect

        def noting(*arguments: Any) -> Any:
            timeouts = connect(*arguments)
            self._granted_ms = round(timeouts[0] * 3 / 2)
            return timeouts

        handler._connect = noting

    def _check_open(self) -> None:
        if self._closed:
            raise CoordinationError("the ZooKeeper session is closed")

    def _full(self, path: str) -> str:
        check_path(path)
        return self._chroot + path if path != "/" else self._chroot or "/"

    def _acl(self, full: str) -> Any:
        """Return the ACL of a new znode."""
        return self.security.acl.access(full[len(self._chroot) :] or "/").acl

    def _send(self, doing: str, path: str, send: Callable[..., Any], *more: object) -> Callable[[], Any]:
        """Send one request for ``path``; the returned function waits for the answer."""
        full = self._full(path)
        return self._submit(doing, path, lambda: send(full, *more))

    def _send_all(
        self, doing: str, send: Callable[..., Any], requests: Mapping[str, tuple[object, ...]]
    ) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Send a request for each path, many in flight; yield paths with functions that wait for answers."""
        for paths in _batches(requests):
            sent = [self._send(doing, path, send, *requests[path]) for path in paths]
            yield from zip(paths, sent, strict=True)

    def _submit(
        self, doing: str, path: str, send: Callable[[], Any], *, patient: bool = True
    ) -> Callable[[], Any]:
        """Send one request as ``_send``; if not ``patient``, only with a connection at once."""
        deadline = time.monotonic() + self._request_timeout_s
        # Without a connection kazoo would queue the request and send it much later.
        if not self._connected.wait(self._request_timeout_s if patient else 0):
            raise CoordinationLost(f"cannot {doing} {path}: no connection to ZooKeeper at {self._hosts}")
        self._check_open()
        began_ns = time.perf_counter_ns()
        with kazoo_clients.translate_errors(doing, path):
            sent = send()

        def answer() -> Any:
            try:
                with kazoo_clients.translate_errors(doing, path):
                    return sent.get(timeout=max(0.1, deadline - time.monotonic()))
            finally:
                if self._request_times is not None:
                    self._request_times.observe(time.perf_counter_ns() - began_ns)

        return answer

    def _make_parents(self, full: str) -> None:
        above = parent_of(full)
        missing: list[str] = []
        exists = self._client.exists_async
        while above != "/" and self._submit("check", above, partial(exists, above))() is None:
            missing.append(above)
            above = parent_of(above)
        for path in reversed(missing):
            with contextlib.suppress(NodeExists):
                create = partial(self._client.create_async, path, None, self._acl(path))
                self._submit("create", path, create)()

    def _watch(
        self,
        path: str,
        full: str,
        read: Callable[[Fired], Any],
        state_in: Callable[[Any], tuple[object, ...]],
        callback: Callable[..., None],
    ) -> PersistentWatch:
        self._check_open()

        def begin(send: Callable[[Fired], Any], fired: Fired) -> Callable[[], Any]:
            return self._submit("watch", path, partial(send, fired), patient=False)

        def read_existence(fired: Fired) -> Any:
            return self._client.exists_async(full, watch=fired)

        watch = PersistentWatch(
            begin=partial(begin, read),
            read_existence=partial(begin, read_existence),
            state_in=state_in,
            callback=callback,
            fired=self._queue.put,
            lost=self._lost,
            cancelled=self._forget,
        )
        with self._lock:
            self._watches[watch] = None
        self._queue.put(watch)
        return watch

    def _forget(self, watch: PersistentWatch) -> None:
        with self._lock:
            self._watches.pop(watch, None)

    def _lost(self, watch: PersistentWatch) -> None:
        """Handle a connection that was lost while a watch read.

        All watches read again after a reconnection; if that has happened already, this one is too late.
        """
        if self._client.connected and not self._closed:
            self._queue.put(watch)

    def _on_kazoo_state(self, kazoo_state: str) -> None:
        """Handle a change of the connection. Runs on kazoo's connection thread and must not block."""
        if self._closed:
            return
        if kazoo_state == KazooState.CONNECTED:
            state = SessionState.CONNECTED
            self._connected.set()
        else:
            state = SessionState.SUSPENDED if kazoo_state == KazooState.SUSPENDED else SessionState.EXPIRED
            self._connected.clear()
            if state is SessionState.SUSPENDED:
                self._rollback.lost()
        # Looked up here, because callbacks that are added later must not get this change.
        for callback in list(self._session_callbacks):
            self._queue.put(partial(callback, state))
        if state is SessionState.CONNECTED:
            self._queue.put(self._refresh_watches)
        level = logging.INFO if state is SessionState.CONNECTED else logging.WARNING
        _log.log(level, "ZooKeeper session at %s: %s", self._hosts, state.value)

    def _refresh_watches(self) -> None:
        with self._lock:
            watches = list(self._watches)
        self._refresh(watches)

    def _refresh(self, watches: Iterable[PersistentWatch]) -> None:
        for batch in _batches(watches):
            for report in read_again(batch):
                self._run_callback(report)

    def _run(self) -> None:
        pending: deque[_Work] = deque()
        while True:
            if not pending:
                pending.append(self._queue.get())
            with contextlib.suppress(queue.Empty):
                while True:
                    pending.append(self._queue.get_nowait())
            watches: dict[PersistentWatch, None] = {}
            while pending and isinstance(pending[0], PersistentWatch):
                watches[pending[0]] = None
                pending.popleft()
            if watches:
                self._run_callback(partial(self._refresh, watches))
                continue
            work = pending.popleft()
            if work is None:
                return
            assert not isinstance(work, PersistentWatch)
            self._run_callback(work)
            del work  # frees what it refers to

    def _run_callback(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:  # noqa: BLE001 - one bad callback must not stop the others
            if not self._closed:
                _log.exception("unexpected error in a callback for a ZooKeeper change")


def _refused(
    answers: Iterable[tuple[str, Callable[[], Any]]], expected: tuple[type[CoordinationError], ...]
) -> frozenset[str]:
    """Return the paths whose requests failed with one of the ``expected`` errors."""
    refused = set()
    for path, answer in answers:
        try:
            answer()
        except expected:
            refused.add(path)
    return frozenset(refused)


def _present(answers: Iterable[tuple[str, Callable[[], Any]]]) -> Iterator[tuple[str, Any]]:
    """Yield the answers of those paths that exist."""
    for path, answer in answers:
        with contextlib.suppress(NoNode):
            yield path, answer()


def _batches(paths: Iterable[Item]) -> Iterator[list[Item]]:
    rest = iter(paths)
    while batch := list(islice(rest, _IN_FLIGHT_MAX)):
        yield batch


def _stat(theirs: Any) -> Stat:
    czxid, mzxid, ctime, mtime, version, cversion, _, owner, _, _, pzxid = theirs
    return Stat(version, owner, ctime, mtime, czxid, mzxid, cversion, pzxid)


def _state(answer: Any) -> tuple[bytes, Stat]:
    data, stat = answer
    return data or b"", _stat(stat)

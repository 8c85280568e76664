"""The broker's ZooKeeper store, which reads and writes only while ZooKeeper holds the broker's own cluster.

When ZooKeeper turns into that of another cluster, a broker has work in progress that does not know it:
requests, ISR updates, decisions of the controller. All of that goes through this store, so that nothing is
changed in the other cluster, and its configs, offsets and states are not taken for those of this cluster.
(With the configs of another topic of the same name, or none, retention could delete records to be kept.)

Watches are set in any cluster: their callbacks first check whether the cluster is this broker's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping

from minikafka.base.errors import NoNode
from minikafka.registry.store import (
    ChildrenCallback,
    DataCallback,
    SessionState,
    SessionTicket,
    Stat,
    Store,
    Watch,
)


class GuardedStore:
    """A store that calls ``check`` before each call of ``store``; ``check`` raises CoordinationError.

    It is called again after a read, since the session may have ended meanwhile.
    """

    def __init__(self, store: Store, check: Callable[[], None]) -> None:
        self._store = store
        self.check = check

    @property
    def session_id(self) -> int:
        return self._store.session_id

    @property
    def ticket(self) -> SessionTicket:
        return self._store.ticket

    @property
    def session_timeout_ms(self) -> int:
        return self._store.session_timeout_ms

    # --- writes ---------------------------------------------------------------------------------------------

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        self.check()
        return self._store.create(
            path, data, ephemeral=ephemeral, sequential=sequential, make_parents=make_parents
        )

    def create_all(self, nodes: Mapping[str, bytes]) -> frozenset[str]:
        self.check()
        return self._store.create_all(nodes)

    def write(self, path: str, data: bytes, version: int = -1) -> Stat:
        self.check()
        return self._store.write(path, data, version)

    def write_all(self, nodes: Mapping[str, tuple[bytes, int]]) -> frozenset[str]:
        self.check()
        return self._store.write_all(nodes)

    def delete(self, path: str, version: int = -1, *, recursive: bool = False) -> None:
        self.check()
        self._store.delete(path, version, recursive=recursive)

    def delete_if_exists(self, path: str, guard_path: str) -> None:
        self.check()
        self._store.delete_if_exists(path, guard_path)

    # --- reads ----------------------------------------------------------------------------------------------

    def read(self, path: str) -> tuple[bytes, Stat]:
        with self._own():
            return self._store.read(path)

    def read_all(self, paths: Iterable[str]) -> dict[str, tuple[bytes, Stat]]:
        with self._own():
            return self._store.read_all(paths)

    def exists(self, path: str) -> Stat | None:
        with self._own():
            return self._store.exists(path)

    def sync(self) -> None:
        with self._own():
            self._store.sync()

    def children(self, path: str) -> list[str]:
        with self._own():
            return self._store.children(path)

    @contextlib.contextmanager
    def _own(self) -> Iterator[None]:
        self.check()
        try:
            yield
        except NoNode:
            self.check()  # the znode may be missing because this is another cluster
            raise
        self.check()

    # --- watches and the session ----------------------------------------------------------------------------

    def watch_children(self, path: str, callback: ChildrenCallback) -> Watch:
        return self._store.watch_children(path, callback)

    def watch_data(self, path: str, callback: DataCallback) -> Watch:
        return self._store.watch_data(path, callback)

    def on_session(self, callback: Callable[[SessionState], None]) -> None:
        self._store.on_session(callback)

    def end_session(self, ticket: SessionTicket) -> bool:
        return self._store.end_session(ticket)

    def close(self) -> None:
        self._store.close()

"""The broker's store, which reads and writes only where ZooKeeper holds the broker's own cluster.

A broker whose ZooKeeper turned into another cluster's has work under way that knows nothing of that:
requests, ISR changes, what the controller decided. So all of it goes through this store: neither does it
change anything there, nor are settings, offsets or states of the other cluster taken for its own. (Settings
of another topic of the same name, or none, would have retention delete what is to be kept.)

Watches are set in any cluster: who is called by one asks first whether the cluster is the own one.
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
    """``store``, where each call first calls ``check``, which raises CoordinationError to refuse it; what was
    read is checked once more, as the session may have ended meanwhile.
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

    def delete_if_exists(self, path: str, beside: str) -> None:
        self.check()
        self._store.delete_if_exists(path, beside)

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
            self.check()  # it may not be there as the cluster is another one
            raise
        self.check()

    # --- all else -------------------------------------------------------------------------------------------

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

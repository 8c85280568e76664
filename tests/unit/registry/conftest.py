"""The two registries that the contract tests run over, behind one small harness.

A real ZooKeeper is started once for the session; each test has a chroot of its own. Its stores connect
through a proxy, so that a test can cut the connection.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from minikafka.embedded.process import wait_until
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from minikafka.registry.memory import MemoryStore, MemoryZooKeeper
from minikafka.registry.store import Store
from minikafka.registry.zookeeper import ZooKeeperStore

PATIENCE_S = 20.0
"""A real ZooKeeper needs milliseconds; on a busy machine much more."""


class ZooKeeperHarness(Protocol):
    """One ZooKeeper and the stores that a test opens on it, all below one chroot."""

    def connect(self) -> Store: ...
    def expire(self, store: Store) -> None: ...
    def cut(self, store: Store) -> None: ...
    def mend(self, store: Store) -> None: ...
    def settles(self, condition: Callable[[], bool]) -> bool: ...
    def close(self) -> None: ...


class MemoryZooKeeperHarness:
    """A harness over ``MemoryZooKeeper``: callbacks run when ``settles`` delivers them."""

    def __init__(self) -> None:
        self.server = MemoryZooKeeper()

    def connect(self) -> MemoryStore:
        return self.server.connect("/test/chroot")

    def expire(self, store: Store) -> None:
        assert isinstance(store, MemoryStore)
        self.server.expire(store)

    def cut(self, store: Store) -> None:
        assert isinstance(store, MemoryStore)
        self.server.suspend(store)

    def mend(self, store: Store) -> None:
        assert isinstance(store, MemoryStore)
        self.server.resume(store)

    def settles(self, condition: Callable[[], bool]) -> bool:
        self.server.deliver()
        return condition()

    def close(self) -> None:
        self.server.deliver()


class RealZooKeeperHarness:
    """A harness over a real ZooKeeper: each store has its own proxy."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._chroot = f"/test/{uuid.uuid4().hex}"
        self._proxies: dict[int, Proxy] = {}
        self._stores: list[ZooKeeperStore] = []

    def connect(self) -> ZooKeeperStore:
        proxy = Proxy(self._address)
        store = ZooKeeperStore(
            f"127.0.0.1:{proxy.port}{self._chroot}",
            10_000,
            connect_timeout_ms=int(PATIENCE_S * 1000),
            request_timeout_ms=1_000,
        )
        self._proxies[id(store)] = proxy
        self._stores.append(store)
        return store

    def expire(self, store: Store) -> None:
        with_own = ZooKeeperStore(self._address + self._chroot)
        try:
            assert with_own.end_session(store.ticket)
        finally:
            with_own.close()

    def cut(self, store: Store) -> None:
        self._proxies[id(store)].cut()

    def mend(self, store: Store) -> None:
        self._proxies[id(store)].mend()

    def settles(self, condition: Callable[[], bool]) -> bool:
        return wait_until(condition, PATIENCE_S)

    def close(self) -> None:
        for store in self._stores:
            store.close()
        for proxy in self._proxies.values():
            proxy.close()


class Proxy:
    """Forwards connections to ``address`` until they are cut; then it also closes new ones."""

    def __init__(self, address: str) -> None:
        host, _, port = address.partition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._passing = True
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def cut(self) -> None:
        with self._lock:
            self._passing = False
            for connection in self._open:
                _shut(connection)
            self._open.clear()

    def mend(self) -> None:
        with self._lock:
            self._passing = True

    def close(self) -> None:
        self.cut()
        _shut(self._listener)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if not self._passing:
                    near.close()
                    continue
                far = socket.create_connection(self._target)
                self._open |= {near, far}
                for source, sink in ((near, far), (far, near)):
                    thread = threading.Thread(target=self._copy, args=(source, sink), daemon=True)
                    thread.start()
                    self._threads.append(thread)

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        with self._lock:
            if sink in self._open:
                _shut(sink)
            self._open.discard(source)
        source.close()


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other side may have been first
        connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="session")
def zookeeper_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a real ZooKeeper."""
    directory: Path = tmp_path_factory.mktemp("zookeeper")
    with EmbeddedZooKeeper(str(directory)) as zookeeper:
        yield zookeeper.connect


@pytest.fixture(params=["memory", pytest.param("zookeeper", marks=pytest.mark.process)])
def harness(request: pytest.FixtureRequest) -> Iterator[ZooKeeperHarness]:
    """Each registry in turn."""
    made: ZooKeeperHarness
    if request.param == "memory":
        made = MemoryZooKeeperHarness()
    else:
        made = RealZooKeeperHarness(request.getfixturevalue("zookeeper_address"))
    yield made
    made.close()


@pytest.fixture
def store(harness: ZooKeeperHarness) -> Store:
    """A connected store."""
    return harness.connect()

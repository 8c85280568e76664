"""The links between the processes of a cluster, which a test cuts or clogs one by one.

Each server is behind a relay with a port of its own, which is the advertised one. The source of a connection
is found by its port: one of the named processes, or another one (``CLIENTS``). A cut link closes its
connections and accepts no new ones. A link that is clogged in a direction holds the bytes of that direction,
and the end of a connection, until it is open again; neither end notices.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import socket
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path

import psutil

CLIENTS = "clients"
CONNECT_S = 0.2
"""The time-out of a connect: enough on one machine, unless a paused server has a full backlog."""
_ROW = rb"^ *\d+: \w+:%04X (?:\S+ +){7}([1-9]\d*) "
"""Of /proc/net/tcp: the local address, which ends with the port, and seven columns on the inode."""
_KEPT_BYTES = 1 << 18
"""The limit of bytes that a relay holds in one direction; then it stops reading, as a full link does."""


class Way(Enum):
    """The state of a link that is not open."""

    CUT = "cut"
    CLOGGED = "clogged"


class _End:
    """One of the two sockets of a relayed connection, with the bytes for it."""

    def __init__(self, connection: socket.socket, name: str) -> None:
        self.socket = connection
        self.name = name
        self.other: _End
        self.waiting = bytearray()
        """Bytes for this end."""
        self.ended = False
        """This end sends no more."""
        self.end_sent = False
        """This end has been sent the end of the other one."""


class Links:
    """All relays of one cluster, served by a thread. A context manager."""

    def __init__(self, pids: Callable[[], Mapping[str, int]]) -> None:
        """``pids``: the current processes by name. A connection of a process has its name as the source."""
        self.counts: Counter[str] = Counter()
        self._pids = pids
        self._ways: dict[tuple[str, str], list[Way]] = {}
        self._listeners: dict[socket.socket, tuple[str, int, str | None]] = {}
        self._ends: dict[socket.socket, _End] = {}
        self._selector = selectors.DefaultSelector()
        self._jobs: deque[Callable[[], None]] = deque()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="links", daemon=True)

    def __enter__(self) -> Links:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._wake.send(b"x")
        self._thread.join()
        for sock in (*self._ends, *self._listeners, self._wake, self._woken):
            sock.close()
        self._selector.close()

    def add(self, name: str, port: int, source: str | None = None) -> int:
        """Put a relay in front of ``port`` of the server ``name``. Return the relay's port. ``source``: the
        only process that connects to it.
        """
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        listener.setblocking(False)
        self._listeners[listener] = name, port, source
        self._do(lambda: self._selector.register(listener, selectors.EVENT_READ))
        return int(listener.getsockname()[1])

    def begin(self, source: str, target: str, way: Way) -> None:
        """Cut the link between ``source`` and ``target``, or clog its direction to ``target``."""

        def job() -> None:
            self._ways.setdefault((source, target), []).append(way)
            for end in list(self._ends.values()):
                if self._cut(end.name, end.other.name):
                    self._forget(end)
            self._watch_all()

        self._do(job)

    def end(self, source: str, target: str, way: Way) -> None:
        """End one ``begin``; the link stays closed while another one lasts."""

        def job() -> None:
            self._ways[source, target].remove(way)
            self._watch_all()

        self._do(job)

    def _watch_all(self) -> None:
        for end in list(self._ends.values()):
            self._watch(end)

    def _cut(self, source: str, target: str) -> bool:
        ways = self._ways
        return Way.CUT in ways.get((source, target), ()) or Way.CUT in ways.get((target, source), ())

    def _do(self, job: Callable[[], object]) -> None:
        """Run ``job`` on the thread and wait for its end."""
        if not self._thread.is_alive():
            job()
            return
        done = threading.Event()

        def run_and_notify() -> None:
            job()
            done.set()

        self._jobs.append(run_and_notify)
        self._wake.send(b"x")
        done.wait()

    # --- on the thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing:
            for key, events in self._selector.select():
                if key.fileobj is self._woken:
                    self._woken.recv(1024)
                    while self._jobs:
                        self._jobs.popleft()()
                elif key.fileobj in self._listeners:
                    self._accept(key.fileobj)  # type: ignore[arg-type]
                elif key.fileobj in self._ends:
                    self._move(self._ends[key.fileobj], events)  # type: ignore[index]

    def _accept(self, listener: socket.socket) -> None:
        target, port, known = self._listeners[listener]
        try:
            near, address = listener.accept()
        except OSError:
            return
        far = socket.socket()
        far.settimeout(CONNECT_S)
        try:
            far.connect(("127.0.0.1", port))  # immediate, or no server listens and the source does not matter
        except OSError:
            near.close()
            far.close()
            return
        source = known or self._name_of(address[1])
        if self._cut(source, target):
            self.counts["connections refused by a cut link"] += 1
            near.close()
            far.close()
            return
        for sock in (near, far):
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ends = _End(near, source), _End(far, target)
        ends[0].other, ends[1].other = ends[1], ends[0]
        self.counts["connections"] += 1
        for end in ends:
            self._ends[end.socket] = end
            self._selector.register(end.socket, selectors.EVENT_READ)
            self._watch(end)

    def _name_of(self, port: int) -> str:
        sockets = _sockets_at(port)
        for name, pid in self._pids().items():
            with contextlib.suppress(psutil.Error, OSError):
                if sockets is None:
                    if any(
                        connection.laddr and connection.laddr.port == port
                        for connection in psutil.Process(pid).net_connections("tcp4")
                    ):
                        return name
                elif _has_one_of(pid, sockets):
                    return name
        return CLIENTS

    def _clogged(self, end: _End) -> bool:
        """Return True if bytes from ``end`` are held."""
        return Way.CLOGGED in self._ways.get((end.name, end.other.name), ())

    def _watch(self, end: _End) -> None:
        """Select the events that ``end`` can handle at the moment."""
        if end.socket not in self._ends:
            return
        events = 0
        if not end.ended and not self._clogged(end) and len(end.other.waiting) < _KEPT_BYTES:
            events |= selectors.EVENT_READ
        if not self._clogged(end.other) and (end.waiting or (end.other.ended and not end.end_sent)):
            events |= selectors.EVENT_WRITE
        known = self._selector.get_map().get(end.socket)
        if events == 0:
            if known is not None:
                self._selector.unregister(end.socket)
        elif known is None:
            self._selector.register(end.socket, events)
        elif known.events != events:
            self._selector.modify(end.socket, events)

    def _move(self, end: _End, events: int) -> None:
        try:
            if events & selectors.EVENT_READ and not self._clogged(end):
                data = end.socket.recv(65536)
                end.other.waiting += data
                end.ended = end.ended or not data
            if not self._clogged(end.other):
                if end.waiting:
                    del end.waiting[: end.socket.send(end.waiting)]
                if end.other.ended and not end.waiting and not end.end_sent:
                    end.socket.shutdown(socket.SHUT_WR)
                    end.end_sent = True
        except BlockingIOError:
            pass
        except OSError:
            self._close(end)
            return
        if end.end_sent and end.other.end_sent:
            self._close(end)
            return
        self._watch(end)
        self._watch(end.other)

    def _close(self, end: _End) -> None:
        """Close ``end``. The other end is closed after the bytes for it."""
        self._forget(end)
        end.ended = end.end_sent = True
        if self._clogged(end):
            self._watch(end.other)
        else:
            self._forget(end.other)

    def _forget(self, end: _End) -> None:
        if self._ends.pop(end.socket, None) is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(end.socket)
            end.socket.close()


def _sockets_at(port: int) -> set[str] | None:
    """Return the names in /proc of the sockets with this port; None without /proc.

    psutil reads all sockets of the machine for each process, which takes half a second after thousands of
    connections: a relay that slow falls behind the connections that clients try meanwhile.
    """
    try:
        table = Path("/proc/net/tcp").read_bytes()
    except OSError:
        return None
    return {f"socket:[{found[1].decode()}]" for found in re.finditer(_ROW % port, table, re.MULTILINE)}


def _has_one_of(pid: int, sockets: set[str]) -> bool:
    directory = f"/proc/{pid}/fd"
    for descriptor in os.listdir(directory):
        with contextlib.suppress(OSError):  # closed meanwhile
            if os.readlink(f"{directory}/{descriptor}") in sockets:
                return True
    return False

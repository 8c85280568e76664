"""A processor thread: it reads, hands over and writes for its share of the connections.

Each connection goes round this circle; a selector tells when there is something to do:

    reading     a frame is being received into its own memory
    in flight   the handler has it; nothing more is read
    writing     the answer is being sent; then reading again
    lingering   at the stop: our side is closed, what the peer still sends is thrown away until it closes too

The handler runs on this thread, and an answer given there is written there: a hand-off between threads
costs 10 to 100 µs under the interpreter's lock. An answer from another thread is posted here and wakes the
selector.

A muted connection is taken out of the selector only when its peer does send ahead, which spares two system
calls per request in the usual case.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from minikafka.base.clock import Clock, SystemClock
from minikafka.base.errors import RemoteWireError, StorageError
from minikafka.net.port import RequestHandler
from minikafka.net.transfer import TURN_BYTES, Outgoing, peer_name, reason_of
from minikafka.net.wakeup import Wakeup
from minikafka.wire.framing import FrameReader, encode_frame
from minikafka.wire.parts import Part

logger = logging.getLogger("minikafka.net")

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Limits of a server.

    Kafka's names: ``socket.request.max.bytes``, ``connections.max.idle.ms``, ``socket.send.buffer.bytes``,
    ``socket.receive.buffer.bytes`` (None: the system's choice, which adapts). Ours: ``write_timeout_ms``,
    after which a peer that takes no byte of its response is cut off; ``linger_ms``, which a peer has at the
    stop to close its side.
    """

    max_request_bytes: int
    idle_ms: int
    write_timeout_ms: int
    linger_ms: int
    send_buffer_bytes: int | None
    receive_buffer_bytes: int | None


class _Peer:
    """One connection. Only its processor's thread touches it."""

    __slots__ = (
        "closed",
        "events",
        "exchange",
        "host",
        "last_active_ms",
        "lingering",
        "name",
        "outgoing",
        "reader",
        "sock",
    )

    def __init__(self, sock: socket.socket, address: object, max_request_bytes: int, now_ms: int) -> None:
        self.sock = sock
        self.host, self.name = peer_name(address)
        self.reader = FrameReader(max_request_bytes)
        self.exchange: SocketExchange | None = None
        self.outgoing: Outgoing | None = None
        self.lingering = False
        self.closed = False
        self.events = 0
        self.last_active_ms = now_ms


class SocketExchange:
    """See ``port.Exchange``."""

    __slots__ = ("_answered", "_peer", "_processor")

    def __init__(self, processor: Processor, peer: _Peer) -> None:
        self._processor = processor
        self._peer = peer
        self._answered = False

    @property
    def client_host(self) -> str:
        return self._peer.host

    def respond(self, parts: Sequence[Part]) -> None:
        if self._answered:
            raise RuntimeError(f"a request of {self._peer.name} was answered twice")
        # Made here, so that whoever gave something that cannot be sent hears of it.
        outgoing = Outgoing(encode_frame(parts) if parts else [])
        self._answered = True
        self._processor.do(lambda: self._processor.begin_response(self._peer, outgoing))

    def close(self, reason: str) -> None:
        self._answered = True
        self._processor.do(lambda: self._processor.close_peer(self._peer, reason))


class Processor:
    """One thread and its connections. Any thread may call ``add``, ``do``, ``start``, ``drain``, ``join``."""

    def __init__(
        self, name: str, handler: RequestHandler, options: ServerOptions, clock: Clock | None = None
    ) -> None:
        self._handler = handler
        self._options = options
        self._clock = clock or SystemClock()
        self._selector = selectors.DefaultSelector()
        self._wakeup = Wakeup()
        self._posted: deque[Callable[[], None]] = deque()
        self._peers: set[_Peer] = set()
        self._drain_until_ms: int | None = None
        limits = (options.idle_ms, options.write_timeout_ms)
        self._sweep_every_ms = max(5, min(1000, min(limits) // 4))
        self._sweep_at_ms = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._selector.register(self._wakeup.reader, READ, None)
        self._thread.start()

    def add(self, sock: socket.socket, address: object) -> None:
        """Take over an accepted connection."""
        self.do(lambda: self._adopt(sock, address))

    def do(self, action: Callable[[], None]) -> None:
        """Run ``action`` on the processor's thread: at once when called there, else soon."""
        if threading.get_ident() == self._thread.ident:
            action()
            return
        self._posted.append(action)
        self._wakeup.wake()

    def drain(self, drain_ms: int) -> None:
        """Read no more; end when what is in flight has been answered, or after ``drain_ms``."""
        deadline_ms = self._clock.monotonic_ms() + drain_ms
        self.do(lambda: self._begin_drain(deadline_ms))

    def join(self, timeout_ms: int) -> None:
        """Wait for the end, which ``drain`` has asked for; only a handler that blocks can make that late."""
        self._thread.join(timeout_ms / 1000)
        if self._thread.is_alive():
            logger.error("%s is stuck in a request and is left behind", self._thread.name)

    def begin_response(self, peer: _Peer, outgoing: Outgoing) -> None:
        """Send what may be nothing as the answer to what is in flight. On this thread only."""
        if peer.closed:
            return
        peer.exchange = None
        peer.outgoing = outgoing
        peer.last_active_ms = self._clock.monotonic_ms()
        self._guarded(peer, self._write)

    def close_peer(self, peer: _Peer, reason: str, level: int = logging.WARNING) -> None:
        """Close a connection and log why. On the processor's thread."""
        if peer.closed:
            return
        peer.closed = True
        self._watch(peer, 0)
        self._peers.discard(peer)
        if peer.outgoing is not None:
            peer.outgoing.close()
        logger.log(level, "connection from %s closed: %s", peer.name, reason)
        peer.sock.close()

    def _run(self) -> None:
        try:
            while not self._ended():
                timeout = (
                    self._sweep_every_ms / 1000 if self._peers or self._drain_until_ms is not None else None
                )
                for key, events in self._selector.select(timeout):
                    if key.data is None:
                        self._wakeup.clear()
                    else:
                        self._serve(key.data, events)
                while self._posted:
                    self._run_posted(self._posted.popleft())
                self._sweep()
        finally:
            # Also after a defect of the loop itself: better no connection than one that nobody serves.
            for peer in list(self._peers):
                unanswered = peer.exchange is not None or peer.outgoing is not None
                reason = "its request was not answered before the stop" if unanswered else "the server stops"
                self.close_peer(peer, reason, logging.WARNING if unanswered else logging.DEBUG)
            self._selector.close()
            self._wakeup.close()

    def _run_posted(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception:
            logger.exception("a defect in the network thread %s", self._thread.name)

    def _ended(self) -> bool:
        return self._drain_until_ms is not None and (
            not self._peers or self._clock.monotonic_ms() >= self._drain_until_ms
        )

    def _adopt(self, sock: socket.socket, address: object) -> None:
        if self._drain_until_ms is not None:
            sock.close()
            return
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer = _Peer(sock, address, self._options.max_request_bytes, self._clock.monotonic_ms())
            self._peers.add(peer)
            self._watch(peer, READ)
        except OSError as error:
            # The peer went away between connect and here.
            sock.close()
            logger.info("connection from %s closed: %s", peer_name(address)[1], reason_of(error))

    def _serve(self, peer: _Peer, events: int) -> None:
        if peer.closed:
            return
        if events & WRITE:
            self._guarded(peer, self._write)
        elif peer.exchange is not None or peer.outgoing is not None:
            self._watch(peer, peer.events & ~READ)
        elif peer.lingering:
            self._guarded(peer, self._discard)
        else:
            self._guarded(peer, self._read)

    def _guarded(self, peer: _Peer, step: Callable[[_Peer], None]) -> None:
        """Whatever goes wrong with one connection ends that connection only."""
        try:
            step(peer)
        except BlockingIOError:
            return
        except OSError as error:
            self.close_peer(peer, reason_of(error), logging.INFO)
        except (RemoteWireError, StorageError) as error:
            self.close_peer(peer, reason_of(error))
        except Exception:
            logger.exception("a defect in serving %s", peer.name)
            self.close_peer(peer, "a defect here")

    def _read(self, peer: _Peer) -> None:
        received = 0
        while received < TURN_BYTES:
            with peer.reader.space() as space:
                count = peer.sock.recv_into(space)
            if count == 0:
                if peer.reader.inside_frame:
                    self.close_peer(peer, "the peer closed in the middle of a request", logging.INFO)
                else:
                    self.close_peer(peer, "the peer closed", logging.DEBUG)
                return
            if received == 0:
                peer.last_active_ms = self._clock.monotonic_ms()
            received += count
            frame = peer.reader.filled(count)
            if frame is not None:
                self._hand_over(peer, frame)
                return

    def _hand_over(self, peer: _Peer, frame: memoryview) -> None:
        exchange = peer.exchange = SocketExchange(self, peer)
        try:
            self._handler.on_request(exchange, frame)
        except RemoteWireError as error:
            self.close_peer(peer, reason_of(error))
        except Exception:
            logger.exception("a request of %s failed", peer.name)
            self.close_peer(peer, "its request failed")

    def _write(self, peer: _Peer) -> None:
        outgoing = peer.outgoing
        if outgoing is None:
            return
        if outgoing.write(peer.sock):
            peer.last_active_ms = self._clock.monotonic_ms()
        if not outgoing.done:
            self._watch(peer, WRITE)
            return
        outgoing.close()
        peer.outgoing = None
        self._watch(peer, READ)
        if self._drain_until_ms is not None:
            self._linger(peer)

    def _discard(self, peer: _Peer) -> None:
        if not peer.sock.recv(64 * 1024):
            self.close_peer(peer, "the server stops", logging.DEBUG)

    def _begin_drain(self, deadline_ms: int) -> None:
        self._drain_until_ms = deadline_ms
        self._sweep_every_ms = max(5, self._options.linger_ms // 4)
        self._sweep_at_ms = 0
        for peer in list(self._peers):
            if peer.exchange is None and peer.outgoing is None:
                self._guarded(peer, self._linger)

    def _linger(self, peer: _Peer) -> None:
        """Close our side only.

        Closing both while a next request of the peer lies here unread would reset the connection, and the
        last answer could be lost with it.
        """
        peer.lingering = True
        peer.last_active_ms = self._clock.monotonic_ms()
        peer.sock.shutdown(socket.SHUT_WR)
        self._watch(peer, READ)

    def _watch(self, peer: _Peer, events: int) -> None:
        if peer.events == events:
            return
        if not events:
            self._selector.unregister(peer.sock)
        elif peer.events:
            self._selector.modify(peer.sock, events, peer)
        else:
            self._selector.register(peer.sock, events, peer)
        peer.events = events

    def _sweep(self) -> None:
        """Close who stalls, idles or lingers too long."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._sweep_at_ms:
            return
        self._sweep_at_ms = now_ms + self._sweep_every_ms
        options = self._options
        for peer in list(self._peers):
            quiet_ms = now_ms - peer.last_active_ms
            if peer.outgoing is not None:
                if quiet_ms >= options.write_timeout_ms:
                    self.close_peer(peer, f"it took nothing of its response for {quiet_ms} ms")
            elif peer.lingering:
                if quiet_ms >= options.linger_ms:
                    self.close_peer(peer, "the server stops", logging.DEBUG)
            elif peer.exchange is None and quiet_ms >= options.idle_ms:
                self.close_peer(peer, f"idle for {quiet_ms} ms", logging.INFO)

"""A processor thread: it reads, hands over and writes for its share of the connections.

Each connection goes round this circle; a selector tells when there is something to do:

    reading     a frame is being received into its own memory
    held        there is too much to do already (``net.request_limiter``): it is not read for a while
    in flight   the handler has it; nothing more is read
    writing     the answer is being sent; then reading again. What is only made while it is sent
                (``wire.frame_parts.LazyPart``) is waited for without the selector
    paused      after an answer that asked for it, it is not read for a while; it may be idle meanwhile
    lingering   at the stop: our side is closed, what the peer still sends is thrown away until it closes too

The handler runs on this thread, and an answer given there is written there: a hand-off between threads
costs 10 to 100 µs under the interpreter's lock. An answer from another thread is posted here and wakes the
selector.

A muted connection is taken out of the selector only when its peer does send ahead, which spares two system
calls per request in the usual case. Then it is asked whether it was reset, or its machine is silent
(``SO_KEEPALIVE``): who is gone frees its place while its request still waits. Who has closed keeps it until
the answer: it may have closed its side alone, and still read; that cannot be told before something is sent.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from minikafka.base.clock import Clock, SystemClock
from minikafka.base.errors import RemoteWireError, StorageError
from minikafka.net.event_loop import NEVER_MS, Timers, Wakeup
from minikafka.net.interfaces import RequestHandler
from minikafka.net.network_send import TURN_BYTES, NetworkSend, error_reason, peer_name
from minikafka.net.request_limiter import FREE_BYTES, RequestLimiter
from minikafka.net.response_memory import STALL_BYTES, LargeResponse, ResponseMemory
from minikafka.wire.frame_parts import Part
from minikafka.wire.framing import FrameReader, encode_frame

logger = logging.getLogger("minikafka.net")

WINDOW_BYTES = 4096
"""How far a connection is read ahead: what small requests came together are received together."""
STALL_MS = 1_000
"""Where others wait for room, who holds some must move ``STALL_BYTES`` of request or response in so long."""
ROUNDS = 8
"""Requests of one connection, received together, that are served before others are looked at."""

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


class _Channel:
    """One connection. Only its processor's thread touches it."""

    __slots__ = (
        "closed",
        "counted",
        "events",
        "exchange",
        "held",
        "host",
        "large",
        "last_active_ms",
        "lingering",
        "listener",
        "memory",
        "name",
        "outgoing",
        "pause_ms",
        "paused_until_ms",
        "reader",
        "reserved",
        "seen_bytes",
        "sock",
        "timer_ms",
    )

    def __init__(
        self, sock: socket.socket, address: object, listener: str, max_request_bytes: int, now_ms: int
    ) -> None:
        self.sock = sock
        self.host, self.name = peer_name(address)
        self.listener = listener
        self.memory: dict[str, Any] = {}
        self.reader = FrameReader(max_request_bytes, window=WINDOW_BYTES)
        self.exchange: SocketExchange | None = None
        self.outgoing: NetworkSend | None = None
        self.large: LargeResponse | None = None
        # How long to pause after what is going out; until when it is paused, 0 when it is not.
        self.pause_ms = 0
        self.paused_until_ms = 0
        self.lingering = False
        self.closed = False
        self.events = 0
        self.last_active_ms = now_ms
        self.timer_ms = NEVER_MS
        # What the backlog counts of it: its request, and its bytes; how many had come at the last look.
        self.counted = False
        self.reserved = 0
        self.seen_bytes: int | None = None
        self.held = False


class SocketExchange:
    """See ``interfaces.Exchange``."""

    __slots__ = ("_answered", "_peer", "_processor", "kept", "parked")

    def __init__(self, processor: Processor, peer: _Channel) -> None:
        self._processor = processor
        self._peer = peer
        self._answered = False
        self.parked = False
        self.kept = False
        """Whether the bytes of the request are counted until the answer."""

    @property
    def client_host(self) -> str:
        return self._peer.host

    @property
    def listener(self) -> str:
        return self._peer.listener

    @property
    def memory(self) -> dict[str, Any]:
        return self._peer.memory

    def park(self) -> None:
        self.parked = True
        if not self._answered:
            self._processor.do(lambda: self._processor.release_parked(self._peer, self))

    def keep_counted(self, kept: bool = True) -> None:
        self.kept = kept

    def respond(self, parts: Sequence[Part], pause_ms: int = 0) -> None:
        if self._answered:
            raise RuntimeError(f"a request of {self._peer.name} was answered twice")
        # Made here, so that whoever gave something that cannot be sent hears of it.
        outgoing = NetworkSend(encode_frame(parts) if parts else [])
        self._answered = True
        self._processor.do(lambda: self._processor.begin_response(self._peer, outgoing, pause_ms))

    def close(self, reason: str) -> None:
        self._answered = True
        self._processor.do(lambda: self._processor.close_channel(self._peer, reason))


class Processor:
    """One thread and its connections. Any thread may call ``add``, ``do``, ``start``, ``drain``, ``join``.

    ``left`` is told the address of each connection that was added and has ended.
    """

    def __init__(
        self,
        name: str,
        handler: RequestHandler,
        options: ServerOptions,
        *,
        backlog: RequestLimiter,
        unsent: ResponseMemory,
        left: Callable[[str], None],
        clock: Clock | None = None,
    ) -> None:
        self._handler = handler
        self._options = options
        self._backlog = backlog
        self._unsent = unsent
        self._left = left
        self._clock = clock or SystemClock()
        self._selector = selectors.DefaultSelector()
        self._wakeup = Wakeup()
        self._posted: deque[Callable[[], None]] = deque()
        self._peers: set[_Channel] = set()
        self._held: deque[_Channel] = deque()
        self._ready: dict[_Channel, None] = {}
        """Of whom something came along with the request before, each once: no selector tells of that."""
        self._alarms: Timers[_Channel] = Timers()
        self._drain_until_ms: int | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._selector.register(self._wakeup.reader, READ, None)
        self._thread.start()

    def add(self, sock: socket.socket, address: object, listener: str) -> None:
        """Take over a connection that was accepted by ``listener``."""
        self.do(lambda: self._adopt(sock, address, listener))

    def do(self, action: Callable[[], None]) -> None:
        """Run ``action`` on the processor's thread: at once when called there, else soon."""
        if threading.get_ident() == self._thread.ident:
            action()
            return
        self._posted.append(action)
        self._wakeup.wake()

    def _again(self) -> None:
        """The backlog has room: go on with who was held. Never from within what made the room."""
        self._post(self._read_held)

    def _post(self, action: Callable[[], None]) -> None:
        """Run ``action`` on the processor's thread, later also when called there."""
        self._posted.append(action)
        if threading.get_ident() != self._thread.ident:
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

    def begin_response(self, peer: _Channel, outgoing: NetworkSend, pause_ms: int) -> None:
        """Send what may be nothing as the answer to what is in flight. On this thread only."""
        if peer.closed:
            outgoing.close()
            return
        peer.exchange = None
        peer.outgoing = outgoing
        peer.pause_ms = pause_ms
        self._uncount(peer)
        if outgoing.memory_bytes > FREE_BYTES:
            peer.large = self._unsent.begin(outgoing.memory_bytes, outgoing.shared)
            if peer.large is None:
                self.close_channel(peer, f"no room for its response of {outgoing.memory_bytes} bytes")
                return
        peer.last_active_ms = self._clock.monotonic_ms()
        self._guarded(peer, self._write)

    def release_parked(self, peer: _Channel, exchange: SocketExchange) -> None:
        """What is in flight waits for others, and keeps nobody out. On this thread only."""
        if peer.exchange is exchange:
            self._uncount(peer, keep_bytes=exchange.kept)

    def close_channel(self, peer: _Channel, reason: str, level: int = logging.WARNING) -> None:
        """Close a connection and log why. On the processor's thread."""
        if peer.closed:
            return
        peer.closed = True
        self._watch(peer, 0)
        self._peers.discard(peer)
        self._alarms.clear(peer)
        self._uncount(peer)
        if peer.outgoing is not None:
            peer.outgoing.close()
        if peer.large is not None:
            peer.large.end()
        # An alarm that is out of date may keep the peer for minutes: not its memory.
        peer.reader, peer.memory = FrameReader(0), {}
        logger.log(level, "connection from %s closed: %s", peer.name, reason)
        peer.sock.close()
        self._left(peer.host)

    def _run(self) -> None:
        try:
            while not self._ended():
                for key, events in self._selector.select(self._patience()):
                    if key.data is None:
                        self._wakeup.clear()
                    else:
                        self._serve(key.data, events)
                for _ in range(ROUNDS):
                    ready, self._ready = self._ready, {}
                    for peer in ready:
                        if peer.reader.ahead:
                            self._serve(peer, READ)
                # What is posted meanwhile has its turn after the sockets'.
                for _ in range(len(self._posted)):
                    self._run_posted(self._posted.popleft())
                self._ring_alarms()
        finally:
            # Also after a defect of the loop itself: better no connection than one that nobody serves.
            for peer in list(self._peers):
                unanswered = peer.exchange is not None or peer.outgoing is not None
                reason = "its request was not answered before the stop" if unanswered else "the server stops"
                self.close_channel(peer, reason, logging.WARNING if unanswered else logging.DEBUG)
            self._selector.close()
            self._wakeup.close()

    def _patience(self) -> float | None:
        """How long the selector may sleep, in seconds; None: until something happens."""
        if self._posted or self._ready:
            return 0
        times = [at_ms for at_ms in (self._alarms.next_ms(), self._drain_until_ms) if at_ms is not None]
        return max(0, min(times) - self._clock.monotonic_ms()) / 1000 if times else None

    def _run_posted(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception:
            logger.exception("a defect in the network thread %s", self._thread.name)

    def _ended(self) -> bool:
        return self._drain_until_ms is not None and (
            not self._peers or self._clock.monotonic_ms() >= self._drain_until_ms
        )

    def _adopt(self, sock: socket.socket, address: object, listener: str) -> None:
        now_ms = self._clock.monotonic_ms()
        peer = _Channel(sock, address, listener, self._options.max_request_bytes, now_ms)
        self._peers.add(peer)
        if self._drain_until_ms is not None:
            self.close_channel(peer, "the server stops", logging.DEBUG)
            return
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._watch(peer, READ)
        except OSError as error:
            # The peer went away between connect and here.
            self.close_channel(peer, error_reason(error), logging.INFO)
            return
        self._alarms.set(peer, now_ms + self._options.idle_ms)

    def _serve(self, peer: _Channel, events: int) -> None:
        if peer.closed or peer.held:
            return
        if events & WRITE:
            self._guarded(peer, self._write)
        elif peer.exchange is not None or peer.outgoing is not None or peer.paused_until_ms:
            error = peer.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                self.close_channel(peer, os.strerror(error), logging.INFO)
            else:
                self._watch(peer, peer.events & ~READ)
        elif peer.lingering:
            self._guarded(peer, self._discard)
        elif self._may_read(peer):
            self._guarded(peer, self._read)
        else:
            self._hold(peer)

    def _guarded(self, peer: _Channel, step: Callable[[_Channel], None]) -> None:
        """Whatever goes wrong with one connection ends that connection only."""
        try:
            step(peer)
        except BlockingIOError:
            return
        except OSError as error:
            self.close_channel(peer, error_reason(error), logging.INFO)
        except (RemoteWireError, StorageError) as error:
            self.close_channel(peer, error_reason(error))
        except Exception:
            logger.exception("a defect in serving %s", peer.name)
            self.close_channel(peer, "a defect here")

    def _may_read(self, peer: _Channel) -> bool:
        """Whether the backlog has room for a request, and for this one's bytes once they are known."""
        # Who has begun does not wait for other requests: they may wait for its bytes.
        if not peer.reserved and not self._backlog.has_room(self._again):
            return False
        size = peer.reader.frame_bytes or 0
        if size > FREE_BYTES and peer.reader.received_bytes >= peer.reserved:
            allowed = self._backlog.reserve(peer, size, self._again)
            if not allowed:
                return False
            peer.reserved = allowed
            # Who holds bytes and sends nothing is looked at sooner.
            self._alarms.set(peer, self._clock.monotonic_ms() + self._stall_ms)
        return True

    @property
    def _stall_ms(self) -> int:
        return min(STALL_MS, self._options.write_timeout_ms)

    def _hold(self, peer: _Channel) -> None:
        self._watch(peer, peer.events & ~READ)
        peer.held = True
        self._held.append(peer)

    def _read_held(self) -> None:
        """Go on with those that were held, the first one first, as far as there is room.

        Who waits for bytes is passed over: the others may be small.
        """
        passed_over: list[_Channel] = []
        while self._held and self._backlog.has_room(self._again):
            peer = self._held.popleft()
            if peer.closed or not peer.held:
                continue
            if not self._may_read(peer):
                passed_over.append(peer)
                continue
            peer.held = False
            peer.last_active_ms = self._clock.monotonic_ms()
            self._watch(peer, READ)
            self._guarded(peer, self._read)
        self._held.extendleft(reversed(passed_over))

    def _uncount(self, peer: _Channel, *, keep_bytes: bool = False) -> None:
        """The backlog no longer counts what it counts of this connection, or only the request's bytes."""
        counted, holder = peer.counted, peer if peer.reserved and not keep_bytes else None
        if counted or holder is not None:
            peer.counted = False
            if holder is not None:
                peer.reserved, peer.seen_bytes = 0, None
            self._backlog.end(requests=int(counted), holder=holder)

    def _read(self, peer: _Channel) -> None:
        reader = peer.reader
        frame = reader.next()
        received = 0
        while frame is None:
            if (reader.frame_bytes or 0) > FREE_BYTES and not self._may_read(peer):
                self._hold(peer)
                return
            if received >= TURN_BYTES:
                return
            with reader.space() as space:
                large = (reader.frame_bytes or 0) > FREE_BYTES
                room = peer.reserved - reader.received_bytes if large else 0  # 0: all of the space
                count = peer.sock.recv_into(space, min(room, len(space)))
            if count == 0:
                if reader.inside_frame:
                    self.close_channel(peer, "the peer closed in the middle of a request", logging.INFO)
                else:
                    self.close_channel(peer, "the peer closed", logging.DEBUG)
                return
            if received == 0:
                peer.last_active_ms = self._clock.monotonic_ms()
            received += count
            frame = reader.filled(count)
        self._hand_over(peer, frame)

    def _hand_over(self, peer: _Channel, frame: memoryview) -> None:
        exchange = peer.exchange = SocketExchange(self, peer)
        if peer.reserved:
            self._backlog.complete(peer)
        try:
            self._handler.on_request(exchange, frame)
        except RemoteWireError as error:
            self.close_channel(peer, error_reason(error))
        except Exception:
            logger.exception("a request of %s failed", peer.name)
            self.close_channel(peer, "its request failed")
        # Most requests are answered by now, and are never counted. All answers come by this thread.
        if peer.exchange is exchange and not exchange.parked and not peer.closed:
            peer.counted = True
            self._backlog.begin()

    def _write(self, peer: _Channel) -> None:
        outgoing = peer.outgoing
        if outgoing is None:
            return
        taken = outgoing.write(peer.sock)
        if taken:
            peer.last_active_ms = self._clock.monotonic_ms()
        if peer.large is not None:
            peer.large.sent(taken)
        if outgoing.waits_for is not None:
            self._watch(peer, peer.events & ~WRITE)
            outgoing.waits_for.prepare(lambda: self._post(lambda: self._write_more(peer, outgoing)))
            return
        if not outgoing.done:
            self._watch(peer, WRITE)
            timeout_ms = self._stall_ms if peer.large is not None else self._options.write_timeout_ms
            self._alarms.set(peer, self._clock.monotonic_ms() + timeout_ms)
            return
        outgoing.close()
        peer.outgoing = None
        if peer.large is not None:
            peer.large.end()
            peer.large = None
        self._watch(peer, READ)
        if self._drain_until_ms is not None:
            self._linger(peer)
        elif peer.pause_ms:
            peer.paused_until_ms = self._clock.monotonic_ms() + peer.pause_ms
            self._alarms.set(peer, peer.paused_until_ms)
        elif peer.reader.ahead:
            self._ready[peer] = None

    def _write_more(self, peer: _Channel, outgoing: NetworkSend) -> None:
        """More of an answer is ready to be sent."""
        if not peer.closed and peer.outgoing is outgoing:
            # It did not have the chance to take anything meanwhile.
            peer.last_active_ms = self._clock.monotonic_ms()
            self._guarded(peer, self._write)

    def _discard(self, peer: _Channel) -> None:
        if not peer.sock.recv(64 * 1024):
            self.close_channel(peer, "the server stops", logging.DEBUG)

    def _begin_drain(self, deadline_ms: int) -> None:
        self._drain_until_ms = deadline_ms
        for peer in list(self._peers):
            if peer.exchange is None and peer.outgoing is None:
                self._guarded(peer, self._linger)

    def _linger(self, peer: _Channel) -> None:
        """Close our side only.

        Closing both while a next request of the peer lies here unread would reset the connection, and the
        last answer could be lost with it.
        """
        peer.lingering = True
        peer.held = False
        peer.paused_until_ms = 0
        self._uncount(peer)
        peer.last_active_ms = self._clock.monotonic_ms()
        self._alarms.set(peer, peer.last_active_ms + self._options.linger_ms)
        peer.sock.shutdown(socket.SHUT_WR)
        self._watch(peer, READ)

    def _watch(self, peer: _Channel, events: int) -> None:
        if peer.events == events:
            return
        if not events:
            self._selector.unregister(peer.sock)
        elif peer.events:
            self._selector.modify(peer.sock, events, peer)
        else:
            self._selector.register(peer.sock, events, peer)
        peer.events = events

    def _ring_alarms(self) -> None:
        """Close who stalls, idles or lingers too long; read again whose pause is over; look at the others
        again when they may.
        """
        now_ms = self._clock.monotonic_ms()
        for peer in self._alarms.due(now_ms):
            limit_ms, complaint, level = self._limit(peer)
            quiet_ms = now_ms - peer.last_active_ms
            if complaint and quiet_ms >= limit_ms:
                self.close_channel(peer, complaint.format(quiet_ms), level)
                continue
            stalled = self._stalled(peer)
            if stalled:
                self.close_channel(peer, f"{stalled} in {self._stall_ms} ms, and others need the room")
                continue
            look_ms = (peer.last_active_ms if complaint else now_ms) + limit_ms
            if peer.paused_until_ms > now_ms:
                look_ms = min(look_ms, peer.paused_until_ms)
            elif peer.paused_until_ms:
                peer.paused_until_ms = 0
                self._watch(peer, READ)
                if peer.reader.ahead:
                    self._ready[peer] = None
            if peer.reserved or peer.large is not None:
                look_ms = min(look_ms, now_ms + self._stall_ms)
            self._alarms.set(peer, look_ms)

    def _stalled(self, peer: _Channel) -> str:
        """How it keeps memory from others, and has moved next to nothing since the last look; or ''."""
        if peer.large is not None and peer.large.is_stalled():
            return "it took too little of its response"
        receiving = peer.reserved and peer.exchange is None and peer.outgoing is None and not peer.held
        if not receiving or not self._backlog.is_scarce:
            peer.seen_bytes = None
            return ""
        seen, peer.seen_bytes = peer.seen_bytes, peer.reader.received_bytes
        stalls = seen is not None and peer.seen_bytes - seen < STALL_BYTES
        return f"it sent less than {STALL_BYTES} bytes of its request" if stalls else ""

    def _limit(self, peer: _Channel) -> tuple[int, str, int]:
        """How long a connection may be quiet in its present state, and what is logged then ('': it may)."""
        options = self._options
        if peer.outgoing is not None and peer.outgoing.waits_for is not None:
            return options.idle_ms, "", logging.DEBUG
        if peer.outgoing is not None:
            return options.write_timeout_ms, "it took nothing of its response for {} ms", logging.WARNING
        if peer.lingering:
            return options.linger_ms, "the server stops", logging.DEBUG
        if peer.exchange is not None or peer.held:
            return options.idle_ms, "", logging.DEBUG
        return options.idle_ms, "idle for {} ms", logging.INFO

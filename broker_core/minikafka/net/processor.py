"""A processor thread: it reads, dispatches and writes for its share of the connections.

Each connection is in a state of ``net.channel``, which decides what the selector reports and which step is
taken then. After a step, the selector gets what has changed.

The handler runs on this thread, and a response given there is written there: a hand-off between threads
costs 10 to 100 µs under the interpreter's lock. A response from another thread is posted here and wakes the
selector.

A connection whose peer sends while nothing is read is checked for a reset, or a silent machine
(``SO_KEEPALIVE``), so that it is closed while its request still waits. A peer that closed its side stays
connected until the response: it may still read, which cannot be known before something is sent.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns

from minikafka.base.clock import NEVER_MS, Clock, SystemClock
from minikafka.base.errors import RemoteWireError, StorageError
from minikafka.net.channel import (
    AWAITING_PART,
    AWAITS_CLIENT,
    BETWEEN_REQUESTS,
    CLOSED,
    DELAYED,
    HANDSHAKE,
    HELD,
    IN_SERVICE,
    LINGERING,
    READ,
    READING,
    SENDING,
    THROTTLED,
    UNANSWERED,
    Channel,
    ConnectionState,
)
from minikafka.net.connection_quotas import LogLimit, UnauthenticatedConnections
from minikafka.net.event_loop import SelectorWakeup, Timers
from minikafka.net.exchange import SocketExchange, UncountedExchange, observe
from minikafka.net.handshake import HandshakeFailed, NothingSent, TurnEndQueue, continue_handshake
from minikafka.net.interfaces import Endpoint, RequestHandler, RequestObserver
from minikafka.net.network_send import TURN_BYTES, NetworkSend, error_reason
from minikafka.net.request_limiter import FREE_BYTES, RequestLimiter
from minikafka.net.response_memory import ResponseMemory
from minikafka.net.server_options import STALL_MS, ServerOptions, idle_limit
from minikafka.wire.framing import FrameReader

logger = logging.getLogger("minikafka.net")

ROUNDS = 8
"""Requests of one connection, received together, that are served before other connections."""


class Processor:
    """A network thread and its connections. Public methods are thread-safe unless they say otherwise.

    ``on_close`` is called with the address and the listener of each connection that has ended.
    """

    def __init__(
        self,
        name: str,
        handler: RequestHandler,
        options: ServerOptions,
        *,
        limiter: RequestLimiter,
        response_memory: ResponseMemory,
        log_limit: LogLimit,
        on_close: Callable[[str, str], None],
        clock: Clock | None = None,
        observer: RequestObserver | None = None,
    ) -> None:
        self._handler = handler
        self._observer = observer
        counts_errors = observer is not None and observer.counts_errors
        self._new_exchange = SocketExchange if counts_errors else UncountedExchange
        self._options = options
        self._limiter = limiter
        self._response_memory = response_memory
        self._log_limit = log_limit
        self._on_close = on_close
        self._clock = clock or SystemClock()
        self._selector = selectors.DefaultSelector()
        self._wakeup = SelectorWakeup()
        self._posted: deque[Callable[[], None]] = deque()
        self._channels: set[Channel] = set()
        self._held: deque[Channel] = deque()
        self._ready: dict[Channel, None] = {}
        """Channels with a read-ahead request, which the selector does not report."""
        self._encrypted = ssl.MemoryBIO()
        self._handshakes = TurnEndQueue(HANDSHAKE, lambda channel: self._run_step(channel, self._shake_hands))
        self._giving_way = TurnEndQueue(READING, lambda channel: self._run_step(channel, self._receive))
        self._unauthenticated: UnauthenticatedConnections[Channel] = UnauthenticatedConnections(
            options.unauthenticated_connections
        )
        self._timers: Timers[Channel] = Timers()
        self._drain_until_ms: int | None = None
        self._steps: dict[ConnectionState, Callable[[Channel], None]] = {
            HANDSHAKE: self._handshakes.add,
            READING: self._receive,
            IN_SERVICE: self._note_sent_ahead,
            DELAYED: self._note_sent_ahead,
            SENDING: self._write,
            AWAITING_PART: self._note_sent_ahead,
            THROTTLED: self._note_sent_ahead,
            LINGERING: self._discard,
        }
        self.has_ended = False
        """True if the thread has ended, although it was not stopped."""
        self.waited_mark_ns = 0
        """The time that it has waited for events; while it waits, less the time at which that began."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._selector.register(self._wakeup.reader, READ, None)
        self._thread.start()

    def add(self, sock: socket.socket, address: object, endpoint: Endpoint) -> None:
        """Take over a connection that was accepted at ``endpoint``."""
        self.execute(lambda: self._register(sock, address, endpoint))

    def execute(self, action: Callable[[], None]) -> None:
        """Run ``action`` on the processor's thread: at once when called there, otherwise soon."""
        if threading.get_ident() == self._thread.ident:
            action()
            return
        self._posted.append(action)
        self._wakeup.wake()

    def _on_room(self) -> None:
        """Read held channels, as the limiter has room. Posted, never run inside the call that made room."""
        self._post(self._read_held)

    def _post(self, action: Callable[[], None]) -> None:
        """Run ``action`` on the processor's thread later, also when called there."""
        self._posted.append(action)
        if threading.get_ident() != self._thread.ident:
            self._wakeup.wake()

    def drain(self, drain_ms: int) -> None:
        """Stop reading; end when all requests in flight are answered, or after ``drain_ms``."""
        deadline_ms = self._clock.monotonic_ms() + drain_ms
        self.execute(lambda: self._begin_drain(deadline_ms))

    def join(self, timeout_ms: int) -> None:
        """Wait for the end after ``drain``; only a blocking handler can delay it."""
        self._thread.join(timeout_ms / 1000)
        if self._thread.is_alive():
            logger.error("%s did not stop: a request handler blocks it", self._thread.name)

    def begin_response(self, channel: Channel, outgoing: NetworkSend, pause_ms: int) -> None:
        """Send the response (perhaps empty) to the request in flight. On this thread only."""
        if channel.state is CLOSED:
            outgoing.close()
            return
        channel.become(SENDING)
        channel.answered, channel.exchange = channel.exchange, None
        if channel.answered is not None:
            channel.answered.times.begin_response(outgoing.total_bytes, pause_ms)
        channel.outgoing = outgoing
        channel.throttle_ms = pause_ms
        self._release(channel)
        if outgoing.memory_bytes > FREE_BYTES:
            channel.large_response = self._response_memory.begin(outgoing.memory_bytes, outgoing.shared)
            if channel.large_response is None:
                self.close_channel(channel, f"no memory for its response of {outgoing.memory_bytes} bytes")
                return
        channel.last_active_ms = self._clock.monotonic_ms()
        self._run_step(channel, self._write)

    def begin_close(self, channel: Channel, reason: str, outgoing: NetworkSend, delay_ms: int) -> None:
        """Close a connection after its last response (perhaps empty), which waits. On this thread only."""
        if channel.state is not IN_SERVICE:
            outgoing.close()
            self.close_channel(channel, reason)
            return
        self._release(channel)
        channel.close_reason = reason
        channel.outgoing = outgoing
        if delay_ms:
            channel.become(DELAYED)
            channel.resume_ms = self._clock.monotonic_ms() + delay_ms
            self._timers.set(channel, channel.resume_ms)
        else:
            self._send_last(channel)

    def lift_limits(self, channel: Channel) -> None:
        """Lift the limits of a connection whose client has authenticated. On this thread only."""
        self._unauthenticated.remove(channel.endpoint.listener, channel.host, channel)
        channel.authentication_deadline_ms = NEVER_MS
        channel.reader.max_bytes = self._options.max_request_bytes
        if channel.tls is not None:
            channel.tls.is_stranger = False

    def release_parked(self, channel: Channel, exchange: SocketExchange) -> None:
        """Stop counting a request in flight that was parked. On this thread only."""
        if channel.exchange is exchange:
            self._release(channel, keep_bytes=exchange.keeps_memory)

    def close_channel(
        self, channel: Channel, reason: str, level: int = logging.WARNING, *, limited: bool = True
    ) -> None:
        """Close a connection and log why. On the processor's thread.

        ``limited``: the peer may be the cause, of one line for each connection that it makes. So their number
        is limited, as is that of all lines about clients that have not authenticated.
        """
        if channel.state is CLOSED:
            return
        if channel.close_reason:
            reason, level = channel.close_reason, logging.WARNING
        if channel.authentication_deadline_ms != NEVER_MS:
            self._unauthenticated.remove(channel.endpoint.listener, channel.host, channel)
            limited = True
        if limited and level >= logging.INFO:
            more = self._log_limit.admit(channel.host, reason)
            reason, level = (reason, logging.DEBUG) if more is None else (reason + more, level)
        channel.become(CLOSED)
        self._watch(channel)
        self._channels.discard(channel)
        self._timers.clear(channel)
        self._release(channel)
        if channel.outgoing is not None:
            channel.outgoing.close()
        if channel.large_response is not None:
            channel.large_response.end()
        # A stale timer may reference the channel for minutes: release its memory now.
        channel.reader, channel.memory = FrameReader(0), {}
        logger.log(level, "connection from %s closed: %s", channel.name, reason)
        channel.sock.close()
        self._on_close(channel.host, channel.endpoint.listener)

    def _run(self) -> None:
        try:
            while not self._ended():
                timeout_s = self._select_timeout_seconds()
                self.waited_mark_ns -= perf_counter_ns()
                events = self._selector.select(timeout_s)
                self.waited_mark_ns += perf_counter_ns()
                self._handshakes.begin_turn()
                self._giving_way.begin_turn()
                for key, _ in events:
                    if key.data is None:
                        self._wakeup.clear()
                    else:
                        self._handle_event(key.data)
                for _ in range(ROUNDS):
                    ready, self._ready = self._ready, {}
                    for channel in ready:
                        if channel.is_readable:
                            self._handle_event(channel)
                # Actions posted meanwhile run after the next select.
                for _ in range(len(self._posted)):
                    self._run_posted(self._posted.popleft())
                self._handshakes.end_turn()
                self._giving_way.end_turn()
                self._handle_timeouts()
        finally:
            self.has_ended = self._drain_until_ms is None
            # Also after an error in the loop: close the remaining connections.
            for channel in list(self._channels):
                unanswered = channel.state in UNANSWERED
                reason = "its request was not answered before the stop" if unanswered else "the server stops"
                level = logging.WARNING if unanswered else logging.DEBUG
                self.close_channel(channel, reason, level, limited=False)
            self._selector.close()
            self._wakeup.close()

    def _select_timeout_seconds(self) -> float | None:
        """Return the time-out of ``select``; None: wait for an event."""
        if self._posted or self._ready or self._handshakes.waiting or self._giving_way.waiting:
            return 0
        times = [at_ms for at_ms in (self._timers.next_ms(), self._drain_until_ms) if at_ms is not None]
        return max(0, min(times) - self._clock.monotonic_ms()) / 1000 if times else None

    def _run_posted(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception:
            logger.exception("unexpected error in network thread %s", self._thread.name)

    def _ended(self) -> bool:
        return self._drain_until_ms is not None and (
            not self._channels or self._clock.monotonic_ms() >= self._drain_until_ms
        )

    def _register(self, sock: socket.socket, address: object, endpoint: Endpoint) -> None:
        now_ms = self._clock.monotonic_ms()
        options = self._options
        channel = Channel(sock, address, endpoint, options.max_request_bytes, now_ms)
        self._channels.add(channel)
        if endpoint.demands_authentication:
            channel.reader.max_bytes = min(options.max_request_bytes, options.unauthenticated_request_bytes)
        if endpoint.demands_authentication or endpoint.tls is not None:
            channel.authentication_deadline_ms = now_ms + options.authentication_timeout_ms
            surplus = self._unauthenticated.add(endpoint.listener, channel.host, channel, now_ms)
            if surplus is not None:
                limit = f"{options.unauthenticated_connections} connections of {endpoint.listener}"
                self.close_channel(surplus, f"more than {limit} have not authenticated")
                if surplus is channel:
                    return
        if self._drain_until_ms is not None:
            self.close_channel(channel, "the server is stopping", logging.DEBUG)
            return
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._watch(channel)
        except OSError as error:
            # The peer disconnected before the channel was registered.
            self.close_channel(channel, error_reason(error), logging.INFO)
            return
        self._timers.set(channel, min(now_ms + options.idle_ms, channel.authentication_deadline_ms))

    def _handle_event(self, channel: Channel) -> None:
        step = self._steps.get(channel.state)
        if step is not None:
            self._run_step(channel, step)

    def _run_step(self, channel: Channel, step: Callable[[Channel], None]) -> None:
        """Run ``step``; an error closes only this connection."""
        try:
            try:
                step(channel)
            except BlockingIOError:
                channel.await_transport()
            if channel.events != channel.interest:
                self._watch(channel)
        except OSError as error:
            self.close_channel(channel, error_reason(error), logging.INFO)
        except (RemoteWireError, StorageError) as error:
            limited = not isinstance(error, StorageError)  # that is a fault of this machine
            self.close_channel(channel, error_reason(error), limited=limited)
        except Exception:
            logger.exception("unexpected error while serving connection %s", channel.name)
            self.close_channel(channel, "unexpected error in the broker", limited=False)

    def _note_sent_ahead(self, channel: Channel) -> None:
        error = channel.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            self.close_channel(channel, os.strerror(error), logging.INFO)
        else:
            channel.mute()

    def _shake_hands(self, channel: Channel) -> None:
        try:
            continue_handshake(channel, self._encrypted)
        except NothingSent as error:
            self.close_channel(channel, error_reason(error), logging.DEBUG)
            return
        except HandshakeFailed as error:
            channel.close_reason = str(error)
            self._linger(channel)  # the peer gets the alert
            return
        channel.become(READING)
        channel.last_active_ms = self._clock.monotonic_ms()
        if not channel.endpoint.demands_authentication:
            self.lift_limits(channel)
        if channel.is_readable:
            self._ready[channel] = None

    def _receive(self, channel: Channel) -> None:
        if channel.tls is not None and channel.tls.gives_way:
            channel.tls.gives_way = False
            self._giving_way.add(channel)
        elif self._may_read(channel):
            self._read(channel)
        else:
            self._hold(channel)

    def _may_read(self, channel: Channel) -> bool:
        """Return whether the limiter has room for a request and, once its size is known, for its bytes."""
        # A partly received request does not wait for others, which may wait for its bytes.
        if not channel.reserved and not self._limiter.has_room(self._on_room):
            return False
        size = channel.reader.frame_bytes or 0
        if size > FREE_BYTES and channel.reader.received_bytes >= channel.reserved:
            allowed = self._limiter.reserve(channel, size, self._on_room)
            if not allowed:
                return False
            channel.reserved = allowed
            # A channel that holds bytes is checked sooner.
            self._timers.set(channel, self._clock.monotonic_ms() + self._options.stall_ms)
        return True

    def _hold(self, channel: Channel) -> None:
        channel.become(HELD)
        self._held.append(channel)

    def _read_held(self) -> None:
        """Read held channels in order, while there is room.

        A channel that waits for bytes is skipped: later requests may be small.
        """
        passed_over: list[Channel] = []
        while self._held and self._limiter.has_room(self._on_room):
            channel = self._held.popleft()
            if channel.state is not HELD:
                continue
            if not self._may_read(channel):
                passed_over.append(channel)
                continue
            channel.become(READING)
            channel.last_active_ms = self._clock.monotonic_ms()
            self._run_step(channel, self._read)
        self._held.extendleft(reversed(passed_over))

    def _release(self, channel: Channel, *, keep_bytes: bool = False) -> None:
        """Stop counting this connection; with ``keep_bytes`` still count the request's bytes."""
        counted, holder = channel.counted, channel if channel.reserved and not keep_bytes else None
        if counted or holder is not None:
            channel.counted = False
            if holder is not None:
                channel.reserved, channel.seen_bytes = 0, None
            self._limiter.end(requests=int(counted), holder=holder)

    def _read(self, channel: Channel) -> None:
        reader = channel.reader
        frame = reader.next()
        received = 0
        while frame is None:
            if (reader.frame_bytes or 0) > FREE_BYTES and not self._may_read(channel):
                self._hold(channel)
                return
            if received >= TURN_BYTES:
                if channel.is_readable:
                    self._ready[channel] = None
                return
            with reader.space() as space:
                large = (reader.frame_bytes or 0) > FREE_BYTES
                room = channel.reserved - reader.received_bytes if large else 0  # 0: all of the space
                count = channel.sock.recv_into(space, min(room, len(space)))
            if count == 0:
                if reader.inside_frame:
                    self.close_channel(
                        channel, "the peer disconnected in the middle of a request", logging.INFO
                    )
                else:
                    self.close_channel(channel, "the peer disconnected", logging.DEBUG)
                return
            if received == 0:
                channel.last_active_ms = self._clock.monotonic_ms()
            received += count
            frame = reader.filled(count)
        self._dispatch(channel, frame)

    def _dispatch(self, channel: Channel, frame: memoryview) -> None:
        channel.become(IN_SERVICE)
        exchange = channel.exchange = self._new_exchange(self, channel, len(frame))
        if channel.reserved:
            self._limiter.complete(channel)
        try:
            self._handler.on_request(exchange, frame)
        except RemoteWireError as error:
            self.close_channel(channel, error_reason(error))
        except Exception:
            logger.exception("unexpected error in a request of %s", channel.name)
            self.close_channel(channel, "unexpected error in its request", limited=False)
        # Most requests are answered by now and never counted. All responses pass this thread.
        if channel.state is IN_SERVICE:
            if not exchange.in_pool:
                exchange.local_complete()
            if not exchange.parked:
                channel.counted = True
                self._limiter.begin()

    def _write(self, channel: Channel) -> None:
        outgoing = channel.outgoing
        if outgoing is None:
            return
        taken = outgoing.write(channel.sock)
        if taken:
            channel.last_active_ms = self._clock.monotonic_ms()
        if channel.large_response is not None:
            channel.large_response.sent(taken)
        if outgoing.waits_for is not None:
            channel.become(AWAITING_PART)
            outgoing.waits_for.prepare(lambda: self._post(lambda: self._write_more(channel, outgoing)))
            return
        if not outgoing.done:
            options, is_large = self._options, channel.large_response is not None
            timeout_ms = options.stall_ms if is_large else options.write_timeout_ms
            self._timers.set(channel, self._clock.monotonic_ms() + timeout_ms)
            channel.await_transport()
            return
        outgoing.close()
        channel.outgoing = None
        if self._observer is not None and channel.answered is not None:
            observe(self._observer, channel.answered)
        if channel.large_response is not None:
            channel.large_response.end()
            channel.large_response = None
        if self._drain_until_ms is not None or channel.close_reason:
            self._linger(channel)
        elif channel.throttle_ms:
            channel.become(THROTTLED)
            channel.resume_ms = self._clock.monotonic_ms() + channel.throttle_ms
            self._timers.set(channel, channel.resume_ms)
        else:
            self._resume(channel)

    def _send_last(self, channel: Channel) -> None:
        """Send the last response, or close the connection if there is none."""
        outgoing, channel.outgoing = channel.outgoing, None
        if outgoing is None or outgoing.done:
            self.close_channel(channel, channel.close_reason)
        else:
            self.begin_response(channel, outgoing, 0)

    def _write_more(self, channel: Channel, outgoing: NetworkSend) -> None:
        """Continue to write after the next lazy part is ready."""
        if channel.state is AWAITING_PART and channel.outgoing is outgoing:
            channel.become(SENDING)
            # The peer could not read anything meanwhile.
            channel.last_active_ms = self._clock.monotonic_ms()
            self._run_step(channel, self._write)

    def _resume(self, channel: Channel) -> None:
        """Read the next request."""
        channel.become(READING)
        if channel.is_readable:
            self._ready[channel] = None

    def _discard(self, channel: Channel) -> None:
        if not channel.discard(64 * 1024):
            self.close_channel(channel, "the server is stopping", logging.DEBUG)

    def _begin_drain(self, deadline_ms: int) -> None:
        self._drain_until_ms = deadline_ms
        for channel in list(self._channels):
            if channel.state in BETWEEN_REQUESTS:
                self._run_step(channel, self._linger)
            elif channel.state is HANDSHAKE:
                self.close_channel(channel, "the server is stopping", logging.DEBUG)

    def _linger(self, channel: Channel) -> None:
        """Shut down our side only.

        Closing the socket while a request is unread would reset the connection and lose the last response.
        """
        channel.become(LINGERING)
        self._release(channel)
        channel.last_active_ms = self._clock.monotonic_ms()
        self._timers.set(channel, channel.last_active_ms + self._options.linger_ms)
        channel.sock.shutdown(socket.SHUT_WR)

    def _watch(self, channel: Channel) -> None:
        """Have the selector report what the connection's state asks for."""
        events = channel.interest
        if not events:
            if channel.events:
                self._selector.unregister(channel.sock)
        elif channel.events:
            self._selector.modify(channel.sock, events, channel)
        else:
            self._selector.register(channel.sock, events, channel)
        channel.events = events

    def _handle_timeouts(self) -> None:
        """Close channels that stall, idle or linger too long, and resume those whose pause is over."""
        now_ms = self._clock.monotonic_ms()
        for channel in self._timers.due(now_ms):
            limit_ms, reason, level = idle_limit(channel.state, self._options)
            quiet_ms = now_ms - channel.last_active_ms
            if reason and quiet_ms >= limit_ms:
                self.close_channel(channel, reason.format(quiet_ms), level)
                continue
            if now_ms >= channel.authentication_deadline_ms and channel.state in AWAITS_CLIENT:
                timeout_ms = self._options.authentication_timeout_ms
                self.close_channel(channel, f"its client did not authenticate within {timeout_ms} ms")
                continue
            stalled = channel.stalled(memory_is_scarce=self._limiter.is_scarce)
            if stalled:
                self.close_channel(
                    channel, f"{stalled} in {self._options.stall_ms} ms, while others need the memory"
                )
                continue
            check_ms = (channel.last_active_ms if reason else now_ms) + limit_ms
            check_ms = min(check_ms, max(channel.authentication_deadline_ms, now_ms + STALL_MS))
            if channel.state in (THROTTLED, DELAYED) and channel.resume_ms > now_ms:
                check_ms = min(check_ms, channel.resume_ms)
            elif channel.state is THROTTLED:
                self._run_step(channel, self._resume)
            elif channel.state is DELAYED:
                self._run_step(channel, self._send_last)
            if channel.reserved or channel.large_response is not None:
                check_ms = min(check_ms, now_ms + self._options.stall_ms)
            self._timers.set(channel, check_ms)

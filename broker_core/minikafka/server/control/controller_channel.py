"""The controller's requests to other brokers: in order, one at a time, each until its response.

A request that cannot be delivered, or that the broker's ACLs deny, is retried for as long as the broker is
registered, since later requests depend on it. The queue is dropped when the registration ends: a broker that
returns gets its whole state again. (``ControllerChannelManager`` of 0.10.1.)
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from minikafka.base.clock import NEVER_MS, Clock
from minikafka.base.endpoints import LiveBroker, addresses_on
from minikafka.base.errors import ErrorCode
from minikafka.base.ids import BrokerAddress
from minikafka.net.interfaces import Connector
from minikafka.server.inter_broker_connection import InterBrokerConnection, Peer, first_due_ms, step_all
from minikafka.wire.api import Api

_log = logging.getLogger(__name__)

RETRY_MS = 300
"""The pause before a retry, as in 0.10.1."""
DENIED_RETRY_MS = 1_000
"""The pause before a retry after the broker's ACLs denied the request."""


@dataclass(frozen=True, slots=True, eq=False)
class QueuedRequest:
    """One request, and the callback for its response."""

    api: Api[Any, Any]
    version: int
    request: Any
    answered: Callable[[Any], None]


@dataclass(frozen=True, slots=True, eq=False)
class _Barrier:
    """A position in the queue, and the callback for when all requests before it are acknowledged."""

    reached: Callable[[], None]


class ControllerChannel(InterBrokerConnection):
    """The queue of requests to one broker, and the connection that sends them."""

    def __init__(
        self, own_id: int, address: BrokerAddress, connector: Connector, clock: Clock, timeout_ms: int
    ) -> None:
        super().__init__(Peer(address, connector, f"broker-{own_id}-controller"), clock, timeout_ms)
        self._messages: deque[QueuedRequest | _Barrier] = deque()
        self._refused = False

    def send(self, message: QueuedRequest) -> None:
        """Append a request to the queue. Any thread may call this."""
        self._messages.append(message)
        self.wake()

    def mark(self, reached: Callable[[], None]) -> None:
        """Call ``reached`` when all requests so far are acknowledged; perhaps more than once.

        It is also called when they never will be, or when the broker's ACLs deny them: no request waits for
        an operator to change ACLs.
        """
        self._messages.append(_Barrier(reached))
        self.wake()

    def ask(self) -> bool:
        if not self._messages:
            return False
        message = self._messages[0]
        if isinstance(message, _Barrier):
            self._messages.popleft()
            message.reached()
        else:
            self.peer.send(message.api, message.version, message.request)
        return True

    def next_ms(self) -> int:
        return 0 if self._messages else NEVER_MS

    def take(self, response: Any) -> None:
        if response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            self._again()
            return
        self._refused = False
        message = self._messages.popleft()
        assert isinstance(message, QueuedRequest), "a barrier is not sent"
        message.answered(response)

    def _again(self) -> None:
        self._not_before_ms = self.clock.monotonic_ms() + DENIED_RETRY_MS
        self._reach_all()
        if not self._refused:
            self._refused = True
            _log.warning(
                "%s denies requests of its controller, retrying: make this broker a super user there, or "
                "allow it ClusterAction",
                self.peer.address,
            )

    def stop(self) -> None:
        super().stop()
        self._reach_all()

    def _reach_all(self) -> None:
        for message in list(self._messages):
            if isinstance(message, _Barrier):
                message.reached()

    def failed(self, reason: str) -> int:
        return RETRY_MS


class ControllerChannelManager:
    """A channel to each other live broker while this broker is the controller.

    For the worker of the controller's events. ``spawn`` runs a channel on a thread; with None the caller (a
    simulation) calls ``step``.
    """

    def __init__(
        self,
        own_id: int,
        listener: str,
        connector: Connector,
        clock: Clock,
        timeout_ms: int,
        spawn: Callable[[InterBrokerConnection, str], None] | None,
    ) -> None:
        """``listener``: the inter-broker listener of this broker."""
        self._own_id = own_id
        self._listener = listener
        self._timeout_ms = timeout_ms
        self._connector = connector
        self._clock = clock
        self._spawn = spawn
        self._channels: dict[int, tuple[BrokerAddress, int, ControllerChannel]] = {}
        self._unreachable: frozenset[LiveBroker] = frozenset()

    def keep(self, brokers: Mapping[int, LiveBroker], sessions: Mapping[int, int]) -> None:
        """Open and close channels so that exactly these brokers, in these sessions, have one.

        A broker without the inter-broker listener has none: requests to it are dropped.
        """
        addresses = addresses_on(self._listener, brokers)
        for broker_id, (address, session, channel) in list(self._channels.items()):
            if addresses.get(broker_id) != address or sessions.get(broker_id, 0) != session:
                channel.stop()
                del self._channels[broker_id]
        self._report_unreachable(broker for key, broker in brokers.items() if key not in addresses)
        for broker_id, address in addresses.items():
            if broker_id != self._own_id and broker_id not in self._channels:
                channel = ControllerChannel(
                    self._own_id, address, self._connector, self._clock, self._timeout_ms
                )
                self._channels[broker_id] = address, sessions.get(broker_id, 0), channel
                if self._spawn is not None:
                    self._spawn(channel, f"controller-to-{broker_id}")

    def _report_unreachable(self, brokers: Iterable[LiveBroker]) -> None:
        before, self._unreachable = self._unreachable, frozenset(brokers)
        for broker in sorted(self._unreachable - before, key=lambda broker: broker.broker_id):
            _log.error(
                "%s has no listener %s: this controller cannot reach it; give all brokers that listener, or "
                "set inter.broker.listener.name to one that all have",
                broker,
                self._listener,
            )

    def send(self, broker_id: int, message: QueuedRequest) -> None:
        """Queue a request for a broker; it is dropped when the broker has no channel."""
        known = self._channels.get(broker_id)
        if known is not None:
            known[2].send(message)

    def mark(self, reached: Callable[[int], None]) -> set[int]:
        """Call ``reached`` with a broker's id once its requests so far are acknowledged, or denied.

        Return the ids of the brokers to wait for. See ``ControllerChannel.mark``.
        """
        for broker_id, (_, _, channel) in self._channels.items():
            channel.mark(partial(reached, broker_id))
        return set(self._channels)

    def step(self) -> bool:
        """Run one step of each channel. Return whether any had work."""
        return step_all(channel for _, _, channel in list(self._channels.values()))

    def due_ms(self) -> int:
        """Return the time (monotonic) before which ``step`` has no work if nothing is delivered."""
        return first_due_ms(channel for _, _, channel in self._channels.values())

    def close(self) -> None:
        """Close all channels."""
        self.keep({}, {})

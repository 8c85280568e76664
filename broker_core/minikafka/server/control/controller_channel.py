"""The controller's messages to the other brokers: in order, one at a time, each until it is answered.

A message that cannot be delivered, or that the other's access rules forbid, is tried again for as long as its
broker is registered, as everything that follows rests on it; with the broker's registration the whole queue
goes, for one that comes back is told everything anew. (``ControllerChannelManager`` of 0.10.1.)
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from minikafka.base.clock import Clock
from minikafka.base.errors import ErrorCode
from minikafka.base.ids import BrokerAddress
from minikafka.net.interfaces import Connector
from minikafka.server.inter_broker_connection import InterBrokerConnection, Peer
from minikafka.wire.api import Api

_log = logging.getLogger(__name__)

RETRY_MS = 300
"""Between two tries, as 0.10.1's."""
DENIED_RETRY_MS = 1_000
"""The same where the other broker's access rules forbid it, until somebody changes them."""


@dataclass(frozen=True, slots=True, eq=False)
class QueuedRequest:
    """One request, and what is to be done with its answer."""

    api: Api[Any, Any]
    version: int
    request: Any
    answered: Callable[[Any], None]


@dataclass(frozen=True, slots=True, eq=False)
class _Barrier:
    """A place among the messages, and who wants to know that all before it were answered."""

    reached: Callable[[], None]


class ControllerChannel(InterBrokerConnection):
    """What the controller has to say to one broker."""

    def __init__(
        self, own_id: int, address: BrokerAddress, connector: Connector, clock: Clock, timeout_ms: int
    ) -> None:
        super().__init__(Peer(address, connector, f"broker-{own_id}-controller"), clock, timeout_ms)
        self._messages: deque[QueuedRequest | _Barrier] = deque()
        self._refused = False

    def send(self, message: QueuedRequest) -> None:
        """Deliver ``message`` behind all that came before. Any thread may call this."""
        self._messages.append(message)
        self.wake()

    def mark(self, reached: Callable[[], None]) -> None:
        """Have ``reached`` called, once or more often, when all that was sent so far is answered, never will
        be, or is forbidden by the other's access rules: until somebody changes those, nobody is to wait.
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

    def take(self, response: Any) -> None:
        if response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            self._again()
            return
        self._refused = False
        message = self._messages.popleft()
        assert isinstance(message, QueuedRequest), "a mark is not sent"
        message.answered(response)

    def _again(self) -> None:
        self._not_before_ms = self.clock.monotonic_ms() + DENIED_RETRY_MS
        self._reach_all()
        if not self._refused:
            self._refused = True
            _log.warning(
                "%s has access rules that do not permit its controller anything, it is tried again: this "
                "broker must be a super user there, or be allowed ClusterAction",
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
    """A channel to each live broker but this one, as long as this one is the controller.

    For the control path's worker; ``step`` is the simulation's. ``spawn`` lets a channel run on a thread;
    None where somebody else steps it.
    """

    def __init__(
        self,
        own_id: int,
        connector: Connector,
        clock: Clock,
        timeout_ms: int,
        spawn: Callable[[InterBrokerConnection, str], None] | None,
    ) -> None:
        self._own_id = own_id
        self._timeout_ms = timeout_ms
        self._connector = connector
        self._clock = clock
        self._spawn = spawn
        self._channels: dict[int, tuple[BrokerAddress, int, ControllerChannel]] = {}

    def keep(self, brokers: Mapping[int, BrokerAddress], sessions: Mapping[int, int]) -> None:
        """Have channels to these brokers, registered in these sessions, and to no others."""
        for broker_id, (address, session, channel) in list(self._channels.items()):
            if brokers.get(broker_id) != address or sessions.get(broker_id, 0) != session:
                channel.stop()
                del self._channels[broker_id]
        for broker_id, address in brokers.items():
            if broker_id != self._own_id and broker_id not in self._channels:
                channel = ControllerChannel(
                    self._own_id, address, self._connector, self._clock, self._timeout_ms
                )
                self._channels[broker_id] = address, sessions.get(broker_id, 0), channel
                if self._spawn is not None:
                    self._spawn(channel, f"controller-to-{broker_id}")

    def send(self, broker_id: int, message: QueuedRequest) -> None:
        """Deliver to a broker; one that has gone is not told."""
        known = self._channels.get(broker_id)
        if known is not None:
            known[2].send(message)

    def mark(self, reached: Callable[[int], None]) -> set[int]:
        """Have ``reached`` called with the id of each of these brokers, once or more often, when it has
        answered all that it was sent so far, or is not to be waited for (``ControllerChannel.mark``).
        """
        for broker_id, (_, _, channel) in self._channels.items():
            channel.mark(partial(reached, broker_id))
        return set(self._channels)

    def step(self) -> bool:
        """One step of each; whether any had something to do."""
        return any(tuple(channel.step() for _, _, channel in list(self._channels.values())))

    def close(self) -> None:
        """Say nothing any more."""
        self.keep({}, {})

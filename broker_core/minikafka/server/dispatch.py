"""From a frame to the handler of its API: what the network calls for each request."""

from __future__ import annotations

from minikafka.net.server import Exchange
from minikafka.server.broker import Broker
from minikafka.server.classic import ClassicProtocol
from minikafka.server.context import decode_request
from minikafka.server.control import ControlPath
from minikafka.server.coordinator import Coordinator
from minikafka.server.handlers import WORK, handlers
from minikafka.server.listeners import Protocol
from minikafka.server.replicas import Replicas
from minikafka.server.throttle import metered
from minikafka.wire.table import NEWEST_IN_0_10_1


class Dispatcher:
    """The broker as a ``net`` request handler. Runs on the processor threads."""

    def __init__(
        self, broker: Broker, coordinator: Coordinator, replicas: Replicas, control: ControlPath
    ) -> None:
        self._broker = broker
        self._handlers = handlers(broker, coordinator, replicas, control)
        self._newest = NEWEST_IN_0_10_1 if broker.config.beside_0_10 else None
        self._classic = ClassicProtocol(broker)
        self._classic_listeners = {
            listener.name for listener in broker.config.listeners if listener.protocol is Protocol.CLASSIC
        }

    def on_request(self, exchange: Exchange, frame: memoryview) -> None:
        """Answer one request, now or later. RemoteWireError, for what is no request, ends the connection."""
        if exchange.listener in self._classic_listeners:
            self._classic.on_request(exchange, frame)
            exchange.park()
            return
        context, request = decode_request(exchange, frame, self._handlers, self._newest)
        if request is not None:  # else answered already: a version of ApiVersions that is not spoken here
            context = metered(self._broker, context, request, len(frame))
            if self._broker.permissions.enforced:
                context, request = self._broker.permissions.checked(context, request)
            if request is not None:  # else answered already: nothing of it is permitted
                self._handlers[context.api.key](context, request)
            if context.api.key not in WORK:
                exchange.park()

"""From a frame to the handler of its API: what the network calls for each request."""

from __future__ import annotations

import struct

from minikafka.base.errors import RemoteWireError
from minikafka.net.server import Exchange
from minikafka.server.classic_protocol import ClassicProtocol
from minikafka.server.config.listeners import Protocol
from minikafka.server.context import decode_request
from minikafka.server.control.controller_event_manager import ControllerEventManager
from minikafka.server.core.broker import Broker
from minikafka.server.core.throttle import metered
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.server.handlers import WORK, handlers
from minikafka.server.replication.replica_manager import ReplicaManager
from minikafka.server.workers.work_pool import Steps, begin
from minikafka.wire.api import ApiKey
from minikafka.wire.api_table import NEWEST_IN_0_10_1
from minikafka.wire.apis.produce import has_many_partitions
from minikafka.wire.classic import RequestId

_KEY_AND_VERSION = struct.Struct(">hh")
LARGE_BYTES = 16 << 10
"""Requests of less are decoded and served where they were received. To name a partition takes 8 bytes or
more, and to look it up and answer it up to 30 µs."""
MANY_PARTS = 500
MOST_BYTES = 16 << 20
"""What a request may have that brings no records and is not the controller's. One that names as many
partitions as ``wire.schema`` allows, with common names, has less; a group and the settings of a topic have at
most what a message and a znode take."""
DECODED_FACTOR = 12
"""How many times its bytes a request takes until it is answered, about."""
_CONTROLLERS = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA}
_UNBOUNDED = {ApiKey.PRODUCE, *_CONTROLLERS}
_CLIENT_ID_LENGTH = struct.Struct(">8xh")
_REPLICA_ID = struct.Struct(">i")


def _has_many_parts(frame: memoryview) -> bool:
    """Whether serving a large request may take longer than to hand it to another thread. What it is about
    stands in it, but for a produce request, which is large for its records.
    """
    api_key, version = _KEY_AND_VERSION.unpack_from(frame)
    return api_key != ApiKey.PRODUCE or has_many_partitions(frame, version, MANY_PARTS)


def _need_bytes(frame: memoryview) -> int:
    """What it takes to serve a large request in the pool. Requests of brokers, without which the cluster
    stands still, wait for no memory that clients' large requests have: of them no more run than there are
    threads.
    """
    api_key = _KEY_AND_VERSION.unpack_from(frame)[0]
    of_broker = api_key in _CONTROLLERS or (api_key == ApiKey.FETCH and _is_of_replica(frame))
    return 0 if of_broker or api_key == ApiKey.PRODUCE else DECODED_FACTOR * len(frame)


def _is_of_replica(frame: memoryview) -> bool:
    """Whether a large Fetch request is a follower's: its replica id stands behind the header."""
    length: int = _CLIENT_ID_LENGTH.unpack_from(frame)[0]
    position = _CLIENT_ID_LENGTH.size + max(0, length)
    if len(frame) < position + _REPLICA_ID.size:
        return False
    replica_id: int = _REPLICA_ID.unpack_from(frame, position)[0]
    return replica_id >= 0


def _check_size(frame: memoryview) -> None:
    """Raise RemoteWireError for a request that is larger than it can have a reason to be."""
    api_key, version = _KEY_AND_VERSION.unpack_from(frame)
    if len(frame) > MOST_BYTES and api_key not in _UNBOUNDED:
        raise RemoteWireError(
            f"a request of API {api_key} (version {version}) has {len(frame)} bytes: "
            f"but for records, at most {MOST_BYTES} are taken"
        )


class Dispatcher:
    """The broker as a ``net`` request handler. Runs on the processor threads."""

    def __init__(
        self,
        broker: Broker,
        coordinator: GroupCoordinator,
        replicas: ReplicaManager,
        control: ControllerEventManager,
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
            if len(frame) > LARGE_BYTES and frame[1] == RequestId.MULTI_FETCH:
                begin(self._broker.pool, exchange, self._classic_in_pool(exchange, frame))
            else:
                self._classic.on_request(exchange, frame)
            exchange.park()
            return
        if len(frame) > LARGE_BYTES and _has_many_parts(frame):
            _check_size(frame)
            begin(self._broker.pool, exchange, self._serve_in_pool(exchange, frame))
            if _KEY_AND_VERSION.unpack_from(frame)[0] not in WORK:
                exchange.park()
        else:
            self._serve(exchange, frame)

    def _classic_in_pool(self, exchange: Exchange, frame: memoryview) -> Steps:
        yield 0
        self._classic.on_request(exchange, frame)

    def _serve_in_pool(self, exchange: Exchange, frame: memoryview) -> Steps:
        yield _need_bytes(frame)
        # What waits afterwards has let the request's memory go.
        exchange.keep_counted(kept=False)
        self._serve(exchange, frame)

    def _serve(self, exchange: Exchange, frame: memoryview) -> None:
        context, request = decode_request(exchange, frame, self._handlers, self._newest)
        if request is not None:  # else answered already: a version of ApiVersions that is not spoken here
            context = metered(self._broker, context, request, len(frame))
            if self._broker.access_control.enforced:
                context, request = self._broker.access_control.authorize(context, request)
            if request is not None:  # else answered already: nothing of it is permitted
                self._handlers[context.api.key](context, request)
            if context.api.key not in WORK:
                exchange.park()

"""The dispatcher: it decodes, meters and authorizes each request, and calls the handler of its API."""

from __future__ import annotations

import struct
from typing import Any

from minikafka.base.errors import RemoteWireError
from minikafka.net.server import Exchange
from minikafka.server.classic_protocol import ClassicProtocol
from minikafka.server.config.listeners import Protocol
from minikafka.server.context import RequestContext, decode_request
from minikafka.server.core.throttle import RequestMeter, metered
from minikafka.server.handlers import WORK, Services, handlers
from minikafka.server.served_versions import newest_versions
from minikafka.server.workers.request_admission import RequestAdmission
from minikafka.server.workers.work_pool import Steps, begin
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.fetch import REPLICA_ID_UNTIL
from minikafka.wire.apis.produce import count_partitions, has_many_partitions
from minikafka.wire.classic import RequestId
from minikafka.wire.framing import RequestHeader
from minikafka.wire.schema import MAX_ELEMENTS

_KEY_AND_VERSION = struct.Struct(">hh")
LARGE_BYTES = 16 << 10
"""Smaller requests are decoded and served on the thread that received them. A partition takes at least 8
bytes in a request, and up to 30 µs to look up and answer."""
MANY_PARTS = 500
MOST_BYTES = 16 << 20
"""The limit for requests without records, except the controller's. A request with as many partitions as
``wire.schema`` allows, with common names, is smaller; the data of a group and the configs of a topic are
limited by the size of a message and of a znode."""
DECODED_FACTOR = 12
"""The memory of a request until it is answered, as a multiple of its bytes (estimate)."""
NAMED_FACTOR = 64
"""The same for a request that consists of short names: each becomes an object, an error and a row."""
NAMED_TOGETHER_BYTES = 96 << 20
"""The memory of large administrative requests together (``RequestAdmission``)."""
_NAMING = {*WORK, ApiKey.DESCRIBE_CONFIGS, ApiKey.DESCRIBE_ACLS}
_IN_ZOOKEEPER = {ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH}
"""As ``_NAMING`` in version 0."""
IN_STEPS_BYTES = 256 << 10
"""Other requests above this size are admitted too if they keep results until the response and do not wait for
as long as their client says. A consumer of 15,000 partitions sends less."""
IN_STEPS_FACTOR = 24
IN_STEPS_TOGETHER_BYTES = 96 << 20
_IN_STEPS = {
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.DELETE_RECORDS,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.DELETE_GROUPS,
    ApiKey.OFFSET_DELETE,
    ApiKey.FIND_COORDINATOR,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.DESCRIBE_TRANSACTIONS,
}
MANY_PRODUCED = 5_000
MOST_PRODUCED = 20_000
"""Partitions of a produce request are counted up to this, which takes a few milliseconds. For one with more,
the maximum is assumed that its bytes and ``wire.schema`` allow."""
PRODUCED_BYTES = 600
"""The memory of a partition of a produce request until the response, without its records."""
_CONTROLLERS = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA}
_UNBOUNDED = {ApiKey.PRODUCE, *_CONTROLLERS}
_REPLICA_ID = struct.Struct(">i")
_PARTITION_BYTES = 8
"""A partition of a produce request without records."""


def _has_many_parts(frame: memoryview) -> bool:
    """Return True if serving a large request may take longer than handing it to another thread.

    A large request names many things, except a produce request, which is large because of its records.
    """
    api_key, version = _KEY_AND_VERSION.unpack_from(frame)
    return api_key != ApiKey.PRODUCE or has_many_partitions(frame, version, MANY_PARTS)


def _count_produced(frame: memoryview, version: int) -> int:
    """Return how many partitions a produce request has, or may have."""
    count = count_partitions(frame, version, MOST_PRODUCED)
    return count if count <= MOST_PRODUCED else min(len(frame) // _PARTITION_BYTES, MAX_ELEMENTS)


def _need_bytes(frame: memoryview) -> int:
    """Return the memory that a large request needs in the pool; 0 for requests of brokers.

    The cluster depends on the requests of brokers, so they do not wait for memory that clients' large
    requests use; at most as many of them run as there are threads.
    """
    api_key = _KEY_AND_VERSION.unpack_from(frame)[0]
    of_broker = api_key in _CONTROLLERS or (api_key == ApiKey.FETCH and _is_of_replica(frame))
    return 0 if of_broker or api_key == ApiKey.PRODUCE else DECODED_FACTOR * len(frame)


def _is_of_replica(frame: memoryview) -> bool:
    """Return True if a large Fetch or ListOffsets request is a follower's, by the replica id, with which the
    body begins. A newer Fetch has it at the end, where it is not looked for.
    """
    try:
        header, body = RequestHeader.decode(frame)
    except RemoteWireError:
        return False
    is_elsewhere = header.api_key == ApiKey.FETCH and header.api_version > REPLICA_ID_UNTIL
    if is_elsewhere or len(body) < _REPLICA_ID.size:
        return False
    replica_id: int = _REPLICA_ID.unpack_from(body)[0]
    return replica_id >= 0


def _check_size(frame: memoryview) -> None:
    """Raise RemoteWireError for a request that is larger than any valid one."""
    api_key, version = _KEY_AND_VERSION.unpack_from(frame)
    if len(frame) > MOST_BYTES and api_key not in _UNBOUNDED:
        raise RemoteWireError(
            f"request of API {api_key} (version {version}) is too large: {len(frame)} bytes, expected at "
            f"most {MOST_BYTES} without records"
        )


class Dispatcher:
    """The request handler of the broker for ``net``. Runs on the processor threads."""

    def __init__(self, services: Services) -> None:
        self._broker = broker = services.broker
        self._handlers = handlers(services)
        self._naming = RequestAdmission(NAMED_TOGETHER_BYTES)
        self._in_steps = RequestAdmission(IN_STEPS_TOGETHER_BYTES)
        self._newest = newest_versions(broker.config.beside_0_10)
        self._classic = ClassicProtocol(broker)
        self._classic_listeners = {
            listener.name for listener in broker.config.listeners if listener.protocol is Protocol.CLASSIC
        }

    def on_request(self, exchange: Exchange, frame: memoryview) -> None:
        """Serve one request, now or later. If it is invalid, RemoteWireError closes the connection."""
        if exchange.listener in self._classic_listeners:
            if len(frame) > LARGE_BYTES and frame[1] == RequestId.MULTI_FETCH:
                begin(self._broker.pool, exchange, self._classic_in_pool(exchange, frame))
            else:
                self._classic.on_request(exchange, frame)
            exchange.park()
            return
        if len(frame) > LARGE_BYTES and _has_many_parts(frame):
            _check_size(frame)
            exchange.keep_counted()
            self._admit(exchange, frame)
            if _KEY_AND_VERSION.unpack_from(frame)[0] not in WORK:
                exchange.park()
        else:
            self._serve(exchange, frame)

    def _admit(self, exchange: Exchange, frame: memoryview) -> None:
        """Serve a large request in the pool, once there is memory for all that it keeps until its response.

        Others pass it meanwhile, so that nobody waits for what takes long, ZooKeeper above all, but requests
        of the same kind.
        """
        pool = self._broker.pool

        def serve(exchange: Exchange) -> None:
            begin(pool, exchange, self._serve_in_pool(exchange, frame))

        api_key, version = _KEY_AND_VERSION.unpack_from(frame)
        produced = _count_produced(frame, version) if api_key == ApiKey.PRODUCE else 0
        if api_key in _NAMING or (api_key in _IN_ZOOKEEPER and version == 0):
            self._naming.admit(exchange, NAMED_FACTOR * len(frame), serve)
        elif produced > MANY_PRODUCED:
            self._in_steps.admit(exchange, PRODUCED_BYTES * produced, serve)
        elif (
            api_key in _IN_STEPS
            and len(frame) > IN_STEPS_BYTES
            and not (api_key == ApiKey.LIST_OFFSETS and _is_of_replica(frame))
        ):
            self._in_steps.admit(exchange, IN_STEPS_FACTOR * len(frame), serve)
        else:
            serve(exchange)

    def _classic_in_pool(self, exchange: Exchange, frame: memoryview) -> Steps:
        yield 0
        self._classic.on_request(exchange, frame)

    def _serve_in_pool(self, exchange: Exchange, frame: memoryview) -> Steps:
        yield _need_bytes(frame)
        # A request that is delayed afterwards does not keep its frame.
        exchange.keep_counted(kept=False)
        exchange.times.dequeued()
        self._serve(exchange, frame)

    def _serve(self, exchange: Exchange, frame: memoryview) -> None:
        broker = self._broker
        if broker.quotas.limited:
            with RequestMeter(broker, exchange.principal.name, len(frame)) as meter:
                context, request = decode_request(exchange, frame, self._handlers, self._newest)
                if request is not None:
                    self._handle(metered(broker, context, request, meter), request)
            return
        context, request = decode_request(exchange, frame, self._handlers, self._newest)
        if request is not None:  # otherwise answered already: an unsupported version of ApiVersions
            self._handle(context, request)

    def _handle(self, context: RequestContext, request: Any) -> None:
        exchange = context.exchange
        if context.api.key is ApiKey.FETCH and request.follower_id >= 0:
            exchange.times.from_follower = True
        if self._broker.access_control.enforced:
            context, request = self._broker.access_control.authorize(context, request)
        if request is not None:  # otherwise answered already: all of it is denied
            self._handlers[context.api.key](context, request)
        if context.api.key not in WORK:
            exchange.park()

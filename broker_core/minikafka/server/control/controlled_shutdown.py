"""Leaving the cluster: before a broker stops, others are to lead what it leads (controlled shutdown).

The controller is asked over the network, also where it is this broker, and again up to
``controlled.shutdown.max.retries`` times; a broker that nobody answers stops all the same, and its partitions
fail over as if it had died. So it does at once when nobody can come to lead anything: when it has become the
last one, when no other replica of what it leads lives, and without ZooKeeper.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from minikafka.base.errors import ErrorCode, NetworkError, RemoteWireError
from minikafka.base.ids import TopicPartition
from minikafka.base.text import counted
from minikafka.net.interfaces import Connector, PendingResponse
from minikafka.server.core.broker import Broker
from minikafka.server.inter_broker_connection import Peer
from minikafka.wire.apis.controlled_shutdown import (
    CONTROLLED_SHUTDOWN,
    ControlledShutdownRequest,
    RemainingPartition,
)

_log = logging.getLogger(__name__)

_VERSION = 1
_FORBIDDEN = ErrorCode.CLUSTER_AUTHORIZATION_FAILED.name
"""By the controller's access rules, which will not be others in a moment."""
_LOOK_MS = 50
"""How often a look is taken whether there is still somebody to wait for."""


def request_controlled_shutdown(broker: Broker, connector: Connector) -> None:
    """Have others lead; return when they do, or nothing more can be done. Alone there is nothing to do."""
    config, problem = broker.config, ""
    for attempt in range(config.control.shutdown_retries + 1):
        if len(broker.image.brokers) < 2:
            return
        problem, left = _ask(broker, connector)
        if not problem:
            _log.info("others lead what this broker led")
            return
        if problem == _FORBIDDEN or not _may_elect_others(broker, left):
            break
        if attempt < config.control.shutdown_retries:
            _log.warning("not all partitions are led by others, it is tried again: %s", problem)
            _wait(broker, connector, (), config.control.shutdown_backoff_ms)
    _log.warning("this broker stops while it still leads: %s", problem)


def _ask(broker: Broker, connector: Connector) -> tuple[str, Sequence[RemainingPartition]]:
    """Ask the controller once; what is wrong, "" for nothing, and which partitions it says are left."""
    config, image = broker.config, broker.image
    controller = image.brokers.get(image.controller_id)
    if not broker.registrar.connected:
        return "there is no connection to ZooKeeper", ()
    if controller is None:
        return "there is no controller", ()
    peer = Peer(controller, connector, f"broker-{broker.broker_id}-shutdown")
    try:
        peer.send(CONTROLLED_SHUTDOWN, _VERSION, ControlledShutdownRequest(broker.broker_id))
        assert peer.pending is not None
        if not _wait(broker, connector, (peer.pending,), config.replication.controller_timeout_ms):
            return f"{controller} does not answer", ()
        response = peer.answer()
    except (NetworkError, RemoteWireError) as error:
        return str(error), ()
    finally:
        peer.close()
    if response.error_code != ErrorCode.NONE:
        return ErrorCode.of(response.error_code).name, ()
    left = response.remaining_partitions
    have = "has" if len(left) == 1 else "have"
    return f"{counted(len(left), 'partition')} {have} no other replica in sync" if left else "", left


def _may_elect_others(broker: Broker, left: Sequence[RemainingPartition]) -> bool:
    """Whether somebody may come to lead what is left: a live replica may come into sync."""
    if not broker.registrar.connected:
        return False
    known = [broker.image.leadership(TopicPartition(one.topic, one.index)) for one in left]
    others = broker.image.brokers.keys() - {broker.broker_id}
    return not left or any(one is None or not others.isdisjoint(one.replicas) for one in known)


def _wait(broker: Broker, connector: Connector, pending: Sequence[PendingResponse], timeout_ms: int) -> bool:
    """Wait for an answer, or the time alone, for as long as there are others; whether it is there."""
    for left_ms in range(timeout_ms, 0, -_LOOK_MS):
        if connector.wait_any(pending, min(left_ms, _LOOK_MS)):
            return True
        if len(broker.image.brokers) < 2 or not broker.registrar.connected:
            return False
    return False

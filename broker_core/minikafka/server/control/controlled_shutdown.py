"""Controlled shutdown: move leadership to other brokers before this broker stops.

The request goes to the controller over the network, also when that is this broker, and is retried up to
``controlled.shutdown.max.retries`` times. A broker without a response stops anyway, and its partitions fail
over as if it had died. It stops at once when no other broker can become leader: when it is the last live
broker, when no other replica of its partitions is alive, and without ZooKeeper.
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
"""Denied by the controller's ACLs, which rarely change within a retry."""
_LOOK_MS = 50
"""The interval at which the wait checks that there is still a broker to wait for."""


def request_controlled_shutdown(broker: Broker, connector: Connector) -> None:
    """Ask the controller to move leadership; return when it is moved, or cannot be."""
    config, problem = broker.config, ""
    for attempt in range(config.control.shutdown_retries + 1):
        if len(broker.metadata_cache.brokers) < 2:
            return
        problem, left = _ask(broker, connector)
        if not problem:
            _log.info("controlled shutdown succeeded: other brokers lead all partitions")
            return
        if problem == _FORBIDDEN or not _may_elect_others(broker, left):
            break
        if attempt < config.control.shutdown_retries:
            _log.warning("controlled shutdown failed, retrying: %s", problem)
            _wait(broker, connector, (), config.control.shutdown_backoff_ms)
    _log.warning("stopping without a controlled shutdown, partitions will fail over: %s", problem)


def _ask(broker: Broker, connector: Connector) -> tuple[str, Sequence[RemainingPartition]]:
    """Send one request. Return the problem, "" for none, and the partitions still led by this broker."""
    config, metadata_cache = broker.config, broker.metadata_cache
    controller = metadata_cache.brokers.get(metadata_cache.controller_id)
    if not broker.zk_client.connected:
        return "not connected to ZooKeeper", ()
    if controller is None:
        return "there is no controller", ()
    address = controller.address(config.inter_broker.listener)
    if address is None:
        return f"controller {controller} has no listener {config.inter_broker.listener}", ()
    peer = Peer(address, connector, f"broker-{broker.broker_id}-shutdown")
    try:
        peer.send(CONTROLLED_SHUTDOWN, _VERSION, ControlledShutdownRequest(broker.broker_id))
        assert peer.pending is not None
        if not _wait(broker, connector, (peer.pending,), config.replication.controller_timeout_ms):
            return f"no response from controller {address}", ()
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
    """Return True if another live replica of the remaining partitions could join the ISR and lead."""
    if not broker.zk_client.connected:
        return False
    known = [
        broker.metadata_cache.leadership(TopicPartition(partition.topic, partition.index))
        for partition in left
    ]
    others = broker.metadata_cache.brokers.keys() - {broker.broker_id}
    return not left or any(
        leadership is None or not others.isdisjoint(leadership.replicas) for leadership in known
    )


def _wait(broker: Broker, connector: Connector, pending: Sequence[PendingResponse], timeout_ms: int) -> bool:
    """Wait for a response or the time-out while other brokers live. Return whether a response came."""
    for left_ms in range(timeout_ms, 0, -_LOOK_MS):
        if connector.wait_any(pending, min(left_ms, _LOOK_MS)):
            return True
        if len(broker.metadata_cache.brokers) < 2 or not broker.zk_client.connected:
            return False
    return False

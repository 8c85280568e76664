"""Leaving the cluster: before a broker stops, others are to lead what it leads (controlled shutdown).

The controller is asked over the network, also where it is this broker, and again up to
``controlled.shutdown.max.retries`` times; a broker that nobody answers stops all the same, and its partitions
fail over as if it had died.
"""

from __future__ import annotations

import logging

from minikafka.base.errors import ErrorCode, NetworkError, RemoteWireError
from minikafka.net.port import Connector
from minikafka.server.broker import Broker
from minikafka.server.peer import Peer
from minikafka.wire.apis.controlled_shutdown import CONTROLLED_SHUTDOWN, ControlledShutdownRequest

_log = logging.getLogger(__name__)

_VERSION = 1


def withdraw(broker: Broker, connector: Connector) -> None:
    """Have others lead; return when they do, or nothing more can be done. Alone there is nothing to do."""
    config, problem = broker.config, ""
    for attempt in range(config.control.shutdown_retries + 1):
        image = broker.image
        controller = image.brokers.get(image.controller_id)
        if len(image.brokers) < 2:
            return
        problem = "there is no controller"
        if controller is not None:
            peer = Peer(controller, connector, f"broker-{broker.broker_id}-shutdown")
            try:
                peer.send(CONTROLLED_SHUTDOWN, _VERSION, ControlledShutdownRequest(broker.broker_id))
                response = peer.answer(config.replication.controller_timeout_ms)
            except (NetworkError, RemoteWireError) as error:
                problem = str(error)
            else:
                left = response.remaining_partitions
                if response.error_code == ErrorCode.NONE and not left:
                    _log.info("others lead what this broker led")
                    return
                problem = f"{len(left)} partitions have no other replica in sync"
                if response.error_code != ErrorCode.NONE:
                    problem = ErrorCode.of(response.error_code).name
            finally:
                peer.close()
        if attempt < config.control.shutdown_retries:
            _log.warning("not all partitions are led by others, it is tried again: %s", problem)
            connector.wait_any((), config.control.shutdown_backoff_ms)
    _log.warning("this broker stops while it still leads: %s", problem)

"""Whether this broker fits the brokers that are in its cluster already.

One of 0.10.1 knows neither batches of magic 2 nor newer versions of the APIs: it could not copy what this
broker stores, and clients that asked both would be confused. So beside one ``inter.broker.protocol.version``
must say so, before anything is written that it cannot read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from minikafka.base.errors import ConfigError, NetworkError, RemoteWireError
from minikafka.base.ids import BrokerAddress
from minikafka.net.interfaces import Connector
from minikafka.server.inter_broker_connection import Peer
from minikafka.wire.api import ApiKey

_log = logging.getLogger(__name__)

_ANSWER_MS = 3_000


def check_protocol_compatibility(brokers: Iterable[BrokerAddress], connector: Connector) -> None:
    """Raise ConfigError when one of ``brokers`` is of a release without leader epochs. Those that do not
    answer are passed over: they may be dead.
    """
    for address in brokers:
        peer = Peer(address, connector, "minikafka-version-check")
        try:
            peer.negotiate()
            spoken = peer.answer(_ANSWER_MS)
        except (NetworkError, RemoteWireError) as error:
            _log.info("what %s speaks is not known: %s", address, error)
            continue
        finally:
            peer.close()
        if all(one.api_key != ApiKey.OFFSET_FOR_LEADER_EPOCH for one in spoken.api_keys):
            raise ConfigError(
                "inter.broker.protocol.version",
                None,
                f"{address} is of an older release: give this broker inter.broker.protocol.version=0.10.1, "
                "so that it stores and says nothing that the other one does not know",
            )

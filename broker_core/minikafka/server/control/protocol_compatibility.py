"""The check that this broker is compatible with the other brokers of its cluster.

A 0.10.1 broker knows neither batches of magic 2 nor newer API versions: it could not replicate what this
broker stores, and clients of both would see different versions. So beside such a broker
``inter.broker.protocol.version`` must be 0.10.1 before anything is written that it cannot read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from minikafka.base.errors import ConfigError, NetworkError, RemoteWireError
from minikafka.base.ids import BrokerAddress
from minikafka.net.interfaces import Connector
from minikafka.server.inter_broker_connection import LoginRefused, Peer, report_refused_login
from minikafka.wire.api import ApiKey

_log = logging.getLogger(__name__)

_ANSWER_MS = 3_000


def check_protocol_compatibility(brokers: Iterable[BrokerAddress], connector: Connector) -> None:
    """Raise ConfigError when one of ``brokers`` is of a release without leader epochs.

    Brokers that do not respond are skipped: they may be dead. A login that one of them refuses is reported.
    """
    for address in brokers:
        peer = Peer(address, connector, "minikafka-version-check")
        try:
            peer.negotiate()
            spoken = peer.answer(_ANSWER_MS)
        except LoginRefused as error:
            report_refused_login(str(address), error.detail)
            continue
        except (NetworkError, RemoteWireError) as error:
            _log.info("could not read the API versions of %s: %s", address, error)
            continue
        finally:
            peer.close()
        if all(api.api_key != ApiKey.OFFSET_FOR_LEADER_EPOCH for api in spoken.api_keys):
            raise ConfigError(
                "inter.broker.protocol.version",
                None,
                f"{address} runs an older release: set inter.broker.protocol.version=0.10.1 on this broker, "
                "so that it writes only formats that the older one can read",
            )

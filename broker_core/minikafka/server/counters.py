"""Numbers that ZooKeeper counts for all brokers, and the cluster's id. Each function can be run twice."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

from minikafka.base.errors import BadVersion, CoordinationError, NodeExists, NoNode
from minikafka.base.ids import cluster_id_of
from minikafka.registry import paths
from minikafka.registry.paths import ClusterId, ControllerEpoch, ProducerIdBlock
from minikafka.registry.store import Store

PRODUCER_IDS_AT_ONCE = 1000
"""As Kafka's brokers do."""
_UNSEEN_EPOCHS = 1000

_log = logging.getLogger(__name__)


def next_controller_epoch(store: Store, highest_seen: Callable[[], int] = lambda: 0) -> int:
    """A controller epoch that nobody had. Where the znode holds nonsense it is far above ``highest_seen()``:
    controllers that wrote nothing may have told brokers of higher ones.
    """
    while True:
        try:
            data, stat = store.read(paths.CONTROLLER_EPOCH)
        except NoNode:
            with contextlib.suppress(NodeExists):
                store.create(paths.CONTROLLER_EPOCH, ControllerEpoch(1).to_json(), make_parents=True)
                return 1
            continue
        try:
            epoch = ControllerEpoch.from_json(data).epoch + 1
        except CoordinationError as error:
            epoch = highest_seen() + _UNSEEN_EPOCHS
            _log.error("the controller's epoch is %d from now on: %s", epoch, error)
        with contextlib.suppress(BadVersion):
            store.write(paths.CONTROLLER_EPOCH, ControllerEpoch(epoch).to_json(), stat.version)
            return epoch


def next_producer_ids(store: Store, broker_id: int) -> range:
    """A block of producer ids for this broker alone. CoordinationError when there are none left, or the znode
    holds nonsense.
    """
    while True:
        with contextlib.suppress(NodeExists):
            store.create(paths.PRODUCER_IDS, b"", make_parents=True)
        data, stat = store.read(paths.PRODUCER_IDS)
        # A 0.11 broker makes it without data at its start.
        first = ProducerIdBlock.from_json(data).last + 1 if data else 0
        last = first + PRODUCER_IDS_AT_ONCE - 1
        if last >= 1 << 63:
            raise CoordinationError(f"{paths.PRODUCER_IDS} has no ids left: {data!r}")
        block = ProducerIdBlock(broker_id, first, last)
        with contextlib.suppress(BadVersion):
            store.write(paths.PRODUCER_IDS, block.to_json(), stat.version)
            return range(first, last + 1)


def agree_on_cluster_id(store: Store, random_bytes: Callable[[int], bytes]) -> tuple[str, int]:
    """The cluster's id, made where there is none, and the change of ZooKeeper that made its znode."""
    with contextlib.suppress(NodeExists):
        data = ClusterId(cluster_id_of(random_bytes(16))).to_json()
        store.create(paths.CLUSTER_ID, data, make_parents=True)
    data, stat = store.read(paths.CLUSTER_ID)
    return ClusterId.from_json(data).id, stat.created_at

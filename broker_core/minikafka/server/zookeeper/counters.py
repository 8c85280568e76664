"""The counters that ZooKeeper keeps for all brokers, and the cluster id. Each function can be run twice."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable

from minikafka.base.errors import BadVersion, CoordinationError, InconsistentClusterId, NoNode
from minikafka.base.ids import uuid_text
from minikafka.log.checkpoints.topic_incarnations import Children, TopicIncarnations
from minikafka.registry import paths
from minikafka.registry.cluster import CLUSTER, PRODUCER_ID_BLOCK, ClusterId, ProducerIdBlock
from minikafka.registry.controller import EPOCH, ControllerEpoch
from minikafka.registry.node import id_in
from minikafka.registry.store import Store
from minikafka.registry.topics import read_assignments
from minikafka.registry.znodes import make, read_or_raise

PRODUCER_IDS_AT_ONCE = 1000
"""The size of a block of producer ids, as in Kafka."""
PRODUCER_IDS_BELIEVED = 1 << 62
"""Ids from here on were chosen by a client: brokers never allocate them."""
UNSEEN_PRODUCER_IDS = 1_000_000
"""The number of ids that stopped brokers may have allocated beyond those that this broker knows."""
_UNSEEN_EPOCHS = 1000
_GENERATED_BROKER_IDS = 10_000
"""Ids further above the reserved ones are assumed not to be generated: each generated id costs a write."""

_log = logging.getLogger(__name__)


def next_controller_epoch(store: Store, highest_seen: Callable[[], int], above: int) -> int:
    """Allocate the next controller epoch.

    If the znode is invalid the epoch is far above ``highest_seen()``, since controllers that wrote no state
    may have sent higher epochs to brokers. The same holds if the znode is not above ``above``, an epoch that
    brokers know: then ZooKeeper was restored from an older copy.
    """
    while True:
        try:
            data, stat = store.read(paths.CONTROLLER_EPOCH)
        except NoNode:
            first = 1 if above <= 0 else above + _UNSEEN_EPOCHS
            if make(store, paths.CONTROLLER_EPOCH, ControllerEpoch(first).to_json()):
                return first
            continue
        try:
            epoch = EPOCH.decode(data, paths.CONTROLLER_EPOCH).epoch + 1
        except CoordinationError as error:
            epoch = highest_seen() + _UNSEEN_EPOCHS
            _log.error("using controller epoch %d, since the stored epoch is invalid: %s", epoch, error)
        if epoch <= above:
            counted, epoch = epoch, above + _UNSEEN_EPOCHS
            _log.warning(
                "%s would allocate controller epoch %d, but brokers know epoch %d: ZooKeeper was restored "
                "from an older copy; using epoch %d, no action is needed",
                paths.CONTROLLER_EPOCH,
                counted,
                above,
                epoch,
            )
        with contextlib.suppress(BadVersion):
            store.write(paths.CONTROLLER_EPOCH, ControllerEpoch(epoch).to_json(), stat.version)
            return epoch


def next_producer_ids(store: Store, broker_id: int, above: int, *, doubtful: bool) -> range:
    """Allocate a block of producer ids for this broker, all larger than ``above``.

    ``above`` is the largest id that the broker knows to be in use; ZooKeeper's counter may be lower if it was
    restored from an older copy. With ``doubtful`` that may have happened unnoticed: then a broker that knows
    no id skips as many as others may have allocated since the copy. Raises CoordinationError if no ids are
    left, or if the znode is invalid.
    """
    taken = _take_producer_ids(store, broker_id, above, always=True, doubtful=doubtful)[1]
    assert taken is not None
    return taken


def raise_producer_ids(store: Store, broker_id: int, above: int) -> int | None:
    """Raise ZooKeeper's counter above ``above`` if it would allocate some of those ids again.

    Return the id that the counter would have allocated next; None if no id is in use.
    """
    return None if above < 0 else _take_producer_ids(store, broker_id, above, always=False)[0]


def _take_producer_ids(
    store: Store, broker_id: int, above: int, *, always: bool, doubtful: bool = False
) -> tuple[int, range | None]:
    """Take the next block; unless ``always``, only if ZooKeeper's counter is not above ``above``.

    Return the previous counter, and the block if one was taken.
    """
    while True:
        make(store, paths.PRODUCER_IDS)
        data, stat = store.read(paths.PRODUCER_IDS)
        # A 0.11 broker creates it without data at its start.
        first = counted = PRODUCER_ID_BLOCK.decode(data, paths.PRODUCER_IDS).last + 1 if data else 0
        if first > above and not always:
            return counted, None
        if first <= above < PRODUCER_IDS_BELIEVED:
            blocks = -(-(above + 1 + UNSEEN_PRODUCER_IDS) // PRODUCER_IDS_AT_ONCE)
            first = blocks * PRODUCER_IDS_AT_ONCE
        elif above < 0 and doubtful:
            first += UNSEEN_PRODUCER_IDS
        last = first + PRODUCER_IDS_AT_ONCE - 1
        if last >= 1 << 63:
            raise CoordinationError(f"{paths.PRODUCER_IDS} has no ids left: {data!r}")
        block = ProducerIdBlock(broker_id, first, last)
        with contextlib.suppress(BadVersion):
            store.write(paths.PRODUCER_IDS, block.to_json(), stat.version)
            if first != counted and above >= 0:
                _log.warning(
                    "%s would allocate producer ids from %d, but %d is in use: ZooKeeper was restored from "
                    "an older copy, or emptied; allocating from %d, no action is needed",
                    paths.PRODUCER_IDS,
                    counted,
                    above,
                    first,
                )
            return counted, range(first, last + 1)


def observe_topics(store: Store, creations: TopicIncarnations) -> None:
    """Pass the number of topic creations and deletions so far to ``creations``.

    Do nothing if the znode does not exist yet, or was removed by hand.
    """
    store.sync()  # a server that lags would look like one that was restored from an older copy
    stat = store.exists(paths.BROKER_TOPICS)
    if stat is not None:
        creations.update_children(Children(stat.child_changes, stat.child_changed_at, stat.created_at))


def next_broker_id(store: Store, reserved_max: int) -> int:
    """Generate an unused broker id: the next version of ``/brokers/seqid``, above the reserved ids.

    Skips the ids of registered brokers and of brokers with replicas: the counter repeats ids after ZooKeeper
    was restored from an older copy.
    """
    make(store, paths.BROKER_SEQUENCE)
    taken = _broker_ids(store)
    while True:
        broker_id = store.write(paths.BROKER_SEQUENCE, b"").version + reserved_max
        if broker_id not in taken:
            return broker_id
        _log.warning(
            "%s would generate broker id %d, which is in use: ZooKeeper was restored from an older copy; "
            "generating another id, no action is needed",
            paths.BROKER_SEQUENCE,
            broker_id,
        )


def _broker_ids(store: Store) -> set[int]:
    """Return the ids of registered brokers, and of brokers that have replicas."""
    # Also the ids of registrations that are invalid.
    taken = {broker_id for name in store.children(paths.BROKER_IDS) if (broker_id := id_in(name)) is not None}
    for partitions in read_assignments(store, store.children(paths.BROKER_TOPICS)).values():
        taken.update(broker_id for replicas in partitions.values() for broker_id in replicas)
    return taken


def raise_broker_ids(store: Store, known: Iterable[int], reserved_max: int) -> None:
    """Prevent that the ``known`` broker ids are generated again after ZooKeeper was restored."""
    highest = reserved_max + _GENERATED_BROKER_IDS
    above = max((broker_id for broker_id in known if broker_id <= highest), default=-1)
    wanted = above - reserved_max
    stat = store.exists(paths.BROKER_SEQUENCE)
    if wanted <= 0 or (stat is not None and stat.version >= wanted):
        return
    make(store, paths.BROKER_SEQUENCE)
    while store.write(paths.BROKER_SEQUENCE, b"").version < wanted:
        pass
    _log.warning(
        "%s would generate broker id %d, which is in use: ZooKeeper was restored from an older copy, or the "
        "id was configured by hand; generating ids above it, no action is needed",
        paths.BROKER_SEQUENCE,
        above,
    )


def agree_on_cluster_id(
    store: Store, random_bytes: Callable[[int], bytes], own: str | None
) -> tuple[str, int]:
    """Return the cluster id, which is created if there is none, and the zxid that created its znode.

    ``own`` is the cluster that the data directories belong to. Raises InconsistentClusterId, and changes
    nothing, if ZooKeeper holds another cluster, or none.
    """
    if own is not None:
        return own, _own_tree(store, own)
    make(store, paths.CLUSTER_ID, ClusterId(uuid_text(random_bytes(16))).to_json())
    found, stat = read_or_raise(store, paths.CLUSTER_ID, CLUSTER)
    return found.id, stat.created_at


def _own_tree(store: Store, own: str) -> int:
    try:
        found, stat = read_or_raise(store, paths.CLUSTER_ID, CLUSTER)
    except NoNode:
        raise InconsistentClusterId(
            f"the data directories belong to cluster {own}, but ZooKeeper has no {paths.CLUSTER_ID}: its "
            "data was removed, or zookeeper.connect names another ZooKeeper. Nothing was changed. Restore "
            "ZooKeeper's data from a copy, or correct zookeeper.connect. To create a new cluster with these "
            "records, remove the line cluster.id from meta.properties, the file topic-creations.json, and "
            "each partition's file partition.metadata, in each data directory of all brokers, start them, "
            "and create the topics again (with the same number of partitions, and with --replica-assignment "
            "if there are several brokers, since a partition's records are where its log is), and their "
            "configs, quotas and ACLs"
        ) from None
    if found.id != own:
        raise InconsistentClusterId(
            f"the data directories belong to cluster {own}, but ZooKeeper holds cluster {found.id}. Nothing "
            "was changed. Correct zookeeper.connect or log.dirs. To let this broker join that cluster with "
            "these directories, remove the line cluster.id from their meta.properties: the logs are kept, "
            "and set aside if the cluster has topics of the same names"
        )
    return stat.created_at

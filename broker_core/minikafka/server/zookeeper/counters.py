"""Numbers that ZooKeeper counts for all brokers, and the cluster's id. Each function can be run twice."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable

from minikafka.base.errors import BadVersion, CoordinationError, InconsistentClusterId, NodeExists, NoNode
from minikafka.base.ids import cluster_id_of
from minikafka.log.checkpoints.topic_incarnations import Children, TopicIncarnations
from minikafka.registry import paths
from minikafka.registry.paths import ClusterId, ControllerEpoch, ProducerIdBlock, TopicAssignment
from minikafka.registry.store import Store

PRODUCER_IDS_AT_ONCE = 1000
"""As Kafka's brokers do."""
PRODUCER_IDS_BELIEVED = 1 << 62
"""Ids from here on are of a client's own making: brokers do not reach them."""
UNSEEN_PRODUCER_IDS = 1_000_000
"""Brokers that do not run may know of so many more ids than this one."""
_UNSEEN_EPOCHS = 1000
_GENERATED_BROKER_IDS = 10_000
"""Ids that are further above the reserved ones were not generated: each costs a write."""

_log = logging.getLogger(__name__)


def next_controller_epoch(store: Store, highest_seen: Callable[[], int] = lambda: 0, above: int = 0) -> int:
    """A controller epoch that nobody had. Where the znode holds nonsense it is far above ``highest_seen()``:
    controllers that wrote nothing may have told brokers of higher ones. So it is where the znode is not above
    ``above``, which brokers have heard of: ZooKeeper was restored from an older copy then.
    """
    while True:
        try:
            data, stat = store.read(paths.CONTROLLER_EPOCH)
        except NoNode:
            first = 1 if above <= 0 else above + _UNSEEN_EPOCHS
            with contextlib.suppress(NodeExists):
                store.create(paths.CONTROLLER_EPOCH, ControllerEpoch(first).to_json(), make_parents=True)
                return first
            continue
        try:
            epoch = ControllerEpoch.from_json(data).epoch + 1
        except CoordinationError as error:
            epoch = highest_seen() + _UNSEEN_EPOCHS
            _log.error("the controller's epoch is %d from now on: %s", epoch, error)
        if epoch <= above:
            counted, epoch = epoch, above + _UNSEEN_EPOCHS
            _log.warning(
                "%s counts %d, and brokers have heard of controller epoch %d: ZooKeeper was restored from an "
                "older copy; the epoch is %d from now on, and nothing is to be done",
                paths.CONTROLLER_EPOCH,
                counted,
                above,
                epoch,
            )
        with contextlib.suppress(BadVersion):
            store.write(paths.CONTROLLER_EPOCH, ControllerEpoch(epoch).to_json(), stat.version)
            return epoch


def next_producer_ids(store: Store, broker_id: int, above: int = -1, *, doubtful: bool = False) -> range:
    """A block of producer ids for this broker alone, all of them larger than ``above``, which is the largest
    one that the broker knows to be in use. CoordinationError when there are none left, or the znode holds
    nonsense.

    ZooKeeper may count lower than ``above``, once it was restored from an older copy. ``doubtful``: that may
    have happened unseen. Then a broker that knows of no id leaves out as many as others may have had since
    the copy.
    """
    taken = _take_producer_ids(store, broker_id, above, always=True, doubtful=doubtful)[1]
    assert taken is not None
    return taken


def raise_producer_ids(store: Store, broker_id: int, above: int) -> int | None:
    """Have ZooKeeper count on from above ``above``, where it would give some of those ids out again; the id
    from which it would have, None where nothing is in use.
    """
    return None if above < 0 else _take_producer_ids(store, broker_id, above, always=False)[0]


def _take_producer_ids(
    store: Store, broker_id: int, above: int, *, always: bool, doubtful: bool = False
) -> tuple[int, range | None]:
    """Take the next block; unless ``always``, only where ZooKeeper counts lower than ``above``. From where it
    counted, and the block.
    """
    while True:
        with contextlib.suppress(NodeExists):
            store.create(paths.PRODUCER_IDS, b"", make_parents=True)
        data, stat = store.read(paths.PRODUCER_IDS)
        # A 0.11 broker makes it without data at its start.
        first = counted = ProducerIdBlock.from_json(data).last + 1 if data else 0
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
                    "%s would give out producer ids from %d on, and %d is in use already: ZooKeeper was "
                    "restored from an older copy, or emptied; the next ids are from %d on, and nothing is to "
                    "be done",
                    paths.PRODUCER_IDS,
                    counted,
                    above,
                    first,
                )
            return counted, range(first, last + 1)


def look_at_topics(store: Store, creations: TopicIncarnations) -> None:
    """Have ``creations`` see how often topics were made or removed. Where nobody has made the znode yet, or
    it was removed by hand, there is nothing to see.
    """
    store.sync()  # a server that is behind would look like one that went back
    stat = store.exists(paths.BROKER_TOPICS)
    if stat is not None:
        creations.look(Children(stat.child_changes, stat.child_changed_at, stat.created_at))


def next_broker_id(store: Store, reserved_max: int) -> int:
    """A broker id that nobody has: the next version of ``/brokers/seqid``, above the reserved ids. After
    ZooKeeper was restored from an older copy that may be one that a broker or a replica has.
    """
    with contextlib.suppress(NodeExists):
        store.create(paths.BROKER_SEQUENCE, b"", make_parents=True)
    taken = _broker_ids(store)
    while True:
        broker_id = store.write(paths.BROKER_SEQUENCE, b"").version + reserved_max
        if broker_id not in taken:
            return broker_id
        _log.warning(
            "%s would give out broker id %d, which is in use already: ZooKeeper was restored from an older "
            "copy; another one is taken, and nothing is to be done",
            paths.BROKER_SEQUENCE,
            broker_id,
        )


def _broker_ids(store: Store) -> set[int]:
    """The ids of brokers that are registered, and of those that have replicas."""
    registered = store.children(paths.BROKER_IDS)
    taken = {int(name) for name in registered if name.isdecimal()}
    topics = [paths.topic_path(topic) for topic in store.children(paths.BROKER_TOPICS)]
    for path, (data, _) in store.read_all(topics).items():
        with contextlib.suppress(CoordinationError):  # whoever serves it says what is wrong
            for replicas in TopicAssignment.from_json(data, path).partitions.values():
                taken.update(replicas)
    return taken


def raise_broker_ids(store: Store, known: Iterable[int], reserved_max: int) -> None:
    """Have the broker ids that are ``known`` not be generated again: ZooKeeper may have gone back."""
    above = max((one for one in known if one <= reserved_max + _GENERATED_BROKER_IDS), default=-1)
    wanted = above - reserved_max
    stat = store.exists(paths.BROKER_SEQUENCE)
    if wanted <= 0 or (stat is not None and stat.version >= wanted):
        return
    with contextlib.suppress(NodeExists):
        store.create(paths.BROKER_SEQUENCE, b"", make_parents=True)
    while store.write(paths.BROKER_SEQUENCE, b"").version < wanted:
        pass
    _log.warning(
        "%s would give out broker id %d, which is in use: ZooKeeper was restored from an older copy, or the "
        "id was given by hand; ids are generated from above it, and nothing is to be done",
        paths.BROKER_SEQUENCE,
        above,
    )


def agree_on_cluster_id(
    store: Store, random_bytes: Callable[[int], bytes], own: str | None = None
) -> tuple[str, int]:
    """The cluster's id, made where there is none, and the change of ZooKeeper that made its znode.

    ``own`` is the cluster that the data directories belong to: OtherCluster where ZooKeeper has another one,
    or none. Nothing is changed there then.
    """
    if own is not None:
        return own, _own_tree(store, own)
    with contextlib.suppress(NodeExists):
        data = ClusterId(cluster_id_of(random_bytes(16))).to_json()
        store.create(paths.CLUSTER_ID, data, make_parents=True)
    data, stat = store.read(paths.CLUSTER_ID)
    return ClusterId.from_json(data).id, stat.created_at


def _own_tree(store: Store, own: str) -> int:
    try:
        data, stat = store.read(paths.CLUSTER_ID)
    except NoNode:
        raise InconsistentClusterId(
            f"the data directories belong to cluster {own}, and ZooKeeper has no {paths.CLUSTER_ID}: its "
            "data was removed, or zookeeper.connect names another one. Nothing is changed, there and here. "
            "Restore ZooKeeper's data from a copy, or correct zookeeper.connect. To begin a new cluster with "
            "these records, remove the line cluster.id of meta.properties, and topic-creations.json, in each "
            "data directory of all brokers, start them, and make topics (with as many partitions, by "
            "--replica-assignment where brokers are several: a partition's records are where its log lies), "
            "settings, quotas and access rules again"
        ) from None
    found = ClusterId.from_json(data).id
    if found != own:
        raise InconsistentClusterId(
            f"the data directories belong to cluster {own}, and ZooKeeper holds cluster {found}. Nothing is "
            "changed, there and here. Correct zookeeper.connect or log.dirs. To have this broker join that "
            "cluster with these directories, remove the line cluster.id from their meta.properties: the logs "
            "stay, and are set aside where the cluster has topics of the same names"
        )
    return stat.created_at

"""The brokers that are registered in ZooKeeper, as clients and tools read them.

    /brokers/ids/N               BrokerRegistration, ephemeral: a broker that lives

A znode that cannot be read keeps nobody from finding the other brokers: it is left out, with one warning for
each session until it changes.
"""

from __future__ import annotations

import logging
from weakref import WeakKeyDictionary

from minikafka.base.errors import CoordinationError, NoNode
from minikafka.base.ids import host_port
from minikafka.registry import paths
from minikafka.registry.paths import BrokerRegistration
from minikafka.registry.store import Store

_log = logging.getLogger(__name__)

_warned: WeakKeyDictionary[Store, dict[str, str]] = WeakKeyDictionary()
"""Path -> the warning that was given of it last."""


def live_brokers(store: Store) -> dict[int, BrokerRegistration]:
    """The registrations that can be read, by the brokers' ids, in order."""
    try:
        names = store.children(paths.BROKER_IDS)
    except NoNode:
        names = []
    found, problems = {}, {}
    for path, (data, _) in store.read_all(f"{paths.BROKER_IDS}/{name}" for name in names).items():
        try:
            registration = BrokerRegistration.from_json(data, path)
        except CoordinationError as error:
            problems[path] = str(error)
        else:
            found[registration.broker_id] = registration
    warned = _warned.get(store, {})
    for path, problem in problems.items():
        if warned.get(path) != problem:
            _log.warning("the broker registered at %s is left out: %s", path, problem)
    _warned[store] = problems
    return dict(sorted(found.items()))


def plaintext_addresses(store: Store) -> list[str]:
    """``host:port`` of each live broker that takes connections in plain text."""
    addresses = (one.address for one in live_brokers(store).values())
    return [host_port(address.host, address.port) for address in addresses if address is not None]

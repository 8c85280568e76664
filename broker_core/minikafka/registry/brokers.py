"""The live brokers, read from ZooKeeper by clients and tools.

    /brokers/ids/N               BrokerRegistration, ephemeral: a live broker

A znode that cannot be read does not hide the other brokers: it is ignored, with one warning per session until
it changes.
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
"""Store -> path -> the problem that was logged for it last."""


def live_brokers(store: Store) -> dict[int, BrokerRegistration]:
    """Return the readable registrations by broker id, in ascending order."""
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
            _log.warning("ignoring the broker registration at %s: %s", path, problem)
    _warned[store] = problems
    return dict(sorted(found.items()))


def plaintext_addresses(store: Store) -> list[str]:
    """Return ``host:port`` of each live broker that has a plain-text listener."""
    addresses = (registration.address for registration in live_brokers(store).values())
    return [host_port(address.host, address.port) for address in addresses if address is not None]

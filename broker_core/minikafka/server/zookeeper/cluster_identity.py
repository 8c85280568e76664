"""The check that ZooKeeper still holds the cluster that this broker belongs to: ``/cluster/id``.

A ZooKeeper whose data was removed, or another one at its address, has no topics of this cluster. A broker
that took that for the deletion of all topics would report so to clients, and a broker that registered there
would start another cluster beside its logs. So a broker only logs the problem until the id is restored.
"""

from __future__ import annotations

import logging

from minikafka.base.errors import InconsistentClusterId
from minikafka.registry import paths
from minikafka.registry.cluster import CLUSTER
from minikafka.registry.store import Store
from minikafka.registry.znodes import Znodes

_log = logging.getLogger(__name__)


class ClusterIdentity:
    """The cluster id that this broker read at its start. For the jobs of the worker."""

    def __init__(self, store: Store, cluster_id: str) -> None:
        self._store = store
        self._znodes = Znodes(store)
        self._own = cluster_id
        self._complaint = ""
        self._held_in: int | None = None
        """The session in which the last check found this cluster; None: it found another, or none."""
        self._looked_in: int | None = None

    def check(self) -> None:
        """Raise InconsistentClusterId if the last check did not find this cluster.

        Each session is checked: jobs that waited for it may run before the watch on the id fires.
        """
        session_id = self._store.session_id
        if self._looked_in != session_id:
            self.holds()
        if self._held_in != session_id:
            raise InconsistentClusterId(
                f"ZooKeeper does not hold cluster {self._own} of this broker: not using it until "
                f"{paths.CLUSTER_ID} is restored"
            )

    def holds(self) -> bool:
        """Return True if ZooKeeper holds this cluster; log the reason once if it does not."""
        session_id = self._store.session_id
        held = self._look()
        self._looked_in, self._held_in = session_id, session_id if held else None
        return held

    def _look(self) -> bool:
        found, problems = self._znodes.read_all_with_problems([paths.CLUSTER_ID], CLUSTER)
        if problems:
            return True  # an invalid id does not mean another cluster
        if not found:
            self._complain(
                f"{paths.CLUSTER_ID} does not exist: ZooKeeper's data was removed, or this is another one"
            )
            return False
        held = found[paths.CLUSTER_ID][0].id
        if held != self._own:
            self._complain(f"{paths.CLUSTER_ID} is {held}: this is the ZooKeeper of another cluster")
            return False
        if self._complaint:
            _log.warning("ZooKeeper holds cluster %s again: using it again", self._own)
        self._complaint = ""
        return True

    def _complain(self, what: str) -> None:
        if what != self._complaint:
            _log.error(
                "%s. This broker belongs to cluster %s: it keeps its logs, deletes nothing, and does not use "
                "ZooKeeper until the id is restored. Restore ZooKeeper's data from a copy, or correct "
                "zookeeper.connect (a broker started with this ZooKeeper prints how to create a new cluster "
                "from its logs)",
                what,
                self._own,
            )
        self._complaint = what

"""Whether ZooKeeper still holds the cluster that this broker belongs to: ``/cluster/id``.

A ZooKeeper whose data was removed, or another one at its address, has no topics of this cluster. Whoever took
that for the deletion of all topics would tell clients so; and a broker that registered there would begin
another cluster beside its logs. So a broker does nothing there but say so, until the id is back.
"""

from __future__ import annotations

import logging

from minikafka.base.errors import CoordinationError, InconsistentClusterId, NoNode
from minikafka.registry import paths
from minikafka.registry.paths import ClusterId
from minikafka.registry.store import Store

_log = logging.getLogger(__name__)


class ClusterIdentity:
    """The cluster's id, as this broker found it at its start. For the jobs of the worker."""

    def __init__(self, store: Store, cluster_id: str) -> None:
        self._store = store
        self._own = cluster_id
        self._complaint = ""
        self._held_in: int | None = None
        """The session in which the last look found this cluster; None: it found another, or none."""
        self._looked_in: int | None = None

    def check(self) -> None:
        """Raise OtherCluster where the last look did not find this cluster. Each session is looked at: what
        waited for it may be done before its news are.
        """
        session_id = self._store.session_id
        if self._looked_in != session_id:
            self.holds()
        if self._held_in != session_id:
            raise InconsistentClusterId(
                f"ZooKeeper does not hold cluster {self._own}, to which this broker belongs: nothing is "
                f"written there until {paths.CLUSTER_ID} is back"
            )

    def holds(self) -> bool:
        """Whether ZooKeeper has this cluster; what happened where it has not is logged, once."""
        session_id = self._store.session_id
        held = self._look()
        self._looked_in, self._held_in = session_id, session_id if held else None
        return held

    def _look(self) -> bool:
        try:
            data, _ = self._store.read(paths.CLUSTER_ID)
            found = ClusterId.from_json(data).id
        except NoNode:
            self._complain(
                f"{paths.CLUSTER_ID} is gone: ZooKeeper's data was removed, or this is another one"
            )
            return False
        except CoordinationError as error:
            if type(error) is not CoordinationError:
                raise
            return True  # somebody wrote nonsense there: that is no other cluster
        if found != self._own:
            self._complain(f"{paths.CLUSTER_ID} is {found} now: this is the ZooKeeper of another cluster")
            return False
        if self._complaint:
            _log.warning("ZooKeeper has cluster %s again: this broker goes on with it", self._own)
        self._complaint = ""
        return True

    def _complain(self, what: str) -> None:
        if what != self._complaint:
            _log.error(
                "%s. This broker belongs to cluster %s: it keeps its logs, deletes nothing, and stays away "
                "until the id is back. Restore ZooKeeper's data from a copy, or correct zookeeper.connect "
                "(a broker that is started there says how to begin a new cluster with its logs)",
                what,
                self._own,
            )
        self._complaint = what

"""ACLs in ZooKeeper, loaded into this broker's ``AccessControl`` and kept up to date.

ACLs are read before the broker serves, updated by the notifications in ``/kafka-acl-changes`` and
``/kafka-acl-extended-changes``, and read again after an expired session. Everything except the constructor
and the watch's callback runs as a job of the worker, or before it starts; each job can be repeated. A
resource whose ACLs cannot be read is closed to everybody but super users (0.10.1's broker does not start, or
keeps the ACLs that it knew).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from minikafka.base.acls import Resource
from minikafka.base.clock import Clock
from minikafka.base.errors import (
    BrokerError,
    CoordinationError,
    CoordinationLost,
    ErrorCode,
    InconsistentClusterId,
    SessionExpired,
)
from minikafka.registry.acls import (
    ACL_CHANGE,
    ACL_CHANGE_PREFIX,
    ACL_CHANGES,
    ACLS,
    EXTENDED_ACL_CHANGE,
    EXTENDED_ACL_CHANGES,
    PREFIXED_ACLS,
    AclChange,
    Acls,
    AclsChanged,
    change_resource,
    read_acls,
    read_resource,
)
from minikafka.registry.store import SessionState
from minikafka.registry.znodes import make
from minikafka.security.authorizer import DENY_ALL, Authorizer
from minikafka.server.security.access_control import AccessControl
from minikafka.server.workers.worker import Worker
from minikafka.server.zookeeper.guarded_store import GuardedStore
from minikafka.server.zookeeper.notifications import Notifications

_log = logging.getLogger(__name__)


class AclManager:
    """Keeps an ``AccessControl`` in step with the ACLs in ZooKeeper."""

    def __init__(
        self, store: GuardedStore, clock: Clock, worker: Worker, bare: Authorizer, permissions: AccessControl
    ) -> None:
        """``bare``: the authorizer of the broker's configuration, without ACLs."""
        self._store = store
        self._worker = worker
        self._bare = bare
        self._permissions = permissions
        self._notifications = [
            Notifications(store, clock, directory, ACL_CHANGE_PREFIX, kind, "changed ACLs")
            for directory, kind in ((ACL_CHANGES, ACL_CHANGE), (EXTENDED_ACL_CHANGES, EXTENDED_ACL_CHANGE))
        ]
        self._expired = False

    def start(self) -> None:
        """Read all ACLs and watch for changes from now on. Raises CoordinationError."""
        for path in (ACLS, ACL_CHANGES, PREFIXED_ACLS, EXTENDED_ACL_CHANGES):
            make(self._store, path)
        self.read_all()
        self._store.on_session(self._session_changed)
        for path in (ACL_CHANGES, EXTENDED_ACL_CHANGES):
            self._store.watch_children(path, lambda _: self._worker.submit(self._follow))

    def change(self, resource: Resource, change: Callable[[Acls], Acls]) -> AclsChanged:
        """Change the ACLs of a resource, which are in force on this broker when this returns. A job.

        Raises BrokerError with the reason when the change is not possible.
        """
        try:
            changed = change_resource(self._store, resource, change)
        except (CoordinationLost, SessionExpired):
            raise
        except InconsistentClusterId as error:
            raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, str(error)) from None
        except CoordinationError as error:
            raise BrokerError(ErrorCode.INVALID_REQUEST, str(error)) from None
        self._hold(resource, changed.after)
        return changed

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._expired = True
        elif state is SessionState.CONNECTED and self._expired:
            self._expired = False
            self._worker.submit(self.read_all)

    def read_all(self) -> None:
        """Load all ACLs from ZooKeeper. A job.

        Raises InconsistentClusterId, and keeps the current ACLs, if ZooKeeper holds another cluster.
        """
        self._store.check()  # never load another cluster's ACLs
        stored = read_acls(self._store)
        closed = dict.fromkeys(stored.unreadable, DENY_ALL)
        self._permissions.enforce(self._bare.with_all_acls(stored.acls | closed))

    def _follow(self) -> None:
        self._store.check()
        for notifications in self._notifications:
            notifications.follow(self._reread)

    def _reread(self, change: AclChange) -> None:
        acls = read_resource(self._store, change.resource)
        self._hold(change.resource, DENY_ALL if acls is None else acls)

    def _hold(self, resource: Resource, acls: Acls) -> None:
        authorizer = self._permissions.authorizer or self._bare
        if authorizer.acls.get(resource, frozenset()) != acls:
            _log.info("ACLs of %s: %s", resource, "; ".join(map(str, sorted(acls))) or "none")
            self._permissions.enforce(authorizer.with_acls(resource, acls))

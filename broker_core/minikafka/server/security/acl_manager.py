"""The rules of who may do what, between ZooKeeper and what this broker decides by (``access_control``).

Read before the broker serves, followed by the notifications of ``/kafka-acl-changes``, read anew after an
expired session. All of it but the constructor and the watch's callback are jobs of the worker, or run before
there is one; each can be run twice. A resource whose rules cannot be read is closed to everybody but super
users (0.10.1's broker does not start, or keeps what it knew).
"""

from __future__ import annotations

import contextlib
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
    NodeExists,
    SessionExpired,
)
from minikafka.registry.acl_paths import ACL_CHANGE_PREFIX, ACL_CHANGES, ACLS, AclChange
from minikafka.registry.acl_store import AclsChanged, Rules, change_resource, read_acls, read_resource
from minikafka.registry.store import SessionState
from minikafka.server.security.access_control import AccessControl
from minikafka.server.security.authorizer import DENY_ALL, Authorizer
from minikafka.server.workers.worker import Worker
from minikafka.server.zookeeper.guarded_store import GuardedStore
from minikafka.server.zookeeper.notifications import Notifications

_log = logging.getLogger(__name__)

_ADVICE = "; until it is mended or removed (and that is told in %s) only super users may use it"


class AclManager:
    """Keeps ``access_control`` at what ZooKeeper says."""

    def __init__(
        self, store: GuardedStore, clock: Clock, worker: Worker, bare: Authorizer, permissions: AccessControl
    ) -> None:
        """``bare``: what the broker's configuration says, without rules."""
        self._store = store
        self._worker = worker
        self._bare = bare
        self._permissions = permissions
        self._notifications = Notifications(
            store, clock, ACL_CHANGES, ACL_CHANGE_PREFIX, "changed access rules"
        )
        self._expired = False

    def start(self) -> None:
        """Read all rules, and follow them from now on. Raises CoordinationError."""
        for path in (ACLS, ACL_CHANGES):
            with contextlib.suppress(NodeExists):
                self._store.create(path, make_parents=True)
        self.read_all()
        self._store.on_session(self._session_changed)
        self._store.watch_children(ACL_CHANGES, lambda _: self._worker.submit(self._follow))

    def change(self, resource: Resource, change: Callable[[Rules], Rules]) -> AclsChanged:
        """A job: write other rules about a resource; they hold here when this returns.

        Raises BrokerError with the reason why that cannot be.
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
        """A job: hold what ZooKeeper has now. Raises OtherCluster, and keeps the rules that there are."""
        self._store.check()  # another cluster's rules are not this one's
        stored = read_acls(self._store)
        for complaint in stored.unknown:
            _log.error("access rules are left out: %s", complaint)
        for complaint in stored.unreadable.values():
            _log.error(f"access rules cannot be read: %s{_ADVICE}", complaint, ACL_CHANGES)
        closed = dict.fromkeys(stored.unreadable, DENY_ALL)
        self._permissions.enforce(self._bare.with_all_acls(stored.acls | closed))

    def _follow(self) -> None:
        self._store.check()
        self._notifications.follow(self._reread)

    def _reread(self, data: bytes, path: str) -> None:
        resource = AclChange.from_json(data, path).resource
        try:
            acls = read_resource(self._store, resource)
        except (CoordinationLost, SessionExpired, InconsistentClusterId):
            raise
        except CoordinationError as error:
            _log.error(f"access rules cannot be read: %s{_ADVICE}", error, ACL_CHANGES)
            acls = DENY_ALL
        except BrokerError as error:  # a name that no znode can have
            raise CoordinationError(f"{path}: {error.detail}") from None
        self._hold(resource, acls)

    def _hold(self, resource: Resource, acls: Rules) -> None:
        authorizer = self._permissions.authorizer or self._bare
        if authorizer.acls.get(resource, frozenset()) != acls:
            _log.info("access rules of %s: %s", resource, "; ".join(map(str, sorted(acls))) or "none")
            self._permissions.enforce(authorizer.with_acls(resource, acls))

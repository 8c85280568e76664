"""What a consumer does when its session with ZooKeeper has gone (texts: ``ZKSessionExpireListener``)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from minikafka.clients.consumer.lease import Lease
from minikafka.clients.consumer.runtime import Steps
from minikafka.registry.store import SessionState

logger = logging.getLogger("minikafka.clients.consumer")


class Rebalancer(Protocol):
    """What it asks of the rebalance."""

    def reset_state(self) -> None:
        """Forget all that was owned."""

    def rebalance_event_triggered(self) -> None:
        """Have a rebalance made."""


class ZkSessionExpireListener:
    """Of one consumer. ``register`` registers it, in the present session."""

    def __init__(
        self,
        consumer_id: str,
        lease: Lease,
        register: Callable[[], Steps[None]],
        load_balancer_listener: Rebalancer,
    ) -> None:
        self.consumer_id = consumer_id
        self.load_balancer_listener = load_balancer_listener
        self._lease = lease
        self._register = register

    def handle_state_changed(self, state: SessionState) -> None:
        """News of the session, on the store's own thread.

        A connection that comes back with the same session changes nothing. After expiry nothing is handed out
        from this moment on, and a rebalance is made, which begins with ``handle_new_session``.
        """
        if state is SessionState.EXPIRED:
            logger.warning("%s: the session with ZooKeeper has expired", self.consumer_id)
            self._lease.revoke()
        if state is not SessionState.SUSPENDED:
            self.load_balancer_listener.rebalance_event_triggered()

    def handle_new_session(self) -> Steps[None]:
        """Forget what the old session owned, and register anew; the rebalance goes on behind it."""
        self._lease.revoke()
        self.load_balancer_listener.reset_state()
        yield None
        yield from self._register()

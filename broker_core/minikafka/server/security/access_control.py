"""Authorization of requests: every request passes here before its handler.

Without ``authorizer.class.name`` a request costs one look at ``AccessControl.enforced``. With it, the denied
parts of a request are removed before the handler sees it, and their errors are added to the handler's
response (``request_authorizers`` has the rule of each API). So handlers know nothing of permissions, except
Metadata, which asks ``RequestContext.may_create`` before it creates a topic.

Decisions are cached until the rules change: an authorizer is an immutable value, and its cached decisions are
dropped with it. A client is its principal and its address (``net.interfaces.Exchange``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from minikafka.base.acls import Operation, Resource, ResourceType
from minikafka.base.reports import report
from minikafka.base.values import fast_value
from minikafka.net.interfaces import Exchange
from minikafka.security.authorizer import Authorizer, normalize_host
from minikafka.server.context import RequestContext
from minikafka.server.security.authorization import AuthorizationResult, Requester
from minikafka.server.security.request_authorizers import REQUEST_AUTHORIZERS

_log = logging.getLogger(__name__)

_CACHED_DECISIONS_MAX = 10_000
_Key = tuple[str, str, Operation, ResourceType, str | None]
_ANY = None
"""In place of a resource's name: any."""


class DecisionCache:
    """An authorizer and its cached decisions. Thread-safe: at worst a decision is made twice."""

    def __init__(
        self, authorizer: Authorizer, topic_name: Callable[[bytes], str | None] = lambda topic_id: None
    ) -> None:
        """``topic_name``: see ``Requester``."""
        self.authorizer = authorizer
        self._topic_name = topic_name
        self._known: dict[_Key, bool] = {}

    def requester(self, exchange: Exchange) -> Requester:
        """Return the client of ``exchange`` as a requester."""
        principal, address = str(exchange.principal), exchange.client_host
        return Requester(
            partial(self.allows, principal, address),
            partial(self.allows_on_any, principal, address),
            self._topic_name,
        )

    def allows(
        self, principal: str, address: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        """Return True if ``principal`` at ``address`` may do the operation. Each denial is logged once."""
        key = (principal, address, operation, kind, name)
        allowed = self._known.get(key)
        if allowed is None:
            host, resource = normalize_host(address), Resource(kind, name)
            allowed = self.authorizer.allows(principal, host, operation, resource)
            if not allowed:
                if operation is Operation.CLUSTER_ACTION:
                    report("refused", principal=principal, host=host)
                _log.info(
                    "denied: principal=%s host=%s operation=%s resource=%s",
                    principal,
                    host,
                    operation.label,
                    resource,
                )
            self._remember(key, allowed)
        return allowed

    def allows_on_any(self, principal: str, address: str, operation: Operation, kind: ResourceType) -> bool:
        """Return True if ``principal`` at ``address`` may do the operation on any resource of ``kind``.

        A denial is not logged: another permission is enough where this is asked.
        """
        key = (principal, address, operation, kind, _ANY)
        allowed = self._known.get(key)
        if allowed is None:
            host = normalize_host(address)
            allowed = self.authorizer.allows_on_any(principal, host, operation, kind)
            self._remember(key, allowed)
        return allowed

    def _remember(self, key: _Key, allowed: bool) -> None:
        if len(self._known) >= _CACHED_DECISIONS_MAX:
            self._known = {}
        self._known[key] = allowed


class AccessControl:
    """The authorizer in force. Any thread may ask; only ``AclManager`` calls ``enforce``."""

    def __init__(self, topic_name: Callable[[bytes], str | None]) -> None:
        """``topic_name``: see ``Requester``."""
        self._topic_name = topic_name
        self._decisions: DecisionCache | None = None

    @property
    def enforced(self) -> bool:
        """True when an authorizer is in force."""
        return self._decisions is not None

    @property
    def authorizer(self) -> Authorizer | None:
        """The authorizer with all ACLs; None when every request is allowed."""
        return None if self._decisions is None else self._decisions.authorizer

    def enforce(self, authorizer: Authorizer) -> None:
        """Put ``authorizer`` in force."""
        self._decisions = DecisionCache(authorizer, self._topic_name)

    def may_auto_create(self, exchange: Exchange, topic: str) -> bool:
        """Return True if the client of ``exchange`` may auto-create ``topic`` and then write to it."""
        if self._decisions is None:
            return True
        requester = self._decisions.requester(exchange)
        return requester.may_on_topic(Operation.WRITE, topic) and requester.may_create(topic)

    def may_act_as_broker(self, exchange: Exchange) -> bool:
        """Return True if the client of ``exchange`` may send requests of brokers."""
        if self._decisions is None:
            return True
        return self._decisions.requester(exchange).may_on_cluster(Operation.CLUSTER_ACTION)

    def authorize(self, context: RequestContext, request: Any) -> tuple[RequestContext, Any]:
        """Return the context to reply through and the allowed part of ``request``.

        The request is None when nothing is left to serve; the response was sent then.
        """
        decisions = self._decisions
        if decisions is None:
            return context, request
        requester = decisions.requester(context.exchange)
        result = REQUEST_AUTHORIZERS[context.api.key](requester, context.version, request)
        if result is None:
            return context, request
        guarded = AuthorizedContext(context.header, context.api, context.exchange, context, requester, result)
        if result.request is None:
            guarded.deny()
        return guarded, result.request


@fast_value
class AuthorizedContext(RequestContext):
    """The context of a request that is partly denied, or whose handler must ask for permission later."""

    inner: RequestContext
    requester: Requester
    result: AuthorizationResult

    @property
    def replies_unchanged(self) -> bool:
        return False

    def may_create(self, topic: str) -> bool:
        return self.requester.may_create(topic)

    def may_read(self, topic: str) -> bool:
        return self.requester.may_on_topic(Operation.READ, topic)

    @property
    def window_bytes(self) -> int:
        return self.inner.window_bytes

    def record_mutations(self, count: int) -> None:
        self.inner.record_mutations(count)

    def record_copied(self, count: int) -> None:
        self.inner.record_copied(count)

    def deny(self) -> None:
        """Reply that the whole request is denied."""
        if self.result.needs_no_response:
            self.no_reply()
        else:
            self.reply(None)

    def reply(self, response: Any) -> None:
        self.inner.reply(self.result.answer(response))

    def reply_to_fetch(self, response: Any, withheld: Any) -> bool:
        return self.inner.reply_to_fetch(self.result.answer(response), withheld)

    def no_reply(self) -> None:
        # As in Kafka: closing the connection is the only way to report an error.
        self.exchange.close("a produce request with acks=0 was not authorized")

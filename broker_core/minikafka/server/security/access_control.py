"""Who may ask this broker for what: the one place that every request passes, before its handler does.

Without ``authorizer.class.name`` a request costs one look at ``Permissions.enforced``. With it, what may not
be asked for is taken out of the request before the handler sees it, and its refusal put into the handler's
answer (``guards`` has the rule of each API); so handlers know nothing of permissions, but that of Metadata,
which asks ``RequestContext.may_create`` before it makes a topic.

Decisions are kept until the rules change: an authorizer is a value, and what it decided goes with it. Nobody
says who they are on a plain-text listener: everybody is ``User:ANONYMOUS``, told apart by their address.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from minikafka.base.acls import ANONYMOUS, Operation, Resource, ResourceType
from minikafka.base.reports import report
from minikafka.base.values import fast_value
from minikafka.server.context import RequestContext
from minikafka.server.security.authorizer import Authorizer, host_of
from minikafka.server.security.request_authorizers import REQUEST_AUTHORIZERS, AuthorizationResult, Requester

_log = logging.getLogger(__name__)

_DECISIONS_MAX = 10_000


class Decisions:
    """An authorizer with what it decided before. Thread-safe: at worst something is decided twice."""

    def __init__(self, authorizer: Authorizer) -> None:
        self.authorizer = authorizer
        self._known: dict[tuple[str, Operation, ResourceType, str], bool] = {}

    def asker(self, address: str) -> Requester:
        """The client at ``address``."""
        return Requester(partial(self.allows, address))

    def allows(self, address: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the client at ``address`` may do that. What is refused is logged once."""
        key = (address, operation, kind, name)
        allowed = self._known.get(key)
        if allowed is None:
            host, resource = host_of(address), Resource(kind, name)
            allowed = self.authorizer.allows(ANONYMOUS, host, operation, resource)
            if not allowed:
                if operation is Operation.CLUSTER_ACTION:
                    report("refused", host=host)
                _log.info("%s at %s may not do %s to %s", ANONYMOUS, host, operation.label, resource)
            if len(self._known) >= _DECISIONS_MAX:
                self._known = {}
            self._known[key] = allowed
        return allowed


class Permissions:
    """What is decided by at the moment. Any thread may ask; ``enforce`` is for who follows the rules."""

    def __init__(self) -> None:
        self._decisions: Decisions | None = None

    @property
    def enforced(self) -> bool:
        """Whether anything is refused to anybody."""
        return self._decisions is not None

    @property
    def authorizer(self) -> Authorizer | None:
        """All rules; None where everybody may do everything."""
        return None if self._decisions is None else self._decisions.authorizer

    def enforce(self, authorizer: Authorizer) -> None:
        """Decide by this from now on."""
        self._decisions = Decisions(authorizer)

    def may_write_new(self, address: str, topic: str) -> bool:
        """Whether the client at ``address`` may have a topic made that it then may write to."""
        if self._decisions is None:
            return True
        asker = self._decisions.asker(address)
        return asker.to_topic(Operation.WRITE, topic) and asker.may_create(topic)

    def checked(self, context: RequestContext, request: Any) -> tuple[RequestContext, Any]:
        """What of a request may be served, and the context to answer it through. None in the request's place
        when nothing is left: then it is answered.
        """
        decisions = self._decisions
        if decisions is None:
            return context, request
        asker = decisions.asker(context.exchange.client_host)
        ruling = REQUEST_AUTHORIZERS[context.api.key](asker, context.version, request)
        if ruling is None:
            return context, request
        guarded = GuardedContext(context.header, context.api, context.exchange, context, asker, ruling)
        if ruling.request is None:
            guarded.refuse()
        return guarded, ruling.request


@fast_value
class GuardedContext(RequestContext):
    """A request of which a part is refused, or that is to ask in between."""

    inner: RequestContext
    asker: Requester
    ruling: AuthorizationResult

    @property
    def replies_unchanged(self) -> bool:
        return False

    def may_create(self, topic: str) -> bool:
        return self.asker.may_create(topic)

    def refuse(self) -> None:
        """Answer that nothing of it is served."""
        if self.ruling.unanswered:
            self.no_reply()
        else:
            self.reply(None)

    def reply(self, response: Any) -> None:
        self.inner.reply(self.ruling.answer(response))

    def no_reply(self) -> None:
        # As Kafka does it: that the connection ends is all that can be told.
        self.exchange.close("a produce request with acks=0 was not allowed")

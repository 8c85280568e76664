"""CreateAcls: create ACLs; creating an existing ACL is not an error.

Any broker serves it. The ACLs are written to ZooKeeper with a change notification for all brokers, and are in
force on this broker when it replies. Each ACL succeeds or fails on its own. SECURITY_DISABLED when the broker
has no authorizer; REQUEST_TIMED_OUT while ZooKeeper is unavailable, and the ACLs may still be created.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from minikafka.base.acls import Acl, Resource
from minikafka.base.errors import BrokerError, value_or_error
from minikafka.server.admin.topics import error_code_of, error_message_of
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.core.deferred_response import answer_each
from minikafka.server.security.acl_requests import acl_of_creation, check_authorizer
from minikafka.wire.apis.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


def handle(broker: Broker, context: RequestContext, request: CreateAclsRequest) -> None:
    """Serve one CreateAcls request."""
    try:
        check_authorizer(broker.access_control.authorizer)
    except BrokerError as error:
        refused = AclCreationResult(error.code, error_message_of(error))
        context.reply(CreateAclsResponse(0, (refused,) * len(request.creations)))
        return
    enforces_prefixes = broker.config.all_brokers_enforce_prefixes
    rules = [
        value_or_error(partial(acl_of_creation, creation, enforces_prefixes=enforces_prefixes))
        for creation in request.creations
    ]
    wanted: dict[Resource, frozenset[Acl]] = {}
    for rule in rules:
        if not isinstance(rule, BrokerError):
            wanted[rule[0]] = wanted.get(rule[0], frozenset()) | {rule[1]}

    def response(failed: Mapping[Resource, BrokerError]) -> CreateAclsResponse:
        errors = (rule if isinstance(rule, BrokerError) else failed.get(rule[0]) for rule in rules)
        return CreateAclsResponse(
            0, tuple(AclCreationResult(error_code_of(error), error_message_of(error)) for error in errors)
        )

    def change(resource: Resource) -> None:
        assert broker.acl_manager is not None
        broker.acl_manager.change(resource, partial(frozenset.union, wanted[resource]))

    answer_each(broker, context, list(wanted), change, response)

"""DeleteAcls: delete the ACLs that match filters.

Any broker serves it. The result of each filter lists its matches; an ACL that matches several filters is in
each of them. Deleted ACLs are no longer in force on this broker when it replies. SECURITY_DISABLED and
REQUEST_TIMED_OUT are as in CreateAcls.
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
from minikafka.server.security.acl_requests import check_authorizer, find_matching_acls
from minikafka.wire.apis.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

_Found = list[tuple[Resource, Acl]]


def handle(broker: Broker, context: RequestContext, request: DeleteAclsRequest) -> None:
    """Serve one DeleteAcls request."""
    try:
        authorizer = check_authorizer(broker.access_control.authorizer)
    except BrokerError as error:
        refused = DeleteAclsFilterResult(error.code, error.detail, ())
        context.reply(DeleteAclsResponse(0, (refused,) * len(request.filters)))
        return
    rules = [value_or_error(partial(find_matching_acls, authorizer, wanted)) for wanted in request.filters]
    doomed: dict[Resource, set[Acl]] = {}
    for found in rules:
        for resource, acl in () if isinstance(found, BrokerError) else found:
            doomed.setdefault(resource, set()).add(acl)

    def response(failed: Mapping[Resource, BrokerError]) -> DeleteAclsResponse:
        return DeleteAclsResponse(0, tuple(_result(found, failed) for found in rules))

    def change(resource: Resource) -> None:
        assert broker.acl_manager is not None
        broker.acl_manager.change(resource, partial(_without, doomed[resource]))

    answer_each(broker, context, list(doomed), change, response)


def _without(acls: set[Acl], known: frozenset[Acl]) -> frozenset[Acl]:
    return known - acls


def _result(rules: _Found | BrokerError, failed: Mapping[Resource, BrokerError]) -> DeleteAclsFilterResult:
    if isinstance(rules, BrokerError):
        return DeleteAclsFilterResult(rules.code, rules.detail, ())
    return DeleteAclsFilterResult(
        0,
        None,
        tuple(
            DeleteAclsMatchingAcl(
                error_code_of(failed.get(resource)),
                error_message_of(failed.get(resource)),
                resource.type,
                resource.name,
                resource.pattern,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission,
            )
            for resource, acl in rules
        ),
    )

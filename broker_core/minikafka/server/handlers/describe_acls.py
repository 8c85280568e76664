"""DescribeAcls: the ACLs that match a filter, as this broker enforces them.

SECURITY_DISABLED when the broker has no authorizer.
"""

from __future__ import annotations

from itertools import groupby

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.security.acl_requests import check_authorizer, find_matching_acls
from minikafka.wire.apis.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


def handle(broker: Broker, context: RequestContext, request: DescribeAclsRequest) -> None:
    """Serve one DescribeAcls request."""
    try:
        rules = find_matching_acls(check_authorizer(broker.access_control.authorizer), request)
    except BrokerError as error:
        context.reply(DescribeAclsResponse(0, error.code, error.detail, ()))
        return
    resources = (
        DescribeAclsResource(
            resource.type,
            resource.name,
            resource.pattern,
            tuple(AclDescription(acl.principal, acl.host, acl.operation, acl.permission) for _, acl in group),
        )
        for resource, group in groupby(rules, key=lambda rule: rule[0])
    )
    context.reply(DescribeAclsResponse(0, ErrorCode.NONE, None, tuple(resources)))

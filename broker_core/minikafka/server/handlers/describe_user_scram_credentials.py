"""DescribeUserScramCredentials: the SCRAM mechanisms of users, and their iterations.

Any broker serves it, from ZooKeeper. All users are listed by name; a user that the request names, and who has
no credentials, is RESOURCE_NOT_FOUND. No secret is in the response.
"""

from __future__ import annotations

from collections import Counter

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.registry import paths
from minikafka.registry.users import sanitize
from minikafka.server.admin.dynamic_config import Settings
from minikafka.server.admin.scram_users import MECHANISMS, describe_user
from minikafka.server.admin.topics import error_message_of
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.core.deferred_response import answer_by_jobs
from minikafka.wire.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

_ROW_BYTES = 300


def handle(broker: Broker, context: RequestContext, request: DescribeUserScramCredentialsRequest) -> None:
    """Serve one DescribeUserScramCredentials request."""
    named = Counter(user.name for user in request.users or ())
    rows: list[DescribeUserScramCredentialsResult] = []

    def work(user: str | None) -> None:
        if user is not None:
            rows.append(_named_user(broker, user, named[user]))
            return
        names = {mechanism.value for mechanism in MECHANISMS.values()}
        settings = broker.zk_client.settings.of_clients_and_users()
        with_credentials = {
            entity.user_name: configs
            for entity, configs in settings.items()
            if entity.user_name is not None and names & configs.keys()
        }
        rows[:] = [_row(name, with_credentials[name]) for name in sorted(with_credentials)]

    answer_by_jobs(
        broker,
        context,
        list(named) or [None],
        work,
        lambda: DescribeUserScramCredentialsResponse(0, ErrorCode.NONE, None, tuple(rows)),
        lambda error: DescribeUserScramCredentialsResponse(0, error.code, error_message_of(error), ()),
        len(named) * _ROW_BYTES,
    )


def _named_user(broker: Broker, user: str, times: int) -> DescribeUserScramCredentialsResult:
    if times > 1:
        error = BrokerError(ErrorCode.DUPLICATE_RESOURCE, f"user {user} appears {times} times")
        return _failed(user, error)
    return _row(user, broker.zk_client.settings.of(paths.USERS, sanitize(user)) if user else {})


def _row(user: str, configs: Settings) -> DescribeUserScramCredentialsResult:
    try:
        return describe_user(user, configs)
    except BrokerError as error:
        return _failed(user, error)


def _failed(user: str, error: BrokerError) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user, error.code, error_message_of(error), ())

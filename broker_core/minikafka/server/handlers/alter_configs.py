"""AlterConfigs: all settings of topics, or of this broker, anew.

Behaviour: every broker serves it. The settings are written to ZooKeeper with the news for all brokers, and
are in effect on this one when it answers. Each resource succeeds or fails for itself: an unknown setting or a
value that is not allowed gets INVALID_CONFIG with what is. Of a broker, which has to be the one that is
asked, the two rates of replication can be changed and all else is INVALID_REQUEST, which 2.1 answers too.
While ZooKeeper is away, the answer is REQUEST_TIMED_OUT, and the change may still come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.server.admin.dynamic_config import Change, change_resource, replace_all
from minikafka.server.admin.topics import error_message_of
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.core.deferred_response import answer_by_jobs
from minikafka.wire.apis.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

ROW_BYTES = 300
"""What a row of an answer takes until it is encoded, without the text of an error."""


def handle(broker: Broker, context: RequestContext, request: AlterConfigsRequest) -> None:
    """Serve one request."""
    wanted = [(one.resource_type, one.resource_name, replace_all(one.configs)) for one in request.resources]
    alter(broker, context, wanted, validate_only=request.validate_only)


def alter(
    broker: Broker,
    context: RequestContext,
    wanted: Sequence[tuple[int, str, Change]],
    *,
    validate_only: bool,
) -> None:
    """Change resources, given as type, name and change, and answer."""
    named = Counter((kind, name) for kind, name, _ in wanted)

    outcomes: list[AlterConfigsResourceResponse] = []

    def outcome(kind: int, name: str, change: Change) -> AlterConfigsResourceResponse:
        try:
            if named[kind, name] > 1:
                raise BrokerError(ErrorCode.INVALID_REQUEST, f"{name} is named {named[kind, name]} times")
            change_resource(broker, kind, name, change, validate_only=validate_only)
        except BrokerError as error:
            return AlterConfigsResourceResponse(error.code, error_message_of(error), kind, name)
        return AlterConfigsResourceResponse(ErrorCode.NONE, None, kind, name)

    def refusal(error: BrokerError) -> AlterConfigsResponse:
        return AlterConfigsResponse(
            0,
            tuple(
                AlterConfigsResourceResponse(error.code, error_message_of(error), kind, name)
                for kind, name, _ in wanted
            ),
        )

    answer_by_jobs(
        broker,
        context,
        wanted,
        lambda one: outcomes.append(outcome(*one)),
        lambda: AlterConfigsResponse(0, tuple(outcomes)),
        refusal,
        len(wanted) * ROW_BYTES,
    )

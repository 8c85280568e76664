"""AlterUserScramCredentials: set and delete SCRAM credentials of users.

Only the controller serves it (NOT_CONTROLLER). Each user succeeds or fails as a whole. The credentials are
written to ZooKeeper with a notification for all brokers, and hold on this broker when it replies.
"""

from __future__ import annotations

from collections.abc import Mapping

from minikafka.base.errors import BrokerError
from minikafka.server.admin.scram_users import ScramAlteration
from minikafka.server.admin.topics import check_controller, results_of
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.core.deferred_response import answer_each
from minikafka.wire.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


def handle(broker: Broker, context: RequestContext, request: AlterUserScramCredentialsRequest) -> None:
    """Serve one AlterUserScramCredentials request."""
    alteration = ScramAlteration(request)

    def work(user: str) -> None:
        check_controller(broker)
        alteration.apply(broker, user)

    def response(failed: Mapping[str, BrokerError]) -> AlterUserScramCredentialsResponse:
        outcomes = {user: failed.get(user) for user in alteration.users}
        return AlterUserScramCredentialsResponse(0, results_of(outcomes, AlterUserScramCredentialsResult))

    answer_each(broker, context, alteration.users, work, response)

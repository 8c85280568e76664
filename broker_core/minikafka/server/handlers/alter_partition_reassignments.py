"""AlterPartitionReassignments: start, replace or cancel reassignments of partitions.

Only the controller serves it (NOT_CONTROLLER). Each partition succeeds or fails on its own, as
``Controller.check_reassignment`` says. The response is sent once the znodes of the topics have the requests,
so that a controller elected from then on continues them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.controller import events
from minikafka.server.admin.partition_operation import DelayedPartitionOperation, PartitionErrors
from minikafka.server.admin.topics import check_controller, error_code_of, error_message_of
from minikafka.server.context import RequestContext
from minikafka.server.control.controller_event_manager import ControllerEventManager
from minikafka.server.core.broker import Broker
from minikafka.wire.api import partitions_of
from minikafka.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


def handle(
    control: ControllerEventManager,
    broker: Broker,
    context: RequestContext,
    request: AlterPartitionReassignmentsRequest,
) -> None:
    """Serve one AlterPartitionReassignments request."""
    try:
        check_controller(broker)
    except BrokerError as error:
        context.reply(AlterPartitionReassignmentsResponse(0, error.code, error_message_of(error), ()))
        return
    wanted = {key: partition.replicas for key, partition in partitions_of(request.topics)}
    named = Counter(key for key, _ in partitions_of(request.topics))
    stored = False

    def check(key: TopicPartition) -> None:
        if named[key] > 1:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"{key} appears {named[key]} times")
        broker.controller.check_reassignment(key, wanted[key])

    def begin(keys: frozenset[TopicPartition]) -> None:
        control.post(events.ReassignmentsAltered({key: wanted[key] for key in keys}))
        epoch = broker.controller.epoch

        def after_writes() -> None:
            nonlocal stored
            stored = epoch == broker.controller.epoch and broker.zk_client.is_controller
            if stored:
                operation.look_again()
            else:
                operation.fail_all(BrokerError(ErrorCode.NOT_CONTROLLER, "another controller was elected"))

        broker.worker.submit(after_writes)

    def reply(found: Mapping[str, PartitionErrors]) -> None:
        topics = (
            ReassignableTopicResponse(
                topic,
                tuple(
                    ReassignablePartitionResponse(
                        key.partition, error_code_of(error), error_message_of(error)
                    )
                    for key, error in errors.items()
                ),
            )
            for topic, errors in found.items()
        )
        context.reply(AlterPartitionReassignmentsResponse(0, ErrorCode.NONE, None, tuple(topics)))

    operation = DelayedPartitionOperation(
        broker, context, wanted, check=check, begin=begin, is_done=lambda _: stored, reply=reply
    )
    operation.start(request.timeout_ms)

"""ControlledShutdown: move the leadership of a broker's partitions before it stops.

The response is sent once ZooKeeper has the new leaders and all live brokers know them. It lists the
partitions that no other broker can lead. So the caller may stop at once, and clients find the new leaders.
Only the controller serves it; others reply NOT_CONTROLLER (also in 0.10.1 as the error of the whole
response).
"""

from __future__ import annotations

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.controller import events
from minikafka.server.admin.topics import check_controller
from minikafka.server.context import RequestContext
from minikafka.server.control.controller_event_manager import ControllerEventManager
from minikafka.server.core.broker import Broker
from minikafka.wire.apis.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)

_TRIES = 10


def handle(
    control: ControllerEventManager,
    broker: Broker,
    context: RequestContext,
    request: ControlledShutdownRequest,
) -> None:
    """Serve one request, as a job."""
    broker_id = request.broker_id

    def answer(tries: int) -> None:
        left = broker.controller.partitions_still_led_by(broker_id)
        if left and tries > 0:
            # A leader may have changed an ISR meanwhile; the controller then writes again, in a job.
            broker.worker.submit(lambda: answer(tries - 1))
            return
        remaining = tuple(RemainingPartition(*key) for key in sorted(left))
        response = ControlledShutdownResponse(ErrorCode.NONE, remaining)
        # After the jobs that send the pending requests.
        broker.worker.submit(lambda: control.run_when_acknowledged(lambda: context.answer(lambda: response)))

    try:
        check_controller(broker)
    except BrokerError as error:
        context.reply(ControlledShutdownResponse(error.code, ()))
        return

    def shut_down() -> None:
        # Leaders change ISRs first and notify later: read the current ISRs.
        broker.zk_client.refresh(broker.controller.partitions_still_led_by(broker_id))
        control.post(events.ShutdownRequested(broker_id))
        # After the writes that this event caused.
        broker.worker.submit(lambda: answer(_TRIES))

    broker.worker.submit(shut_down)

"""ControlledShutdown: a broker that is to stop has its partitions led by others first.

Answered once ZooKeeper has the new leaders and all brokers that live know them, with the partitions that none
but this broker can lead: who asks may go at once, and whoever looks for the new leaders finds them. For the
controller only: NOT_CONTROLLER from others (0.10.1 has that as the error of the whole answer, too).
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
            # A leader may have changed an ISR meanwhile; then the controller writes again, as a job.
            broker.worker.submit(lambda: answer(tries - 1))
            return
        remaining = tuple(RemainingPartition(*key) for key in sorted(left))
        response = ControlledShutdownResponse(ErrorCode.NONE, remaining)
        # Behind what is still to be sent, which jobs do.
        broker.worker.submit(lambda: control.run_when_acknowledged(lambda: context.answer(lambda: response)))

    try:
        check_controller(broker)
    except BrokerError as error:
        context.reply(ControlledShutdownResponse(error.code, ()))
        return

    def shut_down() -> None:
        # Leaders change ISRs and tell of it later: as it stands now, others may be in sync.
        broker.registrar.refresh(broker.controller.partitions_still_led_by(broker_id))
        control.post(events.ShutdownRequested(broker_id))
        # Behind the writes that this led to.
        broker.worker.submit(lambda: answer(_TRIES))

    broker.worker.submit(shut_down)

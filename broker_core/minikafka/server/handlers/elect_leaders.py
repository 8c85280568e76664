"""ElectLeaders: elect leaders of partitions, and wait until this broker's metadata have them.

Only the controller serves it (NOT_CONTROLLER). Each partition succeeds or fails on its own, as
``Controller.check_election`` says; one whose new leader is not known at the time-out gets REQUEST_TIMED_OUT.
The election of all partitions leaves out those that have the right leader already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.controller import events
from minikafka.controller.election import NO_LEADER
from minikafka.server.admin.partition_operation import DelayedPartitionOperation, PartitionErrors
from minikafka.server.admin.topics import error_code_of, error_message_of
from minikafka.server.context import RequestContext
from minikafka.server.control.controller_event_manager import ControllerEventManager
from minikafka.server.core.broker import Broker
from minikafka.wire.apis.elect_leaders import (
    ElectionType,
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopicResult,
)


def handle(
    control: ControllerEventManager, broker: Broker, context: RequestContext, request: ElectLeadersRequest
) -> None:
    """Serve one ElectLeaders request."""
    if request.election_type not in set(ElectionType):
        context.reply(ElectLeadersResponse(0, ErrorCode.INVALID_REQUEST, ()))
        return
    unclean = request.election_type == ElectionType.UNCLEAN
    topics = request.topic_partitions
    named: Iterable[tuple[str, Iterable[int]]] = broker.metadata_cache.topics.items()
    if topics is not None:
        named = [(topic.topic, topic.partitions) for topic in topics]

    def reply(found: Mapping[str, PartitionErrors]) -> None:
        left_out = () if topics is not None else (ErrorCode.ELECTION_NOT_NEEDED,)
        rows = {
            name: tuple(
                ElectLeadersPartitionResult(key.partition, error_code_of(error), error_message_of(error))
                for key, error in errors.items()
                if error_code_of(error) not in left_out
            )
            for name, errors in found.items()
        }
        results = tuple(ElectLeadersTopicResult(name, own) for name, own in rows.items() if own)
        context.reply(ElectLeadersResponse(0, ErrorCode.NONE, results))

    DelayedPartitionOperation(
        broker,
        context,
        [TopicPartition(name, index) for name, indexes in named for index in indexes],
        check=lambda key: broker.controller.check_election(key, unclean=unclean),
        begin=lambda keys: control.post(events.LeadersWanted(keys, unclean)),
        is_done=lambda key: _has_leader(broker, key, unclean=unclean),
        reply=reply,
    ).start(request.timeout_ms)


def _has_leader(broker: Broker, key: TopicPartition, *, unclean: bool) -> bool:
    known = broker.metadata_cache.leadership(key)
    if known is None or known.leader == NO_LEADER:
        return False
    return known.leader in broker.metadata_cache.brokers if unclean else known.leader == known.replicas[0]

"""ElectLeaders: elect leaders of partitions, and wait until this broker's metadata have them.

Only the controller serves it (NOT_CONTROLLER). Each partition succeeds or fails on its own, as
``Controller.check_election`` says; one whose new leader is not known at the time-out gets REQUEST_TIMED_OUT.
The election of all partitions leaves out those that have the right leader already.
"""

from __future__ import annotations

from collections import defaultdict

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.controller import events
from minikafka.controller.election import NO_LEADER
from minikafka.server.admin.topics import (
    DelayedTopicOperation,
    Outcomes,
    check_controller,
    error_code_of,
    error_message_of,
)
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

Errors = dict[TopicPartition, BrokerError | None]


def handle(
    control: ControllerEventManager, broker: Broker, context: RequestContext, request: ElectLeadersRequest
) -> None:
    """Serve one ElectLeaders request."""
    if request.election_type not in set(ElectionType):
        context.reply(ElectLeadersResponse(0, ErrorCode.INVALID_REQUEST, ()))
        return
    election = _Election(control, broker, context, request)
    election.operation.start(request.timeout_ms, lambda: broker.worker.submit(election.run))


class _Election:
    """A request in progress."""

    def __init__(
        self,
        control: ControllerEventManager,
        broker: Broker,
        context: RequestContext,
        request: ElectLeadersRequest,
    ) -> None:
        self._control = control
        self._broker = broker
        self._context = context
        self._unclean = request.election_type == ElectionType.UNCLEAN
        self._of_all = request.topic_partitions is None
        self._partitions: dict[str, set[TopicPartition]] = defaultdict(set)
        if request.topic_partitions is None:
            for name, partitions in broker.metadata_cache.topics.items():
                self._partitions[name] = {TopicPartition(name, index) for index in partitions}
        for topic in request.topic_partitions or ():
            self._partitions[topic.topic] |= {
                TopicPartition(topic.topic, index) for index in topic.partitions
            }
        self._errors: Errors | None = None
        """The errors that are known before the election; None until it has begun."""
        self.operation = DelayedTopicOperation(
            broker, context, list(self._partitions), is_done=self._is_done, reply=self._reply
        )

    def run(self) -> None:
        """Begin the election. A job: may be run twice."""
        broker = self._broker
        wanted = sorted(key for keys in self._partitions.values() for key in keys)
        try:
            check_controller(broker)
            broker.zk_client.refresh(wanted)
            errors = {key: self._problem(key) for key in wanted}
            electable = frozenset(key for key, error in errors.items() if error is None)
            self._control.post(events.LeadersWanted(electable, self._unclean))
        except BrokerError as error:
            errors = dict.fromkeys(wanted, error)

        def begun() -> None:
            self._errors = errors
            for name in self._partitions:
                broker.touch(("topic", name))

        broker.run(begun)

    def _problem(self, topic_partition: TopicPartition) -> BrokerError | None:
        try:
            self._broker.controller.check_election(topic_partition, unclean=self._unclean)
        except BrokerError as error:
            return error
        return None

    def _is_done(self, topic: str) -> bool:
        return self._errors is not None and all(
            self._errors[key] is not None or self._has_leader(key) for key in self._partitions[topic]
        )

    def _has_leader(self, topic_partition: TopicPartition) -> bool:
        known = self._broker.metadata_cache.leadership(topic_partition)
        if known is None or known.leader == NO_LEADER:
            return False
        if self._unclean:
            return known.leader in self._broker.metadata_cache.brokers
        return known.leader == known.replicas[0]

    def _reply(self, outcomes: Outcomes) -> None:
        errors = self._errors or {}
        topics = []
        for name, late in outcomes.items():
            rows = []
            for key in sorted(self._partitions[name]):
                error = errors.get(key)
                if error is None and late is not None and not (key in errors and self._has_leader(key)):
                    error = late
                if not (self._of_all and error_code_of(error) is ErrorCode.ELECTION_NOT_NEEDED):
                    rows.append(
                        ElectLeadersPartitionResult(
                            key.partition, error_code_of(error), error_message_of(error)
                        )
                    )
            if rows:
                topics.append(ElectLeadersTopicResult(name, tuple(rows)))
        self._context.reply(ElectLeadersResponse(0, ErrorCode.NONE, tuple(topics)))

"""A client's request for work of the controller on partitions, each of which succeeds or fails on its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from minikafka.base.errors import BrokerError
from minikafka.base.ids import TopicPartition
from minikafka.server.admin.topics import DelayedTopicOperation, Outcomes, check_controller
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker

PartitionErrors = dict[TopicPartition, BrokerError | None]


class DelayedPartitionOperation:
    """The request: begun by a job of the worker, answered when all its partitions are done or have an error.

    ``check`` raises the BrokerError of a partition that cannot be served; ``begin`` gets the others. Those
    that are not done at the deadline get REQUEST_TIMED_OUT.
    """

    def __init__(
        self,
        broker: Broker,
        context: RequestContext,
        partitions: Iterable[TopicPartition],
        *,
        check: Callable[[TopicPartition], None],
        begin: Callable[[frozenset[TopicPartition]], None],
        is_done: Callable[[TopicPartition], bool],
        reply: Callable[[Mapping[str, PartitionErrors]], None],
    ) -> None:
        self._broker = broker
        self._check = check
        self._begin = begin
        self._is_done = is_done
        self._reply = reply
        self._partitions: dict[str, dict[TopicPartition, None]] = {}
        for key in partitions:
            self._partitions.setdefault(key.topic, {})[key] = None
        self._errors: PartitionErrors | None = None
        """The errors that are known; None until the request has begun."""
        self._operation = DelayedTopicOperation(
            broker, context, list(self._partitions), is_done=self._topic_is_done, reply=self._complete
        )

    def start(self, timeout_ms: int) -> None:
        """Submit the job, and wait."""
        self._operation.start(timeout_ms, lambda: self._broker.worker.submit(self._run))

    def fail_all(self, error: BrokerError) -> None:
        """Let all partitions fail that have no error yet."""
        errors = self._errors or {}
        self._set({key: errors.get(key) or error for keys in self._partitions.values() for key in keys})

    def look_again(self) -> None:
        """Answer if all partitions are done now."""
        self._broker.run(self._touch)

    def _run(self) -> None:
        """Begin the request. A job: may be run twice."""
        broker = self._broker
        wanted = sorted(key for keys in self._partitions.values() for key in keys)
        try:
            check_controller(broker)
        except BrokerError as error:
            self.fail_all(error)
            return
        broker.zk_client.refresh(wanted)
        errors = {key: self._problem(key) for key in wanted}
        self._begin(frozenset(key for key, error in errors.items() if error is None))
        self._set(errors)

    def _problem(self, key: TopicPartition) -> BrokerError | None:
        try:
            self._check(key)
        except BrokerError as error:
            return error
        return None

    def _set(self, errors: PartitionErrors) -> None:
        def step() -> None:
            self._errors = errors
            self._touch()

        self._broker.run(step)

    def _touch(self) -> None:
        for topic in self._partitions:
            self._broker.touch(("topic", topic))

    def _topic_is_done(self, topic: str) -> bool:
        errors = self._errors
        return errors is not None and all(
            errors[key] is not None or self._is_done(key) for key in self._partitions[topic]
        )

    def _complete(self, outcomes: Outcomes) -> None:
        found: dict[str, PartitionErrors] = {}
        for topic, late in outcomes.items():
            rows = found[topic] = {}
            for key in sorted(self._partitions[topic]):
                known = self._errors is not None and self._errors[key] is None
                done = late is None or (known and self._is_done(key))
                rows[key] = (self._errors or {}).get(key) or (None if done else late)
        self._reply(found)

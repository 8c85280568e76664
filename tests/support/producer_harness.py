"""Helpers of the producer's tests."""

from __future__ import annotations

from typing import Any

from minikafka.base.ids import TopicPartition
from minikafka.clients.producer import CallbackHandler, EventHandler, KeyedMessage, Producer
from minikafka.records.format.message_set import StoredRecord
from tests.support.broker_harness import BrokerHarness

ADDRESS = {"metadata.broker.list": "memory:9001"}


def make_producer(brokers: BrokerHarness, **given: Any) -> Producer:
    """Return a producer without threads that waits for acknowledgements by default."""
    properties = {name.replace("_", "."): value for name, value in given.items()}
    acks = {"request.required.acks": 1}
    return Producer({**ADDRESS, **acks, **properties}, cluster=brokers.client(), threads=False)


def records(brokers: BrokerHarness, partition: int, topic: str = "t") -> list[StoredRecord]:
    """Return the records of a partition."""
    return brokers.logs[TopicPartition(topic, partition)].records()


def values(brokers: BrokerHarness, partition: int, topic: str = "t") -> list[bytes | None]:
    """Return the values of a partition."""
    return [record.value for record in records(brokers, partition, topic)]


def everything(brokers: BrokerHarness, topic: str = "t") -> list[bytes | None]:
    """Return the values of all partitions, partition by partition."""
    numbers = sorted(tp.partition for tp in brokers.logs if tp.topic == topic)
    return [value for number in numbers for value in values(brokers, number, topic)]


class RecordingEventHandler(EventHandler):
    """An event handler that keeps its events."""

    def __init__(self) -> None:
        self.batches: list[list[KeyedMessage]] = []
        self.closed = False
        self.error: Exception | None = None

    def handle(self, events: Any) -> None:
        self.batches.append(list(events))
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        self.closed = True

    @property
    def messages(self) -> list[Any]:
        return [event.message for batch in self.batches for event in batch]


class RecordingCallbackHandler(CallbackHandler):
    """A callback handler that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def init(self, properties: Any) -> None:
        self.calls.append(("init", properties["producer.type"]))

    def before_enqueue(self, event: KeyedMessage) -> KeyedMessage:
        self.calls.append(("before_enqueue", event.message))
        return event

    def after_enqueue(self, event: KeyedMessage, added: bool) -> None:
        self.calls.append(("after_enqueue", event.message, added))

    def after_dequeuing_existing_data(self, event: KeyedMessage | None) -> Any:
        self.calls.append(("after_dequeuing_existing_data", event and event.message))
        return super().after_dequeuing_existing_data(event)

    def before_sending_data(self, events: Any) -> Any:
        self.calls.append(("before_sending_data", [event.message for event in events]))
        return events

    def after_sending_data(self, events: Any, error: Exception | None) -> None:
        self.calls.append(("after_sending_data", [event.message for event in events], error))

    def last_batch_before_close(self) -> Any:
        self.calls.append(("last_batch_before_close",))
        return ()

    def close(self) -> None:
        self.calls.append(("close",))

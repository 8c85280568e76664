"""``librdkafka.py BOOTSTRAP``: librdkafka, through confluent-kafka."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import Message as Record
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from lines import FAST_HEARTBEAT_MS, Client, Member, decode, headers_of, numbers, record, reply, serve
from lines import event as tell

BOOTSTRAP = {"bootstrap.servers": sys.argv[1]}
PATIENCE_S = 30.0


def line_of(message: Record) -> str:
    """A record that was received."""
    if message.error() is not None:
        raise RuntimeError(message.error())
    return record(
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        message.headers(),
    )


class GroupMember(Member):
    """A member, polled as librdkafka wants it: it calls back from within."""

    def subscribe(self) -> None:
        """Begin."""
        self.consumer = Consumer(
            BOOTSTRAP
            | {
                "group.id": self.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": FAST_HEARTBEAT_MS,
            }
        )
        self.consumer.subscribe([self.topic], on_assign=self._on_assign, on_revoke=self._on_revoke)

    def poll(self) -> Iterable[str]:
        """Records that came within a tenth of a second."""
        message = self.consumer.poll(0.1)
        while message is not None:
            yield line_of(message)
            message = self.consumer.poll(0)

    def commit(self) -> None:
        """Commit what was polled."""
        try:
            committed = self.consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:  # nothing new to commit
                raise
        else:
            if any(partition.error for partition in committed):
                raise RuntimeError(committed)

    def close(self) -> None:
        """Leave the group."""
        self.consumer.close()

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        tell(self.name, "assigned", numbers(partition.partition for partition in partitions))

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self.commits and partitions:
            self.commit()
        tell(self.name, "revoked", numbers(partition.partition for partition in partitions))


class Librdkafka(Client):
    """The commands."""

    member = GroupMember

    def __init__(self) -> None:
        super().__init__()
        self._admin = AdminClient(BOOTSTRAP)

    def produce(self, topic: str, codec: str, mode: str, lines: list[list[str]]) -> None:
        """Send, and tell the offsets in the order of sending."""
        producer = Producer(
            BOOTSTRAP
            | {"compression.type": codec, "linger.ms": 20, "enable.idempotence": mode == "idempotent"}
        )
        offsets: dict[int, int] = {}
        failures: list[Any] = []

        def delivered(number: int) -> Any:
            def callback(error: Any, message: Record) -> None:
                failures.extend([error] if error else [])
                offsets[number] = message.offset()

            return callback

        for number, (partition, timestamp, key, value, headers) in enumerate(lines):
            producer.produce(
                topic,
                partition=int(partition),
                timestamp=int(timestamp),
                key=decode(key),
                value=decode(value),
                headers=headers_of(headers),
                on_delivery=delivered(number),
            )
        if producer.flush(PATIENCE_S) or failures:
            raise RuntimeError(f"not delivered: {failures[:3]}")
        for _, offset in sorted(offsets.items()):
            reply(offset)

    def read(self, topic: str, partition: str, count: str, level: str) -> None:
        """Read without a group."""
        consumer = Consumer(
            BOOTSTRAP | {"group.id": "unused", "enable.auto.commit": False, "isolation.level": level}
        )
        consumer.assign([TopicPartition(topic, int(partition), 0)])
        for _ in range(int(count)):
            message = consumer.poll(PATIENCE_S)
            if message is None:
                break
            reply(line_of(message))
        consumer.close()

    def times(self, topic: str, timestamp: str) -> None:
        """Offsets by time."""
        consumer = Consumer(BOOTSTRAP | {"group.id": "unused"})
        partitions = consumer.list_topics(topic, PATIENCE_S).topics[topic].partitions
        asked = [TopicPartition(topic, number, int(timestamp)) for number in partitions]
        for partition in consumer.offsets_for_times(asked, PATIENCE_S):
            reply(partition.partition, max(partition.offset, -1))
        consumer.close()

    def create(self, topic: str, partitions: str, *config: str) -> None:
        """Make a topic."""
        new = NewTopic(topic, int(partitions), 1, config=dict(pair.split("=", 1) for pair in config))
        self._admin.create_topics([new])[topic].result(PATIENCE_S)

    def topics(self) -> None:
        """Names of topics."""
        for name in self._admin.list_topics(timeout=PATIENCE_S).topics:
            reply(name)

    def describe(self, topic: str) -> None:
        """Partitions of a topic."""
        for partition in self._admin.list_topics(topic, PATIENCE_S).topics[topic].partitions.values():
            reply(partition.id, partition.leader, len(partition.replicas))

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self._admin.delete_topics([topic])[topic].result(PATIENCE_S)

    def config(self, topic: str) -> None:
        """Settings of a topic."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        for entry in self._admin.describe_configs([resource])[resource].result(PATIENCE_S).values():
            reply(f"{entry.name}={entry.value}")

    def alter(self, topic: str, *config: str) -> None:
        """Change settings of a topic."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in (pair.split("=", 1) for pair in config)
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self._admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)

    def groups(self) -> None:
        """Names of groups."""
        found = self._admin.list_consumer_groups().result(PATIENCE_S)
        if found.errors:
            raise RuntimeError(found.errors)
        for group in found.valid:
            reply(group.group_id)

    def group(self, name: str) -> None:
        """State and members of a group."""
        found = self._admin.describe_consumer_groups([name])[name].result(PATIENCE_S)
        reply(found.state.name)
        for member in found.members:
            reply(numbers(part.partition for part in member.assignment.topic_partitions))


if __name__ == "__main__":
    serve(Librdkafka())

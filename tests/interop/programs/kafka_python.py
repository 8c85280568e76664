"""``kafka_python.py BOOTSTRAP``: kafka-python."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from lines import FAST_HEARTBEAT_MS, Client, Member, decode, headers_of, numbers, record, reply, serve
from lines import event as tell

BOOTSTRAP = sys.argv[1]
PATIENCE_S = 30


def line_of(one: Any) -> str:
    """A record that was received."""
    return record(one.partition, one.offset, one.timestamp, one.key, one.value, one.headers)


class GroupMember(Member, ConsumerRebalanceListener):
    """A member."""

    def subscribe(self) -> None:
        """Begin."""
        self.consumer = KafkaConsumer(
            bootstrap_servers=BOOTSTRAP,
            group_id=self.group,
            # A listener runs on the loop that a commit waits for. It commits by itself when partitions go.
            enable_auto_commit=self.commits,
            auto_commit_interval_ms=3_600_000,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=FAST_HEARTBEAT_MS,
        )
        self.consumer.subscribe([self.topic], listener=self)

    def poll(self) -> Iterable[str]:
        """Records that came within a tenth of a second."""
        return [line_of(message) for found in self.consumer.poll(100).values() for message in found]

    def commit(self) -> None:
        """Commit what was polled."""
        self.consumer.commit()

    def close(self) -> None:
        """Leave the group."""
        self.consumer.close()

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Tell."""
        tell(self.name, "assigned", numbers(partition.partition for partition in assigned))

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Tell."""
        tell(self.name, "revoked", numbers(partition.partition for partition in revoked))


class KafkaPython(Client):
    """The commands."""

    member = GroupMember

    def __init__(self) -> None:
        super().__init__()
        self._made: KafkaAdminClient | None = None

    @property
    def _admin(self) -> KafkaAdminClient:
        self._made = self._made or KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
        return self._made

    def produce(self, topic: str, codec: str, mode: str, lines: list[list[str]]) -> None:
        """Send, and tell the offsets. It is idempotent by default where the broker can be asked for an id."""
        options = {} if mode == "default" else {"enable_idempotence": mode == "idempotent"}
        producer = KafkaProducer(
            bootstrap_servers=BOOTSTRAP, compression_type=None if codec == "none" else codec, **options
        )
        sent = [
            producer.send(
                topic,
                partition=int(partition),
                timestamp_ms=int(timestamp),
                key=decode(key),
                value=decode(value),
                headers=headers_of(headers),
            )
            for partition, timestamp, key, value, headers in lines
        ]
        producer.flush(PATIENCE_S)
        for future in sent:
            reply(future.get(PATIENCE_S).offset)
        producer.close()

    def read(self, topic: str, partition: str, count: str, level: str) -> None:
        """Read without a group."""
        consumer = KafkaConsumer(
            bootstrap_servers=BOOTSTRAP, enable_auto_commit=False, group_id=None, isolation_level=level
        )
        one = TopicPartition(topic, int(partition))
        consumer.assign([one])
        consumer.seek(one, 0)
        left = int(count)
        while left > 0 and (found := consumer.poll(PATIENCE_S * 1000)):
            for message in found[one]:
                reply(line_of(message))
                left -= 1
        consumer.close()

    def times(self, topic: str, timestamp: str) -> None:
        """Offsets by time."""
        consumer = KafkaConsumer(bootstrap_servers=BOOTSTRAP, group_id=None)
        partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
        found = consumer.offsets_for_times(dict.fromkeys(partitions, int(timestamp)))
        for one, offset in found.items():
            reply(one.partition, -1 if offset is None else offset.offset)
        consumer.close()

    def create(self, topic: str, partitions: str, *config: str) -> None:
        """Make a topic."""
        options = {
            "num_partitions": int(partitions),
            "replication_factor": 1,
            "configs": dict(pair.split("=", 1) for pair in config),
        }
        self._admin.create_topics({topic: options})

    def topics(self) -> None:
        """Names of topics."""
        for name in self._admin.list_topics():
            reply(name)

    def describe(self, topic: str) -> None:
        """Partitions of a topic."""
        (described,) = self._admin.describe_topics([topic])
        for partition in described["partitions"]:
            reply(partition["partition_index"], partition["leader_id"], len(partition["replica_nodes"]))

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self._admin.delete_topics([topic])

    def config(self, topic: str) -> None:
        """Settings of a topic."""
        described = self._admin.describe_configs(
            [ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all"
        )
        for name, setting in described["topic"][topic].items():
            reply(f"{name}={setting['value'] if isinstance(setting, dict) else setting}")

    def alter(self, topic: str, *config: str) -> None:
        """Change settings of a topic."""
        changes = dict(pair.split("=", 1) for pair in config)
        self._admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, changes)])

    def groups(self) -> None:
        """Names of groups."""
        for group in self._admin.list_groups():
            reply(group["group_id"])

    def group(self, name: str) -> None:
        """State and members of a group."""
        described = self._admin.describe_groups([name])[name]
        reply(described["group_state"])
        for member in described["members"]:
            topics = member["member_assignment"]["assigned_partitions"]
            reply(numbers(partition for topic in topics for partition in topic["partitions"]))


if __name__ == "__main__":
    serve(KafkaPython())

"""``aio.py BOOTSTRAP``: aiokafka."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from lines import FAST_HEARTBEAT_MS, Client, Member, decode, headers_of, numbers, record, reply, serve
from lines import event as tell

BOOTSTRAP = sys.argv[1]
PATIENCE_S = 30
T = TypeVar("T")


def line_of(one: Any) -> str:
    """A record that was received."""
    return record(one.partition, one.offset, one.timestamp, one.key, one.value, one.headers)


class GroupMember(Member, ConsumerRebalanceListener):
    """A member; its thread's loop runs while it polls."""

    def subscribe(self) -> None:
        """Begin."""
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self._start())

    async def _start(self) -> None:
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=BOOTSTRAP,
            group_id=self.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=FAST_HEARTBEAT_MS,
        )
        self.consumer.subscribe([self.topic], listener=self)
        await self.consumer.start()

    def poll(self) -> Iterable[str]:
        """Records that came within a tenth of a second."""
        found = self.loop.run_until_complete(self.consumer.getmany(timeout_ms=100))
        return [line_of(message) for messages in found.values() for message in messages]

    def commit(self) -> None:
        """Commit what was polled."""
        self.loop.run_until_complete(self.consumer.commit())

    def close(self) -> None:
        """Leave the group."""
        self.loop.run_until_complete(self.consumer.stop())

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Tell."""
        tell(self.name, "assigned", numbers(partition.partition for partition in assigned))

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Commit, where that is asked for, and tell."""
        partitions = [partition.partition for partition in revoked]
        if self.commits and partitions:
            await self.consumer.commit()
        tell(self.name, "revoked", numbers(partitions))


def checked(response: Any, codes: Iterable[tuple[Any, ...]], at: int = 1) -> Any:
    """The response, unless one of the entries has an error code at ``at``."""
    wrong = [entry for entry in codes if entry[at]]
    if wrong:
        raise RuntimeError(wrong)
    return response


class AioKafka(Client):
    """The commands."""

    member = GroupMember

    async def _produce(self, topic: str, codec: str, mode: str, lines: list[list[str]]) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=BOOTSTRAP,
            compression_type=None if codec == "none" else codec,
            acks="all",
            enable_idempotence=mode == "idempotent",
        )
        await producer.start()
        sent = [
            await producer.send(
                topic,
                partition=int(partition),
                timestamp_ms=int(timestamp),
                key=decode(key),
                value=decode(value),
                headers=headers_of(headers),
            )
            for partition, timestamp, key, value, headers in lines
        ]
        for result in await asyncio.wait_for(asyncio.gather(*sent), PATIENCE_S):
            reply(result.offset)
        await producer.stop()

    def produce(self, topic: str, codec: str, mode: str, lines: list[list[str]]) -> None:
        """Send, and tell the offsets."""
        asyncio.run(self._produce(topic, codec, mode, lines))

    async def _consuming(self, work: Callable[[AIOKafkaConsumer], Awaitable[T]], **settings: Any) -> T:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=BOOTSTRAP, enable_auto_commit=False, group_id=None, **settings
        )
        await consumer.start()
        try:
            return await work(consumer)
        finally:
            await consumer.stop()

    def read(self, topic: str, partition: str, count: str, level: str) -> None:
        """Read without a group."""

        async def work(consumer: AIOKafkaConsumer) -> None:
            one = TopicPartition(topic, int(partition))
            consumer.assign([one])
            consumer.seek(one, 0)
            left = int(count)
            while left > 0 and (found := await consumer.getmany(timeout_ms=PATIENCE_S * 1000)):
                for message in found[one]:
                    reply(line_of(message))
                    left -= 1

        asyncio.run(self._consuming(work, isolation_level=level))

    def times(self, topic: str, timestamp: str) -> None:
        """Offsets by time."""

        async def work(consumer: AIOKafkaConsumer) -> None:
            await consumer._client._wait_on_metadata(topic)
            partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)]
            found = await consumer.offsets_for_times(dict.fromkeys(partitions, int(timestamp)))
            for one, offset in found.items():
                reply(one.partition, -1 if offset is None else offset.offset)

        asyncio.run(self._consuming(work))

    def _administer(self, work: Callable[[AIOKafkaAdminClient], Awaitable[T]]) -> T:
        async def run() -> T:
            admin = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
            await admin.start()
            try:
                return await work(admin)
            finally:
                await admin.close()

        return asyncio.run(run())

    def create(self, topic: str, partitions: str, *config: str) -> None:
        """Make a topic."""
        new = NewTopic(topic, int(partitions), 1, topic_configs=dict(pair.split("=", 1) for pair in config))
        response = self._administer(lambda admin: admin.create_topics([new]))
        checked(response, response.topic_errors)

    def topics(self) -> None:
        """Names of topics."""
        for name in self._administer(lambda admin: admin.list_topics()):
            reply(name)

    def describe(self, topic: str) -> None:
        """Partitions of a topic."""
        (described,) = self._administer(lambda admin: admin.describe_topics([topic]))
        for partition in described["partitions"]:
            reply(partition["partition"], partition["leader"], len(partition["replicas"]))

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        response = self._administer(lambda admin: admin.delete_topics([topic]))
        checked(response, response.topic_error_codes)

    def config(self, topic: str) -> None:
        """Settings of a topic."""
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (response,) = self._administer(lambda admin: admin.describe_configs([resource]))
        for entry in checked(response, response.resources, 0).resources[0][4]:
            reply(f"{entry[0]}={entry[1]}")

    def alter(self, topic: str, *config: str) -> None:
        """Change settings of a topic."""
        changes = dict(pair.split("=", 1) for pair in config)
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, changes)
        (response,) = self._administer(lambda admin: admin.alter_configs([resource]))
        checked(response, response.resources, 0)

    def groups(self) -> None:
        """Names of groups."""
        for group in self._administer(lambda admin: admin.list_consumer_groups()):
            reply(group[0])

    def group(self, name: str) -> None:
        """State and members of a group."""
        (response,) = self._administer(lambda admin: admin.describe_consumer_groups([name]))
        (described,) = checked(response, response.groups, 0).groups
        reply(described[2])
        for member in described[5]:
            assigned = ConsumerProtocolMemberAssignment.decode(member[4]).assignment
            reply(numbers(partition for _, partitions in assigned for partition in partitions))


if __name__ == "__main__":
    serve(AioKafka())

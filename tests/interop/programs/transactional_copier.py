"""Copies a topic in transactions, with the offsets of its group, until it has copied all of it.

It prints a line for each commit. Argument: a JSON object with bootstrap, source, target and count.
"""

from __future__ import annotations

import json
import sys

from minikafka import ClusterClient, GroupConsumer, TopicPartition, TransactionalProducer
from minikafka.clients.group.consumer import Committed


def copy(bootstrap: str, source: str, target: str, count: int) -> None:
    """Copy ``count`` records of both partitions, 100 in a transaction."""
    partitions = [TopicPartition(source, number) for number in (0, 1)]
    config = {
        "group.id": f"copiers of {source}",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 1_000,
        "heartbeat.interval.ms": 300,
    }
    with (
        ClusterClient(bootstrap) as cluster,
        TransactionalProducer(cluster, transactional_id=f"copier of {source}") as producer,
        GroupConsumer(cluster, config) as consumer,
    ):
        producer.init_transactions()
        ends = consumer.end_offsets(partitions)
        consumer.subscribe([source])
        done: dict[TopicPartition, int] = {}
        while any(done.get(tp, 0) < ends[tp] for tp in partitions):
            records = consumer.poll_records(200, 100)
            if records:
                with producer.transaction():
                    for record in records:
                        producer.send(target, record.value, partition=record.partition)
                    positions = {tp: consumer.position(tp) for tp in consumer.assignment}
                    offsets = {tp: Committed(at) for tp, at in positions.items() if at is not None}
                    producer.send_offsets(offsets, consumer.group_metadata())
                sys.stdout.write("committed\n")
                sys.stdout.flush()
            for tp in consumer.assignment:
                done[tp] = consumer.position(tp) or 0


if __name__ == "__main__":
    copy(**json.loads(sys.argv[1]))

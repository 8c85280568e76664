"""Members of a group, while the broker that coordinates them is killed or stopped, and started again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.groups import GroupAdmin
from minikafka.clients.group.consumer import GroupConsumer, GroupConsumerConfig, Reset
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingProducer
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until

PATIENCE_S = 40
PARTITIONS = 4
CONFIG = GroupConsumerConfig(
    "g", auto_commit=False, auto_offset_reset=Reset.EARLIEST, heartbeat_interval_ms=200
)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("end", [Cluster.kill, Cluster.stop_broker], ids=["killed", "stopped"])
def test_members_go_on_without_a_rebalance_and_no_commit_goes_back(
    tmp_path: Path, end: Callable[[Cluster, int], object]
) -> None:
    with (
        Cluster(data_dir=tmp_path / "data") as cluster,
        Client(cluster.bootstrap_servers) as client,
        BatchingProducer(client) as producer,
        GroupConsumer(client, CONFIG) as one,
        GroupConsumer(client, CONFIG) as other,
    ):
        cluster.create_topic("t", partitions=PARTITIONS)
        members = one, other
        for member in members:
            member.subscribe(["t"])
        found: list[bytes | None] = []

        def read() -> None:
            for member in members:
                found.extend(record.value for sets in member.poll(50) for record in sets.records())

        def shared() -> bool:
            read()
            return all(len(member.assignment) == PARTITIONS // 2 for member in members)

        assert wait_until(shared, PATIENCE_S)
        generation = one.generation
        admin, committed = GroupAdmin(client), dict.fromkeys(range(PARTITIONS), 0)
        sent: list[bytes] = []

        def all_read() -> bool:
            read()
            return len(found) >= len(sent)

        for round_ in range(3):
            values = [b"%d-%d" % (round_, number) for number in range(20)]
            for number, value in enumerate(values):
                producer.send("t", value, partition=number % PARTITIONS)
            sent += values
            assert wait_until(all_read, PATIENCE_S)
            for member in members:
                member.commit_sync(timeout_ms=PATIENCE_S * 1000)
            end(cluster, 0)
            cluster.restart(0)
            before = committed
            offsets = admin.offsets("g", timeout_ms=PATIENCE_S * 1000)
            committed = {n: offsets[TopicPartition("t", n)].offset for n in range(PARTITIONS)}
            assert all(committed[number] == before[number] + 5 for number in range(PARTITIONS))
        assert sorted(filter(None, found)) == sorted(sent)
        assert (one.generation, other.generation) == (generation, generation)

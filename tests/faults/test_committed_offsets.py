"""Offsets that a group commits by the hundred thousand, and on a disk that is full."""

from __future__ import annotations

import os
import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from minikafka.base.errors import BrokerError
from minikafka.base.ids import OFFSETS_TOPIC, TopicPartition
from minikafka.clients.admin.groups import GroupAdmin
from minikafka.clients.group.consumer import GroupConsumer, GroupConsumerConfig, Reset
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingProducer
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.data_directory import broker_directory
from minikafka.embedded.process import wait_until
from tests.faults.attack import reads_proc

pytestmark = [pytest.mark.process, pytest.mark.slow]

PATIENCE_S = 60
COMMITS = int(os.environ.get("MINIKAFKA_COMMITS", "500000"))
PARTITIONS = 500
"""The partitions of the topic whose offsets are committed."""
GROUPS = 4
SEGMENT_BYTES = 2 << 20
MOST_BYTES = 6 * SEGMENT_BYTES
"""The limit of the compacted offsets topic: its active segment, and little more."""
FIRST_ANSWER_S = 20.0
MEMORY_GROWTH_BYTES = 100 << 20


def resident_bytes(pid: int) -> int:
    """The memory of a process."""
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def commit_in_rounds(bootstrap: str, group: str, rounds: int) -> None:
    """Commit all partitions of ``t``, each round a higher offset."""
    with Client(bootstrap) as client:
        admin = GroupAdmin(client)
        for offset in range(1, rounds + 1):
            offsets = {TopicPartition("t", number): offset for number in range(PARTITIONS)}
            admin.set_offsets(group, offsets, timeout_ms=PATIENCE_S * 1000)


def check_committed(bootstrap: str, groups: list[str], offset: int) -> None:
    with Client(bootstrap) as client:
        for group in groups:
            found = GroupAdmin(client).offsets(group, timeout_ms=PATIENCE_S * 1000)
            assert {committed.offset for committed in found.values()} == {offset}
            assert len(found) == PARTITIONS


@pytest.mark.long
@pytest.mark.timeout(900)
@reads_proc
def test_the_topic_of_very_many_commits_is_compacted_and_loaded_soon(tmp_path: Path) -> None:
    config = {
        "offsets.topic.num.partitions": "1",
        "offsets.topic.segment.bytes": str(SEGMENT_BYTES),
        "log.cleaner.backoff.ms": "500",
        "log.cleaner.dedupe.buffer.size": str(8 << 20),
    }
    rounds = COMMITS // PARTITIONS // GROUPS
    groups = [f"g-{number}" for number in range(GROUPS)]
    with Cluster(data_dir=tmp_path / "data", config=config) as cluster:
        cluster.create_topic("t", partitions=PARTITIONS)
        commit_in_rounds(cluster.bootstrap_servers, groups[0], 1)
        before = resident_bytes(cluster.broker(0).pid)
        begun = time.monotonic()
        with ThreadPoolExecutor(GROUPS) as committing:
            done = [
                committing.submit(commit_in_rounds, cluster.bootstrap_servers, group, rounds)
                for group in groups
            ]
            for future in done:
                future.result()
        took_s = time.monotonic() - begun
        grown = resident_bytes(cluster.broker(0).pid) - before
        log = broker_directory(tmp_path / "data", 0) / f"{OFFSETS_TOPIC}_0"

        def size() -> int:
            return sum(file.stat().st_size for file in log.glob("*.kafka"))

        written = size()
        assert written > 0
        assert wait_until(lambda: size() < MOST_BYTES, PATIENCE_S), f"{size()} bytes"
        cluster.kill(0)
        begun = time.monotonic()
        cluster.restart(0)
        check_committed(cluster.bootstrap_servers, groups, rounds)
        first_answer_s = time.monotonic() - begun
        sys.stdout.write(
            f"{COMMITS} commits in {took_s:.1f} s, {written >> 20} MiB at their end; "
            f"grown {grown >> 20} MiB; all offsets {first_answer_s:.1f} s after a kill\n"
        )
        assert grown < MEMORY_GROWTH_BYTES
        assert first_answer_s < FIRST_ANSWER_S


FULL_BYTES = 2_000
"""Larger than the files that are no logs."""


def commit_until_refused(consumer: GroupConsumer) -> None:
    """The offsets log has room for some commits still."""
    for _ in range(1_000):
        consumer.commit_sync(timeout_ms=3_000)


@pytest.mark.timeout(180)
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits another process (prlimit)")
def test_group_reads_on_a_full_disk_and_commits_once_there_is_room(tmp_path: Path) -> None:
    config = GroupConsumerConfig(
        "g", auto_commit=False, auto_offset_reset=Reset.EARLIEST, heartbeat_interval_ms=200
    )
    with (
        Cluster(data_dir=tmp_path / "data", config={"offsets.topic.num.partitions": "1"}) as cluster,
        Client(cluster.bootstrap_servers) as client,
        GroupConsumer(client, config) as consumer,
    ):
        cluster.create_topic("t")
        with BatchingProducer(client) as producer:
            for number in range(100):
                producer.send("t", b"%d" % number)
        consumer.subscribe(["t"])
        found: list[bytes | None] = []

        def read() -> bool:
            found.extend(record.value for sets in consumer.poll(50) for record in sets.records())
            return len(found) >= 100

        assert wait_until(read, PATIENCE_S)
        consumer.commit_sync(timeout_ms=PATIENCE_S * 1000)
        generation = consumer.generation
        process = cluster.broker(0).pid
        limits = resource.prlimit(process, resource.RLIMIT_FSIZE)
        resource.prlimit(process, resource.RLIMIT_FSIZE, (FULL_BYTES, limits[1]))
        consumer.seek(TopicPartition("t", 0), 50)
        found.clear()
        assert wait_until(lambda: read() or len(found) >= 50, PATIENCE_S), "nothing is read on a full disk"
        consumer.seek(TopicPartition("t", 0), 70)
        begun = time.monotonic()
        with pytest.raises(BrokerError) as refused:
            commit_until_refused(consumer)
        assert refused.value.is_retriable, refused.value
        assert time.monotonic() - begun < PATIENCE_S
        committed = GroupAdmin(client).offsets("g", timeout_ms=PATIENCE_S * 1000)
        assert committed[TopicPartition("t", 0)].offset in {70, 100}
        resource.prlimit(process, resource.RLIMIT_FSIZE, limits)
        consumer.seek(TopicPartition("t", 0), 80)
        consumer.commit_sync(timeout_ms=PATIENCE_S * 1000)
        committed = GroupAdmin(client).offsets("g", timeout_ms=PATIENCE_S * 1000)
        assert committed[TopicPartition("t", 0)].offset == 80
        assert consumer.generation == generation
        cluster.kill(0)
        cluster.restart(0)
        committed = GroupAdmin(client).offsets("g", timeout_ms=PATIENCE_S * 1000)
        assert committed[TopicPartition("t", 0)].offset == 80

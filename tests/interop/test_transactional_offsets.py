"""Offsets of groups in transactions, in the offsets topic of Kafka 3.9.1: we load what its coordinator wrote,
and it loads batches as our coordinator writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.files import RealFiles
from minikafka.base.ids import OFFSETS_TOPIC, TopicPartition
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.network.cluster import ClusterClient
from minikafka.embedded.process import wait_until
from minikafka.groups.messages import NEVER_MS, OffsetCommitValue, ValueVersions
from minikafka.groups.shard import GroupCoordinatorShard, GroupSettings, commit_records
from minikafka.log.config import LogConfig
from minikafka.log.layout import Layout
from minikafka.records.format.batch import ControlType, build_batch, build_control_batch
from minikafka.records.format.record import Record
from minikafka.server.groups.group_loader import GroupLoader
from tests.interop.releases import KAFKA_3_9
from tests.support.kafka_broker import KafkaBroker, running
from tests.support.logs import open_log
from tests.support.python_clients import confluent_kafka

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(240)]

PATIENCE_S = 60.0
TOPIC, PARTITIONS = "t", 4
SETTINGS = GroupSettings(versions=ValueVersions(offset=3))
Offsets = dict[int, int]


@dataclass(frozen=True)
class Found:
    """The committed offsets of group g, by partition, as Kafka told them, and the groups that we load."""

    before: Offsets
    loaded: GroupCoordinatorShard
    after: Offsets
    """After batches like those of our coordinator were added to the log."""


class Group:
    """Group g, and producers that commit its offsets; it has no members."""

    def __init__(self, kafka: KafkaBroker) -> None:
        self._bootstrap = kafka.bootstrap
        settings = {"group.id": "g", "enable.auto.commit": False, "isolation.level": "read_uncommitted"}
        self._consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap, **settings})

    def committed(self) -> Offsets:
        wanted = [confluent_kafka.TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        found = self._consumer.committed(wanted, PATIENCE_S)
        return {row.partition: row.offset for row in found if row.offset >= 0}

    def commit(self, offsets: Offsets) -> None:
        self._consumer.commit(offsets=rows(offsets), asynchronous=False)

    def transaction(self, name: str, offsets: Offsets) -> confluent_kafka.Producer:
        """A producer in a transaction that commits ``offsets``."""
        producer = confluent_kafka.Producer({"bootstrap.servers": self._bootstrap, "transactional.id": name})
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        metadata = self._consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction(rows(offsets), metadata, PATIENCE_S)
        return producer

    def close(self) -> None:
        self._consumer.close()


def rows(offsets: Offsets) -> list[confluent_kafka.TopicPartition]:
    return [confluent_kafka.TopicPartition(TOPIC, number, offset) for number, offset in offsets.items()]


def load(directory: Path) -> tuple[GroupCoordinatorShard, int]:
    """Load the groups from the log of the offsets topic; return them and the log's end."""
    log = open_log(RealFiles(), LogConfig(), directory=str(directory), layout=Layout.APACHE)
    try:
        shard = GroupLoader(SETTINGS, ManualClock(), 1000).load(log, TopicPartition(OFFSETS_TOPIC, 0))
        assert shard is not None
        return shard, log.end_offset
    finally:
        log.close()


def add_ours(directory: Path, end_offset: int, producer_id: int, offsets: Offsets, kind: ControlType) -> int:
    """Add a transaction to the log as our coordinator writes it; return the log's end."""
    commits = {
        TopicPartition(TOPIC, number): OffsetCommitValue(offset, -1, "", 1_700_000_000_000, NEVER_MS)
        for number, offset in offsets.items()
    }
    records = [Record(key, value, 1_700_000_000_000) for key, value in commit_records("g", commits, SETTINGS)]
    batch = build_batch(
        records,
        base_offset=end_offset,
        leader_epoch=0,
        producer_id=producer_id,
        producer_epoch=0,
        transactional=True,
    )
    marker = build_control_batch(
        kind,
        coordinator_epoch=0,
        producer_id=producer_id,
        producer_epoch=0,
        timestamp_ms=1_700_000_000_000,
        base_offset=end_offset + len(records),
    )
    with (directory / "00000000000000000000.log").open("ab") as file:
        file.write(batch + marker)
    return end_offset + len(records) + 1


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Found]:
    config = {"offsets.topic.num.partitions": 1}
    with running(KAFKA_3_9, tmp_path_factory.mktemp("offsets"), config=config) as kafka:
        with ClusterClient(kafka.bootstrap) as cluster:
            Admin(cluster).create_topic(NewTopic(TOPIC, partitions=PARTITIONS))
        group = Group(kafka)
        group.transaction("one", {0: 5, 2: 2}).commit_transaction(PATIENCE_S)
        group.transaction("two", {0: 6, 1: 1}).abort_transaction(PATIENCE_S)
        overtaken = group.transaction("three", {1: 2, 2: 4})
        group.commit({1: 4})
        overtaken.commit_transaction(PATIENCE_S)
        still_open = group.transaction("four", {0: 8, 3: 9})
        before: Offsets = {0: 5, 1: 4, 2: 4}
        # A commit is answered before its marker is there.
        assert wait_until(lambda: group.committed() == before, PATIENCE_S), group.committed()
        directory = Path(kafka.log).parent / "data" / f"{OFFSETS_TOPIC}-0"
        kafka.kill()
        loaded, end_offset = load(directory)
        end_offset = add_ours(directory, end_offset, 90_001, {1: 11, 3: 12}, ControlType.COMMIT)
        add_ours(directory, end_offset, 90_002, {0: 99, 2: 98}, ControlType.ABORT)
        kafka.start()
        after: list[Offsets] = []

        def is_loaded() -> bool:
            after.append(group.committed())
            return bool(after[-1])

        assert wait_until(is_loaded, PATIENCE_S)
        group.close()
        yield Found(before, loaded, after[-1])
        del still_open


def test_committed_and_aborted_transactions_of_kafka_are_loaded(found: Found) -> None:
    assert {key.partition: value.offset for key, value in found.loaded.offsets("g").items()} == found.before


def test_open_transaction_of_kafka_stays_aside(found: Found) -> None:
    unstable = {
        number for number in range(PARTITIONS) if found.loaded.is_unstable("g", TopicPartition(TOPIC, number))
    }
    assert unstable == {0, 3}


def test_kafka_loads_transactions_as_our_coordinator_writes_them(found: Found) -> None:
    assert found.after == {0: 5, 1: 11, 2: 4, 3: 12}

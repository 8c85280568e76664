"""Recorded group requests of clients to Kafka 0.10.1.1: our broker gives the same responses.

The frames in ``tests/data/wire`` are sent unchanged, except for member ids, which the broker assigns: ours,
of the same length, replace the recorded ones. Arrays that Kafka returns in the order of a hash map are
compared in any order; hosts are not compared.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.groups.messages import (
    NEVER_MS,
    OffsetCommitValue,
    OffsetKey,
    ValueVersions,
    offset_bytes,
    offset_key,
    read_key,
    read_offset,
)
from minikafka.records.format.batch import ControlType, build_batch, build_control_batch
from minikafka.records.format.message_set import Record
from tests.scenarios.recordings import Replay, make_offsets_topic
from tests.support import requests
from tests.support.simulation import DATA_DIR, Simulation
from tests.unit.groups.test_messages import recorded as recorded_offsets

WIRE = Path(__file__).parents[1] / "data" / "wire"
SEGMENT = Path(__file__).parents[1] / "data" / "consumer-offsets" / "00000000000000000000.log"

OLD_AND_NEW = {"AwaitingSync": "CompletingRebalance"}
"""The states with other names in 0.10.1 -> their names in 2.1."""

LIBRDKAFKA = (
    "11-JoinGroup-v1#3 14-SyncGroup-v0#3 12-Heartbeat-v0#2 09-OffsetFetch-v1#5 08-OffsetCommit-v2#5 "
    "09-OffsetFetch-v1#6 13-LeaveGroup-v0#2 "
    # Its second run, as a client of 0.9: leaving the group created a generation too.
    "11-JoinGroup-v0#0 14-SyncGroup-v0#4 12-Heartbeat-v0#3 09-OffsetFetch-v1#7 08-OffsetCommit-v2#6 "
    "09-OffsetFetch-v1#8 13-LeaveGroup-v0#3"
)
REPLAYS = {
    "Java, outside of a group": "08-OffsetCommit-v2#0 08-OffsetCommit-v2#1 08-OffsetCommit-v2#2",
    "Java, times of its own": "08-OffsetCommit-v1#0 08-OffsetCommit-v1#1",
    "Java, two members": (
        "11-JoinGroup-v1#0 14-SyncGroup-v0#0 09-OffsetFetch-v1#0 12-Heartbeat-v0#0 commit:12-Heartbeat-v0#0 "
        "11-JoinGroup-v1#1 11-JoinGroup-v1#2 14-SyncGroup-v0#1 14-SyncGroup-v0#2 09-OffsetFetch-v1#1 "
        "09-OffsetFetch-v1#2 13-LeaveGroup-v0#0"
    ),
    "Java, a member that commits nothing": "join:12-Heartbeat-v0#1 12-Heartbeat-v0#1 13-LeaveGroup-v0#1",
    "Scala": (
        "08-OffsetCommit-v0#0 08-OffsetCommit-v1#2 08-OffsetCommit-v2#3 09-OffsetFetch-v0#0 "
        "09-OffsetFetch-v1#3"
    ),
    "Scala, high level": "09-OffsetFetch-v1#4 08-OffsetCommit-v2#4",
    "librdkafka": LIBRDKAFKA,
    "kafka-python": (
        "11-JoinGroup-v1#4 14-SyncGroup-v0#5 11-JoinGroup-v1#5 14-SyncGroup-v0#6 09-OffsetFetch-v1#9 "
        "08-OffsetCommit-v2#7 13-LeaveGroup-v0#4"
    ),
    "kafka-python as 0.9": (
        "11-JoinGroup-v0#1 14-SyncGroup-v0#7 09-OffsetFetch-v1#10 08-OffsetCommit-v2#8 13-LeaveGroup-v0#5"
    ),
    "kafka-python as 0.10.0": (
        "11-JoinGroup-v0#2 14-SyncGroup-v0#8 09-OffsetFetch-v1#11 08-OffsetCommit-v2#9 13-LeaveGroup-v0#6"
    ),
    "kafka-python as 0.10.1": (
        "11-JoinGroup-v1#6 14-SyncGroup-v0#9 09-OffsetFetch-v1#12 08-OffsetCommit-v2#10 13-LeaveGroup-v0#7"
    ),
    "by hand": (
        "09-OffsetFetch-v0#1 09-OffsetFetch-v1#13 11-JoinGroup-v0#3 11-JoinGroup-v0#4 11-JoinGroup-v0#5 "
        "11-JoinGroup-v1#7 12-Heartbeat-v0#4 13-LeaveGroup-v0#8 14-SyncGroup-v0#10 15-DescribeGroups-v0#1"
    ),
}
"""Client -> its recorded exchanges, in their order."""

JAVA = " ".join(replay for client, replay in REPLAYS.items() if client.startswith("Java"))
SEVERAL = {
    "coordinator look-ups": " ".join(f"10-GroupCoordinator-v0#{number}" for number in range(15)),
    "a tool at a broker without groups": "16-ListGroups-v0#0",
    "a tool at the coordinator": (
        f"10-GroupCoordinator-v0#0 {JAVA} later:20000 03-Metadata-v2#8 16-ListGroups-v0#1 "
        "10-GroupCoordinator-v0#5 15-DescribeGroups-v0#0"
    ),
    "the last tool": f"10-GroupCoordinator-v0#0 {' '.join(REPLAYS.values())} 16-ListGroups-v0#2",
}
"""Exchanges about the groups of more than one client."""


@pytest.mark.parametrize("client", REPLAYS)
def test_recorded_client_gets_the_same_responses(client: str) -> None:
    replay = Replay()
    make_offsets_topic(replay.simulation)
    replay.run(REPLAYS[client])
    replay.check()


@pytest.mark.parametrize("client", SEVERAL)
def test_recorded_group_tools_get_the_same_responses(client: str) -> None:
    replay = Replay()
    replay.run(SEVERAL[client])
    replay.check()


def with_offsets(segment: bytes) -> Simulation:
    """A broker whose only offsets partition has the log of another broker."""
    simulation = Simulation()
    properties = {"offsets.topic.num.partitions": "1"}
    simulation.machine.start(properties)
    make_offsets_topic(simulation)
    simulation.machine.stop()
    file = simulation.machine.files.open(f"{DATA_DIR}/__consumer_offsets_0/00000000000.kafka")
    file.write_at(0, segment)
    file.close()
    simulation.machine.start(properties)
    return simulation


def test_offsets_of_transactions_count_if_committed() -> None:
    def commit(base_offset: int, partition: int, offset: int, producer_id: int = -1) -> bytes:
        value = OffsetCommitValue(offset, -1, "", 0, NEVER_MS)
        key = offset_key("g", TopicPartition("t", partition))
        return build_batch(
            [Record(key, offset_bytes(value, ValueVersions(), 0), 0)],
            base_offset=base_offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=producer_id >= 0,
        )

    def mark(base_offset: int, kind: ControlType, producer_id: int) -> bytes:
        return build_control_batch(
            kind,
            coordinator_epoch=0,
            producer_id=producer_id,
            producer_epoch=0,
            timestamp_ms=0,
            base_offset=base_offset,
        )

    simulation = with_offsets(
        commit(0, 0, 10)
        + commit(1, 1, 10)
        + commit(2, 0, 20, producer_id=7)
        + commit(3, 1, 30, producer_id=8)
        + commit(4, 2, 40, producer_id=9)
        + commit(5, 3, 50, producer_id=8)
        + commit(6, 3, 60)
        + mark(7, ControlType.ABORT, 7)
        + mark(8, ControlType.COMMIT, 8)
    )
    answer = simulation.call(requests.fetch_offsets().at(5))
    (topic,) = answer.topics
    found = {part.partition_index: part.committed_offset for part in topic.partitions}
    assert found == {0: 10, 1: 30, 3: 60}


def test_offsets_partition_of_kafka_gives_the_same_responses() -> None:
    simulation = with_offsets(SEGMENT.read_bytes())
    wanted: dict[str, dict[TopicPartition, tuple[int, str]]] = {}
    for key, value, _ in recorded_offsets():
        named = read_key(key)
        if isinstance(named, OffsetKey):
            group = wanted.setdefault(named.group, {})
            if value is None:
                del group[named.topic_partition]
            else:
                offset = read_offset(value, 0)
                group[named.topic_partition] = offset.offset, offset.metadata
    assert set(wanted) == {"commits-only", "rebalancing", "old-expired", "old-kept"}
    for name, offsets in wanted.items():
        answer = simulation.call(requests.fetch_offsets(group=name).at(5))
        assert answer.error_code == 0
        assert {
            TopicPartition(topic.name, part.partition_index): (part.committed_offset, part.metadata)
            for topic in answer.topics
            for part in topic.partitions
        } == offsets

    described = simulation.call(requests.describe_groups("rebalancing").at(2))
    (group,) = described.groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    assert [(member.client_id, member.client_host) for member in group.members] == [
        ("member-1", "/127.0.0.1")
    ]

"""Partitions with several replicas, each on a disk of its own in memory, for the tests of this floor."""

from __future__ import annotations

import functools

from minikafka.base.ids import TopicPartition
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.config import LogConfig
from minikafka.log.layout import Layout
from minikafka.log.log import Log
from minikafka.partition.partition import Partition
from minikafka.partition.replica import LeaderAndIsr
from minikafka.records.append.produced import Limits, ValidatedRecords
from minikafka.records.append.replicated import FollowerRecords, replicated
from minikafka.records.append.validation import validate
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Record, build_message_set, iterate

T = TopicPartition("t", 0)
ALL = (1, 2, 3)


def replica(broker_id: int, *, high_watermark: int = 0, config: LogConfig | None = None) -> Partition:
    """A replica with an empty log, of nobody told yet."""
    files = MemoryFiles()
    files.make_dirs("/d")
    log = Log.open(files, "/d/t_0", config or LogConfig(), Layout.CLASSIC)
    return Partition(T, log, broker_id, high_watermark=high_watermark)


def leadership(
    leader: int,
    epoch: int = 0,
    isr: tuple[int, ...] = ALL,
    *,
    version: int = 0,
    replicas: tuple[int, ...] = ALL,
) -> LeaderAndIsr:
    return LeaderAndIsr(leader, epoch, isr, replicas, 1, version)


def leading(
    isr: tuple[int, ...] = ALL,
    *,
    messages: int = 0,
    now_ms: int = 0,
    min_in_sync: int = 1,
    flush_messages: int | None = None,
) -> Partition:
    """Replica 1 as the leader of epoch 0, with one set of so many messages."""
    made = replica(1, config=LogConfig(min_insync_replicas=min_in_sync, flush_messages=flush_messages))
    made.apply_leadership(leadership(1, isr=isr), now_ms)
    if messages:
        write(made, messages)
    return made


def messages(*values: bytes, magic: int = 2) -> ValidatedRecords:
    records = [Record(None, value, 0) for value in values]
    data = build_batch(records) if magic == 2 else build_message_set(records, magic=magic)
    return validate(bytearray(data), Limits(max_magic=2), 0)


def write(partition: Partition, count: int = 1, *, magic: int = 2, all_in_sync: bool = False) -> int:
    """Append one set; the last offset."""
    values = [b"%d" % (partition.log.end_offset + number) for number in range(count)]
    return partition.append(messages(*values, magic=magic), all_in_sync=all_in_sync).append_info.last_offset


def taken(partition: Partition, offset: int) -> FollowerRecords:
    """What a follower at ``offset`` is given."""
    found = partition.read(offset, 1 << 20, at_least_one=True, for_replica=True)
    assert found.slice is not None
    copied = replicated(found.slice.read(), offset)
    assert copied is not None
    return copied


def follow(follower: Partition, leader: Partition, now_ms: int = 0) -> None:
    """One fetch of a follower, and what comes written and acknowledged by another one."""
    known = follower.leadership
    assert known is not None
    for _ in range(2):
        leader.update_follower_fetch_state(follower_id(follower), follower.log.end_offset, now_ms)
        if follower.log.end_offset < leader.log.end_offset:
            follower.append_as_follower(taken(leader, follower.log.end_offset), known.leader_epoch)
        follower.update_high_watermark(leader.high_watermark)


def follower_id(partition: Partition) -> int:
    return partition._broker_id


@functools.lru_cache
def _values_in(data: bytes) -> tuple[list[bytes | None], int]:
    """The values of a message set, and its last offset; a test asks for the same log many times."""
    records = list(iterate(data))
    return [record.value for record in records], records[-1].offset


def values(partition: Partition, up_to: int | None = None) -> list[bytes | None]:
    """Of all messages, or those below an offset."""
    found: list[bytes | None] = []
    at = partition.log.start_offset
    while True:
        piece = partition.log.read(at, 1 << 20, up_to=up_to).slice
        if piece is None:
            return found
        got, last = _values_in(bytes(piece.read()))
        found += got
        at = last + 1

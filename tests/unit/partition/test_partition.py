"""A partition on its leader: appends, and the messages that consumers see."""

from __future__ import annotations

import pytest

from minikafka.base.errors import BrokerError, ErrorCode, OffsetOutOfRange
from minikafka.base.ids import TopicPartition
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.config import LogConfig
from minikafka.log.layout import Layout
from minikafka.log.log import Log
from minikafka.partition.partition import Partition
from minikafka.partition.replica import LeaderAndIsr
from minikafka.records.append.produced import Limits, ValidatedRecords
from minikafka.records.append.validation import validate
from minikafka.records.format.message_set import Record, TimestampType, build_message_set

LIMITS = Limits(
    max_message_bytes=1000,
    timestamp_type=TimestampType.CREATE_TIME,
    max_timestamp_difference_ms=None,
    compacted=False,
)


def messages(*values: bytes) -> ValidatedRecords:
    return validate(bytearray(build_message_set([Record(None, value) for value in values])), LIMITS, 0)


def partition(*, leader: int = 1, flush_messages: int | None = None) -> Partition:
    files = MemoryFiles()
    files.make_dirs("/d")
    config = LogConfig(flush_messages=flush_messages)
    log = Log.open(files, "/d/t_0", config, Layout.CLASSIC)
    made = Partition(TopicPartition("t", 0), log, broker_id=1)
    made.apply_leadership(LeaderAndIsr(leader, 0, (leader,), (leader,), 1))
    return made


def test_without_a_configured_flush_messages_are_visible_at_once() -> None:
    leading = partition()
    done = leading.append(messages(b"a", b"b"))
    assert not done.must_flush
    assert leading.high_watermark == 2


def test_with_a_configured_flush_messages_are_visible_only_after_it() -> None:
    leading = partition(flush_messages=1)
    assert leading.append(messages(b"a")).must_flush
    assert leading.high_watermark == 0
    assert leading.read(0, 1000, at_least_one=True).slice is None
    assert leading.complete_flush(leading.log.flush())
    assert leading.high_watermark == 1
    assert leading.read(0, 1000, at_least_one=True).slice is not None


def test_read_is_out_of_range_behind_the_log_end_not_the_hw() -> None:
    leading = partition(flush_messages=1)
    leading.append(messages(b"a", b"b", b"c"))
    assert leading.high_watermark == 0
    for offset in (1, 3):
        assert leading.read(offset, 1000, at_least_one=True).slice is None
    with pytest.raises(OffsetOutOfRange):
        leading.read(4, 1000, at_least_one=True)


def test_a_flush_that_tells_nothing_new_leaves_the_high_watermark() -> None:
    leading = partition(flush_messages=1)
    leading.append(messages(b"a"))
    assert leading.complete_flush(1)
    assert not leading.complete_flush(1)
    assert not leading.complete_flush(0)
    assert leading.high_watermark == 1


def test_a_broker_that_follows_takes_nothing_and_may_be_read() -> None:
    following = partition(leader=2)
    with pytest.raises(BrokerError) as refused:
        following.append(messages(b"a"))
    assert refused.value.code is ErrorCode.NOT_LEADER_FOR_PARTITION
    assert following.check_replica().leader == 2
    following.drop_replica()
    with pytest.raises(BrokerError) as refused:
        following.check_replica()
    assert refused.value.code is ErrorCode.NOT_LEADER_FOR_PARTITION


def test_a_decision_of_an_older_epoch_changes_nothing() -> None:
    leading = partition()
    leading.apply_leadership(LeaderAndIsr(1, 5, (1,), (1,), 2))
    leading.apply_leadership(LeaderAndIsr(2, 4, (2,), (2,), 1))
    assert leading.is_leader

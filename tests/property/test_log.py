"""The logs of a broker against a plain list, through closes, crashes, power cuts and failing disks.

What must hold after any of it: what can be read is what was appended, in order and without a hole, up to
some offset; nothing is missing that a flush had made durable, and nothing after a crash of the process.
A set whose append failed may be there after a restart, when the disk took it and refused to be cut back.
"""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minikafka.base.clock import ManualClock
from minikafka.base.errors import OffsetOutOfRange, StorageError
from minikafka.base.ids import TopicPartition
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.config import LogConfig
from minikafka.log.layout import Layout
from minikafka.log.log import Log
from minikafka.log.manager import LogManager
from minikafka.records.format.message_set import Codec, iterate
from tests.support.logs import read_all, valid_set

PARTITION = TopicPartition("t", 0)
MAX_BYTES = strategies.sampled_from([1, 50, 200, 1000, 10_000])


class LogMachine(RuleBasedStateMachine):
    """A partition of a broker, and the list of the messages that it must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFiles(clock=ManualClock())
        self.config = LogConfig()
        self.layout = Layout.CLASSIC
        self.values: list[bytes] = []
        self.starts: set[int] = set()
        """Offsets at which an entry begins: where a truncation can end the log."""
        self.durable = 0
        self.made = 0

    @initialize(
        segment_bytes=strategies.sampled_from([400, 1500, 6000]),
        interval_bytes=strategies.sampled_from([1, 100, 1000]),
        index_bytes=strategies.sampled_from([24, 10_000]),
        layout=strategies.sampled_from(list(Layout)),
    )
    def begin(self, segment_bytes: int, interval_bytes: int, index_bytes: int, layout: Layout) -> None:
        self.config = LogConfig(segment_bytes, interval_bytes, index_bytes)
        self.layout = layout
        self.files.make_dirs("d")
        self.files.sync_dir("")
        self.start()

    def start(self) -> None:
        self.manager = LogManager(self.files, ["d"], self.config, self.layout, self.files.clock)
        self.manager.open_all()
        self.log: Log = self.manager.create(PARTITION)

    def recovered(self, at_least: int) -> None:
        """Start again after a crash: a prefix is there, of at least ``at_least`` messages."""
        self.start()
        assert at_least <= self.log.end_offset <= len(self.values)
        self.cut(self.log.end_offset)

    def cut(self, end: int) -> None:
        del self.values[end:]
        self.starts = {start for start in self.starts if start < end}
        self.durable = min(self.durable, end)

    def new_values(self, sizes: list[int]) -> list[bytes]:
        self.made += 1
        # The number makes every value another one: a message that comes back at a used offset is found.
        return [f"{self.made}.{number}.".encode() + b"x" * size for number, size in enumerate(sizes)]

    @rule(
        sizes=strategies.lists(strategies.integers(0, 120), min_size=1, max_size=6),
        codec=strategies.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4]),
        magic=strategies.sampled_from([0, 1, 1]),
    )
    def append(self, sizes: list[int], codec: Codec, magic: int) -> None:
        values = self.new_values(sizes)
        valid = valid_set(values, codec=codec, magic=magic)
        if valid.size_bytes > self.config.segment_bytes * 0.9:
            return
        first = len(self.values)
        assigned = self.log.append(valid)
        assert assigned.first_offset == first
        self.values += values
        self.starts |= {first} if codec else set(range(first, len(self.values)))

    @rule(after_bytes=strategies.integers(0, 100), truncate_fails=strategies.booleans())
    def append_on_a_failing_disk(self, after_bytes: int, truncate_fails: bool) -> None:
        if truncate_fails:
            self.files.fail_next_truncate(match=self.layout.segment_suffix)
        self.files.fail_next_write(after_bytes=after_bytes, match=self.layout.segment_suffix)
        refused = self.new_values([30, 30])
        with pytest.raises(StorageError):
            self.log.append(valid_set(refused))
        self.files.clear_faults()
        self.check_content()
        if self.log.failure is not None:
            self.files.kill_process()
            held = len(self.values)
            self.values += refused
            self.starts |= set(range(held, held + len(refused)))
            self.recovered(held)

    @rule()
    def flush(self) -> None:
        assert self.log.flush() == len(self.values)
        self.durable = len(self.values)

    @rule()
    def flush_full_segments(self) -> None:
        self.manager.flush_dirty_logs()
        self.durable = max(self.durable, self.log.recovery_point)

    @rule()
    def flush_on_a_failing_disk(self) -> None:
        if self.log.unflushed_messages == 0:
            return
        self.files.fail_next_sync(match=self.log.segments[-1].path)
        with contextlib.suppress(StorageError):
            self.log.flush()
        self.files.clear_faults()
        if self.log.failure is not None:
            self.files.power_cut()
            self.recovered(self.durable)

    @rule()
    def checkpoint(self) -> None:
        self.manager.checkpoint_offsets()

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @precondition(lambda self: self.values)
    @rule(data=strategies.data())
    def truncate(self, data: strategies.DataObject) -> None:
        offset = data.draw(strategies.integers(0, len(self.values)))
        self.manager.truncate(PARTITION, offset)
        end = offset
        while end < len(self.values) and end not in self.starts:
            end -= 1
        self.cut(end)
        assert self.log.end_offset == end

    @rule(power_cut=strategies.booleans())
    def close_and_open(self, power_cut: bool) -> None:
        self.manager.close()
        if power_cut:
            self.files.power_cut()
        self.recovered(len(self.values))
        assert self.log.recovery is None
        self.durable = len(self.values)

    @rule()
    def kill(self) -> None:
        self.files.kill_process()
        self.recovered(len(self.values))

    @rule(seed=strategies.none() | strategies.integers(0, 1 << 30))
    def cut_the_power(self, seed: int | None) -> None:
        self.files.power_cut(None if seed is None else random.Random(seed))
        self.recovered(self.durable)

    @rule()
    def delete_and_create(self) -> None:
        self.manager.delete(PARTITION)
        self.cut(0)
        self.log = self.manager.create(PARTITION)

    @rule(data=strategies.data(), max_bytes=MAX_BYTES)
    def read(self, data: strategies.DataObject, max_bytes: int) -> None:
        end = len(self.values)
        offset = data.draw(strategies.integers(0, end))
        up_to = data.draw(strategies.none() | strategies.integers(0, end))
        found = self.log.read(offset, max_bytes, up_to=up_to)
        bound = end if up_to is None else up_to
        if found.slice is None:
            assert offset >= bound or not any(offset < start <= bound for start in self.starts | {end})
            return
        records = list(iterate(found.slice.read()))
        assert records[0].offset <= offset <= records[-1].offset < bound
        assert [record.value for record in records] == self.values[records[0].offset : records[-1].offset + 1]

    @rule(distance=strategies.integers(1, 1 << 40), below=strategies.booleans())
    def read_outside(self, distance: int, below: bool) -> None:
        with pytest.raises(OffsetOutOfRange) as caught:
            self.log.read(-distance if below else len(self.values) + distance, 100)
        assert (caught.value.start_offset, caught.value.end_offset) == (0, len(self.values))

    @invariant()
    def check_content(self) -> None:
        if not hasattr(self, "log"):
            return
        assert self.log.end_offset == len(self.values)
        assert self.log.recovery_point <= self.log.end_offset
        records = read_all(self.log)
        assert [record.value for record in records] == self.values
        assert [record.offset for record in records] == list(range(len(self.values)))


TestLog = LogMachine.TestCase
TestLog.settings = settings(stateful_step_count=30)

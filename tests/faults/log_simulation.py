"""A broker's logs over several lives, each of which ends at random, for ``test_log_simulation``.

One seed decides everything: the partitions and their settings, the layout, one or two data directories, the
order of operations, the change of the disk at which a life ends, and what the disk then keeps. The disk is
``base.memory_files``, with small blocks so that small files have many.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from minikafka.base.clock import ManualClock
from minikafka.base.errors import StorageError
from minikafka.base.ids import TopicPartition
from minikafka.log.checkpoints.offset_checkpoint import read_checkpoint
from minikafka.log.cleanup.cleaner import Cleaner
from minikafka.log.config import LogConfig
from minikafka.log.layout import (
    CLEANED_SUFFIX,
    DELETE_DIR_SUFFIX,
    DELETED_FILE_SUFFIX,
    RECOVERY_POINT_FILE,
    SWAP_SUFFIX,
    Layout,
)
from minikafka.log.log import Log
from minikafka.log.manager import LogManager
from minikafka.log.recovery import log_loader
from minikafka.records.append.produced import Limits
from minikafka.records.append.validation import validate
from minikafka.records.compaction import SLOT_BYTES, OffsetMap
from minikafka.records.format.batch import set_producer
from minikafka.records.format.message_set import NO_TIMESTAMP, Codec, Record, build_message_set
from tests.faults.log_model import Message, Partition, entries_of
from tests.support.disks import Killed, KillingFiles
from tests.support.logs import valid_set

INTERVAL_MS = 200
"""The interval of flushes by time (``log.flush.scheduler.interval.ms``)."""
CONFIG = LogConfig(segment_bytes=420, index_interval_bytes=60, file_delete_delay_ms=300, retention_ms=None)
LIMITS = Limits(max_magic=2)
TOPICS: dict[str, dict[str, str]] = {
    "counted": {"flush.messages": "4"},
    "timed": {"flush.ms": "300", "retention.bytes": "900"},
    "lazy": {"retention.ms": "700"},
    "compacted": {"cleanup.policy": "compact", "flush.messages": "7", "delete.retention.ms": "400"},
}
LONG = ("open", "close", "make", "delete", "retain", "advance")
LONG += ("truncate", "clean", "compact", "lead", "roll")
"""Operations with many steps."""


class Simulation:
    """The lives of one seed. ``run`` raises AssertionError if a guarantee is broken."""

    def __init__(self, seed: int, focus: str = "") -> None:
        """``focus``: an operation that happens more often, and during which most lives end."""
        self.seed = seed
        self.focus = focus
        self.weights = [
            weight * (5 if operation.__name__ == focus else 1) for operation, weight in OPERATIONS.items()
        ]
        self.dice = random.Random(seed)
        self.clock = ManualClock()
        self.files = KillingFiles(clock=self.clock, page_bytes=128, sector_bytes=32)
        self.directories = ["d1", "d2"][: self.dice.choice([1, 1, 2])]
        self.layout = self.dice.choice(list(Layout))
        self.config = CONFIG
        self.partitions: dict[TopicPartition, Partition] = {}
        self.overrides = {
            topic: {**own, "preallocate": self.dice.choice(["true", "false"])}
            for topic, own in TOPICS.items()
        }
        self.names = [
            TopicPartition(topic, 0)
            for topic in self.dice.sample(list(TOPICS), self.dice.choice([1, 2, 2, 3]))
        ]
        if focus in {"clean", "compact"}:
            self.names = [TopicPartition("compacted", 0)]
        if focus == "retain":
            self.names = [TopicPartition("lazy", 0)]
        self.happened: Counter[str] = Counter()
        """Operations, ends of lives, and losses."""
        self.journal: list[str] = []
        """The operations of this life."""
        self.whole = True
        """True if there was no power cut since the logs were last opened."""
        self.ends_within = ""
        """The operation during which this life is to end."""
        self.serial = 0
        for directory in self.directories:
            self.files.make_dirs(directory)
        self.files.sync_dir("")

    # --- lives

    def run(self, lives: int = 4) -> None:
        """Run some lives, and open the logs once more at the end."""
        try:
            for _ in range(lives):
                self.life()
            self.open()
        except Killed:
            raise
        except Exception as problem:
            operations = "\n  ".join(self.journal[-100:])
            raise AssertionError(
                f"seed {self.seed}: {problem or problem!r}\nits last life:\n  {operations}"
            ) from problem
        finally:
            self.happened.update(self.files.losses)

    def life(self) -> None:
        """Open the logs, run random operations, and end, perhaps during an operation."""
        dice, files = self.dice, self.files
        files.changes_left = 1 + dice.randrange(140) if dice.random() < 0.4 else 1 << 60
        self.ends_within = (self.focus or dice.choice(LONG)) if dice.random() < 0.7 else ""
        try:
            self.open()
            for _ in range(dice.randrange(4, 34)):
                self.do_something()
            if dice.random() < 0.4:
                self.close()
        except Killed as off:
            self.journal.append(f"… ends right after {off}")
        files.changes_left, self.ends_within = 1 << 60, ""
        self.end()

    def end(self) -> None:
        """Kill the process, or cut the power."""
        if self.dice.random() < 0.25:
            self.journal.append("killed")
            self.happened["a process killed"] += 1
            self.files.kill_process()
            return
        self.whole = False
        everything = self.dice.random() < 0.4
        self.journal.append("power cut" + ", all that was not synced is lost" * everything)
        self.happened["a power cut"] += 1
        self.files.power_cut(None if everything else self.dice)

    # --- opening, and the checks

    def open(self) -> None:
        """Open all logs and compare them with the model."""
        self.manager = LogManager(self.files, self.directories, self.config, self.layout, self.clock)
        self.note("open")
        self.manager.open_all(self.overrides)
        self.check_names()
        logs = self.manager.logs()
        for name in self.names:
            partition, log = self.partitions.get(name), logs.get(name)
            if partition is None:
                assert log is None, f"{name} exists, but was deleted or never created"
            elif log is None:
                assert not self.manager.partitions_of(name.topic), f"{name} failed to open"
                assert partition.making or partition.deleting, f"{name} is missing"
                del self.partitions[name]
            else:
                self.check(partition, log)
        self.whole = True
        # Earlier operations cannot be the cause of a later problem.
        self.journal = [f"{self.journal[-1]}, opened" if self.journal else "opened"]
        for name, log in logs.items():
            if log.needs_flush():
                self.flush(self.partitions[name], log)

    def check(self, partition: Partition, log: Log) -> None:
        try:
            partition.check(
                log,
                self.clock.monotonic_ms(),
                INTERVAL_MS,
                whole=self.whole,
                step=self.dice.choice([1, 90, 400, 4000]),
            )
            partition.adopt(log, self.clock.monotonic_ms())
            partition.check_producers(log)
            self.check_look_ups(partition, log)
        except (AssertionError, StorageError) as problem:
            raise AssertionError(f"{partition.id}: {problem}") from problem

    def check_names(self) -> None:
        """Check that no unfinished change survives an open."""
        for directory in self.directories:
            for name in self.files.list_dir(directory):
                assert not name.endswith(DELETE_DIR_SUFFIX), f"{directory}/{name} still exists"
                path = f"{directory}/{name}"
                for inner in self.files.list_dir(path) if self.files.is_dir(path) else []:
                    assert not inner.endswith((CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_FILE_SUFFIX)), (
                        f"{path}/{inner} still exists"
                    )

    def check_look_ups(self, partition: Partition, log: Log) -> None:
        """Look up a few offsets and times through the indexes."""
        readable = [offset for offset in partition.messages if offset >= log.start_offset]
        for offset in self.dice.sample(readable, min(4, len(readable))):
            last = partition.messages[offset].entry[1]
            found = log.read(offset, 1)
            assert found.first_offset == last, (
                f"offset {offset} is in the entry of {last}, not {found.first_offset}"
            )
            time_ms = partition.messages[offset].time_ms
            if time_ms != NO_TIMESTAMP:
                first = min(at for at in readable if partition.messages[at].time_ms >= time_ms)
                expected = first, partition.messages[first].time_ms
                answer = log.offset_for_timestamp(time_ms)
                assert answer == expected, f"time {time_ms}: {answer} and not {expected}"

    # --- operations

    def do_something(self) -> None:
        """Run a random operation on a random partition."""
        name = self.dice.choice(self.names)
        log, partition = self.manager.get(name), self.partitions.get(name)
        if log is None or partition is None:
            self.make(name)
            return
        (operation,) = self.dice.choices(list(OPERATIONS), self.weights)
        if log.failure is not None and operation in FOR_WHOLE_LOGS:
            return
        operation(self, partition, log)
        for name, log in self.manager.logs().items():
            self.partitions[name].note(log)

    def note(self, operation: str, partition: Partition | None = None) -> None:
        self.journal.append(f"{partition.id if partition else ''} {operation}".strip())
        word = operation.partition(" ")[0]
        self.happened[word] += 1
        if word == self.ends_within and self.dice.random() < 0.5:
            self.ends_within = ""
            self.files.changes_left = 1 + self.dice.randrange(self.dice.choice([8, 28]))

    def make(self, name: TopicPartition) -> None:
        overrides = self.overrides[name.topic]
        self.partitions[name] = partition = Partition(name, overrides, making=True)
        self.note("make", partition)
        self.manager.create(name, overrides)
        partition.making = False

    def delete(self, partition: Partition, _log: Log) -> None:
        self.note("delete", partition)
        partition.deleting = True
        self.manager.delete(partition.id)
        del self.partitions[partition.id]
        if self.dice.random() < 0.7:
            self.make(partition.id)

    def append(self, partition: Partition, log: Log) -> None:
        dice = self.dice
        magic = dice.choice([0, 1, 1, 1, 1, 2])
        codec = dice.choice([Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4])
        values = [
            b"%d.%d" % (self.serial, number) + b"x" * dice.choice([0, 5, 40])
            for number in range(dice.randrange(1, 5))
        ]
        self.serial += 1
        time_ms = self.clock.now_ms() + dice.randrange(-100, 100)
        keys: list[bytes | None] = [None] * len(values)
        contents: list[bytes | None] = list(values)
        if partition.compacted:
            keys = [b"key %d" % dice.randrange(6) for _ in values]
            contents = [None if dice.random() < 0.2 else value for value in values]
        pairs = list(zip(keys, contents, strict=True))
        records = [Record(*pair, time_ms + number) for number, pair in enumerate(pairs)]
        data = bytearray(build_message_set(records, magic=magic, codec=codec))
        if magic == 2:
            self.number(partition, log, data, len(values))
        valid = validate(data, LIMITS, time_ms)
        if valid.size_bytes > self.config.segment_bytes:
            return
        first, epoch = partition.end, log.epochs.latest
        together = (first, first + len(values) - 1) if codec or magic == 2 else None
        self.note(f"append {len(values)} at {first} (magic {magic}, {codec.name})", partition)
        partition.appending(
            [
                Message(
                    value,
                    time_ms + at if magic else NO_TIMESTAMP,
                    epoch,
                    together or (first + at,) * 2,
                    key,
                    self.clock.now_ms(),
                )
                for at, (key, value) in enumerate(pairs)
            ]
        )
        assigned = log.append(valid, now_ms=self.clock.now_ms(), leader_epoch=epoch)
        assert assigned.first_offset == first, f"the next offset is {assigned.first_offset}, not {first}"
        if magic == 2:
            again = log.append(valid, now_ms=self.clock.now_ms(), leader_epoch=epoch)
            assert again.duplicate
            assert (again.first_offset, again.count) == (first, len(values))
        partition.sure = partition.end
        partition.appended_ms.append((partition.end, self.clock.monotonic_ms()))
        if log.needs_flush():
            self.flush(partition, log)
        partition.acknowledged = partition.end

    def number(self, partition: Partition, log: Log, data: bytearray, count: int) -> None:
        """Number the batch as the next one of a random producer."""
        producer = self.dice.randrange(3)
        known = log.producers.known.get(producer)
        sequence = 0 if known is None else known.last_sequence + 1
        set_producer(data, producer, 0, sequence)
        partition.numbered.append((producer, sequence + count - 1, partition.end + count - 1))

    def flush(self, partition: Partition, log: Log) -> None:
        self.note("flush", partition)
        flushed = log.flush()
        assert flushed == partition.end, f"flushed up to {flushed}, not {partition.end}"
        partition.note(log)

    def flush_in_part(self, partition: Partition, log: Log) -> None:
        self.note("flush_in_part", partition)
        log.flush(log.segments[-1].base_offset)

    def fail_a_flush(self, partition: Partition, log: Log) -> None:
        self.note("fail_a_flush", partition)
        self.files.fail_next_sync(match=self.dice.choice(log.segments).path)
        try:
            log.flush()
        except StorageError:
            partition.failed = True
            self.happened["an fsync that fails"] += 1
        self.files.clear_faults()

    def fail_an_append(self, partition: Partition, log: Log) -> None:
        self.note("fail_an_append", partition)
        self.files.fail_next_write(after_bytes=self.dice.randrange(60), match=self.layout.segment_suffix)
        first = partition.end
        at_ms = self.clock.now_ms()
        # A crash meanwhile may leave all or a part of it.
        partition.appending(
            [Message(b"refused", at_ms + at, log.epochs.latest, (first + at,) * 2) for at in range(2)]
        )
        try:
            log.append(valid_set([b"refused"] * 2, timestamp_ms=at_ms))
            raise AssertionError("an append that must fail did not")
        except StorageError:
            self.happened["a disk that is full"] += 1
        partition.refused(2)
        self.files.clear_faults()

    def wait(self, _partition: Partition, _log: Log) -> None:
        """Advance the time and run the housekeeper."""
        self.note("wait")
        self.clock.advance(self.dice.choice([50, INTERVAL_MS]))
        self.manager.flush_dirty_logs()
        self.manager.file_deletion.remove_due()

    def roll(self, partition: Partition, log: Log) -> None:
        self.note("roll", partition)
        log.roll(self.clock.now_ms())

    def retain(self, _partition: Partition, _log: Log) -> None:
        """Delete old segments of all logs."""
        self.note("retain")
        for partition in self.partitions.values():
            partition.highest_start = partition.end
        # Sometimes the wall clock is ahead, and many segments are deleted at once.
        now_ms = self.clock.now_ms() + self.dice.choice([0, 1_000])
        self.manager.delete_old_segments(lambda _, log: log.end_offset, now_ms)
        for name, log in self.manager.logs().items():
            partition = self.partitions[name]
            assert log.start_offset >= partition.start
            partition.start = partition.highest_start = log.start_offset
            partition.messages = {
                at: message for at, message in partition.messages.items() if at >= log.segments[0].base_offset
            }

    def advance(self, partition: Partition, log: Log) -> None:
        offset = self.dice.randrange(partition.start, partition.end + 1)
        self.note(f"advance to {offset}", partition)
        partition.highest_start = max(partition.highest_start, offset)
        self.manager.increment_start_offset(partition.id, offset)
        partition.start = partition.durable_start = offset
        assert log.start_offset == offset

    def truncate(self, partition: Partition, log: Log) -> None:
        offset = partition.end - min(self.dice.randrange(20), partition.end)
        self.note(f"truncate to {offset}", partition)
        partition.truncating(offset)
        sure = partition.sure
        self.manager.truncate(partition.id, offset)
        partition.truncated(log)
        assert sure <= partition.end <= max(offset, sure), (
            f"it ends at {partition.end} after a truncation to {offset}"
        )

    def lead(self, partition: Partition, log: Log) -> None:
        epoch = log.epochs.latest + 1 + self.dice.randrange(3)
        self.note(f"lead {epoch} from {partition.end}", partition)
        log.epochs.assign(epoch, log.end_offset)

    def checkpoint(self, _partition: Partition, _log: Log) -> None:
        self.note("checkpoint")
        self.manager.checkpoint_offsets()
        for directory in self.directories:
            for name, offset in read_checkpoint(self.files, f"{directory}/{RECOVERY_POINT_FILE}").items():
                durable = self.partitions[name].durable
                assert offset <= durable, (
                    f"{name}: recovery point {offset} is stored, but only {durable} is durable"
                )

    def look(self, partition: Partition, log: Log) -> None:
        """Read the log while it is open."""
        self.note("look", partition)
        assert (log.start_offset, log.end_offset) == (partition.start, partition.end)
        partition.check_content(log, step=self.dice.choice([1, 90, 400]))
        self.check_look_ups(partition, log)

    def clean(self, partition: Partition, log: Log) -> None:
        """Drop some entries of neighbouring full segments, as compaction does."""
        full = [
            segment
            for segment, following in zip(log.segments, log.segments[1:], strict=False)
            if segment.base_offset >= partition.start and following.base_offset <= log.recovery_point
        ]
        if not log.config.compacted or not full or log.failure is not None:
            return
        first = self.dice.randrange(len(full))
        old = full[first : first + self.dice.randrange(1, 4)]
        self.note(f"clean {[segment.base_offset for segment in old]}", partition)
        new = log_loader.create_cleaned(self.files, log.directory, log.layout, old[0].base_offset)
        dropped: set[int] = set()
        share = self.dice.choice([0.2, 0.6, 1.0])
        for segment in old:
            for data, offsets, _, classic in entries_of(segment):
                if self.dice.random() < share:
                    dropped |= set(offsets)
                    continue
                # Only the sequence numbers of a producer's last batch may remain.
                times = ((partition.messages[offset].time_ms, -offset) for offset in offsets)
                newest_ms, at = max(times, default=(NO_TIMESTAMP, 0))
                new.append(data, (newest_ms, -at), 60, classic=classic)
        partition.leaving = dropped
        self.manager.file_deletion.add(log, log.replace_segments(new, old))
        for offset in dropped:
            partition.messages.pop(offset, None)
        partition.leaving = set()

    def compact(self, partition: Partition, log: Log) -> None:
        """Run the product's own cleaner, with a map that may be too small."""
        if not log.config.compacted or log.failure is not None:
            return
        self.note(f"compact from {partition.clean_to}", partition)
        log.flush(log.segments[-1].base_offset)
        partition.note(log)
        partition.leaving = partition.superseded(self.clock.now_ms(), log.config.delete_retention_ms)
        partition.met_to = log.segments[-1].base_offset
        cleaner = Cleaner(
            self.files,
            self.clock,
            OffsetMap(SLOT_BYTES * self.dice.choice([4, 50])),
            self.manager.file_deletion.add,
        )
        begin = max(partition.clean_to, log.start_offset)
        report = cleaner.clean(log, begin, log.segments[-1].base_offset)
        entries = [entry for segment in log.segments for entry in entries_of(segment)]
        there = {offset for _, offsets, _, _ in entries for offset in offsets}
        removed = {offset for offset in partition.messages if offset >= log.segments[0].base_offset} - there
        assert removed <= partition.leaving, f"{sorted(removed - partition.leaving)} had to stay"
        self.happened["messages compacted away"] += len(removed)
        for offset in removed:
            del partition.messages[offset]
        partition.leaving = set()
        partition.regroup(log)
        partition.clean_to = report.end_offset

    def close(self) -> None:
        """Stop cleanly."""
        self.note("close")
        for partition in self.partitions.values():
            partition.claimed = partition.end
        try:
            self.manager.close()
        except StorageError:
            assert any(partition.failed for partition in self.partitions.values())
            return
        for partition in self.partitions.values():
            partition.durable = partition.end
            partition.durable_start = partition.start


OPERATIONS: dict[Callable[[Simulation, Partition, Log], None], int] = {
    Simulation.append: 34,
    Simulation.flush: 5,
    Simulation.flush_in_part: 2,
    Simulation.fail_a_flush: 1,
    Simulation.fail_an_append: 1,
    Simulation.wait: 14,
    Simulation.roll: 4,
    Simulation.retain: 5,
    Simulation.advance: 2,
    Simulation.truncate: 3,
    Simulation.lead: 3,
    Simulation.checkpoint: 5,
    Simulation.look: 2,
    Simulation.clean: 6,
    Simulation.compact: 6,
    Simulation.delete: 1,
}
"""The operations with their weights."""
FOR_WHOLE_LOGS = {
    Simulation.append,
    Simulation.flush,
    Simulation.flush_in_part,
    Simulation.fail_a_flush,
    Simulation.fail_an_append,
    Simulation.roll,
    Simulation.truncate,
}
"""Operations that a log rejects after a failed flush."""

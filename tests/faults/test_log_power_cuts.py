"""The power is cut after every single change that a broker's logs make to the disk, with every kind of loss.

One story is told: appends with a flush after every third message, rolls, a truncation, checkpoints, a
deletion and a new partition of the same name, a clean stop and start. Whatever the step at which the power
goes: what is there afterwards is a prefix of what was appended, and holds all that a flush, a clean stop or a
truncation had promised. The same holds when one fsync of the story fails and the process is killed then.

One story, and no chance in what is done: ``test_log_simulation`` tells others, and is tried with mistakes.
"""

from __future__ import annotations

import contextlib
import itertools
import random

import pytest

from minikafka.base.errors import StorageError
from minikafka.base.ids import TopicPartition
from minikafka.base.memory_files import MemoryFiles, RandomSource
from minikafka.log.config import LONG_MAX, LogConfig
from minikafka.log.layout import Layout
from minikafka.log.manager import LogManager
from minikafka.records.format.message_set import Codec
from tests.support.disks import UNLIMITED, Killed, KillingFiles
from tests.support.logs import read_all, valid_set
from tests.support.seeds import seeds

MAIN, SPARE, LAZY = TopicPartition("main", 0), TopicPartition("spare", 0), TopicPartition("lazy", 0)
"""The last one is never flushed on its own account."""
NEVER = {"flush.messages": str(LONG_MAX)}
CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=60, flush_messages=3)
SEEDS = (None, *seeds(3))
"""None loses all that was not synced; the others a part of it, by their dice."""


class FailingFiles(KillingFiles):
    """Lets an fsync fail after a number of them."""

    syncs_left = UNLIMITED

    def meet_fault(self, kind: str, path: str) -> None:
        super().meet_fault(kind, path)
        if kind == "sync":
            self.syncs_left -= 1
            if self.syncs_left == 0:
                raise StorageError(f"cannot flush {path}: a planted fault")


class Promises:
    """The messages appended to each partition, and the number that must survive."""

    def __init__(self) -> None:
        self.values: dict[TopicPartition, list[bytes]] = {}
        self.durable: dict[TopicPartition, int] = {}
        self.may_be_gone: set[TopicPartition] = set()
        """Partitions that are just being made or deleted."""
        self.older: dict[TopicPartition, list[bytes]] = {}
        """Messages that may survive a power cut during a truncation."""


def story(files: MemoryFiles, promises: Promises) -> None:
    """All that a data directory goes through. ``promises`` is kept up to date with every step."""
    manager = opened(files)
    for partition, overrides in ((MAIN, {}), (SPARE, {}), (LAZY, NEVER)):
        made(manager, partition, promises, overrides)
    for number in range(8):
        append(manager, MAIN, promises, [b"m%d.%d" % (number, i) for i in range(2)])
        append(manager, SPARE, promises, [b"s%d" % number] * 2, codec=Codec.GZIP)
        append(manager, LAZY, promises, [b"l%d" % number] * 5)
    manager.checkpoint_offsets()
    append(manager, LAZY, promises, [b"l8"])
    truncate(manager, MAIN, promises, 5)
    for number in range(8, 14):
        append(manager, MAIN, promises, [b"m%d.%d" % (number, i) for i in range(3)])
    promises.may_be_gone.add(SPARE)
    manager.delete(SPARE)
    promises.values.pop(SPARE)
    promises.durable.pop(SPARE)
    promises.may_be_gone.discard(SPARE)
    made(manager, SPARE, promises, {})
    append(manager, SPARE, promises, [b"again"] * 2)
    manager.close()
    promises.durable = {partition: len(values) for partition, values in promises.values.items()}
    manager = opened(files)
    for number in range(14, 18):
        append(manager, MAIN, promises, [b"m%d.%d" % (number, i) for i in range(2)])
    manager.checkpoint_offsets()


def opened(files: MemoryFiles) -> LogManager:
    manager = LogManager(files, ["d"], CONFIG, Layout.CLASSIC, files.clock)
    manager.open_all()
    return manager


def made(
    manager: LogManager, partition: TopicPartition, promises: Promises, overrides: dict[str, str]
) -> None:
    promises.may_be_gone.add(partition)
    manager.create(partition, overrides)
    promises.may_be_gone.discard(partition)
    promises.values[partition], promises.durable[partition] = [], 0


def append(
    manager: LogManager,
    partition: TopicPartition,
    promises: Promises,
    values: list[bytes],
    codec: Codec = Codec.NONE,
) -> None:
    log = manager.logs()[partition]
    promises.values[partition] += values
    log.append(valid_set(values, codec=codec))
    if log.needs_flush():
        log.flush()
        promises.durable[partition] = len(promises.values[partition])


def truncate(manager: LogManager, partition: TopicPartition, promises: Promises, offset: int) -> None:
    promises.older[partition] = list(promises.values[partition])
    promises.durable[partition] = min(promises.durable[partition], offset)
    del promises.values[partition][offset:]
    manager.truncate(partition, offset)
    del promises.older[partition]


def check(files: MemoryFiles, promises: Promises, dice: RandomSource | None = None) -> None:
    """Open what was left, compare with the promises, and see that the broker can go on: what it flushes then
    survives another power cut.
    """
    manager = opened(files)
    logs = manager.logs()
    for partition, values in promises.values.items():
        if partition not in logs:
            assert partition in promises.may_be_gone, f"{partition} is gone"
            continue
        found = [record.value for record in read_all(logs[partition], max_bytes=90)]
        assert logs[partition].end_offset == len(found)
        if partition in promises.may_be_gone and not found:
            continue
        assert len(found) >= promises.durable[partition], f"{partition}: only {len(found)} are left"
        histories = [values, promises.older.get(partition, values)]
        assert any(history[: len(found)] == found for history in histories), f"{partition}: {found}"
    expected = {}
    for partition in (MAIN, SPARE):
        log = manager.create(partition)
        before = [record.value for record in read_all(log)]
        log.append(valid_set([b"after"]))
        log.flush()
        expected[partition] = [*before, b"after"]
        assert [record.value for record in read_all(log)] == expected[partition]
    manager.checkpoint_offsets()
    files.power_cut(dice)
    again = opened(files).logs()
    for partition, values in expected.items():
        assert [record.value for record in read_all(again[partition])] == values, partition


def changes_of_the_story() -> int:
    files = prepared()
    files.operations.clear()
    story(files, Promises())
    return len(files.operations)


def syncs_of_the_story() -> int:
    files = prepared()
    files.syncs_left = before = 1 << 30
    story(files, Promises())
    return before - files.syncs_left


def prepared() -> FailingFiles:
    files = FailingFiles()
    files.make_dirs("d")
    files.sync_dir("")
    return files


def tell_and_cut(tries: list[tuple[int, int | None]]) -> None:
    """Tell the story for each (number of changes, seed), cut the power, check what is left."""
    for step, seed in tries:
        files, promises = prepared(), Promises()
        files.changes_left = step
        with pytest.raises(Killed):
            story(files, promises)
        files.power_cut(None if seed is None else random.Random(seed * 100_003 + step))
        try:
            check(files, promises)
        except Exception as problem:
            raise AssertionError(f"power cut after change {step}, seed {seed}: {problem!r}") from problem


def tell_and_fail(tries: list[tuple[int, int | None]]) -> None:
    """Tell the story for each (number of fsyncs, seed): the last fsync fails, and the process is killed."""
    for turn, seed in tries:
        files, promises = prepared(), Promises()
        files.syncs_left = turn
        with contextlib.suppress(StorageError):  # of a checkpoint it is only a warning
            story(files, promises)
        assert files.syncs_left <= 0
        files.kill_process()
        try:
            check(files, promises, None if seed is None else random.Random(seed * 100_003 + turn))
        except Exception as problem:
            raise AssertionError(f"fsync {turn} failed, seed {seed}: {problem!r}") from problem


@pytest.mark.parametrize("seed", SEEDS)
def test_a_power_cut_at_any_step_loses_nothing_that_was_promised(seed: int | None) -> None:
    tell_and_cut([(step, seed) for step in range(1, changes_of_the_story() + 1)])


@pytest.mark.parametrize("seed", SEEDS)
def test_after_any_failed_fsync_a_killed_broker_goes_on_without_a_hole(seed: int | None) -> None:
    tell_and_fail([(turn, seed) for turn in range(1, syncs_of_the_story() + 1)])


@pytest.mark.parametrize("seed", SEEDS)
def test_power_cut_during_recovery_loses_no_durable_message(seed: int | None) -> None:
    rewrites = 0
    for killed_at, step in itertools.product(range(20, changes_of_the_story(), 40), range(1, 20, 2)):
        files, promises = prepared(), Promises()
        files.changes_left = killed_at
        with pytest.raises(Killed):
            story(files, promises)
        files.kill_process()
        del files.operations[:]
        files.changes_left = step
        with contextlib.suppress(Killed):
            opened(files)
        rewrites += sum(
            operation.kind == "write" and operation.path.endswith(".kafka") for operation in files.operations
        )
        files.power_cut(None if seed is None else random.Random(seed * 100_003 + step))
        files.changes_left = UNLIMITED
        check(files, promises)
    assert rewrites > 20


def test_a_process_killed_at_any_step_loses_nothing_that_was_appended() -> None:
    for step in range(1, changes_of_the_story() + 1):
        files, promises = prepared(), Promises()
        files.changes_left = step
        with pytest.raises(Killed):
            story(files, promises)
        files.kill_process()
        # The set that was being written may be there or not; all before it is.
        promises.durable = {tp: max(0, len(values) - 5) for tp, values in promises.values.items()}
        for partition in promises.older:
            promises.durable[partition] = len(promises.values[partition])
        check(files, promises)

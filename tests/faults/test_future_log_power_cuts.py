"""The power is cut, or the process killed, after every single change of a log's move to another disk.

The story: a log is written and flushed, copied, truncated and written on meanwhile, replaced by its copy,
written on, and moved back. Whatever the step: the next start serves one log, a prefix of what was appended,
with all that a flush had promised and with its topic's id, and can finish a move that was under way.
"""

from __future__ import annotations

import contextlib
import random

import pytest

from minikafka.base.errors import StorageError
from minikafka.base.ids import TopicPartition
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.checkpoints.topic_incarnations import TopicIncarnation
from minikafka.log.config import LogConfig
from minikafka.log.layout import Layout
from minikafka.log.log import Log
from minikafka.log.manager import LogManager
from tests.support.disks import UNLIMITED, Killed, KillingFiles
from tests.support.logs import read_all, valid_set
from tests.support.seeds import seeds

TP = TopicPartition("moved", 0)
ID = bytes(range(16))
CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=60, flush_messages=3)


class Story:
    """Appends to a log, and remembers how many of its messages must survive."""

    def __init__(self, files: MemoryFiles) -> None:
        self.files = files
        self.values: list[bytes] = []
        self.durable = 0
        self.older: list[bytes] = []
        """The messages that a truncation is removing."""
        self.made = False
        self.has_id = False

    def append(self, log: Log, count: int) -> None:
        for _ in range(count):
            value = b"message %d of %d" % (len(self.values), len(self.older))
            self.values.append(value)
            log.append(valid_set([value]))
            if log.needs_flush():
                log.flush()
                self.durable = len(self.values)

    def tell(self) -> None:
        manager = opened(self.files)
        log = manager.create(TP)
        self.made = True
        log.start_epoch(1)
        self.append(log, 30)
        manager.topic_incarnations.record({TP: TopicIncarnation(topic_id=ID)})
        manager.topic_incarnations.save_topic_ids()
        self.has_id = True
        manager.high_watermarks.write({TP: 20})
        manager.futures.begin(TP, other_of(manager))
        manager.futures.copy(TP)
        self.append(log, 8)
        manager.futures.copy(TP)
        self.truncate(manager, 31)
        log.start_epoch(2)
        self.append(log, 5)
        manager.checkpoint_offsets()
        self.move(manager)
        manager.checkpoint_offsets()
        manager.futures.begin(TP, other_of(manager))
        self.move(manager)
        manager.close()
        self.durable = len(self.values)

    def truncate(self, manager: LogManager, offset: int) -> None:
        self.older = list(self.values)
        self.durable = min(self.durable, offset)
        del self.values[offset:]
        manager.truncate(TP, offset)

    def move(self, manager: LogManager) -> None:
        while manager.futures.copy(TP):
            pass
        old = manager.logs()[TP]
        self.append(old, 1)

        def switch(complete: object) -> bool:
            assert callable(complete)
            self.append(old, 1)
            log = complete()
            if log is not None:
                self.append(log, 4)
            return log is not None

        assert manager.futures.replace_current(TP, switch)
        self.append(manager.logs()[TP], 5)

    def check(self, durable: int) -> None:
        """Open what is left, compare, finish the move, and see that what is written then survives."""
        manager = opened(self.files)
        if not self.made:
            return
        log = manager.logs()[TP]
        topic = manager.topic_incarnations.of(TP)
        assert topic.topic_id in ({ID} if self.has_id else {ID, None})
        found = [record.value for record in read_all(log, max_bytes=90)]
        assert log.end_offset == len(found)
        assert len(found) >= durable, f"only {len(found)} are left of {durable}"
        assert found in (self.values[: len(found)], self.older[: len(found)])
        log.start_epoch(9)
        log.append(valid_set([b"after"]))
        log.flush()
        if TP in manager.futures:
            while manager.futures.copy(TP):
                pass
            assert manager.futures.replace_current(TP, lambda complete: complete() is not None)
        manager.checkpoint_offsets()
        self.files.power_cut()
        again = opened(self.files)
        assert [record.value for record in read_all(again.logs()[TP])] == [*found, b"after"]
        assert again.topic_incarnations.of(TP) == topic
        folders = [
            name for path in ("d1", "d2") for name in self.files.list_dir(path) if name.startswith("moved")
        ]
        assert len(folders) == 1, folders


def opened(files: MemoryFiles) -> LogManager:
    manager = LogManager(files, ["d1", "d2"], CONFIG, Layout.APACHE, files.clock)
    manager.open_all()
    return manager


def other_of(manager: LogManager) -> str:
    home = manager.home_of(TP)
    assert home is not None
    return "d2" if home.path == "d1" else "d1"


def prepared() -> KillingFiles:
    files = KillingFiles()
    for path in ("d1", "d2"):
        files.make_dirs(path)
    files.sync_dir("")
    return files


def changes() -> int:
    files = prepared()
    files.operations.clear()
    Story(files).tell()
    return len(files.operations)


def told_until(step: int) -> Story:
    files = prepared()
    story = Story(files)
    files.changes_left = step
    with pytest.raises(Killed):
        story.tell()
    files.changes_left = UNLIMITED
    return story


def steps(share: int) -> range:
    """The changes of one of three shares: a test of all together takes too long on a busy machine."""
    return range(1 + share, changes() + 1, 3)


@pytest.mark.parametrize("share", range(3))
@pytest.mark.parametrize("seed", [None, *seeds(3)])
def test_power_cut_at_any_step_of_a_move_loses_nothing_flushed(seed: int | None, share: int) -> None:
    for step in steps(share):
        story = told_until(step)
        story.files.power_cut(None if seed is None else random.Random(seed * 100_003 + step))
        try:
            story.check(story.durable)
        except Exception as problem:
            raise AssertionError(f"power cut after change {step}, seed {seed}: {problem!r}") from problem


@pytest.mark.parametrize("share", range(3))
def test_kill_at_any_step_of_a_move_loses_nothing_appended(share: int) -> None:
    for step in steps(share):
        story = told_until(step)
        story.files.kill_process()
        try:
            story.check(len(story.values) - 1)  # the last one was perhaps just being written
        except Exception as problem:
            raise AssertionError(f"killed after change {step}: {problem!r}") from problem


@pytest.mark.parametrize("share", range(3))
def test_second_kill_during_the_start_loses_nothing_appended(share: int) -> None:
    last = changes()
    for killed_at in range(last // 3 + 7 * share, last, 21):
        for step in range(1, 12):
            story = told_until(killed_at)
            story.files.kill_process()
            assert isinstance(story.files, KillingFiles)
            story.files.changes_left = step
            with contextlib.suppress(Killed, StorageError):
                opened(story.files)
            story.files.changes_left = UNLIMITED
            story.files.kill_process()
            try:
                story.check(len(story.values) - 1)
            except Exception as problem:
                raise AssertionError(f"killed after {killed_at}, then {step}: {problem!r}") from problem

"""Several data directories, one of them unusable; and logs that are opened in parallel."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import StorageError
from minikafka.base.files import RealFiles
from minikafka.base.ids import TopicPartition
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.layout import Layout
from minikafka.log.manager import Jobs, LogManager
from tests.support.logs import NOW_MS, ONE, OTHER, SMALL, TWO, fill, manager_of


def one_left_out(files: MemoryFiles) -> LogManager:
    """d1 with ONE cannot be used, d2 with TWO can."""
    manager = manager_of(files, "d1", "d2")
    manager.create(ONE)
    manager.create(TWO)
    manager.close()
    files.fail_next_open(match="d1/.lock")
    return manager_of(files, "d1", "d2")


def test_unusable_directory_is_logged_and_others_are_served(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    manager = one_left_out(files)
    assert set(manager.logs()) == {TWO}
    assert manager.paths == ("d2",)
    assert "data directory d1 is offline until the next start" in caplog.text
    manager.close()
    assert set(manager_of(files, "d1", "d2").logs()) == {ONE, TWO}


def test_a_directory_that_cannot_be_listed_is_left_out_unlocked(files: MemoryFiles) -> None:
    manager = manager_of(files, "d1", "d2")
    manager.create(ONE)
    manager.create(TWO)
    manager.close()
    listed = files.list_dir
    files.list_dir = lambda path: (_ for _ in ()).throw(StorageError("no")) if path == "d1" else listed(path)  # type: ignore[method-assign, assignment]
    manager = manager_of(files, "d1", "d2")
    assert set(manager.logs()) == {TWO}
    files.list_dir = listed  # type: ignore[method-assign]
    manager_of(files, "d1").close()


def test_nothing_is_known_of_a_directory_that_failed_half_way(files: MemoryFiles) -> None:
    manager = manager_of(files, "d1", "d2")
    for partition in (ONE, OTHER, TWO):
        manager.create(partition)
    assert manager.partitions_of("my_topic") == (ONE, TWO)
    manager.close()
    listed = files.list_dir
    files.list_dir = lambda path: (  # type: ignore[method-assign, assignment]
        (_ for _ in ()).throw(StorageError("no")) if path == "d1/my_topic_1" else listed(path)
    )
    manager = manager_of(files, "d1", "d2")
    assert manager.paths == ("d2",)
    assert manager.partitions_of("my_topic") == ()


def test_without_any_usable_directory_there_is_no_start(files: MemoryFiles) -> None:
    files.fail_next_open(match="d1/.lock")
    files.fail_next_open(match="d2/.lock")
    with pytest.raises(StorageError):
        manager_of(files, "d1", "d2")
    manager_of(files, "d1", "d2").close()


def test_partition_of_an_offline_directory_is_not_created_elsewhere(files: MemoryFiles) -> None:
    manager = one_left_out(files)
    with pytest.raises(StorageError, match="may exist in d1, which is offline"):
        manager.create(ONE, new=False)
    assert manager.create(OTHER, new=True).directory == "d2/other_0"


# Opening.


def several(files: MemoryFiles) -> set[TopicPartition]:
    manager = manager_of(files, "d1", "d2")
    partitions = {TopicPartition("t", number) for number in range(10)}
    for partition in partitions:
        fill(manager.create(partition), 40, flush=True)
    files.kill_process()
    return partitions


def test_logs_are_opened_by_whatever_runs_the_jobs(files: MemoryFiles) -> None:
    partitions = several(files)
    counts: list[int] = []

    def backwards(jobs: Jobs) -> None:
        counts.append(len(jobs))
        for job in reversed(jobs):
            job()

    manager = LogManager(files, ["d1", "d2"], SMALL, Layout.CLASSIC, ManualClock(), run_all=backwards)
    manager.open_all()
    assert counts == [10]
    assert {partition: log.end_offset for partition, log in manager.logs().items()} == dict.fromkeys(
        partitions, 40
    )


def test_logs_can_be_recovered_by_several_threads(tmp_path: Path) -> None:
    files, paths = RealFiles(), [str(tmp_path / "d1"), str(tmp_path / "d2")]
    first = LogManager(files, paths, SMALL, Layout.CLASSIC, ManualClock())
    first.open_all()
    partitions = [TopicPartition("t", number) for number in range(20)]
    for partition in partitions:
        fill(first.create(partition), 40)
    first._leave()  # as a killed process: no flush, no marker
    threads: set[str] = set()

    def side_by_side(jobs: Jobs) -> None:
        with ThreadPoolExecutor(4) as pool:
            for future in [pool.submit(job) for job in jobs]:
                future.result()
                threads.add(threading.current_thread().name)

    again = LogManager(
        files, paths, SMALL, Layout.CLASSIC, ManualClock(), new_mutex=threading.Lock, run_all=side_by_side
    )
    again.open_all()
    assert {log.end_offset for log in again.logs().values()} == {40}
    assert len(again.logs()) == 20
    again.close()


def test_whoever_waits_for_the_logs_sees_how_far_they_are(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    several(files)
    caplog.set_level(logging.INFO)
    clock = ManualClock(NOW_MS)

    def slowly(jobs: Jobs) -> None:
        for job in jobs:
            clock.advance(500)
            job()

    LogManager(files, ["d1", "d2"], SMALL, Layout.CLASSIC, clock, run_all=slowly).open_all()
    lines = [line for line in caplog.messages if line.startswith("open")]
    assert lines[0].startswith("opening logs: 3 of 10, 0 MiB checked")
    assert lines[-1].startswith("opened logs in 5.0 s: 10 of 10")

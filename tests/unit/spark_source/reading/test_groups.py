"""The progress of a query in a consumer group, with a storage that the test controls."""

from __future__ import annotations

import logging
import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import ConfigError, GroupInUse, NetworkError
from minikafka.base.ids import TopicPartition
from pyspark_minikafka import report
from pyspark_minikafka.location import Target
from pyspark_minikafka.options.options import Mode
from pyspark_minikafka.reading import groups, stream
from pyspark_minikafka.reading.groups import GroupProgress, Positions
from tests.support.raising import raising
from tests.support.spark_cluster import FakeCluster, Planning

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PATIENCE_S = 20


class FakeMember:
    """Records the calls; ``fail`` raises instead."""

    session_ms = 6_000
    heartbeat_ms = 600_000

    def __init__(self) -> None:
        self.calls: queue.Queue[tuple[str, Any]] = queue.Queue()
        self.held: frozenset[TopicPartition] | None = None
        self.fail: Callable[[str], None] = lambda what: None

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        self.fail("hold")
        if frozenset(partitions) != self.held:
            self.held = frozenset(partitions)
            self.calls.put(("hold", self.held))

    def commit(self, offsets: Positions) -> None:
        self.fail("commit")
        self.calls.put(("commit", dict(offsets)))

    def release(self) -> None:
        self.calls.put(("release", None))

    def until(self, what: str) -> Any:
        """Return the argument of the next call named ``what``."""
        while True:
            name, value = self.calls.get(timeout=PATIENCE_S)
            if name == what:
                return value


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> FakeMember:
    monkeypatch.setattr(groups, "_RETRY_MS", 1)
    monkeypatch.setattr(report, "_WARNED", set())
    return FakeMember()


@pytest.fixture
def progress(member: FakeMember) -> Iterator[GroupProgress]:
    found = GroupProgress(member, "g")
    found.start()
    yield found
    found.close()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno == logging.WARNING]


def test_what_was_reached_is_committed_by_the_owner_of_the_partitions(
    member: FakeMember, progress: GroupProgress
) -> None:
    progress.reached({T0: 5})
    assert member.until("hold") == frozenset()
    assert member.until("hold") == {T0}
    assert member.until("commit") == {T0: 5}


def test_only_what_is_new_is_committed(member: FakeMember, progress: GroupProgress) -> None:
    progress.reached({T0: 5, T1: 1})
    assert member.until("commit") == {T0: 5, T1: 1}
    progress.reached({T0: 5, T1: 1})
    progress.reached({T0: 5, T1: 2})
    assert member.until("commit") == {T1: 2}


@pytest.mark.parametrize("error", [NetworkError("nobody answers"), ZeroDivisionError("nobody answers")])
def test_a_commit_that_fails_is_tried_again_and_told_once(
    member: FakeMember, progress: GroupProgress, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    failures = iter(range(3))

    def fail(what: str) -> None:
        if what == "commit" and next(failures, None) is not None:
            raise error

    member.fail = fail
    progress.reached({T0: 5})
    assert member.until("commit") == {T0: 5}
    progress.close()
    (said,) = warnings(caplog)
    assert "failed to commit the query's progress to group 'g'" in said
    assert "nobody answers" in said


def test_meanwhile_the_newest_position_is_what_counts(member: FakeMember, progress: GroupProgress) -> None:
    member.until("hold")

    def fail(what: str) -> None:
        member.fail = lambda what: None
        progress.reached({T0: 9})
        raise NetworkError("nobody answers")

    member.fail = fail
    progress.reached({T0: 5})
    assert member.until("commit") == {T0: 9}


def test_held_group_is_refused_after_session_timeout_with_holder(
    member: FakeMember, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    progress = GroupProgress(member, "g", clock)
    monkeypatch.setattr(progress, "_pause_ms", clock.advance)
    member.fail = raising(GroupInUse("g", ["g_there-1-aa"]))
    with pytest.raises(ConfigError, match="g_there-1-aa") as refused:
        progress.start()
    assert (refused.value.name, refused.value.value) == ("minikafka.commit.group", "g")
    assert 11_000 <= clock.monotonic_ms() < 12_000
    assert len(warnings(caplog)) == 1
    member.until("release")


def test_the_successor_of_a_killed_query_waits_for_its_end(
    member: FakeMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    progress = GroupProgress(member, "g", clock)
    monkeypatch.setattr(progress, "_pause_ms", clock.advance)

    def fail(what: str) -> None:
        if clock.monotonic_ms() < 6_000:
            raise GroupInUse("g", ["g_killed-1-aa"])

    member.fail = fail
    progress.start()
    progress.reached({T0: 5})
    assert member.until("commit") == {T0: 5}
    progress.close()


def test_closing_commits_what_was_reached_last_and_lets_the_group_go(
    member: FakeMember, progress: GroupProgress
) -> None:
    progress.reached({T0: 5})
    progress.close()
    assert member.until("commit") == {T0: 5}
    member.until("release")


ENDED = """
import os, signal
from pyspark_minikafka.reading.groups import GroupProgress, install_sigterm_handler
from tests.unit.spark_source.reading.test_groups import FakeMember

class PrintingMember(FakeMember):
    def release(self):
        print("released", flush=True)

install_sigterm_handler()
progress = GroupProgress(PrintingMember(), "g")
progress.start()
try:
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()
finally:
    print("unwound", flush=True)
"""


@pytest.mark.process
def test_terminated_runner_leaves_the_group() -> None:
    ended = subprocess.run([sys.executable, "-c", ENDED], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (ended.stdout, ended.returncode) == ("unwound\nreleased\n", -signal.SIGTERM), ended.stderr


def test_another_error_at_the_start_is_the_querys(member: FakeMember) -> None:
    member.fail = raising(NetworkError("nobody answers"))
    with pytest.raises(NetworkError):
        GroupProgress(member, "g").start()
    member.until("release")


class FakeProgress:
    """Records the calls to a ``GroupProgress``."""

    def __init__(self) -> None:
        self.positions: list[dict[TopicPartition, int]] = []
        self.closed = False

    def reached(self, positions: Positions) -> None:
        self.positions.append(dict(positions))

    def close(self) -> None:
        self.closed = True


def reader(limits: bool, cluster: FakeCluster) -> tuple[Any, FakeProgress]:
    planning = Planning(cluster, Mode.STREAM, startingOffsets="earliest")
    kind = stream.LimitedReader if limits else stream.UnlimitedReader
    made: Any = kind(planning.options, (planning.planner, Target("localhost:9092")), ManualClock())
    made._group = progress = FakeProgress()
    return made, progress


@pytest.mark.skipif(not stream.HAS_LIMITS, reason="Spark before 4.2 has no read limits")
def test_from_4_2_on_next_batch_request_confirms_the_last_one() -> None:
    cluster = FakeCluster(t=[(0, 5)])
    query, progress = reader(True, cluster)
    end = query.latestOffset(query.initialOffset(), query.getDefaultReadLimit())
    query.partitions(query.initialOffset(), end)
    assert progress.positions == [{T0: 0}]
    query.latestOffset(end, query.getDefaultReadLimit())
    assert progress.positions[-1] == {T0: 5}


def test_before_4_2_it_says_so_once_the_batch_was_planned() -> None:
    cluster = FakeCluster(t=[(0, 5)])
    query, progress = reader(False, cluster)
    end = query.latestOffset()
    query.partitions(query.initialOffset(), end)
    assert progress.positions == [{T0: 0}]
    query.latestOffset()
    assert progress.positions[-1] == {T0: 5}


@pytest.mark.parametrize("limits", [False, stream.HAS_LIMITS])
def test_a_restart_says_where_the_checkpoint_is_and_no_planned_batch(limits: bool) -> None:
    query, progress = reader(limits, FakeCluster(t=[(0, 9)]))
    query.partitions({"t": {"0": 3}}, {"t": {"0": 5}})
    assert progress.positions == []
    if limits:
        query.latestOffset({"t": {"0": 5}}, query.getDefaultReadLimit())
    else:
        query.latestOffset()
    assert progress.positions == [{T0: 5}]


def test_what_spark_commits_is_told_and_stop_closes() -> None:
    query, progress = reader(False, FakeCluster(t=[(0, 5)]))
    query.commit({"t": {"0": 4}})
    query.stop()
    assert (progress.positions, progress.closed) == ([{T0: 4}], True)

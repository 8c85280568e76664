"""The pool that runs long requests in turn."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from minikafka.server.workers import work_pool
from minikafka.server.workers.work_pool import InlineWorkPool, ThreadWorkPool

PATIENCE_S = 30.0


@pytest.fixture
def pool() -> Iterator[ThreadWorkPool]:
    made = ThreadWorkPool("test-pool", threads=2, memory_bytes=100)
    yield made
    made.stop()


def test_a_job_runs_to_its_end_away_from_the_caller(pool: ThreadWorkPool) -> None:
    threads: list[int] = []
    done = threading.Event()

    def steps() -> Iterator[int]:
        for _ in range(3):
            threads.append(threading.get_ident())
            yield 0
        done.set()

    pool.submit(steps())
    assert done.wait(PATIENCE_S)
    assert len(threads) == 3
    assert threading.get_ident() not in threads


def test_a_short_job_does_not_wait_for_the_end_of_long_ones(
    pool: ThreadWorkPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_pool, "SLICE_MS", 0)
    short_is_done = threading.Event()

    def long() -> Iterator[int]:
        while not short_is_done.is_set():
            yield 0

    def short() -> Iterator[int]:
        yield 0
        short_is_done.set()

    for _ in range(4):
        pool.submit(long())
    pool.submit(short())
    assert short_is_done.wait(PATIENCE_S)


def test_steps_together_need_no_more_than_the_memory(pool: ThreadWorkPool) -> None:
    lock = threading.Lock()
    used = [0]
    most = [0]
    left = threading.Semaphore(0)

    def job() -> Iterator[int]:
        for _ in range(20):
            yield 60
            with lock:
                used[0] += 60
                most[0] = max(most[0], used[0])
            with lock:
                used[0] -= 60
        left.release()

    for _ in range(4):
        pool.submit(job())
    for _ in range(4):
        assert left.acquire(timeout=PATIENCE_S)
    assert most[0] == 60


def test_a_step_that_needs_more_than_all_memory_runs_alone(pool: ThreadWorkPool) -> None:
    done = threading.Event()

    def job() -> Iterator[int]:
        yield 1000
        done.set()

    pool.submit(job())
    assert done.wait(PATIENCE_S)


def test_a_job_that_needs_little_passes_those_that_need_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_pool, "SMALL_BYTES", 10)
    for threads in (1, 2):
        pool = ThreadWorkPool("test-pool", threads=threads, memory_bytes=100)
        goes_on = threading.Event()
        larges: list[int] = []
        small = threading.Semaphore(0)

        def large(
            number: int, goes_on: threading.Event = goes_on, larges: list[int] = larges
        ) -> Iterator[int]:
            yield 60
            assert goes_on.wait(PATIENCE_S)
            larges.append(number)

        def little(larges: list[int] = larges, small: threading.Semaphore = small) -> Iterator[int]:
            yield 1
            larges.append(-1)
            small.release()

        for number in range(9):
            pool.submit(large(number))
        pool.submit(little())
        if threads == 1:
            goes_on.set()
        assert small.acquire(timeout=PATIENCE_S)
        assert larges.index(-1) <= 1
        goes_on.set()
        pool.stop()


def test_a_job_that_raises_does_not_end_its_thread(
    pool: ThreadWorkPool, caplog: pytest.LogCaptureFixture
) -> None:
    done = threading.Semaphore(0)

    def broken() -> Iterator[int]:
        yield 0
        raise RuntimeError("broken job")

    def good() -> Iterator[int]:
        yield 0
        done.release()

    for _ in range(3):
        pool.submit(broken())
    pool.submit(good())
    assert done.acquire(timeout=PATIENCE_S)
    assert "broken job" in caplog.text


def test_stop_closes_the_jobs_that_have_not_ended() -> None:
    pool = ThreadWorkPool("test-pool", threads=1, memory_bytes=100)
    begun, ended = threading.Event(), threading.Event()

    def endless() -> Iterator[int]:
        try:
            while True:
                begun.set()
                yield 0
        finally:
            ended.set()

    pool.submit(endless())
    assert begun.wait(PATIENCE_S)
    pool.stop()
    assert ended.is_set()


def test_the_inline_pool_runs_a_job_at_once() -> None:
    done: list[int] = []

    def steps() -> Iterator[int]:
        yield 5
        done.append(1)

    InlineWorkPool().submit(steps())
    assert done == [1]

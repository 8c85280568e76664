"""Counters that threads keep for themselves, and histograms of times."""

from __future__ import annotations

import threading
from typing import Any

from minikafka.base.metrics import BOUNDS_S, ThreadCounters, TimeHistogram


def in_thread(*actions: object) -> None:
    """Run the actions, one after another, in a thread that ends."""

    def run() -> None:
        for action in actions:
            action()  # type: ignore[operator]

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def test_totals_are_the_sums_of_all_threads() -> None:
    counters: ThreadCounters[str] = ThreadCounters(2)
    counters.row("a")[1] += 5
    in_thread(lambda: counters.add("a", 2), lambda: counters.add("b"))
    assert counters.totals() == {"a": [2, 5], "b": [1, 0]}


def test_counts_of_ended_threads_stay() -> None:
    counters: ThreadCounters[str] = ThreadCounters()
    for _ in range(3):
        in_thread(lambda: counters.add("a"))
        assert counters.totals()["a"][0] > 0
    in_thread(lambda: counters.add("a"))
    assert counters.totals() == counters.totals() == {"a": [4]}


def test_discarded_key_begins_at_zero() -> None:
    counters: ThreadCounters[str] = ThreadCounters()
    counters.add("a", 7)
    in_thread(lambda: counters.add("a", 7))
    counters.totals()
    counters.discard(lambda key: key == "a")
    counters.add("a")
    assert counters.totals() == {"a": [1]}


def test_each_time_is_in_the_bucket_of_its_bound() -> None:
    for number, bound_s in enumerate(BOUNDS_S):
        times = TimeHistogram()
        just_below_ns = round(bound_s * 1e9) - 1
        times.observe(just_below_ns)
        cumulative = times.read().cumulative
        assert cumulative == [0] * number + [1] * (len(BOUNDS_S) - number), bound_s


def test_histogram_counts_all_and_sums() -> None:
    times = TimeHistogram()
    for elapsed_ns in (1, 64_000, 70_000, 10**9, 3600 * 10**9):
        times.observe(elapsed_ns)
    found = times.read()
    assert (found.count, found.sum_s) == (5, 3601.000134001)
    assert (found.cumulative[0], found.cumulative[1], found.cumulative[-1]) == (1, 3, 4)


def test_histogram_without_times_is_empty() -> None:
    found = TimeHistogram().read()
    assert (found.count, found.sum_s, set(found.cumulative)) == (0, 0.0, {0})


def test_collection_may_count_while_the_counters_are_summed() -> None:
    counters: ThreadCounters[str] = ThreadCounters()

    class Counting(dict[str, list[int]]):
        """Cells that another count interrupts, as a garbage collection does."""

        def items(self) -> Any:
            in_thread_cells = ThreadCounters.row(counters, "b")
            in_thread_cells[0] += 1
            return super().items()

    counters.register(Counting(a=[3]))
    assert counters.totals()["a"] == [3]
    assert counters.totals()["b"][0] >= 1


def test_thread_that_ends_while_it_is_looked_at_is_not_lost() -> None:
    counters: ThreadCounters[str] = ThreadCounters()

    class Ending(threading.Thread):
        """A thread that is alive when it is asked first, and not later."""

        asked = 0

        def is_alive(self) -> bool:
            self.asked += 1
            return self.asked == 1

    counters._threads.append((Ending(), {"a": [5]}))
    assert counters.totals() == counters.totals() == {"a": [5]}


def test_ended_threads_are_forgotten_although_nobody_sums() -> None:
    counters: ThreadCounters[str] = ThreadCounters()
    for _ in range(300):
        in_thread(lambda: counters.add("a"))
    assert len(counters._threads) < 200
    assert counters.totals() == {"a": [300]}

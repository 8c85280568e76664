"""The pace of a copy, and the list of a batch that is published in portions."""

from __future__ import annotations

import pytest

from minikafka.base.clock import ManualClock
from minikafka.clients.produce.batch_copier import StagedBatch
from pyspark_minikafka.writing import noted_batches
from pyspark_minikafka.writing.publisher import Pace, TooSlow

TIMEOUT_MS = 300_000


def judged(*progress: tuple[int, int]) -> int | None:
    """The rows that TooSlow names, after progress (seconds, rows copied since then) of a million rows."""
    clock = ManualClock()
    pace = Pace(clock, 1_000_000, TIMEOUT_MS)
    copied = 0
    for seconds, rows in progress:
        clock.advance(seconds * 1_000)
        copied += rows
        try:
            pace(copied)
        except TooSlow as slow:
            return slow.rows
    return None


@pytest.mark.parametrize(
    ("progress", "portion"),
    [([(1, 1)] * 14, None), ([(1, 6_000)] * 290, None), ([(1, 3_000)] * 290, 270_000), ([(1, 1)] * 20, 90)],
    ids=["too early to tell", "fast enough", "too slow", "much too slow"],
)
def test_a_copy_that_would_not_end_in_time_is_found_early(
    progress: list[tuple[int, int]], portion: int | None
) -> None:
    assert judged(*progress) == portion


@pytest.mark.parametrize(
    "progress",
    [[(1, 0)] * 200, [(100, 5)], [(1, 20_000), (100, 20_000), (1, 20_000)]],
    ids=["nothing copied", "late begin", "stall"],
)
def test_brokers_that_stand_still_do_not_make_a_batch_too_large(progress: list[tuple[int, int]]) -> None:
    assert judged(*progress) is None


def test_a_list_is_split_into_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noted_batches, "BATCHES_OF_RECORD", 3)
    batches = [StagedBatch("t", n % 2, 5, n * 10, bytes([n] * 44), 100 + n) for n in range(7)]
    records = dict(noted_batches.records("s", batches))
    assert list(records) == noted_batches.keys("s", batches) == [b"s/0", b"s/1", b"s/2"]
    assert noted_batches.joined("s", records) == batches


def test_a_list_keeps_to_the_largest_request() -> None:
    batches = [StagedBatch("t", 0, 5, n, bytes(44), 100) for n in range(7)]
    assert [len(noted_batches.keys("s", batches, most)) for most in (1, 300, 1_000_000)] == [7, 4, 1]


def test_a_list_that_lacks_a_record_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noted_batches, "BATCHES_OF_RECORD", 3)
    records = dict(noted_batches.records("s", [StagedBatch("t", 0, 5, n, bytes(44), 100) for n in range(7)]))
    del records[b"s/1"]
    with pytest.raises(noted_batches.TokenMismatch, match=r"3 of 7 are there"):
        noted_batches.joined("s", records)

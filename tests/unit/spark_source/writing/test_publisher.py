"""The pace of a copy, and the list of a batch that is published in portions."""

from __future__ import annotations

import pytest

from minikafka.base.clock import ManualClock
from minikafka.clients.produce.batch_copier import StagedBatch
from pyspark_minikafka.writing import noted_batches
from pyspark_minikafka.writing.publisher import Pace, TooSlow

TIMEOUT_MS = 300_000


@pytest.mark.parametrize(
    ("took_s", "copied", "portion"),
    [(14, 1, None), (16, 100_000, None), (16, 50_000, 281_250), (100, 900_000, None), (16, 0, 0)],
    ids=["too early to tell", "fast enough", "too slow", "almost done", "nothing copied"],
)
def test_a_copy_that_would_not_end_in_time_is_found_early(
    took_s: int, copied: int, portion: int | None
) -> None:
    clock = ManualClock()
    pace = Pace(clock, 1_000_000, TIMEOUT_MS)
    clock.advance(took_s * 1_000)
    if portion is None:
        pace(copied)
        return
    with pytest.raises(TooSlow) as raised:
        pace(copied)
    assert raised.value.rows == portion


def test_a_list_is_split_into_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noted_batches, "BATCHES_OF_RECORD", 3)
    batches = [StagedBatch("t", n % 2, 5, n * 10, bytes([n] * 44), 100 + n) for n in range(7)]
    records = dict(noted_batches.records("s", batches))
    assert list(records) == noted_batches.keys("s", batches) == [b"s/0", b"s/1", b"s/2"]
    assert noted_batches.joined("s", records) == batches


def test_a_list_that_lacks_a_record_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noted_batches, "BATCHES_OF_RECORD", 3)
    records = dict(noted_batches.records("s", [StagedBatch("t", 0, 5, n, bytes(44), 100) for n in range(7)]))
    del records[b"s/1"]
    with pytest.raises(noted_batches.TokenMismatch, match=r"3 of 7 are there"):
        noted_batches.joined("s", records)

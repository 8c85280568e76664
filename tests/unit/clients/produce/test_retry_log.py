"""``clients/produce/retry_log``: what a producer says while it tries again."""

from __future__ import annotations

import threading

from minikafka.base.ids import TopicPartition
from minikafka.clients.produce.batch import Batch, RecordBatch
from minikafka.clients.produce.retry_log import AGAIN_MS, FIRST_MS, RetryLog
from minikafka.clients.produce.send_future import Outcome
from minikafka.records.format.message_set import Record

A = TopicPartition("t", 0)
TIMEOUT_MS = 120_000


def batch(tp: TopicPartition, count: int = 1, created_ms: int = 0) -> Batch:
    made = RecordBatch(tp, Outcome(threading.Condition()), created_ms)
    for _ in range(count):
        made.append(Record(None, b"v", 0), 1)
    return made


def test_what_passes_soon_is_not_told() -> None:
    troubles = RetryLog()
    troubles.failed(A, "no", 0)
    assert troubles.to_tell([batch(A)], TIMEOUT_MS, FIRST_MS - 1) is None
    troubles.over(A)
    assert not troubles
    assert troubles.to_tell([], TIMEOUT_MS, FIRST_MS) is None


def test_what_lasts_is_told_with_what_waits_why_and_how_long_it_is_tried() -> None:
    troubles = RetryLog()
    troubles.failed(A, "at first", 500)
    troubles.failed(A, "too few", 2_000)
    troubles.failed(A, "", 2_100)
    told = troubles.to_tell([batch(A, 2), batch(A), batch(TopicPartition("u", 0))], TIMEOUT_MS, 2_500)
    assert told == "3 records for t-0 not acknowledged for 2 s: too few; trying again, for 118 s more"


def test_it_is_told_again_at_intervals_while_it_lasts_and_anew_after_it_was_over() -> None:
    troubles = RetryLog()
    troubles.failed(A, "too few", 0)
    assert troubles.to_tell([batch(A)], TIMEOUT_MS, FIRST_MS)
    assert troubles.to_tell([batch(A)], TIMEOUT_MS, FIRST_MS + AGAIN_MS - 1) is None
    told = troubles.to_tell([batch(A)], TIMEOUT_MS, FIRST_MS + AGAIN_MS)
    assert told == "still 1 record for t-0 not acknowledged for 12 s: too few; trying again, for 108 s more"
    troubles.over(A)
    troubles.failed(A, "too few", 20_000)
    told = troubles.to_tell([batch(A)], TIMEOUT_MS, 20_000 + FIRST_MS)
    assert told is not None
    assert told.startswith("1 record")


def test_one_line_is_for_all_partitions_and_names_a_few() -> None:
    troubles = RetryLog()
    partitions = [TopicPartition("t", number) for number in range(5)]
    for one in partitions:
        troubles.failed(one, f"no {one}", one.partition)
    told = troubles.to_tell([batch(one) for one in partitions], TIMEOUT_MS, FIRST_MS + 4)
    assert told is not None
    assert told.startswith(
        "5 records for t-0, t-1, t-2 and 2 more partitions not acknowledged for 2 s: no t-0; "
    )


def test_what_somebody_else_has_told_is_told_again_later() -> None:
    troubles = RetryLog()
    troubles.failed(A, "nobody answers", 0)
    troubles.told_elsewhere(5_000)
    assert troubles.to_tell([batch(A)], TIMEOUT_MS, 5_000) is None
    told = troubles.to_tell([batch(A)], TIMEOUT_MS, 5_000 + AGAIN_MS)
    assert told is not None
    assert told.startswith("still 1 record for t-0")

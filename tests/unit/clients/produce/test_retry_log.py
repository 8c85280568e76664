"""``clients/produce/retry_log``: the warnings of a producer that retries."""

from __future__ import annotations

import threading

from minikafka.base.ids import TopicPartition
from minikafka.clients.produce.batch import ProducerBatch, RecordListBatch
from minikafka.clients.produce.retry_log import WARN_AFTER_MS, WARN_INTERVAL_MS, RetryLog
from minikafka.clients.produce.send_future import ProduceRequestResult
from minikafka.records.format.message_set import Record

A = TopicPartition("t", 0)
TIMEOUT_MS = 120_000


def batch(tp: TopicPartition, count: int = 1, created_ms: int = 0) -> ProducerBatch:
    made = RecordListBatch(tp, ProduceRequestResult(threading.Condition()), created_ms)
    for _ in range(count):
        made.append(Record(None, b"v", 0), 1)
    return made


def test_what_passes_soon_is_not_told() -> None:
    retry_log = RetryLog()
    retry_log.record_failure(A, "no", 0)
    assert retry_log.due_warning([batch(A)], TIMEOUT_MS, WARN_AFTER_MS - 1) is None
    retry_log.clear(A)
    assert not retry_log
    assert retry_log.due_warning([], TIMEOUT_MS, WARN_AFTER_MS) is None


def test_warning_has_the_waiting_records_reason_and_time_left() -> None:
    retry_log = RetryLog()
    retry_log.record_failure(A, "at first", 500)
    retry_log.record_failure(A, "too few", 2_000)
    retry_log.record_failure(A, "", 2_100)
    warning = retry_log.due_warning([batch(A, 2), batch(A), batch(TopicPartition("u", 0))], TIMEOUT_MS, 2_500)
    assert warning == "3 records for t-0 not acknowledged for 2 s: too few; retrying, for 118 s more"


def test_warning_is_repeated_while_it_lasts_and_starts_again_later() -> None:
    retry_log = RetryLog()
    retry_log.record_failure(A, "too few", 0)
    assert retry_log.due_warning([batch(A)], TIMEOUT_MS, WARN_AFTER_MS)
    assert retry_log.due_warning([batch(A)], TIMEOUT_MS, WARN_AFTER_MS + WARN_INTERVAL_MS - 1) is None
    warning = retry_log.due_warning([batch(A)], TIMEOUT_MS, WARN_AFTER_MS + WARN_INTERVAL_MS)
    assert warning == "still 1 record for t-0 not acknowledged for 12 s: too few; retrying, for 108 s more"
    retry_log.clear(A)
    retry_log.record_failure(A, "too few", 20_000)
    warning = retry_log.due_warning([batch(A)], TIMEOUT_MS, 20_000 + WARN_AFTER_MS)
    assert warning is not None
    assert warning.startswith("1 record")


def test_one_line_is_for_all_partitions_and_names_a_few() -> None:
    retry_log = RetryLog()
    partitions = [TopicPartition("t", number) for number in range(5)]
    for partition in partitions:
        retry_log.record_failure(partition, f"no {partition}", partition.partition)
    warning = retry_log.due_warning(
        [batch(partition) for partition in partitions], TIMEOUT_MS, WARN_AFTER_MS + 4
    )
    assert warning is not None
    assert warning.startswith(
        "5 records for t-0, t-1, t-2 and 2 more partitions not acknowledged for 2 s: no t-0; "
    )


def test_failure_in_another_warning_is_reported_again_later() -> None:
    retry_log = RetryLog()
    retry_log.record_failure(A, "nobody answers", 0)
    retry_log.mark_reported(5_000)
    assert retry_log.due_warning([batch(A)], TIMEOUT_MS, 5_000) is None
    warning = retry_log.due_warning([batch(A)], TIMEOUT_MS, 5_000 + WARN_INTERVAL_MS)
    assert warning is not None
    assert warning.startswith("still 1 record for t-0")

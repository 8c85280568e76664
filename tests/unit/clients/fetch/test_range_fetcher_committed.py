"""``clients/fetch/range_fetcher`` with ``isolation.level`` read_committed."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.base.errors import BrokerError, ErrorCode, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.fetch.range_fetcher import RangeFetcher
from minikafka.records.columns import decode
from minikafka.records.format.batch import ControlType, build_batch, build_control_batch
from minikafka.records.format.message_set import Record
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.fetch import FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopicResponse
from tests.support.broker_harness import BrokerHarness

TP = TopicPartition("t", 0)


@pytest.fixture
def brokers() -> BrokerHarness:
    return BrokerHarness(1, {"t": 1})


def write(brokers: BrokerHarness, producer: int, count: int = 1) -> None:
    """One batch of a transaction."""
    records = [Record(None, b"%d" % producer)] * count
    data = build_batch(records, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)
    brokers.logs[TP].append(data)


def end(brokers: BrokerHarness, producer: int, kind: ControlType) -> None:
    """The mark that ends the transaction."""
    mark = build_control_batch(
        kind, coordinator_epoch=0, producer_id=producer, producer_epoch=0, timestamp_ms=0
    )
    brokers.logs[TP].append(mark)


def fetcher(brokers: BrokerHarness, start: int, end: int, **options: Any) -> RangeFetcher:
    options = {"timeout_ms": 10_000, "isolation": IsolationLevel.READ_COMMITTED} | options
    return RangeFetcher(options.pop("cluster", None) or brokers.client(), TP, start, end, **options)


def rows(sets: RangeFetcher, start: int = 0) -> list[int]:
    """The offsets of all rows of the range."""
    return [n for data in sets for n in decode(data, start, sets.end_offset).offsets.tolist()]


@pytest.mark.parametrize("max_bytes", [1, 200, 1 << 20])
def test_aborted_batches_are_left_out_whatever_an_answer_holds(
    brokers: BrokerHarness, max_bytes: int
) -> None:
    brokers.fill(TP, b"0", b"1")
    write(brokers, 7, 3)  # 2 to 4
    write(brokers, 8, 2)  # 5, 6
    write(brokers, 7)  # 7
    end(brokers, 7, ControlType.ABORT)  # 8
    write(brokers, 8)  # 9
    end(brokers, 8, ControlType.COMMIT)  # 10
    write(brokers, 7)  # 11
    end(brokers, 7, ControlType.COMMIT)
    for start in range(12):
        wanted = [offset for offset in (0, 1, 5, 6, 9, 11) if offset >= start]
        assert rows(fetcher(brokers, start, 13, max_bytes=max_bytes), start) == wanted


@pytest.mark.parametrize("max_bytes", [1, 1 << 20])
def test_fully_aborted_range_ends_without_rows(brokers: BrokerHarness, max_bytes: int) -> None:
    write(brokers, 7, 3)
    write(brokers, 7, 3)
    end(brokers, 7, ControlType.ABORT)
    for last in (2, 4, 6, 7):
        sets = fetcher(brokers, 0, last, max_bytes=max_bytes)
        assert rows(sets) == []
        assert sets.next_offset >= last
    assert brokers.waiter.waits == []


def test_read_uncommitted_and_old_brokers_return_all_messages(brokers: BrokerHarness) -> None:
    write(brokers, 7)
    end(brokers, 7, ControlType.ABORT)
    assert rows(fetcher(brokers, 0, 2, isolation=IsolationLevel.READ_UNCOMMITTED)) == [0]
    sets = fetcher(brokers, 0, 1, cluster=brokers.client(newest_versions={ApiKey.FETCH: 3}))
    assert rows(sets) == [0]
    assert sets.last_stable_offset is None


def test_a_range_behind_the_last_stable_offset_is_waited_for(brokers: BrokerHarness) -> None:
    brokers.fill(TP, b"0")
    write(brokers, 7)

    def committed_now(broker_id: int, request: FetchRequest) -> FetchResponse:
        end(brokers, 7, ControlType.COMMIT)
        return brokers.serve(broker_id, request)

    brokers.script(ApiKey.FETCH, *[brokers.serve] * 4, committed_now)
    assert rows(fetcher(brokers, 0, 2)) == [0, 1]


def test_open_transaction_ends_with_a_timeout_that_names_it(brokers: BrokerHarness) -> None:
    brokers.fill(TP, b"0")
    write(brokers, 7, 4)
    sets = fetcher(brokers, 0, 5, timeout_ms=2_000)
    assert decode(next(sets), 0, 5).count == 1
    with pytest.raises(NetworkError, match="high watermark 5, last stable offset 1, where a transaction is"):
        next(sets)


def test_a_log_that_ends_early_is_not_blamed_on_a_transaction(brokers: BrokerHarness) -> None:
    brokers.fill(TP, b"0")
    with pytest.raises(NetworkError, match=r"high watermark 1\)") as caught:
        rows(fetcher(brokers, 0, 2, timeout_ms=2_000))
    assert "stable" not in str(caught.value)


def test_many_aborted_answers_do_not_use_up_the_time_out(brokers: BrokerHarness) -> None:
    write(brokers, 7)
    for _ in range(20):
        write(brokers, 7)
    end(brokers, 7, ControlType.ABORT)
    brokers.fill(TP, b"behind")

    def slowly(broker_id: int, request: FetchRequest) -> FetchResponse:
        brokers.advance(400)
        return brokers.serve(broker_id, request)

    brokers.script(ApiKey.FETCH, *[slowly] * 30)
    assert rows(fetcher(brokers, 0, 23, max_bytes=1, timeout_ms=2_000)) == [22]


def test_damage_in_an_aborted_batch_is_an_error_with_its_offset(brokers: BrokerHarness) -> None:
    brokers.fill(TP, b"0")
    write(brokers, 7)
    end(brokers, 7, ControlType.ABORT)
    brokers.logs[TP].damage(1, lambda entry: entry[:-1] + b"?")
    sets = fetcher(brokers, 0, 3)
    assert decode(next(sets), 0, 3).count == 1
    with pytest.raises(BrokerError, match="t-0, fetched from offset 1") as caught:
        next(sets)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_response_without_aborted_transactions_is_not_changed(brokers: BrokerHarness) -> None:
    write(brokers, 7, 2)
    end(brokers, 7, ControlType.COMMIT)
    stored = b"".join(brokers.logs[TP].entries)
    for aborted in (None, ()):
        part = FetchPartitionResponse(0, 0, 3, 3, 0, aborted, stored)
        answer = FetchResponse(0, 0, 0, (FetchTopicResponse("t", (part,)),))
        brokers.script(ApiKey.FETCH, lambda *_, answer=answer: answer)
        assert [bytes(data) for data in fetcher(brokers, 0, 3)] == [stored]

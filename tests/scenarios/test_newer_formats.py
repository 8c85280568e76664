"""A broker on a data directory with messages of a newer format than its clients know."""

from __future__ import annotations

from functools import cache

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.records import down_conversion
from minikafka.records.format.batch import build_batch, set_producer
from minikafka.records.format.message_set import Record, StoredRecord, iterate
from minikafka.server.handlers import fetch
from minikafka.wire.apis.fetch import READ_COMMITTED
from minikafka.wire.frame_parts import buffer_of
from tests.support import requests
from tests.support.records import BATCH_CASES, expected, expected_read_committed, row_of, segment
from tests.support.requests import produce
from tests.support.simulation import DATA_DIR, Simulation

every_case = pytest.mark.parametrize("name", [name for name in BATCH_CASES if name != "magic2-zstd"])


def simulation_with(name: str) -> Simulation:
    """A broker with one topic whose log was written by Kafka 3.9.1."""
    return simulation_of(segment(name))


def simulation_of(data: bytes) -> Simulation:
    """A broker with one topic that has this log."""
    simulation = Simulation.serving("t")
    simulation.machine.stop()
    file = simulation.machine.files.open(f"{DATA_DIR}/t_0/00000000000.kafka", create=True)
    file.write_at(0, data)
    file.close()
    simulation.machine.files.remove(f"{DATA_DIR}/.kafka_cleanshutdown")
    assert simulation.machine.start()
    return simulation


TRANSACTIONS = cache(lambda: simulation_with("magic2-transactions"))


def fetched(simulation: Simulation, version: int) -> list[StoredRecord]:
    found: list[StoredRecord] = []
    at = 0
    while True:
        answer = simulation.fetch("t", at, version=version, max_bytes=1 << 22)
        assert answer.error_code == ErrorCode.NONE
        if not answer.records:
            return found
        got = [record for record in iterate(buffer_of(answer.records)) if record.offset >= at]
        found += got
        at = got[-1].offset + 1 if got else at + 1


@every_case
@pytest.mark.parametrize("version", [2, 3])
def test_consumers_of_magic_1_get_every_record(name: str, version: int) -> None:
    records = fetched(simulation_with(name), version)
    assert {record.magic for record in records} == {1}
    assert [(r.offset, r.timestamp_ms, int(r.timestamp_type), r.key, r.value) for r in records] == expected(
        name
    )


@every_case
@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_consumers_get_every_record_in_small_pieces(
    name: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for size in ("PIECE_BYTES", "PORTION_BYTES", "WORK_BYTES"):
        monkeypatch.setattr(down_conversion, size, 200)
    monkeypatch.setattr(fetch, "PLAIN_BYTES", 0)
    records = fetched(simulation_with(name), version)
    assert [(r.offset, r.key, r.value) for r in records] == [(o, k, v) for o, _, _, k, v in expected(name)]


@pytest.mark.parametrize("version", [1, 3])
def test_response_has_the_stored_length_before_conversion(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for size in ("PIECE_BYTES", "PORTION_BYTES", "WORK_BYTES"):
        monkeypatch.setattr(down_conversion, size, 1)
    answer = simulation_with("magic2-gzip").fetch("t", version=version, max_bytes=3000)
    data = bytes(buffer_of(answer.records))
    assert len(data) == 3000
    assert list(iterate(data))


@every_case
def test_consumers_of_magic_0_get_every_record_without_its_timestamp(name: str) -> None:
    records = fetched(simulation_with(name), 1)
    assert {record.magic for record in records} == {0}
    assert [(r.offset, r.key, r.value) for r in records] == [(o, k, v) for o, _, _, k, v in expected(name)]


@pytest.mark.parametrize("max_bytes", [1, 300, 1000, 5000, 1 << 20])
@pytest.mark.parametrize("first", range(0, 205, 17))
def test_read_committed_fetch_lists_aborted_transactions(max_bytes: int, first: int) -> None:
    simulation = TRANSACTIONS()
    aborted: list[tuple[int, int]] = []
    dropping: set[int] = set()
    found, at = [], first
    while at < 205:
        answer = simulation.fetch("t", at, version=10, max_bytes=max_bytes, isolation_level=READ_COMMITTED)
        assert (answer.error_code, answer.last_stable_offset, answer.high_watermark) == (0, 205, 205)
        # As in Java's consumer: by the list of the same response.
        aborted = [(entry.first_offset, entry.producer_id) for entry in answer.aborted_transactions or ()]
        assert aborted == sorted(aborted)
        for record in iterate(buffer_of(answer.records)):
            dropping |= {producer for offset, producer in aborted if offset <= record.offset}
            aborted = [entry for entry in aborted if entry[0] > record.offset]
            if record.control:
                dropping.discard(record.producer_id)
            elif record.offset >= at and not (record.transactional and record.producer_id in dropping):
                found.append(row_of(record))
            last = record.offset
        at, dropping = last + 1, set()
    assert found == [row for row in expected_read_committed() if row[0] >= first]


def test_open_transaction_limits_read_committed_fetches() -> None:
    """All messages after an open transaction of another release are unstable, whoever wrote them."""
    data = segment("magic2-transactions")
    opened = bytearray(build_batch([Record(None, b"open", 0)], base_offset=205))
    set_producer(opened, 9999, 0, 0, transactional=True)
    simulation = simulation_of(data + bytes(opened))
    simulation.call(produce("t", build_batch([Record(None, b"behind", 0)]), version=7))
    answer = simulation.fetch("t", 200, version=10, isolation_level=READ_COMMITTED)
    assert (answer.last_stable_offset, answer.high_watermark) == (205, 207)
    assert max(record.offset for record in iterate(buffer_of(answer.records))) == 204
    assert simulation.fetch("t", 205, version=10, isolation_level=READ_COMMITTED).records == b""
    assert [record.value for record in fetched(simulation, 10) if record.offset >= 205] == [
        b"open",
        b"behind",
    ]
    for level, end in ((0, 207), (READ_COMMITTED, 205)):
        answer = simulation.call(requests.list_offsets("t", isolation_level=level).at(2))
        assert answer.topics[0].partitions[0].offset == end


def test_zstd_for_an_older_format_is_a_partition_error() -> None:
    answer = simulation_with("magic2-zstd").fetch("t", 0)
    assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_old_fetch_of_only_markers_gets_a_partial_message() -> None:
    """The response is the recorded one of 3.9.1: the beginning of a message of offset -1."""
    simulation = simulation_with("magic2-transactions")
    marks = set(range(205)) - {row[0] for row in expected("magic2-transactions")}
    answer = simulation.fetch("t", min(marks), max_bytes=1)
    assert bytes(buffer_of(answer.records))[:8] == b"\xff" * 8

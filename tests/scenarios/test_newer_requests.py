"""Requests of producers and consumers of 0.11 and later that scenario scripts cannot express."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.records.append.produced import Limits
from minikafka.records.append.validation import validate
from minikafka.records.format.batch import ControlType, build_batch, build_control_batch, set_producer
from minikafka.records.format.message_set import Codec, Record, build_message_set, iterate
from minikafka.server.core.broker import Broker
from minikafka.server.handlers import fetch as handling
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.describe_configs import (
    ConfigResourceType,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from minikafka.wire.apis.fetch import (
    READ_COMMITTED,
    FetchPartition,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from minikafka.wire.apis.produce import ProducePartitionResponse
from minikafka.wire.frame_parts import buffer_of
from tests.support import requests
from tests.support.requests import Request, fetch, produce
from tests.support.simulation import Simulation

RECORDS = [Record(b"k", b"v%d" % number, number) for number in range(3)]
BATCH = build_batch(RECORDS)


@pytest.fixture
def simulation() -> Simulation:
    return Simulation.serving("t", partitions=3)


def produced(simulation: Simulation, records: bytes, version: int = 7) -> ProducePartitionResponse:
    answer: ProducePartitionResponse = (
        simulation.call(produce("t", records, version=version)).topics[0].partitions[0]
    )
    return answer


def end_of(simulation: Simulation) -> int:
    (answer,) = simulation.call(ends(1)).topics[0].partitions
    offset: int = answer.offset
    return offset


def ends(version: int, isolation_level: int = 0) -> Request:
    return requests.list_offsets("t", isolation_level=isolation_level).at(version)


def transactional() -> bytes:
    batch = bytearray(BATCH)
    set_producer(batch, 7, 0, 0, transactional=True)
    return bytes(batch)


def mark() -> bytes:
    return build_control_batch(
        ControlType.COMMIT, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp_ms=0
    )


@pytest.mark.parametrize(
    ("what", "records", "code"),
    [
        ("nothing", b"", ErrorCode.INVALID_RECORD),
        ("two batches", BATCH + BATCH, ErrorCode.INVALID_RECORD),
        ("half a batch", BATCH[:-1], ErrorCode.INVALID_RECORD),
        ("half a header", BATCH[:60], ErrorCode.INVALID_RECORD),
        ("more than a batch", BATCH + b"\0", ErrorCode.INVALID_RECORD),
        ("messages of magic 1", build_message_set(RECORDS), ErrorCode.INVALID_RECORD),
        ("a mark", mark(), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("a control batch", build_batch(RECORDS, control=True), ErrorCode.INVALID_RECORD),
        ("a part of a transaction", transactional(), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
def test_records_other_than_one_producer_batch_are_refused(
    simulation: Simulation, what: str, records: bytes, code: ErrorCode
) -> None:
    answer = produced(simulation, records)
    assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (code, -1, -1), what
    assert end_of(simulation) == 0


@pytest.mark.parametrize(
    ("sequence", "code"), [(7, ErrorCode.UNKNOWN_PRODUCER_ID), (0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)]
)
def test_sequence_error_returns_the_log_start_offset(
    simulation: Simulation, sequence: int, code: ErrorCode
) -> None:
    def numbered(sequence: int) -> bytes:
        batch = bytearray(BATCH)
        set_producer(batch, 7, 0, sequence)
        return bytes(batch)

    if sequence == 0:
        produced(simulation, numbered(0))
        sequence = 9
    answer = produced(simulation, numbered(sequence))
    assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (code, -1, 0)


def test_duplicate_resources_are_described_once(simulation: Simulation) -> None:
    resource = DescribeConfigsResource(ConfigResourceType.BROKER, "0", None)
    request = DescribeConfigsRequest((resource,) * 3, include_synonyms=False)
    answer = simulation.call(Request(ApiKey.DESCRIBE_CONFIGS, 2, request))
    assert [result.resource_name for result in answer.results] == ["0"]


def test_a_batch_in_an_older_request_is_refused(simulation: Simulation) -> None:
    assert produced(simulation, BATCH, version=2).error_code == ErrorCode.CORRUPT_MESSAGE


def test_a_batch_is_stored_but_for_its_offset_and_the_leader_epoch(simulation: Simulation) -> None:
    produced(simulation, BATCH)
    headed = build_batch([Record(None, b"", 9, headers=(("h", None), ("h", b"x")))], codec=Codec.ZSTD)
    answer = produced(simulation, headed)
    assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (0, 3, 0)
    stored = bytes(buffer_of(simulation.fetch("t", 3, version=10).records))
    assert stored == struct.pack(">q", 3) + headed[8:12] + struct.pack(">i", 0) + headed[16:]


def test_fetch_returns_log_start_and_last_stable_offset(simulation: Simulation) -> None:
    produced(simulation, BATCH)
    answer = simulation.fetch("t", 1, version=10)
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (3, 3, 0)
    assert answer.aborted_transactions is None
    assert simulation.fetch("t", 1, version=4, isolation_level=READ_COMMITTED).aborted_transactions == ()
    beyond = simulation.fetch("t", 9, version=10)
    assert (beyond.error_code, beyond.high_watermark, beyond.last_stable_offset, beyond.log_start_offset) == (
        ErrorCode.OFFSET_OUT_OF_RANGE,
        -1,
        -1,
        -1,
    )


def test_read_committed_end_offset_is_the_same(simulation: Simulation) -> None:
    produced(simulation, BATCH)
    for level in (0, READ_COMMITTED):
        assert simulation.call(ends(4, level)).topics[0].partitions[0].offset == 3


def many(
    simulation: Simulation, *, max_bytes: int, session_id: int = 0, session_epoch: int = -1
) -> FetchResponse:
    """Fetch the partitions 2, 0 and 1, in this order."""
    request = fetch("t", version=10)
    parts = tuple(FetchPartition(number, -1, 0, -1, 1 << 20) for number in (2, 0, 1))
    body = replace(
        request.body,
        max_bytes=max_bytes,
        topics=(FetchTopic("t", parts),),
        session_id=session_id,
        session_epoch=session_epoch,
        forgotten_topics=(ForgottenTopic("t", (5,)),),
    )
    answer: FetchResponse = simulation.call(replace(request, body=body))
    return answer


def test_response_limit_spares_the_first_partition_with_data(simulation: Simulation) -> None:
    simulation.call(produce("t", BATCH, partitions=(0, 1), version=7))
    given = {
        limit: [
            (part.index, len(buffer_of(part.records)))
            for part in many(simulation, max_bytes=limit).topics[0].partitions
        ]
        for limit in (1, len(BATCH), len(BATCH) + 9, 2 * len(BATCH) + 9, 1 << 20)
    }
    size = len(BATCH)
    assert given == {
        1: [(2, 0), (0, size), (1, 0)],
        size: [(2, 0), (0, size), (1, 0)],
        size + 9: [(2, 0), (0, size), (1, 0)],
        2 * size + 9: [(2, 0), (0, size), (1, size)],
        1 << 20: [(2, 0), (0, size), (1, size)],
    }


def test_a_fetch_that_is_about_to_wait_misses_nothing(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect = handling._collect

    def overtaken(broker: Broker, *given: Any) -> Any:
        found = collect(broker, *given)
        monkeypatch.setattr(handling, "_collect", collect)
        broker.partition(TopicPartition("t", 0)).append(validate(BATCH, Limits(max_magic=2), 0))
        return found

    monkeypatch.setattr(handling, "_collect", overtaken)
    began_ms = simulation.clock.monotonic_ms()
    answer = simulation.call(fetch("t", wait_ms=60_000, version=10)).topics[0].partitions[0]
    assert (len(buffer_of(answer.records)), answer.high_watermark) == (len(BATCH), 3)
    assert simulation.clock.monotonic_ms() == began_ms


def test_a_new_session_is_answered_in_the_order_of_the_request(simulation: Simulation) -> None:
    produced(simulation, BATCH)
    answer = many(simulation, max_bytes=1 << 20, session_epoch=0)
    assert answer.error_code == 0
    assert answer.session_id > 0
    assert [part.index for part in answer.topics[0].partitions] == [2, 0, 1]
    assert [record.value for record in iterate(buffer_of(answer.topics[0].partitions[1].records))] == [
        b"v0",
        b"v1",
        b"v2",
    ]


def test_a_session_of_another_broker_is_not_known(simulation: Simulation) -> None:
    answer = many(simulation, max_bytes=1 << 20, session_id=77, session_epoch=3)
    assert (answer.error_code, answer.session_id, answer.topics) == (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        0,
        (),
    )

"""Requests that are small to send and large to serve, while another client keeps working (see ``attack``)."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import ProducerIdAndEpoch
from minikafka.records.columns import encode
from minikafka.records.format.compression import Codec
from minikafka.records.format.message_set import Record, build_message_set
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.faults.attack import (
    HOST,
    LARGE_CONTENT_BYTES,
    AttackedBroker,
    Others,
    asking,
    large_batch,
    read_answer,
    reads_proc,
    wait_until,
)
from tests.support import requests
from tests.support import transaction_requests as transactions

pytestmark = [pytest.mark.process, reads_proc]


@cache
def large_wrapper(codec: Codec, magic: int) -> bytes:
    """Return the same as ``large_batch``, of magic 0 or 1."""
    return build_message_set([Record(None, bytes(LARGE_CONTENT_BYTES), 1)], magic=magic, codec=codec)


def attack(broker: AttackedBroker, connections: int, request: requests.Request) -> list[Any]:
    """Send ``request`` on so many connections at a time; the responses."""
    with asking(broker, request, connections) as socks:
        return [read_answer(sock, request) for sock in socks]


def codes(answers: list[Any]) -> set[int]:
    """All error codes of produce responses."""
    return {part.error_code for answer in answers for topic in answer.topics for part in topic.partitions}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_small_requests_of_large_zstd_content_stop_nobody(broker: AttackedBroker) -> None:
    broker.create_topic("bombs", 40)
    request = requests.produce("bombs", large_batch(Codec.ZSTD), partitions=tuple(range(40)), version=7)
    with Others(broker):
        answers = attack(broker, 8, request)
    assert codes(answers) == {0}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.SNAPPY])
def test_large_content_of_other_codecs_stops_nobody(broker: AttackedBroker, codec: Codec) -> None:
    broker.create_topic("bombs", 4, max_message_bytes="10000000")
    request = requests.produce("bombs", large_batch(codec), partitions=tuple(range(4)), version=3)
    with Others(broker):
        answers = attack(broker, 3, request)
    assert codes(answers) == {0}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_request_of_many_large_wrappers_stops_nobody(broker: AttackedBroker) -> None:
    broker.create_topic("bombs", 1)
    request = requests.produce("bombs", 8 * large_wrapper(Codec.GZIP, 1), version=2)
    with Others(broker):
        answers = attack(broker, 2, request)
    assert codes(answers) == {0}


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("settings", "codec"),
    [
        ({"compression_type": "gzip"}, Codec.ZSTD),
        ({"message_format_version": "0.9.0"}, Codec.LZ4),
        ({"message_format_version": "0.10.0"}, Codec.LZ4),
    ],
)
def test_large_content_that_is_written_anew_stops_nobody(
    broker: AttackedBroker, settings: dict[str, str], codec: Codec
) -> None:
    broker.create_topic("bombs", 1, **settings)
    request = requests.produce("bombs", large_batch(codec), version=7 if codec is Codec.ZSTD else 3)
    with Others(broker):
        assert codes(attack(broker, 3, request)) == {0}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("magic", "settings"),
    [
        (0, {}),
        pytest.param(1, {}, marks=pytest.mark.long),
        pytest.param(1, {"message_format_version": "0.9.0"}, marks=pytest.mark.long),
        pytest.param(0, {"message_format_version": "0.10.0"}, marks=pytest.mark.long),
    ],
)
def test_requests_of_very_many_wrappers_stop_nobody(
    broker: AttackedBroker, magic: int, settings: dict[str, str]
) -> None:
    one = build_message_set([Record(None, b"x", 1)], magic=magic, codec=Codec.GZIP)
    broker.create_topic("bombs", 1, **settings)
    request = requests.produce("bombs", (20 << 20) // len(one) * one, version=2)
    with Others(broker):
        assert codes(attack(broker, 2, request)) == {0}


RECORDS = 1_000_000


@cache
def many_records(magic: int) -> bytes:
    """A wrapper or batch of so many records, the last of which is newer."""
    times = np.ones(RECORDS, dtype=np.int64)
    times[-1] = 2
    values, rows = pa.array(RECORDS * [b"x"]), np.arange(RECORDS)
    (records,) = encode(
        None, values, times, rows, magic=magic, codec=Codec.LZ4, max_bytes=LARGE_CONTENT_BYTES
    )
    return bytes(records.data)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("content", "version", "newest_ms", "offset"),
    [
        (lambda: large_batch(Codec.LZ4), 3, 1, 0),
        (lambda: many_records(1), 2, 2, RECORDS - 1),
        (lambda: many_records(2), 3, 2, RECORDS - 1),
    ],
    ids=["large-record", "many-messages", "many-records"],
)
def test_look_ups_by_time_in_large_content_stop_nobody(
    broker: AttackedBroker, content: Callable[[], bytes], version: int, newest_ms: int, offset: int
) -> None:
    broker.create_topic("bombs", 1, max_message_bytes="10000000")
    assert codes([broker.call(requests.produce("bombs", content(), version=version))]) == {0}
    request = requests.list_offsets("bombs", timestamp_ms=newest_ms)
    with Others(broker):
        answers = attack(broker, 6, request)
    assert [part.offset for answer in answers for part in answer.topics[0].partitions] == 6 * [offset]


MANY = 50_000
PRODUCER = ProducerIdAndEpoch(0, 0)


def many_fetched() -> requests.Request:
    """A fetch of many partitions that are not there."""
    parts = tuple(FetchPartition(index, -1, 0, -1, 1 << 20) for index in range(1, MANY))
    body = FetchRequest(-1, 0, 1, 1 << 24, 0, 0, -1, (FetchTopic("steady", parts),))
    return requests.Request(ApiKey.FETCH, 4, body)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "request_of",
    [
        many_fetched,
        lambda: requests.list_offsets("steady", partitions=range(1, MANY)),
        lambda: requests.metadata(*(f"name-{number}" for number in range(MANY))),
        lambda: requests.produce("steady", b"", partitions=tuple(range(1, MANY)), version=7),
        lambda: transactions.add("txn", PRODUCER, {"steady": range(1, MANY)}),
        lambda: transactions.verify(map(str, range(MANY // 2)), PRODUCER, {"steady": (0, 1)}),
        lambda: transactions.commit_offsets("txn", PRODUCER, "g", {"steady": range(1, MANY)}),
        lambda: transactions.write_markers([PRODUCER], {"steady": range(1, MANY)}),
        lambda: transactions.describe(*(f"txn-{number}" for number in range(MANY))),
    ],
    ids=[
        "fetch",
        "offsets",
        "metadata",
        "produce",
        "add-partitions",
        "verify-partitions",
        "commit-offsets",
        "write-markers",
        "describe-transactions",
    ],
)
def test_requests_that_name_very_many_partitions_stop_nobody(
    broker: AttackedBroker, request_of: Callable[[], requests.Request]
) -> None:
    request = request_of()
    with Others(broker):
        assert len(attack(broker, 3, request)) == 3


@pytest.mark.timeout(120)
def test_a_transaction_of_many_partitions_stops_nobody(broker: AttackedBroker) -> None:
    broker.create_topic("bombs", 500)
    wait_until(lambda: bool(broker.call(transactions.find("txn")).error_code == 0))
    found = broker.call(transactions.init("txn"))
    assert found.error_code == 0
    producer = ProducerIdAndEpoch(found.producer_id, found.producer_epoch)
    with Others(broker):
        added = broker.call(transactions.add("txn", producer, {"bombs": range(500)}))
        assert {part.partition_error_code for part in added.results_by_topic[0].results_by_partition} == {0}
        assert broker.call(transactions.end("txn", producer)).error_code == 0
        wait_until(lambda: described(broker) == "CompleteCommit")


def described(broker: AttackedBroker) -> str:
    """The state of the transaction."""
    state: str = broker.call(transactions.describe("txn")).transaction_states[0].transaction_state
    return state


@pytest.mark.timeout(120)
def test_very_many_markers_in_a_request_stop_nobody(broker: AttackedBroker) -> None:
    broker.create_topic("bombs", 10)
    producers = [ProducerIdAndEpoch(number, 0) for number in range(5_000)]
    request = transactions.write_markers(producers, {"bombs": range(10)})
    with Others(broker):
        answers = attack(broker, 2, request)
    rows = [
        part for one in answers for row in one.markers for topic in row.topics for part in topic.partitions
    ]
    assert len(rows) == 2 * 10 * len(producers)
    # A busy machine does not come to all of them while their sender surely waits.
    assert {part.error_code for part in rows} <= {ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("sent_bytes", [100, (100 << 20) - 1])
def test_large_frames_that_never_come_whole_stop_nobody(broker: AttackedBroker, sent_bytes: int) -> None:
    before = broker.resident_bytes()
    medium = requests.produce(
        "steady", build_message_set([Record(None, bytes(300_000), 1)], magic=2), version=3
    )
    with Others(broker), contextlib.ExitStack() as stack:
        socks = [stack.enter_context(socket.create_connection((HOST, broker.port))) for _ in range(30)]
        for sock in socks:
            sock.setblocking(False)
        send_all_that_is_taken(socks, struct.pack(">i", 100 << 20), sent_bytes)
        assert codes([broker.call(medium)]) == {0}
    wait_until(lambda: broker.resident_bytes() - before < 64 << 20)


def send_all_that_is_taken(socks: list[socket.socket], head: bytes, most_bytes: int) -> None:
    """Send on all connections until none accepts bytes for a while, or all are sent."""
    left = {sock: most_bytes for sock in socks if sock.send(head)}
    piece = memoryview(bytes(1 << 20))
    while left:
        _, ready, _ = select.select([], list(left), [], 0.5)
        if not ready:
            return
        for sock in ready:
            try:
                left[sock] -= sock.send(piece[: left[sock]])
            except OSError:  # the broker has cut it off
                left[sock] = 0
            if not left[sock]:
                del left[sock]

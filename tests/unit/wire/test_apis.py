"""The APIs as a whole: versions, the advertised table, and the table as text."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from minikafka.base.errors import LocalWireError, RemoteWireError
from minikafka.base.ids import TopicPartition
from minikafka.wire.__main__ import main
from minikafka.wire.api_table import APIS, describe
from minikafka.wire.apis.api_versions import ApiVersion, table_of
from minikafka.wire.apis.delete_topics import DELETE_TOPICS, DeleteTopicsRequest
from minikafka.wire.apis.fetch import (
    FETCH,
    LARGEST_MESSAGE_BYTES,
    FetchRequest,
    consumer_partition,
    consumer_request,
)
from minikafka.wire.apis.list_groups import LIST_GROUPS
from minikafka.wire.apis.list_offsets import LIST_OFFSETS
from minikafka.wire.apis.produce import (
    PRODUCE,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    has_many_partitions,
)
from minikafka.wire.frame_parts import join, total_size
from minikafka.wire.framing import RequestHeader


def test_api_versions_table_is_sorted_by_key() -> None:
    table = table_of(reversed(APIS.values()))
    assert table.error_code == 0
    keys = [row.api_key for row in table.api_keys]
    assert keys == sorted(APIS)
    assert table_of([FETCH]).api_keys == (ApiVersion(1, FETCH.min_version, FETCH.max_version),)


def test_unsupported_version_is_the_senders_fault() -> None:
    with pytest.raises(RemoteWireError, match="Produce version 12 is not supported: expected 0 to 11"):
        PRODUCE.decode_request(12, b"")
    with pytest.raises(LocalWireError, match="Produce version 12 is not supported"):
        PRODUCE.encode_response(12, ProduceResponse(()))
    with pytest.raises(LocalWireError, match="Fetch version -1 is not supported"):
        FETCH.encode_request(-1, FetchRequest(-1, 0, 0, 0, 0, 0, -1, ()))


def test_old_version_omits_newer_fields() -> None:
    assert total_size(PRODUCE.encode_response(0, ProduceResponse((), 17))) == 4
    assert total_size(PRODUCE.encode_response(1, ProduceResponse((), 17))) == 8


def test_one_name_in_place_of_many_is_not_taken_apart() -> None:
    with pytest.raises(LocalWireError, match="got the string 'flights'"):
        DELETE_TOPICS.encode_request(0, DeleteTopicsRequest("flights", 0))  # type: ignore[arg-type]


def test_the_table_as_text_shows_types_versions_and_notes() -> None:
    assert describe([LIST_OFFSETS]) == (
        "ListOffsets (key 2), versions 0 to 9\n"
        "  request\n"
        "    replica_id: int32  # -1 for a consumer\n"
        "    isolation_level: int8, since version 2  # 0 all, 1 committed\n"
        "    topics: array of\n"
        "      name: string\n"
        "      partitions: array of\n"
        "        index: int32\n"
        "        current_leader_epoch: int32, since version 4  # -1: unknown\n"
        "        timestamp: int64  # ms; -1 the end, -2 the start, -3 the largest timestamp\n"
        "        max_num_offsets: int32, until version 0\n"
        "  response\n"
        "    throttle_time_ms: int32, since version 2\n"
        "    topics: array of\n"
        "      name: string\n"
        "      partitions: array of\n"
        "        index: int32\n"
        "        error_code: int16\n"
        "        offsets: array of int64, until version 0  # newest first\n"
        "        timestamp: int64, since version 1  # -1: none, or not requested\n"
        "        offset: int64, since version 1  # -1: none\n"
        "        leader_epoch: int32, since version 4  # -1: unknown"
    )


def test_a_lowered_version_is_described_without_newer_fields() -> None:
    lowered = describe([replace(LIST_OFFSETS, max_version=1)])
    assert "versions 0 to 1\n" in lowered
    assert "isolation_level" not in lowered
    assert "timestamp: int64, since version 1" in lowered
    assert "request: nothing\n" in describe([replace(LIST_GROUPS, max_version=2)])


def test_the_module_prints_the_table_of_all_apis(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    printed = capsys.readouterr().out
    assert printed == describe() + "\n"
    for api in APIS.values():
        assert f"{api.name} (key {int(api.key)})" in printed


@pytest.mark.parametrize(
    ("version", "allowed"),
    [
        (2, 3_000_000),  # what is cut off at the limits has them all
        (4, LARGEST_MESSAGE_BYTES),  # one message that is larger
    ],
)
def test_fetch_response_limit_follows_from_the_request(version: int, allowed: int) -> None:
    parts = {TopicPartition("t", number): consumer_partition(number, 0, 1_000_000) for number in range(3)}
    request = consumer_request(parts, max_bytes=500_000)
    most = FETCH.response_bytes_max(version, request)
    assert allowed <= most <= allowed + (16 << 20)


def test_fetch_response_limit_exceeds_the_largest_message() -> None:
    parts = {TopicPartition("t", 0): consumer_partition(0, 0, 1 << 30)}
    request = consumer_request(parts, max_bytes=1 << 30)
    assert 1 << 30 <= FETCH.response_bytes_max(10, request) < (1 << 30) + (1 << 25)


@pytest.mark.parametrize("version", [0, 2, 3, 7, 9, 11])
def test_many_partitions_are_detected_without_decoding(version: int) -> None:
    def frame(topics: int, partitions: int) -> memoryview:
        parts = tuple(ProducePartition(number, b"records") for number in range(partitions))
        request = ProduceRequest(None, 1, 1000, tuple(ProduceTopic(f"t{n}", parts) for n in range(topics)))
        header = RequestHeader(0, version, 1, "client").encode()
        return memoryview(join([header, *PRODUCE.encode_request(version, request)]))

    assert not has_many_partitions(frame(1, 5), version, 10)
    assert not has_many_partitions(frame(2, 4), version, 10)
    assert has_many_partitions(frame(1, 11), version, 10)
    assert has_many_partitions(frame(3, 4), version, 10)
    assert has_many_partitions(frame(11, 0), version, 10)
    for end in range(0, 60, 3):
        assert not has_many_partitions(frame(1, 3)[:end], version, 10)


@pytest.mark.parametrize(
    ("counts", "many"),
    [
        ((11, -(1 << 31)), True),  # the topics alone are too many
        ((5, -(1 << 31), 20), False),  # refused by the decoder before it comes to the twenty
        ((-1, 20), False),
    ],
)
def test_no_count_of_a_produce_request_makes_room_for_more(counts: tuple[int, ...], many: bool) -> None:
    topics, *partitions = counts
    header = RequestHeader(0, 2, 1, "client").encode()
    body = struct.pack(">hii", 1, 1000, topics) + b"".join(
        struct.pack(">hci", 1, b"t", count) for count in partitions
    )
    frame = memoryview(header + body + bytes(10_000))
    assert has_many_partitions(frame, 2, 10) is many
    with pytest.raises(RemoteWireError):
        PRODUCE.decode_request(2, frame[len(header) :])


@pytest.mark.parametrize(
    ("body", "many"),
    [
        ("0c", True),  # eleven topics are too many
        ("02 0274 00", False),  # null: refused by the decoder
        ("03 0274 06 ffffffffff", False),  # no varint follows
        ("02 0274 0c", True),
        ("8c80808010", False),  # not a varint of 32 bits
    ],
)
def test_no_count_of_a_flexible_produce_request_makes_room(body: str, many: bool) -> None:
    header = RequestHeader(0, 9, 1, "client").encode()
    frame = memoryview(header + bytes.fromhex("00 0001 000003e8" + body) + b"\xff" * 100)
    assert has_many_partitions(frame, 9, 10) is many
    with pytest.raises(RemoteWireError):
        PRODUCE.decode_request(9, frame[len(header) :])

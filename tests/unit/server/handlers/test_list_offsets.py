"""ListOffsets: what its negative timestamps find, in the versions that have them."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.records.format.message_set import Codec, Record, build_message_set
from minikafka.wire.apis.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    ListOffsetsPartitionResponse,
)
from tests.support import requests
from tests.support.simulation import Simulation

NEWEST = 9
NONE = ListOffsetsPartitionResponse(0, ErrorCode.NONE)
UNSUPPORTED = ListOffsetsPartitionResponse(0, ErrorCode.UNSUPPORTED_VERSION)


def broker(*batches: list[int], codec: Codec = Codec.NONE, **settings: str) -> Simulation:
    """A broker whose topic ``t`` has batches with these timestamps."""
    simulation = Simulation.serving(
        "t", properties={key.replace("_", "."): settings[key] for key in settings}
    )
    for times in batches:
        records = [Record(None, bytes(200), time_ms) for time_ms in times]
        body = build_message_set(records, magic=2, codec=codec)
        answer = simulation.call(requests.produce("t", body, version=7))
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    return simulation


def found(simulation: Simulation, timestamp_ms: int, version: int = NEWEST) -> ListOffsetsPartitionResponse:
    request = requests.list_offsets("t", timestamp_ms=timestamp_ms).at(version)
    (row,) = simulation.call(request).topics[0].partitions
    assert isinstance(row, ListOffsetsPartitionResponse)
    return row


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize(
    ("batches", "offset", "timestamp"),
    [([[5]], 0, 5), ([[1, 9, 9, 2], [9], [3]], 1, 9), ([[1], [2], [3, 2]], 2, 3), ([[0]], 0, 0)],
)
def test_max_timestamp_is_that_of_the_first_message_that_has_it(
    batches: list[list[int]], offset: int, timestamp: int, codec: Codec
) -> None:
    row = found(broker(*batches, codec=codec), MAX_TIMESTAMP)
    assert (row.offset, row.timestamp, row.leader_epoch) == (offset, timestamp, 0)


def test_max_timestamp_is_found_in_any_segment() -> None:
    times = [[number if number != 20 else 1_000] for number in range(40)]
    simulation = broker(*times, log_segment_bytes="1000")
    assert len(simulation.machine.broker.partition(TopicPartition("t", 0)).log.segments) > 3
    assert (found(simulation, MAX_TIMESTAMP).offset, found(simulation, MAX_TIMESTAMP).timestamp) == (
        20,
        1_000,
    )


def test_a_log_without_messages_or_timestamps_has_no_max_timestamp() -> None:
    simulation = broker()
    assert found(simulation, MAX_TIMESTAMP) == NONE
    simulation.call(requests.produce("t", build_message_set([Record(None, b"x", -1)], magic=0)))
    assert found(simulation, LATEST).offset == 1
    assert found(simulation, MAX_TIMESTAMP) == NONE


def test_earliest_local_is_earliest_and_nothing_is_tiered() -> None:
    simulation = broker([1], [2])
    simulation.machine.broker.logs.increment_start_offset(TopicPartition("t", 0), 1)
    assert found(simulation, EARLIEST_LOCAL) == found(simulation, EARLIEST)
    assert found(simulation, EARLIEST_LOCAL).offset == 1
    assert found(simulation, LATEST_TIERED) == NONE


@pytest.mark.parametrize(
    ("timestamp", "since"),
    [(LATEST, 1), (EARLIEST, 1), (MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (-5, 9), (-6, 10)],
)
def test_a_negative_timestamp_that_the_version_lacks_is_refused(timestamp: int, since: int) -> None:
    simulation = broker([1])
    for version in range(1, NEWEST + 1):
        assert (found(simulation, timestamp, version) == UNSUPPORTED) == (version < since)


def test_latest_has_the_epoch_of_the_leader() -> None:
    row = found(broker(), LATEST)
    assert (row.offset, row.leader_epoch) == (0, 0)

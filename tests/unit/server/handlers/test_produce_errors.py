"""Responses of Produce for records that are refused, and for partitions that are led elsewhere."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.records.append import invalid_records
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Codec, Record
from minikafka.wire.apis.current_leader import LeaderIdAndEpoch, NodeEndpoint
from minikafka.wire.apis.produce import ProducePartitionResponse
from tests.support.broker_harness import BrokerHarness
from tests.support.requests import produce
from tests.support.simulation import PORT, Simulation

GOOD, KEYLESS, OLD = Record(b"k", b"v", 0), Record(None, b"v", 0), Record(b"k", b"v", -5_000)


def answer(records: list[Record], codec: Codec = Codec.NONE, **settings: str) -> ProducePartitionResponse:
    world = Simulation.serving()
    now_ms = world.clock.now_ms()
    timed = [Record(record.key, record.value, now_ms + record.timestamp_ms) for record in records]
    configs = {name.replace("_", "."): value for name, value in settings.items()}
    assert world.create_topic("t", settings=configs) == 0
    result: ProducePartitionResponse = (
        world.call(produce("t", build_batch(timed, codec=codec), version=8)).topics[0].partitions[0]
    )
    assert result.base_offset == -1
    return result


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_all_records_without_a_key_are_named(codec: Codec) -> None:
    refused = answer([GOOD, KEYLESS, GOOD, KEYLESS], codec, cleanup_policy="compact")
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in refused.record_errors] == [1, 3]
    assert all("must have a key" in (e.batch_index_error_message or "") for e in refused.record_errors)
    assert "and 1 more record" in (refused.error_message or "")


def test_one_invalid_timestamp_decides_the_error() -> None:
    configs = {"cleanup_policy": "compact", "message_timestamp_difference_max_ms": "1000"}
    refused = answer([KEYLESS, OLD, GOOD], **configs)
    assert refused.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in refused.record_errors] == [0, 1]


def test_number_of_named_records_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invalid_records, "INVALID_RECORDS_MAX", 2)
    refused = answer([KEYLESS] * 5, cleanup_policy="compact")
    assert [error.batch_index for error in refused.record_errors] == [0, 1]


def test_faults_of_a_batch_name_no_records() -> None:
    refused = answer([], cleanup_policy="compact")
    assert (refused.error_code, refused.record_errors) == (ErrorCode.INVALID_RECORD, ())
    assert refused.error_message is None


@pytest.mark.parametrize("version", [9, 10])
def test_broker_that_does_not_lead_names_the_leader_since_version_10(version: int) -> None:
    harness = BrokerHarness(2, {"t": 1})
    leader = harness.leader(TopicPartition("t", 0))
    records = build_batch([GOOD])
    response = harness._to(3 - leader).call(produce("t", records, version=version))
    (refused,) = response.topics[0].partitions
    assert refused.error_code == ErrorCode.NOT_LEADER_FOR_PARTITION
    told = refused.current_leader, response.node_endpoints
    if version >= 10:
        assert told == (LeaderIdAndEpoch(leader, 0), (NodeEndpoint(leader, f"machine-{leader}", PORT),))
    else:
        assert told == (LeaderIdAndEpoch(), ())

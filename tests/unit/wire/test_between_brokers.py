"""Requests between controller and brokers, in the versions that were not recorded, byte for byte.

The bytes are those that the classes of Apache Kafka 3.9.1 write, which still have all these versions.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from minikafka.wire.apis.controlled_shutdown import CONTROLLED_SHUTDOWN, ControlledShutdownRequest
from minikafka.wire.apis.leader_and_isr import (
    LEADER_AND_ISR,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    LiveLeader,
)
from minikafka.wire.apis.update_metadata import (
    UPDATE_METADATA,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartition,
    UpdateMetadataRequest,
)
from minikafka.wire.frame_parts import join
from minikafka.wire.framing import RequestHeader

HEAD = "00000001 00000002"
"""The controller, and its epoch."""
PARTITION = (
    "0001 74 00000003 00000004 00000005 00000006 00000002 00000005 00000007 00000008 00000001 00000005"
)
"""Topic, number, epoch of who decided it, leader, its epoch, ISR, version of the znode, replicas."""


def request(partition: str, brokers: str) -> bytes:
    return bytes.fromhex(f"{HEAD} 00000001 {PARTITION} {partition} 00000001 {brokers}")


@pytest.mark.parametrize(("version", "is_new"), [(0, ""), (1, "01")])
def test_leader_and_isr_1_says_whether_a_replica_is_new(version: int, is_new: str) -> None:
    partition = LeaderAndIsrPartition("t", 3, 4, 5, 6, (5, 7), 8, (5,), is_new=bool(is_new))
    sent = LeaderAndIsrRequest(1, 2, (partition,), (LiveLeader(5, "h", 9092),))
    encoded = request(is_new, "00000005 0001 68 00002384")
    assert join(LEADER_AND_ISR.encode_request(version, sent)) == encoded
    assert LEADER_AND_ISR.decode_request(version, encoded) == sent


ENDPOINT = UpdateMetadataEndpoint(9092, "h", "", 0)
BROKER = UpdateMetadataBroker(5, endpoints=(ENDPOINT,))


@pytest.mark.parametrize(
    ("version", "broker", "encoded"),
    [
        (0, UpdateMetadataBroker(5, "h", 9092), "00000005 0001 68 00002384"),
        (1, BROKER, "00000005 00000001 00002384 0001 68 0000"),
        (2, replace(BROKER, rack="r"), "00000005 00000001 00002384 0001 68 0000 0001 72"),
        (
            3,
            replace(BROKER, endpoints=(replace(ENDPOINT, listener="L"),)),
            "00000005 00000001 00002384 0001 68 0001 4c 0000 ffff",
        ),
    ],
    ids=["an address", "endpoints", "a rack", "a listener"],
)
def test_update_metadata_says_more_of_a_broker_with_each_version(
    version: int, broker: UpdateMetadataBroker, encoded: str
) -> None:
    partition = UpdateMetadataPartition("t", 3, 4, 5, 6, (5, 7), 8, (5,))
    sent = UpdateMetadataRequest(1, 2, (partition,), (broker,))
    assert join(UPDATE_METADATA.encode_request(version, sent)) == request("", encoded)
    assert UPDATE_METADATA.decode_request(version, request("", encoded)) == sent


def test_update_metadata_4_names_the_replicas_on_failed_disks() -> None:
    partition = UpdateMetadataPartition("t", 3, 4, 5, 6, (5, 7), 8, (5,), offline_replicas=(7,))
    broker = replace(BROKER, endpoints=(replace(ENDPOINT, listener="L"),))
    sent = UpdateMetadataRequest(1, 2, (partition,), (broker,))
    encoded = request("00000001 00000007", "00000005 00000001 00002384 0001 68 0001 4c 0000 ffff")
    assert join(UPDATE_METADATA.encode_request(4, sent)) == encoded
    assert UPDATE_METADATA.decode_request(4, encoded) == sent


@pytest.mark.parametrize(
    ("version", "client_id", "frame"),
    [(0, None, "0007 0000 00000009 00000005"), (1, "5", "0007 0001 00000009 0001 35 00000005")],
    ids=["0", "1"],
)
def test_only_controlled_shutdown_0_has_no_client_id(version: int, client_id: str | None, frame: str) -> None:
    header, body = RequestHeader.decode(bytes.fromhex(frame))
    assert header == RequestHeader(7, version, 9, client_id)
    asked = CONTROLLED_SHUTDOWN.decode_request(version, body)
    assert asked == ControlledShutdownRequest(5)
    assert join([header.encode(), *CONTROLLED_SHUTDOWN.encode_request(version, asked)]) == bytes.fromhex(
        frame
    )


def test_a_client_id_is_left_out_of_the_header_that_has_none() -> None:
    assert RequestHeader(7, 0, 9, "5").encode() == bytes.fromhex("0007 0000 00000009")

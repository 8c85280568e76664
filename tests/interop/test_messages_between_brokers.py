"""Inter-broker requests, byte for byte as the classes of Apache Kafka 3.9.1 write them.

Of these APIs no client has a table; 3.9.1 still has all versions of them.
"""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

from minikafka.wire import schema
from minikafka.wire.api_table import APIS
from minikafka.wire.fields import ArrayOf, Type
from minikafka.wire.frame_parts import join
from minikafka.wire.framing import RequestHeader
from minikafka.wire.schema import Struct
from tests.interop.releases import KAFKA_3_9
from tests.unit.wire.test_names import BETWEEN_BROKERS, filled

PROGRAM = Path(__file__).parent / "java" / "Messages.java"

OTHER_NAMES = {
    "topic": "topicName",
    "index": "partitionIndex",
    "LeaderAndIsrRequest.partitions": "ungroupedPartitionStates",
    "LeaderAndIsrPartition.leader_id": "leader",
    "LeaderAndIsrPartition.zk_version": "partitionEpoch",
    "LiveLeader.host": "hostName",
    "LeaderAndIsrResponse.partitions": "partitionErrors",
    "StopReplicaRequest.partitions": "ungroupedPartitions",
    "StopReplicaResponse.partitions": "partitionErrors",
    "UpdateMetadataRequest.partitions": "ungroupedPartitionStates",
    "UpdateMetadataPartition.leader_id": "leader",
    "UpdateMetadataBroker.broker_id": "id",
    "UpdateMetadataBroker.host": "v0Host",
    "UpdateMetadataBroker.port": "v0Port",
}
"""Where Kafka's name of a field is not ours in camel case."""


def kafkas_name(message: str, name: str) -> str:
    first, *more = name.split("_")
    camel = first + "".join(map(str.capitalize, more))
    return OTHER_NAMES.get(f"{message}.{name}", OTHER_NAMES.get(name, camel))


def in_json(type_: Type, version: int, value: Any) -> Any:
    """A value with Kafka's names, of the fields that ``version`` has."""
    if isinstance(type_, ArrayOf):
        return [in_json(type_.element, version, item) for item in value]
    if not isinstance(type_, Struct):
        return value
    return {
        kafkas_name(type_.name, name): in_json(row.type, version, getattr(value, name))
        for name, row in type_.rows(version)
        if row is not None
    }


def test_every_version_has_the_bytes_that_the_release_writes(tmp_path: Path) -> None:
    asked, ours = [], []
    for api in (APIS[key] for key in BETWEEN_BROKERS):
        for version in range(api.min_version, api.max_version + 1):
            for side, message in (("Request", Struct(api.request)), ("Response", Struct(api.response))):
                for nulls in (False, True):
                    value = filled(message, version, count(1), nulls=nulls)
                    shown = json.dumps(in_json(message, version, value))
                    asked.append(f"{api.name}{side} {version} {shown}")
                    header = RequestHeader(int(api.key), version, 7, "c").encode()
                    encoded = join(schema.encode(message.cls, version, value))
                    ours.append((header.hex() if side == "Request" else "") + encoded.hex())
                    assert schema.decode(message.cls, version, encoded) == value
    (tmp_path / "asked").write_text("\n".join(asked), "utf-8")
    theirs = KAFKA_3_9.run(str(PROGRAM), str(tmp_path / "asked")).out.split()
    assert [*zip(asked, ours, strict=True)] == [*zip(asked, theirs, strict=True)]

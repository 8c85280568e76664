"""What 3.9.1 was asked in versions of Kafka 2.1, asked of our broker in the same order: it answers the same.

``tests/data/wire`` holds the exchanges. Compared is what they say of the topic ``wire``, records byte for
byte; left out are addresses, the cluster's id, the ids of sessions, which we decline, and another topic,
which had transactions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from minikafka.wire.api import ApiKey
from minikafka.wire.api_table import APIS
from minikafka.wire.frame_parts import buffer_of
from minikafka.wire.framing import RequestHeader, split_response
from tests.support.simulation import Request, Simulation

DATA = Path(__file__).resolve().parents[1] / "data" / "wire"
ORDER = [
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.DELETE_RECORDS,
]


def recorded(key: ApiKey) -> Iterator[tuple[int, Any, Any]]:
    """Version, request and response of each exchange with 3.9.1."""
    api = APIS[key]
    for version in range(api.min_version, api.max_version + 1):
        content = json.loads((DATA / f"{int(key):02d}-{api.name}-v{version}.json").read_text("utf-8"))
        for one in content["examples"] if content["broker"] == "3.9.1" else []:
            _, body = RequestHeader.decode(bytes.fromhex(one["request"])[4:])
            _, answer = split_response(bytes.fromhex(one["response"])[4:])
            yield version, api.decode_request(version, body), api.decode_response(version, answer)


def about_wire(response: Any) -> Any:
    """The response without what may differ, and with records as bytes."""
    topics = []
    for topic in response.topics:
        if topic.name == "transactions":
            continue
        parts = topic.partitions
        if parts and hasattr(parts[0], "records"):
            parts = tuple(replace(part, records=bytes(buffer_of(part.records))) for part in parts)
        topics.append(replace(topic, partitions=parts))
    if hasattr(response, "brokers"):
        response = replace(response, brokers=(), cluster_id=None)
    if hasattr(response, "session_id"):
        response = replace(response, session_id=0)
    return replace(response, topics=tuple(topics))


def test_our_answers_are_those_of_3_9_1() -> None:
    simulation = Simulation()
    simulation.machine.start({"auto.create.topics.enable": "false"})
    assert simulation.create_topic("wire", partitions=2) == 0
    for key in ORDER:
        exchanges = list(recorded(key))
        assert len(exchanges) > 1
        for version, request, theirs in exchanges:
            ours = simulation.call(Request(key, version, request))
            assert about_wire(ours) == about_wire(theirs), f"{key.name} {version}"

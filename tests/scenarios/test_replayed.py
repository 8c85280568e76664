"""Recorded requests to Kafka 3.9.1 in versions of Kafka 2.1: our broker gives the same responses.

``tests/data/wire`` has the exchanges. Responses about the topic ``wire`` are compared, records byte for byte;
addresses, the cluster id, ids of sessions, and another topic, which had transactions, are ignored.
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
from tests.support.requests import Request
from tests.support.simulation import Simulation

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
    """Yield version, request and response of each exchange with 3.9.1."""
    api = APIS[key]
    for version in api.is_flexible:
        path = DATA / f"{int(key):02d}-{api.name}-v{version}.json"
        if not path.exists():
            continue  # newer than 2.1: not recorded
        content = json.loads(path.read_text("utf-8"))
        for example in content["examples"] if content["broker"] == "3.9.1" else []:
            _, body = RequestHeader.decode(bytes.fromhex(example["request"])[4:])
            _, answer = split_response(bytes.fromhex(example["response"])[4:])
            yield version, api.decode_request(version, body), api.decode_response(version, answer)


def about_wire(response: Any) -> Any:
    """Return the response without the fields that may differ, and with records as bytes."""
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


def test_recorded_requests_get_the_responses_of_3_9_1() -> None:
    simulation = Simulation.serving("wire", partitions=2, properties={"auto.create.topics.enable": "false"})
    for key in ORDER:
        exchanges = list(recorded(key))
        assert len(exchanges) > 1
        for version, request, theirs in exchanges:
            ours = simulation.call(Request(key, version, request))
            assert about_wire(ours) == about_wire(theirs), f"{key.name} {version}"

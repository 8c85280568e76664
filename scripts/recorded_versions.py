"""The versions of a broker of Kafka 3.9.1, for the page of protocol versions."""

from __future__ import annotations

import json
from pathlib import Path

from minikafka.wire.apis.api_versions import API_VERSIONS
from minikafka.wire.framing import split_response

RECORDED = Path(__file__).resolve().parent.parent / "tests" / "data" / "wire" / "api-versions-3.9.1.jsonl"


def versions_of_3_9() -> dict[int, int]:
    """Return the newest version of each API of a broker of Kafka 3.9.1 with ZooKeeper, as it was recorded."""
    for row in map(json.loads, RECORDED.read_text("utf-8").splitlines()):
        if (row["mode"], row["version"]) == ("zookeeper", "0"):
            _, body = split_response(memoryview(bytearray.fromhex(row["response"])))
            answer = API_VERSIONS.decode_response(0, body)
            return {api.api_key: api.max_version for api in answer.api_keys}
    raise LookupError("ApiVersions 0 of a broker with ZooKeeper is not recorded")

"""Recorded message and topic requests of clients to Kafka 0.10.1.1: our broker gives the same responses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from minikafka.records.format.message_set import Codec, iterate
from tests.scenarios.recordings import Replay, recorded

REPLAYS = {
    "Java producer": (
        "03-Metadata-v2#0 00-Produce-v2#0 00-Produce-v2#1 00-Produce-v2#2 "
        "03-Metadata-v2#1 00-Produce-v2#3 00-Produce-v2#4 00-Produce-v2#5 "
        "03-Metadata-v2#2 00-Produce-v2#6 00-Produce-v2#7 00-Produce-v2#8 "
        "03-Metadata-v2#3 00-Produce-v2#9 00-Produce-v2#10 00-Produce-v2#11 01-Fetch-v3#0"
    ),
    "Java producer, replicated topic": (
        "03-Metadata-v2#4 00-Produce-v2#12 00-Produce-v2#13 00-Produce-v2#14 twice-1:20 01-Fetch-v3#3"
    ),
    "Java consumer": (
        "03-Metadata-v2#5 03-Metadata-v2#6 02-ListOffsets-v1#0 02-ListOffsets-v1#1 01-Fetch-v3#7 "
        "03-Metadata-v2#7 02-ListOffsets-v1#2"
    ),
    "Scala producer": (
        "03-Metadata-v0#0 wire-0:48 wire-1:48 00-Produce-v2#15 00-Produce-v2#16 00-Produce-v2#17"
    ),
    "Scala SimpleConsumer": (
        "wire-0:68 wire-1:52 03-Metadata-v0#1 01-Fetch-v0#0 01-Fetch-v0#1 01-Fetch-v1#0 01-Fetch-v1#2 "
        "01-Fetch-v2#0 01-Fetch-v2#1 02-ListOffsets-v0#0 02-ListOffsets-v0#1"
    ),
    "Scala, high level": (
        "03-Metadata-v0#2 02-ListOffsets-v0#2 01-Fetch-v3#9 "
        "03-Metadata-v0#3 02-ListOffsets-v0#3 02-ListOffsets-v0#4 01-Fetch-v3#8 "
        "03-Metadata-v0#4 01-Fetch-v3#10"
    ),
    "librdkafka": (
        "18-ApiVersions-v3#0 18-ApiVersions-v0#0 wire-0:68 wire-1:52 03-Metadata-v2#9 03-Metadata-v2#10 "
        "00-Produce-v2#18 02-ListOffsets-v1#3 01-Fetch-v3#1 01-Fetch-v3#2 01-Fetch-v3#11 03-Metadata-v2#11"
    ),
    "librdkafka as 0.9": (
        "wire-0:73 wire-1:52 03-Metadata-v0#5 00-Produce-v1#0 02-ListOffsets-v0#5 01-Fetch-v1#1 "
        "01-Fetch-v1#3 03-Metadata-v0#6"
    ),
    "librdkafka, admin": (
        "18-ApiVersions-v3#1 18-ApiVersions-v0#1 03-Metadata-v2#12 19-CreateTopics-v0#0 "
        "19-CreateTopics-v0#1 20-DeleteTopics-v0#0"
    ),
    "kafka-python": (
        "18-ApiVersions-v4#0 18-ApiVersions-v0#2 03-Metadata-v2#13 03-Metadata-v2#14 wire-1:52 "
        "00-Produce-v2#19 02-ListOffsets-v1#4"
    ),
    "kafka-python as 0.8.2": "03-Metadata-v0#8 wire-1:56 00-Produce-v0#0 02-ListOffsets-v0#6",
    "kafka-python as 0.9": "03-Metadata-v0#9 wire-1:60 00-Produce-v1#1 02-ListOffsets-v0#7",
    "kafka-python as 0.10.0": (
        "18-ApiVersions-v0#3 03-Metadata-v1#0 wire-1:64 00-Produce-v2#20 02-ListOffsets-v0#8"
    ),
    "kafka-python as 0.10.1": (
        "18-ApiVersions-v0#4 03-Metadata-v2#15 wire-1:68 00-Produce-v2#21 02-ListOffsets-v1#5"
    ),
    "kafka-python, admin": (
        "18-ApiVersions-v4#1 18-ApiVersions-v0#5 03-Metadata-v2#16 19-CreateTopics-v0#2 20-DeleteTopics-v0#1"
    ),
    "by hand": (
        "18-ApiVersions-v0#6 10-GroupCoordinator-v0#0 03-Metadata-v0#7 03-Metadata-v0#10 "
        "03-Metadata-v1#1 03-Metadata-v1#2 03-Metadata-v1#3 03-Metadata-v2#17 "
        "wire-0:78 wire-1:72 02-ListOffsets-v0#9 02-ListOffsets-v1#6 "
        "19-CreateTopics-v0#3 19-CreateTopics-v0#4 20-DeleteTopics-v0#2"
    ),
}
"""Client -> its recorded exchanges, in their order."""

UNKNOWN = "99-unknown-99-v0#0"
EMPTY = "18-ApiVersions-v3#2"
"""A request without a body, which 0.10.1 does not read in a version that it refuses."""


def comparable(name: str, answer: dict[str, Any]) -> dict[str, Any]:
    """Remove the fields that differ here, each for its reason."""
    if name.startswith(("18-ApiVersions-v3", "18-ApiVersions-v4")):
        return {}  # 0.10.1 refuses these versions
    for topic in answer.get("topics", ()):
        if name.startswith("03-Metadata") and topic["name"] == "twice":
            # The recording had two brokers with a replica each, we have one.
            for part in topic["partitions"]:
                del part["leader_id"], part["replica_nodes"], part["isr_nodes"]
        if name.startswith("03-Metadata") and topic["name"] == "bad/name":
            # Without automatic creation, 0.10.1 says that the topic is unknown; this broker and Kafka 4 say
            # that the name is invalid, so that the client does not retry until its time-out.
            del topic["error_code"]
        if name.startswith(("01-Fetch-v0", "01-Fetch-v1")):
            # 0.10.1 down-converts without compression; this broker and 2.1 keep the codec.
            for part in topic["partitions"]:
                part["records"] = [replace(record, codec=Codec.NONE) for record in iterate(part["records"])]
    return answer


@pytest.mark.parametrize("client", REPLAYS)
def test_recorded_client_gets_the_same_responses(client: str) -> None:
    replay = Replay()
    replay.run(REPLAYS[client])
    replay.check(comparable)


@pytest.mark.parametrize("name", [UNKNOWN, EMPTY])
def test_a_request_that_is_unknown_or_invalid_ends_its_connection(name: str) -> None:
    replay = Replay()
    replay.run(name)
    assert (recorded(name).response is None) == (name == UNKNOWN)
    assert replay.closed()

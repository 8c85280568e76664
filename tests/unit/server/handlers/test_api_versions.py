"""ApiVersions: its answers beside those of Kafka 3.9.1 that were recorded, and the software of clients."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.server.handlers.api_versions import MOST_LOGGED
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from minikafka.wire.frame_parts import join
from minikafka.wire.framing import split_response
from tests.support.requests import Request
from tests.support.simulation import Simulation

RECORDED = Path(__file__).resolve().parents[3] / "data" / "wire" / "api-versions-3.9.1.jsonl"
ANSWERS = {
    row["version"]: (bytes.fromhex(row["request"]), bytes.fromhex(row["response"]))
    for row in map(json.loads, RECORDED.read_text("utf-8").splitlines())
    if row["mode"] == "zookeeper"
}
REFUSED = ["3, a name with a space", "5, which it does not have"]
NEW, LOGGER = "first client with this software", "minikafka.server.handlers.api_versions"


def answer(request: bytes) -> bytes:
    simulation = Simulation.serving()
    pending = simulation.network.connect(simulation.host, simulation.port).request([request])
    simulation.network.run()
    return bytes(pending.result(60_000))


@pytest.mark.parametrize("case", REFUSED)
def test_what_3_9_1_refuses_is_answered_by_the_same_bytes(case: str) -> None:
    request, theirs = ANSWERS[case]
    assert answer(request) == theirs


@pytest.mark.parametrize("case", [case for case in ANSWERS if case not in REFUSED])
def test_answers_differ_from_those_of_3_9_1_in_the_table_only(case: str) -> None:
    request, theirs = ANSWERS[case]
    ours = answer(request)
    responses = [
        API_VERSIONS.decode_response(int(case), split_response(frame)[1]) for frame in (ours, theirs)
    ]
    # It has an epoch of features from inter.broker.protocol.version 2.7 on.
    mine, other = (replace(response, api_keys=(), finalized_features_epoch=-1) for response in responses)
    assert mine == other
    table = {row.api_key: row for row in responses[1].api_keys}
    *kafkas, own = responses[0].api_keys
    assert all(row.max_version <= table[row.api_key].max_version for row in kafkas)
    assert own.api_key == ApiKey.COPY_BATCHES


@pytest.mark.parametrize("name", ["", " ", "a b", "-a", "a.", "ä", "a\n", "a" * 30_000 + "!"])
def test_software_with_an_invalid_name_or_version_is_refused(name: str) -> None:
    simulation = Simulation.serving()
    for software in (ApiVersionsRequest(name, "1.0"), ApiVersionsRequest("peer", name)):
        refused = simulation.call(Request(ApiKey.API_VERSIONS, 4, software))
        assert (refused.error_code, refused.api_keys) == (ErrorCode.INVALID_REQUEST, ())
        assert simulation.call(Request(ApiKey.API_VERSIONS, 2, software)).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("name", "version", "newest"),
    [
        ("librdkafka", "2.15.0", 11),
        ("librdkafka", "v2.9.0-RC1", 11),
        ("librdkafka", "2.16.0", 17),
        ("librdkafka", "10.0.0", 17),
        ("confluent-kafka-python", "2.8.0-rdkafka-2.8.0", 11),
        ("confluent-kafka-go", "v2.3.0-librdkafka-2.3.0", 11),
        ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0", 17),
        ("librdkafka", "unknown", 17),
        ("apache-kafka-java", "2.15.0", 17),
    ],
)
def test_librdkafka_that_misreads_old_formats_is_offered_fetch_11(
    name: str, version: str, newest: int
) -> None:
    simulation = Simulation.serving()
    asked = Request(ApiKey.API_VERSIONS, 3, ApiVersionsRequest(name, version))
    offered = {row.api_key: row.max_version for row in simulation.call(asked).api_keys}
    assert offered[ApiKey.FETCH] == newest
    assert offered[ApiKey.METADATA] == 12


def test_each_software_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    simulation = Simulation.serving()
    for version in ("1", "2", "1"):
        simulation.call(Request(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("peer", version)))
    simulation.call(Request(ApiKey.API_VERSIONS, 2, ApiVersionsRequest()))
    lines = [record.getMessage() for record in caplog.records if NEW in record.message]
    assert [line.partition(" client_id=")[0] for line in lines] == [
        f"{NEW}: name=peer version={version}" for version in ("1", "2")
    ]


def test_the_log_of_software_is_limited(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    simulation = Simulation.serving()
    for number in range(MOST_LOGGED + 3):
        simulation.call(Request(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("peer", str(number))))
    assert caplog.text.count(NEW) == MOST_LOGGED


def test_recorded_answers_are_encoded_as_3_9_1_does() -> None:
    for case, (_, theirs) in ANSWERS.items():
        version = 0 if case in REFUSED[1:] else int(case[0])
        _, body = split_response(theirs)
        response = API_VERSIONS.decode_response(version, body)
        assert bytes(join(API_VERSIONS.encode_response(version, response))) == bytes(body)

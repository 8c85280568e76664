"""Brokers of 3.9.1 give the versions and settings that ``tests/data/wire`` has recorded of them.

With ``MINIKAFKA_REWRITE=1`` the files are written anew.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.clients import java, run_to_its_end
from tests.interop.releases import KAFKA_3_9
from tests.support.kafka_broker import KafkaBroker, running
from tests.support.plain_sockets import framed, read_frame

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

DATA = Path(__file__).parents[1] / "data" / "wire"
VERSIONS, CONFIGS = DATA / "api-versions-3.9.1.jsonl", DATA / "configs-3.9.1.jsonl"

WITH_ZOOKEEPER, WITHOUT = "zookeeper", "kraft"
RELEASES = {WITH_ZOOKEEPER: KAFKA_3_9, WITHOUT: dataclasses.replace(KAFKA_3_9, has_zookeeper=False)}
NAMED, BAD_NAME = b"\x05peer\x041.0\x00", b"\x05pe r\x041.0\x00"
"""A client's software and its version; one whose name no broker accepts."""
REQUESTS = {
    "0": b"\0\x12\0\0\0\0\0\1\0\4peer",
    "1": b"\0\x12\0\1\0\0\0\1\0\4peer",
    "2": b"\0\x12\0\2\0\0\0\1\0\4peer",
    "3": b"\0\x12\0\3\0\0\0\1\0\4peer\0" + NAMED,
    "3, a name with a space": b"\0\x12\0\3\0\0\0\1\0\4peer\0" + BAD_NAME,
    "4": b"\0\x12\0\4\0\0\0\1\0\4peer\0" + NAMED,
    "5, which it does not have": b"\0\x12\0\5\0\0\0\1\0\4peer\0" + NAMED,
}
FEATURES_EPOCH = re.compile(rb"\x01\x08.{8}", re.DOTALL)
"""The tagged field with the epoch of the features. Without ZooKeeper it is an offset, which varies."""


@pytest.fixture(scope="module", params=RELEASES)
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    mode: str = request.param
    with running(RELEASES[mode], tmp_path_factory.mktemp(mode)) as broker:
        yield broker


def answer_to(broker: KafkaBroker, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", broker.port), timeout=30) as sock:
        sock.sendall(framed(request))
        return read_frame(sock)


def recorded(path: Path, key: str, lines: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return the recorded lines that have the same ``key`` as ``lines``, which replace them in a rewrite."""
    found = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    values = {line[key] for line in lines}
    if os.environ.get("MINIKAFKA_REWRITE"):
        found = [line for line in found if line[key] not in values] + lines
        path.write_text("".join(f"{json.dumps(line)}\n" for line in found), "utf-8")
    return [line for line in found if line[key] in values]


def test_versions_of_3_9_1_are_those_recorded(kafka: KafkaBroker) -> None:
    mode = WITH_ZOOKEEPER if kafka.release.has_zookeeper else WITHOUT
    answers: list[dict[str, object]] = [
        {
            "mode": mode,
            "version": version,
            "request": request.hex(),
            "response": answer_to(kafka, request).hex(),
        }
        for version, request in REQUESTS.items()
    ]

    def without_epoch(lines: list[dict[str, object]]) -> list[bytes]:
        return [FEATURES_EPOCH.sub(b"", bytes.fromhex(str(line["response"]))) for line in lines]

    expected = recorded(VERSIONS, "mode", answers)
    assert without_epoch(answers) == without_epoch(expected)
    assert mode == WITHOUT or answers == expected


def test_settings_of_3_9_1_are_those_recorded(kafka: KafkaBroker, tmp_path: Path) -> None:
    if not kafka.release.has_zookeeper:
        pytest.skip("only the settings with ZooKeeper are recorded")
    prepared = java("MINIKAFKA_KAFKA3_LIBS", "kafka-clients-3.9.*.jar", "Configs")(tmp_path)
    output = run_to_its_end([*prepared.command, kafka.bootstrap], prepared.environment)
    settings = [json.loads(line) for line in output.splitlines()]
    assert settings == recorded(CONFIGS, "resource", settings)

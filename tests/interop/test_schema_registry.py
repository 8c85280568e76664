"""A real schema registry (Apicurio's) and Confluent's own serializers: each side reads the other's values."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from minikafka.base.errors import MinikafkaError
from minikafka.clients.schema_registry.client import AVRO, Schema, SchemaReference, SchemaRegistryClient
from minikafka.clients.schema_registry.config import registry_config
from minikafka.net.ports import can_connect, free_port

pytest.importorskip("google.protobuf", reason="protobuf is not installed")
pytest.importorskip("pyspark", reason="PySpark is not installed")

from minikafka.records.protobuf import parse_proto
from pyspark_minikafka.formats.spark_schema import parse_schema
from pyspark_minikafka.formats.value_format import arrow_type
from pyspark_minikafka.options.format_options import format_options
from tests.interop.compatibility import APICURIO, CONFLUENT
from tests.interop.frameworks import framework
from tests.interop.releases import folder_of
from tests.spark.test_registry_example import check_example

pytestmark = [pytest.mark.interop, pytest.mark.process]

PROGRAM = Path(__file__).parent / "programs" / "confluent_serializers.py"
APICURIO_FILES = "MINIKAFKA_APICURIO", "lib/io.apicurio.apicurio-registry-common-*.jar"
CONFLUENT_FILES = "MINIKAFKA_CONFLUENT_SERIALIZERS", "confluent_kafka-*.dist-info"
"""The variable that names each one's folder, and a file with its version there."""

START_SECONDS = 120
ORDERS = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Other { string x = 9; }
message Order {
  int64 id = 1; string name = 2; repeated int32 n = 3;
  google.protobuf.Timestamp at = 4; map<string, int32> m = 5;
}
"""
MESSAGE = {"value_format": "protobuf", "value_message": "shop.Order"}
COLUMN = "id BIGINT, name STRING, n ARRAY<INT>"


@pytest.fixture(scope="module")
def apicurio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of Apicurio Registry, with Confluent's interface."""
    folder = folder_of(*APICURIO_FILES)
    port, directory = free_port(), tmp_path_factory.mktemp("apicurio")
    log = directory / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [
                "java", "-Xmx300m", f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1",
                "-cp", f"{folder}/*:{folder}/lib/*", "io.quarkus.runner.GeneratedMain",
            ],
            cwd=directory, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + START_SECONDS
        while not can_connect("127.0.0.1", port):
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/apis/ccompat/v7"
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
def registry(request: pytest.FixtureRequest) -> str:
    """The registry's address, for a test of the registry itself."""
    framework(request, APICURIO, *APICURIO_FILES)
    return str(request.getfixturevalue("apicurio"))


@dataclass(frozen=True, slots=True)
class Serializers:
    """Confluent's serializers and deserializers, and the registry that they use."""

    packages: Path
    url: str

    def run(self, topic: str, task: str, name: str, given: list[Any]) -> list[str]:
        """Return what one of them makes of each value."""
        files = []
        if task.startswith("protobuf"):
            from google.protobuf import timestamp_pb2

            file = parse_proto(ORDERS)
            file.name = "orders.proto"
            contents = (timestamp_pb2.DESCRIPTOR.serialized_pb, file.SerializeToString())
            files = [base64.b64encode(content).decode() for content in contents]
        done = subprocess.run(
            [sys.executable, str(PROGRAM), self.url, topic, task, name, *files],
            input=json.dumps(given),
            env={**os.environ, "PYTHONPATH": str(self.packages)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.splitlines()


@pytest.fixture
def confluent(request: pytest.FixtureRequest) -> Serializers:
    """Confluent's serializers, by the registry."""
    packages = framework(request, CONFLUENT, *CONFLUENT_FILES)
    return Serializers(packages, request.getfixturevalue("apicurio"))


def client(url: str) -> SchemaRegistryClient:
    return SchemaRegistryClient(registry_config({"schema.registry.url": url}))


def ours(url: str, topic: str, *, sink: bool = False, **options: str) -> Any:
    given = {f"minikafka.{name.replace('_', '.')}": value for name, value in options.items()}
    given |= {"minikafka.schema.registry.url": url, "topic" if sink else "subscribe": topic}
    return format_options(given, lambda option, path: path, sink=sink).value


def read(found: Any, values: list[str], topic: str) -> list[Any]:
    decoded = found.decode(pa.array([base64.b64decode(value) for value in values], pa.binary()), topic)
    assert decoded.reasons == ()
    return decoded.column.to_pylist()  # type: ignore[no-any-return]


def written(found: Any, ddl: str, rows: list[Any], topic: str) -> list[str]:
    kind = parse_schema(ddl)
    encoded = found.for_column(kind).encode(pa.array(rows, arrow_type(kind)), topic)
    return [base64.b64encode(value).decode() for value in encoded.to_pylist()]


def test_messages_of_confluents_serializer_are_read(confluent: Serializers) -> None:
    """Write messages of protobuf that the source reads."""
    row = {"id": 5, "name": "é", "n": [1, 2], "at": "2020-01-01T00:00:00Z", "m": {"a": 1}}
    values = confluent.run("p1", "protobuf-write", "shop.Order", [row])
    (found,) = read(ours(confluent.url, "p1", **MESSAGE), values, "p1")
    assert found.pop("at").isoformat() == "2020-01-01T00:00:00+00:00"
    assert found == {"id": 5, "name": "é", "n": [1, 2], "m": [("a", 1)]}


def test_confluents_deserializer_reads_our_messages(confluent: Serializers) -> None:
    """Read messages of protobuf that the sink wrote."""
    sink = ours(confluent.url, "p2", sink=True, value_schema=ORDERS, **MESSAGE)
    values = written(sink, COLUMN, [{"id": 7, "name": "x", "n": [3]}], "p2")
    found = confluent.run("p2", "protobuf-read", "shop.Order", values)
    assert [json.loads(line) for line in found] == [{"id": "7", "name": "x", "n": [3]}]


def test_json_of_confluents_serializer_is_read(confluent: Serializers) -> None:
    """Write JSON that the source reads."""
    properties = {"id": {"type": "integer"}, "name": {"type": "string"}}
    schema = json.dumps({"title": "V", "type": "object", "properties": properties, "required": ["id"]})
    values = confluent.run("j1", "json-write", schema, [{"id": 1, "name": "a"}, {"id": 2}])
    found = read(ours(confluent.url, "j1", value_format="json"), values, "j1")
    assert found == [{"id": 1, "name": "a"}, {"id": 2, "name": None}]


def test_confluents_deserializer_reads_our_json(confluent: Serializers) -> None:
    """Read JSON that the sink wrote."""
    sink = ours(confluent.url, "j2", sink=True, value_format="json")
    values = written(sink, COLUMN, [{"id": 1, "name": None, "n": [3]}], "j2")
    found = confluent.run("j2", "json-read", "", values)
    assert [json.loads(line) for line in found] == [{"id": 1, "n": [3]}]


def test_references_of_a_real_registry_are_resolved(registry: str) -> None:
    """Keep a schema that refers to another one."""
    asked = client(registry)
    inner = Schema(AVRO, '{"type":"record","name":"A","namespace":"x","fields":[{"name":"a","type":"int"}]}')
    asked.register("a", inner)
    outer = '{"type":"record","name":"B","namespace":"x","fields":[{"name":"a","type":"x.A"}]}'
    reference = SchemaReference("x.A", "a", asked.version("a", inner))
    found = asked.schema(asked.register("b", Schema(AVRO, outer, (reference,))))
    assert (found.type, found.text) == (AVRO, outer)
    assert [(one.name, one.text) for one in found.references] == [("x.A", inner.text)]


def test_versions_of_a_real_registry_come_newest_first(registry: str) -> None:
    """List the versions of a subject, the newest first."""
    asked = client(registry)
    for number in (1, 2, 3):
        asked.register("versions", Schema(AVRO, f'{{"type":"int","doc":"{number}"}}'))
    found = list(asked.versions("versions"))
    assert [number for number, _ in found] == [3, 2, 1]
    assert found[0][1].text == asked.latest("versions").text


def test_refusals_of_a_real_registry_are_one_line(registry: str) -> None:
    """Refuse an unknown id, an unknown subject and a broken schema, of which one line tells."""
    asked = client(registry)
    for attempt in (
        lambda: asked.schema(123_456),
        lambda: asked.latest("nobody"),
        lambda: asked.register("broken", Schema(AVRO, '{"type":"record"')),
    ):
        with pytest.raises(MinikafkaError, match="error_code 4") as refused:
            attempt()
        assert "\n" not in str(refused.value)


@pytest.mark.timeout(400)
def test_example_counts_clicks_by_a_real_registry(registry: str, tmp_path: Path) -> None:
    """Keep two versions of an Avro schema, by which streams write and read."""
    pytest.importorskip("fastavro", reason="fastavro is not installed")
    check_example(registry, tmp_path)

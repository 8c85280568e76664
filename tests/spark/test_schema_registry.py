"""Values whose schemas are in a registry, with real Spark: JSON and protobuf, read and written."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.conftest import Kafka
from tests.spark.test_formats import produce_bytes
from tests.spark.test_write import write
from tests.support.protobuf_messages import EVERYTHING
from tests.support.schema_registry import SchemaRegistry, schema_registry
from tests.support.tls import HOSTS, authority, ca_text

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    Read = Callable[..., DataFrame]

OLD = '{"type":"object","properties":{"id":{"type":"integer"}}}'
NEW = '{"type":"object","properties":{"id":{"type":"integer"},"paid":{"type":"boolean"}}}'


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as registry:
        yield registry


def of(registry: SchemaRegistry, value_format: str, **more: str) -> dict[str, str]:
    """The options of values with ``registry``."""
    return {"minikafka.value.format": value_format, "minikafka.schema.registry.url": registry.url, **more}


def framed(schema_id: int, content: bytes) -> bytes:
    return b"\0" + struct.pack(">I", schema_id) + content


def test_rows_are_written_and_read_as_messages(
    spark: SparkSession, kafka: Kafka, read: Read, registry: SchemaRegistry, tmp_path: Path
) -> None:
    file = tmp_path / "everything.proto"
    file.write_text(EVERYTHING)
    message = {"minikafka.value.message": "test.everything.Everything"}
    rows = spark.sql(
        "SELECT named_struct('an_int32', CAST(id AS INT), 'a_string', concat('é', id), 'colour', 'RED', "
        "'inner', named_struct('a', 5, 'many', array(1L, -2L)), 'counts', map('a', id), "
        "'at', timestamp_micros(id * 1000001), 'took', INTERVAL '1 02:03:04.5' DAY TO SECOND, "
        "'texts', array('x', ''), 'one', 3) AS value FROM range(20)"
    )
    topic = kafka.topic(2)
    write(
        rows,
        kafka,
        topic=topic,
        **of(registry, "protobuf", **message, **{"minikafka.value.schema.file": str(file)}),
    )
    found = read(subscribe=topic, **of(registry, "protobuf", **message)).select("value.*")
    assert found.schema["at"].dataType.simpleString() == "timestamp"
    wanted = rows.select("value.*")
    names = [name for name in wanted.columns if name != "an_int32"]
    found = found.selectExpr("coalesce(an_int32, 0) AS an_int32", *names).orderBy("an_int32")
    for got, given in zip(found.collect(), wanted.orderBy("an_int32").collect(), strict=True):
        row = got.asDict(recursive=True)
        assert row.pop("inner") == {"text": None, **given.inner.asDict()}
        assert row == {name: value for name, value in given.asDict(recursive=True).items() if name != "inner"}
    assert registry.versions(f"{topic}-value")[0]["schemaType"] == "PROTOBUF"


def test_stream_goes_on_while_schemas_change_and_the_registry_restarts(
    spark: SparkSession, kafka: Kafka, registry: SchemaRegistry, tmp_path: Path
) -> None:
    topic, subject = kafka.topic(), "orders-value"
    old = registry.add(subject, OLD, "JSON")
    registry.add(f"{topic}-value", NEW, "JSON")
    kafka.produce(topic, [framed(old, b'{"id":1}').decode()])
    given = of(registry, "json", subscribe=topic, startingOffsets="earliest")
    stream = (
        spark.readStream.format("minikafka").option("kafka.bootstrap.servers", kafka.servers).options(**given)
    )
    seen = stream.load().select("value.*").writeStream.format("memory").queryName("registry_restarts")
    query = seen.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        asked = len(registry.requests)
        registry.close()
        kafka.produce(topic, [framed(old, b'{"id":2}').decode()])
        query.processAllAvailable()
        registry.restart()
        kafka.produce(topic, [framed(registry.add(subject, NEW, "JSON"), b'{"id":3,"paid":true}').decode()])
        query.processAllAvailable()
        assert len(registry.requests) == asked, "no request a micro-batch"
    finally:
        query.stop()
    rows = spark.table("registry_restarts").orderBy("id").collect()
    assert [(row.id, row.paid) for row in rows] == [(1, None), (2, None), (3, True)]


def test_query_keeps_its_columns_when_a_newer_schema_is_registered(
    spark: SparkSession, kafka: Kafka, read: Read, registry: SchemaRegistry, tmp_path: Path
) -> None:
    topic = kafka.topic()
    old = registry.add(f"{topic}-value", OLD, "JSON")
    given = of(registry, "json", subscribe=topic, startingOffsets="earliest")
    batch = read(**given)
    stream = spark.readStream.format("minikafka").option("kafka.bootstrap.servers", kafka.servers)
    rows = stream.options(**given).load()
    new = registry.add(f"{topic}-value", NEW, "JSON")
    values = (framed(old, b'{"id":1}'), framed(new, b'{"id":2,"paid":true}'))
    kafka.produce(topic, [value.decode() for value in values])
    assert sorted(row.id for row in batch.select("value.*").collect()) == [1, 2]
    seen = rows.select("value.*").writeStream.format("memory").queryName("newer_schema")
    query = seen.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert spark.table("newer_schema").schema.simpleString() == "struct<id:bigint>"
    assert sorted(row.id for row in spark.table("newer_schema").collect()) == [1, 2]
    assert read(**given).schema["value"].dataType.simpleString() == "struct<id:bigint,paid:boolean>"


def test_write_to_a_topic_asks_the_registry_once_on_the_driver(
    spark: SparkSession, kafka: Kafka, registry: SchemaRegistry
) -> None:
    topic = kafka.topic()
    rows = spark.range(8).repartition(4).selectExpr("struct(id) AS value")
    for _ in range(2):
        write(rows, kafka, topic=topic, **of(registry, "json"))
    assert registry.requests == [("POST", f"/subjects/{topic}-value/versions")] * 2


@pytest.mark.parametrize("refusal", ["incompatible", "away"])
def test_write_that_the_registry_refuses_begins_no_task(
    spark: SparkSession, kafka: Kafka, read: Read, registry: SchemaRegistry, refusal: str
) -> None:
    topic = kafka.topic()
    if refusal == "away":
        registry.close()
    registry.is_compatible = lambda subject, schema: False
    rows = spark.range(8).repartition(4).selectExpr("struct(id) AS value")
    expected = {"incompatible": f"subject '{topic}-value': registering its schema", "away": "cannot reach"}
    once = {"minikafka.schema.registry.max.retries": "0"}
    with pytest.raises(Exception, match=expected[refusal]) as refused:
        write(rows, kafka, topic=topic, **of(registry, "json", **once))
    assert "Task" not in str(refused.value)
    assert read(subscribe=topic).count() == 0


def test_registry_with_a_login_and_tls_is_used_in_tasks(
    spark: SparkSession, kafka: Kafka, read: Read, tmp_path: Path
) -> None:
    trusted = tmp_path / "ca.pem"
    trusted.write_text(ca_text(authority()))
    with schema_registry(leaf=authority().issue_cert(*HOSTS), user="ada:tiger") as registry:
        secured = of(
            registry,
            "json",
            **{
                "minikafka.schema.registry.ssl.truststore.type": "PEM",
                "minikafka.schema.registry.ssl.truststore.location": str(trusted),
                "minikafka.schema.registry.basic.auth.credentials.source": "USER_INFO",
                "minikafka.schema.registry.basic.auth.user.info": "ada:tiger",
            },
        )
        topic = kafka.topic()
        rows = spark.createDataFrame([((1,),), ((2,),)], "value struct<id: bigint>")
        write(rows, kafka, topic=topic, **secured)
        assert [
            row.id for row in read(subscribe=topic, **secured).select("value.id").orderBy("id").collect()
        ] == [1, 2]
        with pytest.raises(Exception, match="status 401") as refused:
            read(
                subscribe=topic, **{**secured, "minikafka.schema.registry.basic.auth.user.info": "ada:lion"}
            ).collect()
        assert "lion" not in str(refused.value)


def test_value_of_an_unknown_schema_is_bad(kafka: Kafka, read: Read, registry: SchemaRegistry) -> None:
    good = registry.add("s", 'syntax = "proto3"; message A { int32 a = 1; }', "PROTOBUF")
    topic = produce_bytes(kafka, framed(good, b"\x00\x08\x05"), framed(99, b"\x00\x08\x05"), b"x")
    registry.add(f"{topic}-value", 'syntax = "proto3"; message A { int32 a = 1; }', "PROTOBUF")
    asked: dict[str, Any] = {**of(registry, "protobuf"), "minikafka.bad.values": "permissive"}
    rows = read(subscribe=topic, **asked).orderBy("offset").collect()
    assert [row.value and row.value.a for row in rows] == [5, None, None]
    assert "schema 99: refused by" in rows[1].value_error.reason
    assert "does not begin with byte 0" in rows[2].value_error.reason
    with pytest.raises(Exception, match=rf"the value of {topic}-0 at offset 1 is not in the format"):
        read(subscribe=topic, **of(registry, "protobuf")).collect()

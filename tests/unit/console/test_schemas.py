"""Values with a schema of a registry, as pages show them."""

from __future__ import annotations

import datetime
import decimal
import io
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import fastavro
import pytest

from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.clients.group.fetched_records import ConsumerRecord
from minikafka.clients.schema_registry.client import SchemaNotFound, SchemaRegistryClient
from minikafka.clients.schema_registry.config import registry_config
from minikafka.console import schemas as schemas_module
from minikafka.console.messages import Reader
from minikafka.console.payloads import Kind, payload
from minikafka.console.schemas import BadValue, Schemas
from minikafka.records.avro import parse
from minikafka.records.protobuf import parse_proto, schema_text
from minikafka.security.sasl.oidc import HttpRequest, HttpResponse
from tests.support.broker_harness import BrokerHarness
from tests.support.schema_registry import SchemaRegistry, schema_registry
from tests.unit.console.conftest import T0, ConsoleClient

MOST = 1_000
NULLS = {"type": "array", "items": {"type": "array", "items": "null"}}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as registry:
        yield registry


def avro(registry: SchemaRegistry, schema: Any, value: Any) -> bytes:
    """Register a schema, and return a value of it in Confluent's wire format."""
    number = registry.add(f"subject-{json.dumps(schema)}", json.dumps(schema))
    out = io.BytesIO(b"\0" + number.to_bytes(4, "big"))
    out.seek(0, io.SEEK_END)
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def shown(registry: SchemaRegistry, data: bytes) -> Any:
    form, text = Schemas.at(registry.url).decode(int.from_bytes(data[1:5], "big"), data, MOST)
    assert form == "Avro"
    return json.loads(text)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("long", -5, -5),
        ("string", "ü", "ü"),
        ("bytes", b"\xff", "base64:/w=="),
        (["null", "double"], 1.5, 1.5),
        (["null", "string"], None, None),
        (["int", "string", "null"], "s", "s"),
        (["int", "long"], 7, 7),
        ({"type": "array", "items": "string"}, ["a", "b"], ["a", "b"]),
        ({"type": "map", "values": "int"}, {"k": 1}, {"k": 1}),
        ({"type": "enum", "name": "E", "symbols": ["ON", "OFF"]}, "OFF", "OFF"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.timezone.utc),
            "2026-01-31T12:00:00.000Z",
        ),
        ({"type": "int", "logicalType": "date"}, datetime.date(2026, 1, 31), "2026-01-31"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
            decimal.Decimal("12.50"),
            "12.50",
        ),
        ({"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}, {"x": 1}, {"x": 1}),
    ],
    ids=str,
)
def test_avro_is_shown_as_json(registry: SchemaRegistry, kind: Any, value: Any, expected: Any) -> None:
    assert shown(registry, avro(registry, record(f=kind), {"f": value})) == {"f": expected}


def test_a_schema_is_asked_for_once(registry: SchemaRegistry) -> None:
    data, schemas = avro(registry, record(f="int"), {"f": 1}), Schemas.at(registry.url)
    for _ in range(3):
        schemas.decode(1, data, MOST)
    assert len([path for method, path in registry.requests if method == "GET"]) == 1


@pytest.mark.parametrize(
    ("schema", "content", "problem"),
    [
        (record(f="string"), b"\x08ab", "f: a length is negative or beyond"),
        (record(f="int"), b"\x02\x02", "bytes follow"),
        (record(f=["null", "R"]), b"\x02\0", "is recursive"),
        (NULLS, b"\x90\x03" + b"\x80\x10\0" * 200 + b"\0", "more than 100,000 values"),
        ("string", b"\xd2\x0f" + b"x" * 1_001, "more than 1,000 bytes"),
    ],
    ids=["cut", "trailing", "recursive", "items without bytes", "long"],
)
def test_a_value_that_cannot_be_decoded_says_why(
    registry: SchemaRegistry, schema: Any, content: bytes, problem: str
) -> None:
    registry.add("s", json.dumps(schema))
    with pytest.raises(MinikafkaError, match=problem):
        Schemas.at(registry.url).decode(1, b"\0\0\0\0\x01" + content, MOST)


LONG = "A" * 20_000
ENUMS = {"type": "array", "items": {"type": "enum", "name": "E", "symbols": [LONG]}}
NAMELESS = {"type": "array", "items": record(**{LONG: "null", "n": "boolean"})}
PROTO_ENUMS = f'syntax="proto3"; message M {{ repeated E e = 1; }} enum E {{ {LONG} = 0; }}'


@pytest.mark.parametrize(
    ("schema", "form", "content"),
    [
        (json.dumps(ENUMS), "AVRO", b"\xd0\x8c\x01" + b"\0" * 9_001),
        (json.dumps(NAMELESS), "AVRO", b"\xa0\x1f" + b"\0" * 2_001),
        (PROTO_ENUMS, "PROTOBUF", b"\0\x0a\xa8\x46" + b"\0" * 9_000),
        (schema_text(parse_proto(PROTO_ENUMS)), "PROTOBUF", b"\0\x0a\xa8\x46" + b"\0" * 9_000),
    ],
    ids=["enum", "field", "protobuf", "descriptor"],
)
def test_long_names_of_a_schema_do_not_fill_the_memory(
    registry: SchemaRegistry, schema: str, form: str, content: bytes
) -> None:
    registry.add("s", schema, form)
    with pytest.raises(BadValue, match="too large for a schema with a name of 20,000 characters"):
        Schemas.at(registry.url).decode(1, b"\0\0\0\0\x01" + content, 10_000)


def test_an_invalid_schema_is_parsed_once(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    monkeypatch.setattr(schemas_module, "parse", lambda text, _: parsed.append(text) or parse(text))
    registry.add("s", json.dumps(record(f=["null", "R"])))
    schemas = Schemas.at(registry.url)
    for _ in range(3):
        with pytest.raises(BadValue, match="is recursive"):
            schemas.decode(1, b"\0\0\0\0\x01\0", MOST)
    assert len(parsed) == 1


PROTO = """syntax = "proto3"; package p;
message Tree { string name = 1; repeated Tree below = 2; int64 big = 3; }
message Other { message In { bool on = 1; } }
"""


@pytest.mark.parametrize("is_text", [True, False])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\0\x0a\x01a\x12\x03\x0a\x01b\x18\x05", {"name": "a", "below": [{"name": "b"}], "big": "5"}),
        (b"\x04\x02\x00\x08\x01", {"on": True}),
    ],
    ids=["first", "nested"],
)
def test_protobuf_is_shown_as_json(
    registry: SchemaRegistry, is_text: bool, content: bytes, expected: Any
) -> None:
    registry.add("p", PROTO if is_text else schema_text(parse_proto(PROTO)), "PROTOBUF")
    form, text = Schemas.at(registry.url).decode(1, b"\0\0\0\0\x01" + content, MOST)
    assert (form, json.loads(text)) == ("protobuf", expected)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\x02\x0a\0", "no message of the indexes"),
        (b"\0\x0a\x09a", "are no message p.Tree"),
        (b"\0" + b"\x12\x80\x01" * 300, "are no message p.Tree"),
    ],
    ids=["index", "cut", "deep"],
)
def test_bytes_that_are_no_message_say_so(registry: SchemaRegistry, content: bytes, problem: str) -> None:
    registry.add("p", PROTO, "PROTOBUF")
    with pytest.raises(MinikafkaError, match=problem):
        Schemas.at(registry.url).decode(1, b"\0\0\0\0\x01" + content, MOST)


def test_json_and_other_types_of_schemas(registry: SchemaRegistry) -> None:
    registry.add("j", "{}", "JSON")
    registry.add("o", "x", "THRIFT")
    schemas = Schemas.at(registry.url)
    assert schemas.decode(1, b'\0\0\0\0\x01{"a":1}', MOST) == ("JSON", '{"a":1}')
    with pytest.raises(BadValue, match="type THRIFT are not decoded"):
        schemas.decode(2, b"\0\0\0\0\x02abc", MOST)
    with pytest.raises(SchemaNotFound):
        schemas.decode(3, b"\0\0\0\0\x03abc", MOST)


def test_a_slow_registry_is_waited_for_a_while(registry: SchemaRegistry) -> None:
    data = avro(registry, record(f="int"), {"f": 1})
    client = SchemaRegistryClient(registry_config({"schema.registry.url": registry.url}))
    schemas = Schemas(client, itertools.count(200.0, 2.0).__next__)  # each look-up takes two seconds
    schemas.decode(1, data, MOST)
    with pytest.raises(SchemaNotFound):
        schemas.decode(9, data, MOST)
    with pytest.raises(MinikafkaError, match="slow or away"):
        schemas.decode(8, data, MOST)
    assert schemas.decode(1, data, MOST) == ("Avro", '{"f": 1}')


def test_one_that_waits_for_the_registry_keeps_others_a_short_time(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas_module, "WAITED_MAX_S", 0.01)
    asked, answered = threading.Event(), threading.Event()

    def send(request: HttpRequest) -> HttpResponse:
        asked.set()
        assert answered.wait(10)
        return HttpResponse(200, b'{"schema": "{}", "schemaType": "JSON"}')

    client = SchemaRegistryClient(registry_config({"schema.registry.url": "http://x"}), send=send)
    schemas = Schemas(client)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(schemas.decode, 1, b"\0\0\0\0\x01{}", MOST)
        try:
            assert asked.wait(10)
            with pytest.raises(MinikafkaError, match="slow or away"):
                schemas.decode(2, b"\0\0\0\0\x02{}", MOST)
        finally:
            answered.set()
        assert first.result(10) == ("JSON", "{}")


def test_a_registry_that_is_away_is_named_by_the_option(
    registry: SchemaRegistry, brokers: BrokerHarness, serve: Callable[..., ConsoleClient]
) -> None:
    brokers.fill(T0, avro(registry, "string", "v"))
    registry.close()
    text = serve(brokers, schemas=Schemas.at(registry.url)).page("/topics/orders/messages?partition=0")
    assert "--schema-registry" in text
    assert "schema.registry.url" not in text


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--schema-registry='nowhere': must begin with http"):
        Schemas.at("nowhere")


def test_a_page_does_not_decode_for_longer_than_its_time(
    registry: SchemaRegistry, brokers: BrokerHarness
) -> None:
    data = avro(registry, record(n="int"), {"n": 1})
    cluster = brokers.client()
    reader = Reader(cluster, cluster.deadline(0), schemas=Schemas.at(registry.url))
    found = ConsumerRecord("orders", 0, 0, 0, None, data, ())
    assert [reader.message(found).value.schema for _ in range(2)] == [
        "schema id 1 (Confluent wire format)"
    ] * 2
    assert reader.notes == [
        "the time for a page is up, so that schemas were not used for all messages; show fewer"
    ]


def test_pages_show_values_and_what_could_not_be_decoded(
    registry: SchemaRegistry, brokers: BrokerHarness, serve: Callable[..., ConsoleClient]
) -> None:
    data = avro(registry, record(city="string"), {"city": "<Wien>"})
    brokers.fill(T0, data, b"\0\0\0\0\x09abcd", b"\0\0\0\0\x01\x7fabcd")
    schemas = Schemas.at(registry.url)
    console = serve(brokers, schemas=schemas)
    for page in ("messages?partition=0", "search?text=Wien&partition=0"):
        text = console.page(f"/topics/orders/{page}")
        assert "{&#34;city&#34;: &#34;&lt;Wien&gt;&#34;}" in text
        assert "Avro, schema id 1<" in text
        assert ("looks into the bytes" in text) == page.startswith("search")
    text = console.page("/topics/orders/messages?partition=0")
    assert "schema id 9 (Confluent wire format): the registry does not have it" in text
    assert "schema id 1 (Confluent wire format): city: a length" in text
    assert "Avro, schema id 1" in console.page("/topics/orders/0/5")
    assert (payload(data, schemas).kind, payload(data, schemas).size_bytes) == (Kind.JSON, len(data))

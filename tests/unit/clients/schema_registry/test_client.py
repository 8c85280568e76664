"""The client of a schema registry: what it asks, what it keeps, and what it says of failures."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import trustme

from minikafka.base.clock import ManualClock
from minikafka.base.errors import ConfigError, MinikafkaError, NetworkError
from minikafka.clients.schema_registry.client import (
    LATEST_MS,
    NOT_FOUND_MS,
    Schema,
    SchemaNotFound,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
)
from minikafka.clients.schema_registry.config import registry_config
from minikafka.security.sasl.oidc import HttpRequest, HttpResponse
from tests.support.schema_registry import SchemaRegistry, schema_registry
from tests.support.tls import HOSTS, authority, inline_trust

RECORD = '{"type":"record","name":"A","fields":[{"name":"a","type":"int"}]}'


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as registry:
        yield registry


def client(registry: SchemaRegistry | str, **properties: str) -> SchemaRegistryClient:
    url = registry if isinstance(registry, str) else registry.url
    given = {f"schema.registry.{name.replace('_', '.')}": value for name, value in properties.items()}
    config = registry_config({"schema.registry.url": url, **given}, "minikafka.")
    return SchemaRegistryClient(config, ManualClock(), sleep=lambda seconds: None)


def answering(*answers: tuple[int, Any] | MinikafkaError, **properties: str) -> tuple[Any, list[Any]]:
    """Return a client whose requests get ``answers``, the last one again and again, and what it did."""
    done: list[Any] = []
    left = list(answers)

    def send(request: HttpRequest) -> HttpResponse:
        done.append(request.url)
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, MinikafkaError):
            raise answer
        return HttpResponse(answer[0], json.dumps(answer[1]).encode())

    given = {"schema.registry.url": "http://ada:tiger@a,http://b", **properties}
    return SchemaRegistryClient(
        registry_config(given, "minikafka."), ManualClock(), send=send, sleep=done.append
    ), done


def text_of(error: BaseException) -> str:
    text = str(error)
    for secret in ("tiger", "YWRhOnRpZ2Vy"):
        assert secret not in text + repr(error) + repr(pickle.dumps(error))
    assert "\n" not in text
    return text


def test_schema_is_asked_for_once(registry: SchemaRegistry) -> None:
    number = registry.add("orders-value", RECORD)
    asked = client(registry)
    found = asked.schema(number)
    assert (found.id, found.type, found.text, found.references) == (number, "AVRO", RECORD, ())
    assert asked.schema(number) is found
    assert len(registry.requests) == 1


def test_threads_ask_once_for_one_schema(registry: SchemaRegistry) -> None:
    number, asked = registry.add("orders-value", RECORD), client(registry)
    threads = [threading.Thread(target=asked.schema, args=(number,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(registry.requests) == 1


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda asked: asked.schema(1), id="id"),
        pytest.param(lambda asked: asked.schema(404), id="missing id"),
        pytest.param(lambda asked: asked.latest("orders-value"), id="newest version"),
        pytest.param(lambda asked: asked.register("orders-value", Schema("AVRO", RECORD)), id="registered"),
    ],
)
def test_what_is_known_does_not_wait_for_a_slow_request(ask: Callable[[SchemaRegistryClient], Any]) -> None:
    is_sent, is_answered, order = threading.Event(), threading.Event(), list[str]()

    def send(request: HttpRequest) -> HttpResponse:
        if request.url.partition("?")[0].endswith("/404"):
            return HttpResponse(404, b'{"error_code": 40403}')
        if request.url.partition("?")[0].endswith("/2"):
            is_sent.set()
            is_answered.wait(5)
        return HttpResponse(200, json.dumps({"id": 1, "version": 1, "schema": RECORD}).encode())

    def ask_slowly() -> None:
        asked.schema(2)
        order.append("slow")

    asked = SchemaRegistryClient(
        registry_config({"schema.registry.url": "http://a"}), ManualClock(), send=send
    )
    with suppress(SchemaNotFound):
        ask(asked)
    slow = threading.Thread(target=ask_slowly)
    slow.start()
    assert is_sent.wait(30)
    with suppress(SchemaNotFound):
        ask(asked)
    order.append("known")
    is_answered.set()
    slow.join()
    assert order == ["known", "slow"]


def test_references_come_before_what_refers_to_them(registry: SchemaRegistry) -> None:
    registry.add("c", '"int"')
    registry.add("b", '"string"', references=[{"name": "C", "subject": "c", "version": 1}])
    number = registry.add(
        "a",
        '"long"',
        references=[{"name": "B", "subject": "b", "version": 1}, {"name": "C", "subject": "c", "version": 1}],
    )
    found = client(registry).schema(number)
    assert found.references == (
        SchemaReference("C", "c", 1, '"int"'),
        SchemaReference("B", "b", 1, '"string"'),
    )


def test_a_long_chain_of_references_is_refused(registry: SchemaRegistry) -> None:
    for number in range(400):
        before = [{"name": "B", "subject": f"s{number - 1}", "version": 1}] if number else []
        registry.add(f"s{number}", f'"{number}"', references=before)
    with pytest.raises(SchemaRegistryError, match="is 100 references away from the schema"):
        client(registry).schema(400)


def test_references_to_themselves_are_refused(registry: SchemaRegistry) -> None:
    registry.add("a", '"int"', references=[{"name": "B", "subject": "b", "version": 1}])
    registry.add("b", '"int"', references=[{"name": "A", "subject": "a", "version": 1}])
    with pytest.raises(SchemaRegistryError, match="leads back to itself"):
        client(registry, max_retries="0").schema(1)


def test_missing_id_is_asked_for_again_only_later(registry: SchemaRegistry) -> None:
    clock = ManualClock()
    asked = SchemaRegistryClient(registry_config({"schema.registry.url": registry.url}), clock)
    for _ in range(3):
        with pytest.raises(SchemaNotFound, match=r"schema 1: refused by .*status 404, error_code 40403"):
            asked.schema(1)
    assert len(registry.requests) == 1
    registry.add("orders-value", RECORD)
    clock.advance(NOT_FOUND_MS)
    assert asked.schema(1).text == RECORD


def test_schema_is_registered_once(registry: SchemaRegistry) -> None:
    asked = client(registry)
    assert [asked.register("orders-value", Schema("AVRO", RECORD)) for _ in range(3)] == [1, 1, 1]
    assert registry.requests == [("POST", "/subjects/orders-value/versions")]


def test_subject_is_escaped_and_the_schema_normalized(registry: SchemaRegistry) -> None:
    client(registry).register("a/b c", Schema("JSON", "{}"), normalize=True)
    assert registry.requests == [("POST", "/subjects/a%2Fb%20c/versions?normalize=true")]
    assert registry.versions("a/b c")[0]["schemaType"] == "JSON"


def test_look_up_makes_no_version(registry: SchemaRegistry) -> None:
    asked = client(registry)
    with pytest.raises(SchemaNotFound, match="subject 'orders-value': looking up its schema"):
        asked.look_up("orders-value", Schema("AVRO", RECORD))
    registry.add("orders-value", RECORD)
    assert asked.look_up("orders-value", Schema("AVRO", RECORD)) == 1


def test_incompatible_schema_is_refused(registry: SchemaRegistry) -> None:
    registry.is_compatible = lambda subject, schema: False
    with pytest.raises(SchemaRegistryError) as refused:
        client(registry).register("orders-value", Schema("AVRO", RECORD))
    text = text_of(refused.value)
    assert "subject 'orders-value': registering its schema" in text
    assert "status 409, error_code 409, Schema being registered is incompatible" in text


def test_latest_version_is_kept_unless_it_must_be_fresh(registry: SchemaRegistry) -> None:
    asked = client(registry)
    registry.add("orders-value", RECORD)
    registry.add("orders-value", '"int"')
    assert asked.latest("orders-value").id == 2
    registry.add("orders-value", '"long"')
    assert asked.latest("orders-value").id == 2
    assert asked.latest("orders-value", fresh=True).id == 3


def test_latest_version_is_asked_for_again_after_a_minute(registry: SchemaRegistry) -> None:
    clock = ManualClock()
    asked = SchemaRegistryClient(registry_config({"schema.registry.url": registry.url}), clock)
    registry.add("orders-value", RECORD)
    assert asked.latest("orders-value").id == 1
    registry.add("orders-value", '"int"')
    clock.advance(LATEST_MS - 1)
    assert asked.latest("orders-value").id == 1
    clock.advance(1)
    assert asked.latest("orders-value").id == 2


def test_latest_version_is_kept_while_the_registry_is_away(registry: SchemaRegistry) -> None:
    clock, config = ManualClock(), {"schema.registry.max.retries": "0"}
    asked = SchemaRegistryClient(registry_config({"schema.registry.url": registry.url, **config}), clock)
    registry.add("orders-value", RECORD)
    asked.latest("orders-value")
    registry.close()
    clock.advance(LATEST_MS)
    assert asked.latest("orders-value").id == 1
    with pytest.raises(NetworkError):
        asked.latest("orders-value", fresh=True)


def test_registry_that_is_away_is_not_asked_again_for_a_minute() -> None:
    """Its time-outs may take longer than that."""
    clock, sent = ManualClock(), list[str]()

    def send(request: HttpRequest) -> HttpResponse:
        sent.append(request.url)
        if len(sent) > 1:
            clock.advance(LATEST_MS)
            raise NetworkError("no response in time", "http://a")
        return HttpResponse(200, json.dumps({"id": 1, "version": 1, "schema": RECORD}).encode())

    config = registry_config({"schema.registry.url": "http://a", "schema.registry.max.retries": "0"})
    asked = SchemaRegistryClient(config, clock, send=send)
    asked.latest("orders-value")
    clock.advance(LATEST_MS)
    assert [asked.latest("orders-value").id for _ in range(3)] == [1, 1, 1]
    assert len(sent) == 2


def test_versions_come_newest_first_and_are_asked_for_in_turn(registry: SchemaRegistry) -> None:
    for text in ('"int"', '"long"', '"float"'):
        registry.add("orders-value", text)
    versions = client(registry).versions("orders-value")
    number, newest = next(versions)
    assert (number, newest.text, len(registry.requests)) == (3, '"float"', 1)
    assert next(versions)[1].text == '"long"'
    assert registry.requests[1:] == [
        ("GET", "/subjects/orders-value/versions"),
        ("GET", "/subjects/orders-value/versions/2?format=serialized"),
    ]
    assert [(number, schema.text) for number, schema in versions] == [(1, '"int"')]


@pytest.mark.parametrize(
    ("fields", "missing"),
    [
        ({"id": 1 << 31, "version": 1}, "id"),
        ({"id": -1, "version": 1}, "id"),
        ({"id": True, "version": 1}, "id"),
        ({"id": 1}, "version"),
    ],
)
def test_id_or_version_that_is_no_int32_is_refused(fields: dict[str, Any], missing: str) -> None:
    asked, _ = answering((200, {"schema": "{}", **fields}))
    with pytest.raises(SchemaRegistryError, match=f"the schema registry's answer has no {missing}"):
        asked.latest("orders-value")


def test_unknown_subject_says_what_to_check(registry: SchemaRegistry) -> None:
    with pytest.raises(SchemaNotFound) as failed:
        client(registry).latest("orders-value")
    assert "minikafka.schema.registry.url is the registry of the producers" in text_of(failed.value)


def test_wrong_password_names_the_setting() -> None:
    with schema_registry(user="ada:lion") as registry, pytest.raises(SchemaRegistryError) as failed:
        client(registry.url.replace("//", "//ada:tiger@")).schema(1)
    text = text_of(failed.value)
    assert "status 401" in text
    assert "check minikafka.schema.registry.basic.auth.user.info" in text


def test_right_password_logs_in() -> None:
    with schema_registry(user="ada:tiger") as registry:
        registry.add("orders-value", RECORD)
        assert client(registry.url.replace("//", "//ada:tiger@")).schema(1).text == RECORD


def test_tls_is_checked_by_the_trust_store() -> None:
    with schema_registry(leaf=authority().issue_cert(*HOSTS)) as registry:
        registry.add("orders-value", RECORD)
        assert client(registry, **inline(authority())).schema(1).text == RECORD
        with pytest.raises(NetworkError) as failed:
            client(registry, max_retries="0", **inline(authority("others"))).schema(1)
    assert "its settings of TLS begin with minikafka.schema.registry.ssl." in text_of(failed.value)


def test_a_trust_store_that_is_missing_is_named_by_its_setting() -> None:
    with pytest.raises(ConfigError) as refused:
        client("https://127.0.0.1:9", ssl_truststore_location="/no/trust.jks").schema(1)
    name = "minikafka.schema.registry.ssl.truststore.location"
    assert str(refused.value) == f"{name}='/no/trust.jks': cannot be read: No such file or directory"


def inline(ca: trustme.CA) -> dict[str, str]:
    return {key.replace(".", "_"): value for key, value in inline_trust(ca).items()}


def test_next_address_answers_for_one_that_is_away() -> None:
    gone = NetworkError("connection refused", "http://a")
    asked, done = answering(gone, (200, {"schema": '"int"'}))
    asked.schema(7)
    asked.schema(8)
    assert done == [
        "http://a/schemas/ids/7?format=serialized",
        "http://b/schemas/ids/7?format=serialized",
        "http://b/schemas/ids/8?format=serialized",
    ]


def test_overloaded_registry_is_asked_again_after_growing_pauses() -> None:
    asked, done = answering((503, {}), **{"schema.registry.retries.max.wait.ms": "3000"})
    with pytest.raises(NetworkError) as failed:
        asked.schema(7)
    assert [step for step in done if not isinstance(step, str)] == [1, 2, 3]
    assert "schema 7: the schema registry failed (status 503)" in text_of(failed.value)


def test_registry_that_restarts_is_asked_again(registry: SchemaRegistry) -> None:
    registry.add("orders-value", RECORD)
    registry.close()
    config = registry_config({"schema.registry.url": registry.url})
    asked = SchemaRegistryClient(config, sleep=lambda seconds: registry.restart())
    assert asked.schema(1).text == RECORD


def test_slow_registry_is_given_up() -> None:
    released = threading.Event()
    with schema_registry() as registry:
        registry.is_compatible = lambda subject, schema: released.wait(30)
        asked = client(registry, max_retries="0", http_read_timeout_ms="50")
        with pytest.raises(NetworkError, match="no response in time"):
            asked.register("orders-value", Schema("AVRO", RECORD))
        released.set()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((200, []), "is no JSON object; check minikafka.schema.registry.url"),
        ((200, {}), "has no schema"),
        ((404, {}), "check the path in minikafka.schema.registry.url"),
        ((302, {}), "set minikafka.schema.registry.url to the address that it redirects to"),
        ((422, {"error_code": 42201, "message": "bad\nYWRhOnRpZ2Vy"}), "error_code 42201"),
        ((200, {"schema": "{}", "references": [{"name": "x"}]}), "references without name"),
    ],
)
def test_useless_answer_is_explained(answer: tuple[int, Any], expected: str) -> None:
    asked, _ = answering(answer)
    with pytest.raises(SchemaRegistryError) as failed:
        asked.schema(7)
    assert expected in text_of(failed.value)

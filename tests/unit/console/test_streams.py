"""Streams of messages: their slots, and what they do when a browser leaves or a log is deleted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator

import pytest

from minikafka.base.errors import MinikafkaError, OffsetOutOfRange
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.fetch.read_ranges import ReadRange
from minikafka.clients.group.fetched_records import ConsumerRecord
from minikafka.console import streams
from minikafka.console.messages import log_ranges
from minikafka.console.streams import (
    Stream,
    StreamSlots,
    TooManyStreams,
    csv_parts,
    export_batches,
    json_parts,
)
from tests.support.broker_harness import BrokerHarness
from tests.unit.console.conftest import T0, T1


def serve(response: Stream, *, leaves: bool = False, method: str = "GET") -> str:
    """Return the body of a response for a browser that stays, or that leaves at once."""
    body = bytearray()

    async def receive() -> dict[str, object]:
        if not leaves:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, object]) -> None:
        body.extend(message.get("body", b""))  # type: ignore[call-overload]

    scope = {"type": "http", "method": method, "asgi": {"spec_version": "2.3"}}
    asyncio.run(response(scope, receive, send))  # type: ignore[arg-type]
    return body.decode()


def stream(slots: StreamSlots, session_id: str = "a", parts: tuple[str, ...] = ("x",)) -> Stream:
    return Stream(slots, session_id, iter(parts), "text/plain")


def test_a_browser_that_leaves_at_once_frees_its_slot() -> None:
    slots = StreamSlots(1)
    for _ in range(3):
        serve(stream(slots), leaves=True)
    assert serve(stream(slots, parts=("c", "d"))) == "cd"


def test_more_streams_than_slots_are_refused() -> None:
    slots = StreamSlots(2)
    held = [stream(slots, "a"), stream(slots, "b")]
    with pytest.raises(TooManyStreams, match="2 searches, exports and live tails of all browsers"):
        stream(slots, "c")
    serve(held[0])
    stream(slots, "c")


def test_one_browser_cannot_have_all_slots() -> None:
    slots = StreamSlots(8, 2)
    held = [stream(slots, "a"), stream(slots, "a")]
    with pytest.raises(TooManyStreams, match="of this browser"):
        stream(slots, "a")
    stream(slots, "b")
    serve(held[0])
    stream(slots, "a")


def test_a_stream_that_fails_frees_its_slot() -> None:
    def failing() -> Iterator[str]:
        yield "a"
        raise ValueError("b")

    slots = StreamSlots(1)
    with pytest.raises(ValueError, match="b"):
        serve(Stream(slots, "a", failing(), "text/plain"))
    stream(slots)


def test_a_head_request_makes_no_parts() -> None:
    def endless() -> Iterator[str]:
        while True:
            yield "a"

    assert serve(Stream(StreamSlots(), "a", endless(), "text/plain"), method="HEAD") == ""


def test_streams_end_with_the_console() -> None:
    slots = StreamSlots()
    slots.closing.set()
    assert serve(stream(slots, parts=("a", "b"))) == "a"


# --- exports


def exported(brokers: BrokerHarness, most: int = 1_000) -> list[list[ConsumerRecord]]:
    cluster = brokers.client()
    ranges = log_ranges(cluster, [T0, T1], ReadRange(), cluster.deadline())
    isolation = IsolationLevel.READ_UNCOMMITTED
    return list(export_batches(cluster, ranges, most=most, isolation=isolation, timeout_ms=1_000))


def places(batches: list[list[ConsumerRecord]]) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for batch in batches for record in batch]


def test_an_export_has_few_parts(brokers: BrokerHarness) -> None:
    brokers.fill(T0, *[b"v"] * 2_000)
    batches = exported(brokers)
    assert sum(map(len, batches)) == 1_000
    parts = list(json_parts(batches))
    assert len(parts) < 20
    assert sum(part.count("\n") for part in parts) == 1_000


def test_an_export_ends_after_its_limit(brokers: BrokerHarness) -> None:
    assert places(exported(brokers, 7)) == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 0), (1, 1)]


def test_large_messages_are_parts_of_their_own() -> None:
    record = ConsumerRecord("t", 0, 0, 0, None, b"x" * 100_000)
    parts = list(csv_parts([[record] * 3]))
    assert max(map(len, parts)) < 101_000


def test_an_export_goes_on_where_a_log_begins_now(
    brokers: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch: Callable[..., object] = streams.fetch_sets

    def trimmed(cluster: object, tp: object, start: int, end: int, *rest: object) -> object:
        if tp == T0 and start < 3:
            raise OffsetOutOfRange(start, 3, 5)
        return fetch(cluster, tp, start, end, *rest)

    monkeypatch.setattr(streams, "fetch_sets", trimmed)
    assert places(exported(brokers))[:3] == [(0, 3), (0, 4), (1, 0)]


def test_an_export_that_fails_ends_with_a_line_that_says_so() -> None:
    def failing() -> Iterator[list[ConsumerRecord]]:
        yield [ConsumerRecord("t", 0, 0, 0, None, b"x")]
        raise MinikafkaError("t-0: no broker answers")

    assert "".join(csv_parts(failing())).endswith(",x,\r\n# incomplete: t-0: no broker answers\r\n")
    lines = "".join(json_parts(failing(), ["t-1 is missing"])).splitlines()
    assert [json.loads(line) for line in lines[1:]] == [
        {"error": "incomplete: t-1 is missing"},
        {"error": "incomplete: t-0: no broker answers"},
    ]

"""Streams of messages: their slots, and what they do when a browser leaves or a log is deleted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from minikafka.base.errors import MinikafkaError, OffsetOutOfRange
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.fetch.read_ranges import ReadRange
from minikafka.clients.group.fetched_records import ConsumerRecord
from minikafka.console import streams
from minikafka.console.messages import log_ranges
from minikafka.console.streams import (
    Slot,
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


def stream(
    slots: StreamSlots, session_id: str = "a", parts: Iterable[str] = ("x",), address: str = ""
) -> Stream:
    return Stream(slots, (session_id, address or session_id), lambda _: iter(parts), "text/plain")


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
        serve(stream(slots, parts=failing()))
    stream(slots)


def test_a_head_request_makes_no_parts() -> None:
    def endless() -> Iterator[str]:
        while True:
            yield "a"

    assert serve(stream(StreamSlots(), parts=endless()), method="HEAD") == ""


def until_ended(slot: Slot) -> Iterator[str]:
    """Yield ``a`` for as long as the slot may be held, at most 100 times, and then the reason."""
    try:
        yield from slot.until_ended("a" * 100)
    except MinikafkaError as error:
        yield f" {type(error).__name__}: {error}"


def test_streams_end_with_the_console() -> None:
    slots = StreamSlots()
    slots.closing.set()
    ended = Stream(slots, ("a", ""), until_ended, "text/plain")
    assert serve(ended) == "a MinikafkaError: the console was stopped"


def test_a_client_without_cookies_replaces_its_own_oldest_stream() -> None:
    slots = StreamSlots(3)
    stream(slots, "z", address="::1")
    oldest = Stream(slots, ("a", "127.0.0.1"), until_ended, "text/plain")
    for session_id in "bcde":
        stream(slots, session_id, address="127.0.0.1")
    assert serve(oldest) == (
        "a GaveWay: ended for a newer search, export or live tail: 3 run at the same time, and this was the "
        "oldest of a browser at 127.0.0.1"
    )


def test_the_address_with_most_streams_makes_room_for_another() -> None:
    slots = StreamSlots(3)
    held = [slots.take(name, address) for name, address in (("a", "x"), ("b", "y"), ("c", "y"))]
    slots.take("d", "z")
    assert [bool(slot.ended()) for slot in held] == [False, True, False]
    with pytest.raises(TooManyStreams, match="3 searches, exports and live tails of all browsers"):
        slots.take("e", "w")


def test_the_browser_with_most_streams_at_a_proxy_makes_room() -> None:
    slots = StreamSlots(4)
    held = [slots.take(name, "proxy") for name in "abbc"]
    slots.take("d", "proxy")
    assert [bool(slot.ended()) for slot in held] == [False, True, False, False]
    slots.take("e", "proxy")  # each has one now: the oldest of all
    assert [bool(slot.ended()) for slot in held] == [True, True, False, False]


def test_a_replaced_stream_that_nobody_reads_is_dropped() -> None:
    slots, dropped = StreamSlots(1), []

    def parts(slot: Slot) -> Iterator[str]:
        try:
            while True:
                yield "a"
        finally:
            dropped.append(slot)

    async def read_once() -> None:
        async def send(message: dict[str, object]) -> None:
            if message.get("body"):
                stream(slots, "b", address="x")  # replaces this one, which is ending then
                assert dropped == []
                stream(slots, "c", address="x")  # replaces "b", and one may be ending
                raise OSError

        scope = {"type": "http", "method": "GET", "asgi": {"spec_version": "2.4"}}
        receive: Any = None
        await Stream(slots, ("a", "x"), parts, "text/plain")(scope, receive, send)  # type: ignore[arg-type]

    with pytest.raises(ClientDisconnect):
        asyncio.run(read_once())
    assert len(dropped) == 1


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
    cluster = brokers.client()
    ranges = log_ranges(cluster, [T0, T1], ReadRange(), cluster.deadline())
    isolation = IsolationLevel.READ_UNCOMMITTED
    batches = export_batches(cluster, ranges, most=9, isolation=isolation, timeout_ms=1_000)
    *lines, last = "".join(json_parts(batches, ranges.notes)).splitlines()
    found = [json.loads(line) for line in lines]
    assert [(row["partition"], row["offset"]) for row in found][:3] == [(0, 3), (0, 4), (1, 0)]
    assert "orders-0: messages 0 to 2 were deleted, by retention or a trim, while the export ran" in last


def test_an_export_that_fails_ends_with_a_line_that_says_so() -> None:
    def failing() -> Iterator[list[ConsumerRecord]]:
        yield [ConsumerRecord("t", 0, 0, 0, None, b"x")]
        raise MinikafkaError("t-0: no broker answers")

    assert "".join(csv_parts(failing())).endswith(",x,,\r\n# incomplete: t-0: no broker answers\r\n")
    lines = "".join(json_parts(failing(), ["t-1 is missing"])).splitlines()
    assert [json.loads(line) for line in lines[1:]] == [
        {"error": "incomplete: t-1 is missing"},
        {"error": "incomplete: t-0: no broker answers"},
    ]

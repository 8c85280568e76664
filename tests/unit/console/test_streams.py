"""Streams of messages: their slots, and what they do when a browser leaves or a log is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from minikafka.console.streams import Stream, StreamSlots, TooManyStreams


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

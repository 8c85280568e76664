"""The texts' own compact protocol: the requests of Kafka 0.7, answered by MessageSetSend and
MultiMessageSetSend. A listener ``CLASSIC://HOST:PORT`` speaks it, and nothing else.

**Numbers** are big-endian and signed. A *string* is an int16 length and that many bytes of UTF-8.

**Every message** of both directions is a frame: its *total length*, an int32 that counts the bytes after it
and not itself, and those bytes. There is no version, no correlation id and no client id: responses come in
the order of the requests.

**A request** is an int16 id and a body:

    id                body
    0  Produce        topic string | partition int32 | size int32 | messages, size bytes
    1  Fetch          topic string | partition int32 | offset int64 | max size int32
    2  MultiFetch     count int16 | count times the body of Fetch
    3  MultiProduce   count int16 | count times the body of Produce
    4  Offsets        topic string | partition int32 | time int64 | max count int32

Produce to partition -1 lets the broker choose one. A time is in ms since the epoch; -1 asks for the latest
offset, -2 for the earliest.

**Responses**

    to Fetch          MessageSetSend        total length int32 | error code int16 | messages
    to MultiFetch     MultiMessageSetSend   total length int32 | error code int16 | MessageSetSend, for each
    to Offsets                              total length int32 | error code int16 | count int32 | int64, count
                                            times: offsets, the latest first
    to Produce, MultiProduce                none

The total length of a MessageSetSend is 2 + the size of its messages. That of a MultiMessageSetSend is 2 + the
sizes of all its MessageSetSends, each with its own total length: 4 + 2 + its messages. Its own error code is
always 0; each set has its own. With an error there are no messages, and no offsets. Produce requests have no
response, so the broker reports a failed one by closing the connection. In a MultiProduce, the requests before
the failed one are appended, those after it are not.

**Messages** are entries as on the disk, of magic 0 or 1: offset int64, size int32, crc, magic, attributes,
timestamp (magic 1), key, value. (0.7 itself had no offset there; the texts' format has.) The offsets that
producers write are ignored. In a response they are the offsets of the messages; a compressed message has the
offset of the last message in it, so its first message may be before the requested offset. Newer messages are
converted down.

**A partial last message**: a response holds at most "max size" bytes of messages, and is cut at that size. A
reader leaves out the partial message at the end. If the response is only a partial message, the client must
repeat the request with a larger size; a response of no bytes means the end of the log.

**Error codes** are 0.7's: -1 unknown, 0 none, 1 offset out of range, 2 invalid message, 3 wrong partition (it
does not exist, or not on this broker), 4 invalid fetch size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import TypeVar

from minikafka.base.binary import (
    INT16,
    INT32,
    INT64,
    read_integer,
    read_nullable_bytes,
    read_string,
    write_integer,
    write_nullable_string,
)
from minikafka.base.errors import ErrorCode, RemoteWireError
from minikafka.base.files import Buffer
from minikafka.wire.frame_parts import Part, part_size, total_size

ANY_PARTITION = -1
LATEST = -1
EARLIEST = -2
MAX_REQUESTS = 0x7FFF
"""The maximum count of a MultiFetch or a MultiProduce."""


class RequestId(IntEnum):
    """The id at the start of a request."""

    PRODUCE = 0
    FETCH = 1
    MULTI_FETCH = 2
    MULTI_PRODUCE = 3
    OFFSETS = 4


@dataclass(frozen=True, slots=True)
class Produce:
    """Append messages. Decoded, they are a view of the request."""

    topic: str
    partition: int
    messages: Part


@dataclass(frozen=True, slots=True)
class Fetch:
    """Read messages from ``offset`` on, at most ``max_size`` bytes."""

    topic: str
    partition: int
    offset: int
    max_size: int


@dataclass(frozen=True, slots=True)
class MultiFetch:
    """Several fetches, answered together."""

    fetches: tuple[Fetch, ...]


@dataclass(frozen=True, slots=True)
class MultiProduce:
    """Several produce requests."""

    produces: tuple[Produce, ...]


@dataclass(frozen=True, slots=True)
class Offsets:
    """At most ``max_count`` offsets before a time (ms since the epoch, LATEST, EARLIEST)."""

    topic: str
    partition: int
    time_ms: int
    max_count: int


Request = Produce | Fetch | MultiFetch | MultiProduce | Offsets
Body = TypeVar("Body", Produce, Fetch)


@dataclass(frozen=True, slots=True)
class MessageSetSend:
    """The response to one fetch: a code of 0.7, and messages (none with an error)."""

    error_code: int
    messages: Part


_CODES = {
    ErrorCode.NONE: 0,
    ErrorCode.OFFSET_OUT_OF_RANGE: 1,
    ErrorCode.CORRUPT_MESSAGE: 2,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 3,
    ErrorCode.NOT_LEADER_FOR_PARTITION: 3,
    ErrorCode.LEADER_NOT_AVAILABLE: 3,
    ErrorCode.INVALID_TOPIC: 3,
    ErrorCode.INVALID_FETCH_SIZE: 4,
}
_ERRORS = {
    0: ErrorCode.NONE,
    1: ErrorCode.OFFSET_OUT_OF_RANGE,
    2: ErrorCode.CORRUPT_MESSAGE,
    3: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    4: ErrorCode.INVALID_FETCH_SIZE,
}


def code_of(error: int) -> int:
    """Return 0.7's code for an error of the current protocol."""
    return _CODES.get(ErrorCode.of(error), -1)


def error_of(code: int) -> ErrorCode:
    """Return the error of the current protocol for a code of 0.7."""
    return _ERRORS.get(code, ErrorCode.UNKNOWN)


def decode_request(frame: Buffer) -> Request:
    """Decode the request in ``frame``, without its length. Raises RemoteWireError unless it fits exactly."""
    number, position = read_integer(INT16, frame, 0)
    request: Request
    match number:
        case RequestId.PRODUCE:
            request, position = _read_produce(frame, position)
        case RequestId.FETCH:
            request, position = _read_fetch(frame, position)
        case RequestId.MULTI_FETCH:
            fetches, position = _read_all(_read_fetch, frame, position)
            request = MultiFetch(fetches)
        case RequestId.MULTI_PRODUCE:
            produces, position = _read_all(_read_produce, frame, position)
            request = MultiProduce(produces)
        case RequestId.OFFSETS:
            request, position = _read_offsets(frame, position)
        case _:
            raise RemoteWireError(f"unknown classic request {number}: expected 0 to 4")
    _check_end(frame, position)
    return request


def encode_request(request: Request) -> list[Part]:
    """Return the parts of a frame. Raises LocalWireError when a value does not fit."""
    match request:
        case Produce():
            return [_integer(INT16, RequestId.PRODUCE), *_produce(request)]
        case Fetch():
            return [_integer(INT16, RequestId.FETCH) + _fetch(request)]
        case MultiFetch(fetches):
            head = _integer(INT16, RequestId.MULTI_FETCH) + _integer(INT16, len(fetches))
            return [head, *map(_fetch, fetches)]
        case MultiProduce(produces):
            head = _integer(INT16, RequestId.MULTI_PRODUCE) + _integer(INT16, len(produces))
            return [head, *(part for produce in produces for part in _produce(produce))]
        case Offsets():
            out = _integer(INT16, RequestId.OFFSETS) + _address(request.topic, request.partition)
            return [out + _integer(INT64, request.time_ms) + _integer(INT32, request.max_count)]


def encode_message_set_send(send: MessageSetSend) -> list[Part]:
    """Return the parts of a frame, without the total length."""
    return [_integer(INT16, send.error_code), *([send.messages] if part_size(send.messages) else [])]


def encode_multi_message_set_send(sends: Sequence[MessageSetSend]) -> list[Part]:
    """Return the parts of a frame, without its own total length."""
    parts: list[Part] = [_integer(INT16, 0)]
    for send in sends:
        encoded = encode_message_set_send(send)
        parts += [_integer(INT32, total_size(encoded)), *encoded]
    return parts


def encode_offsets(error_code: int, offsets: Sequence[int]) -> list[Part]:
    """Return the parts of a frame, without the total length."""
    out = _integer(INT16, error_code) + _integer(INT32, len(offsets))
    for offset in offsets:
        out += _integer(INT64, offset)
    return [out]


def decode_message_set_send(frame: Buffer) -> MessageSetSend:
    """Decode the response to a Fetch; the messages are a view of ``frame``."""
    code, position = read_integer(INT16, frame, 0)
    return MessageSetSend(code, memoryview(frame)[position:])


def decode_multi_message_set_send(frame: Buffer) -> tuple[int, list[MessageSetSend]]:
    """Decode the response to a MultiFetch: its own code, and its sets."""
    code, position = read_integer(INT16, frame, 0)
    sends: list[MessageSetSend] = []
    while position < len(frame):
        encoded, position = read_nullable_bytes(frame, position)
        if encoded is None:
            raise RemoteWireError(f"a MessageSetSend has a total length of -1 at position {position - 4}")
        if len(sends) == MAX_REQUESTS:
            raise RemoteWireError(f"more than {MAX_REQUESTS} sets, the limit of a MultiFetch")
        sends.append(decode_message_set_send(encoded))
    return code, sends


def decode_offsets(frame: Buffer) -> tuple[int, list[int]]:
    """Decode the response to an Offsets request: its code, and the offsets."""
    code, position = read_integer(INT16, frame, 0)
    count, position = read_integer(INT32, frame, position)
    if len(frame) - position != count * INT64.size:
        raise RemoteWireError(f"invalid count of {count} offsets in {len(frame) - position} bytes")
    return code, [INT64.unpack_from(frame, at)[0] for at in range(position, len(frame), INT64.size)]


def _read_produce(frame: Buffer, position: int) -> tuple[Produce, int]:
    topic, partition, position = _read_address(frame, position)
    messages, position = read_nullable_bytes(frame, position)
    if messages is None:
        raise RemoteWireError(f"messages have a size of -1 at position {position - 4}")
    return Produce(topic, partition, messages), position


def _read_fetch(frame: Buffer, position: int) -> tuple[Fetch, int]:
    topic, partition, position = _read_address(frame, position)
    offset, position = read_integer(INT64, frame, position)
    max_size, position = read_integer(INT32, frame, position)
    return Fetch(topic, partition, offset, max_size), position


def _read_offsets(frame: Buffer, position: int) -> tuple[Offsets, int]:
    topic, partition, position = _read_address(frame, position)
    time_ms, position = read_integer(INT64, frame, position)
    max_count, position = read_integer(INT32, frame, position)
    return Offsets(topic, partition, time_ms, max_count), position


def _read_all(
    read: Callable[[Buffer, int], tuple[Body, int]], frame: Buffer, position: int
) -> tuple[tuple[Body, ...], int]:
    count, position = read_integer(INT16, frame, position)
    if count < 0:
        raise RemoteWireError(f"invalid count of {count} requests: expected 0 to {MAX_REQUESTS}")
    bodies = []
    for _ in range(count):
        body, position = read(frame, position)
        bodies.append(body)
    return tuple(bodies), position


def _read_address(frame: Buffer, position: int) -> tuple[str, int, int]:
    topic, position = read_string(frame, position)
    partition, position = read_integer(INT32, frame, position)
    return topic, partition, position


def _check_end(frame: Buffer, position: int) -> None:
    if position != len(frame):
        raise RemoteWireError(f"{len(frame) - position} unexpected bytes after a classic request")


def _integer(form: Struct, value: int) -> bytes:
    out = bytearray()
    write_integer(form, out, value)
    return bytes(out)


def _address(topic: str, partition: int) -> bytes:
    out = bytearray()
    write_nullable_string(out, topic)
    write_integer(INT32, out, partition)
    return bytes(out)


def _produce(request: Produce) -> list[Part]:
    size = part_size(request.messages)
    head = _address(request.topic, request.partition) + _integer(INT32, size)
    return [head, *([request.messages] if size else [])]


def _fetch(request: Fetch) -> bytes:
    tail = _integer(INT64, request.offset) + _integer(INT32, request.max_size)
    return _address(request.topic, request.partition) + tail

"""Commands of scenario scripts for the texts' compact protocol, over a CLASSIC listener on port 9094."""

from __future__ import annotations

from minikafka.base.errors import BrokerError
from minikafka.clients.simple_consumer import (
    EARLIEST_TIME,
    LATEST_TIME,
    FetchedMessages,
    FetchRequest,
    SimpleConsumer,
)
from minikafka.records.format.message_set import Codec, Record, build_message_set
from minikafka.wire import classic
from tests.scenarios.commands import VOCABULARY, show_record
from tests.scenarios.script import Duration, read
from tests.scenarios.script_simulation import Lines, ScriptSimulation

CLASSIC_PORT = 9094


def _consumer(simulation: ScriptSimulation) -> SimpleConsumer:
    return SimpleConsumer(simulation.host, CLASSIC_PORT, classic=True, connector=simulation.network)


def _fetch_request(text: str) -> FetchRequest:
    """Parse ``TOPIC-PARTITION:OFFSET:SIZE``."""
    where, offset, size = text.split(":")
    topic, _, partition = where.rpartition("-")
    return FetchRequest(topic, int(partition), int(offset), int(size))


def _shown(found: FetchedMessages) -> Lines:
    try:
        lines = [show_record(message) for message in found]
    except BrokerError as error:
        return [error.code.name]
    cut = found.size_bytes - found.valid_bytes
    return lines + [f"{cut} bytes of a message"] * (cut > 0) or ["nothing"]


@VOCABULARY.command
def classic_produce(simulation: ScriptSimulation, *places: str, value: str, codec: str = "none") -> Lines:
    """Send one message to each ``TOPIC-PARTITION``; to several by one multi-produce request."""
    record = Record(None, value.encode(), simulation.clock.now_ms())
    messages = build_message_set([record], codec=Codec[codec.upper()])
    produces = []
    for place in places:
        topic, _, partition = place.rpartition("-")
        number = classic.ANY_PARTITION if partition == "any" else int(partition)
        produces.append(classic.Produce(topic, number, messages))
    connection = simulation.network.connect(simulation.host, CLASSIC_PORT)
    request = produces[0] if len(produces) == 1 else classic.MultiProduce(tuple(produces))
    connection.send(classic.encode_request(request))
    # There is no response; the next request is served when it is done.
    pending = connection.request(classic.encode_request(classic.MultiFetch(())))
    began_ms = simulation.clock.monotonic_ms()
    simulation.network.wait(lambda: pending.done() or connection.closed, began_ms + 60_000)
    passed_ms = simulation.clock.monotonic_ms() - began_ms
    times = [f"after {passed_ms} ms"] * (passed_ms > 0)
    return times + ["connection closed"] * connection.closed


@VOCABULARY.command
def classic_fetch(simulation: ScriptSimulation, request: str) -> Lines:
    """Fetch ``TOPIC-PARTITION:OFFSET:SIZE``."""
    with _consumer(simulation) as consumer:
        return list(_shown(consumer.fetch(_fetch_request(request))))


@VOCABULARY.command
def classic_multi_fetch(simulation: ScriptSimulation, *requests: str) -> Lines:
    """Fetch several partitions in one request."""
    with _consumer(simulation) as consumer:
        found = consumer.multifetch([_fetch_request(request) for request in requests])
        return [
            f"{request} {line}"
            for request, messages in zip(requests, found, strict=True)
            for line in _shown(messages)
        ]


@VOCABULARY.command
def classic_offsets(simulation: ScriptSimulation, place: str, *, at: str = "end", limit: int = 10) -> Lines:
    """``getOffsetsBefore`` for the ``end``, the ``start``, or a time."""
    topic, _, partition = place.rpartition("-")
    named = {"start": EARLIEST_TIME, "end": LATEST_TIME}
    time_ms = named[at] if at in named else read(Duration, at, "classic-offsets: at")
    with _consumer(simulation) as consumer:
        offsets = consumer.get_offsets_before(topic, int(partition), time_ms, limit)
    return [f"offsets {' '.join(map(str, offsets)) or 'none'}"]


@VOCABULARY.command
def classic_frame(simulation: ScriptSimulation, hex_text: str) -> Lines:
    """Send any bytes as one frame, and show the response."""
    connection = simulation.network.connect(simulation.host, CLASSIC_PORT)
    pending = connection.request([bytes.fromhex(hex_text)])
    if not pending.done():
        return ["no response"]
    return ["connection closed"] if connection.closed else [f"response {bytes(pending.result()).hex(' ', 4)}"]

"""Requests that are small to send and large to serve, while another client keeps working.

The broker is a process of its own with default limits. While the attack lasts, the other client writes a
message and reads it again, over and over: none of its requests may take longer than ``OTHERS_WAIT_S``, and
the broker's memory may not grow by more than ``GROWTH_BYTES``.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from minikafka.net.connection import SocketConnection, connect
from minikafka.records.columns import encode
from minikafka.records.format.compression import Codec
from minikafka.records.format.message_set import Record, build_message_set
from minikafka.wire.api import ApiKey
from minikafka.wire.api_table import APIS
from minikafka.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from minikafka.wire.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from minikafka.wire.frame_parts import Part, join
from minikafka.wire.framing import RequestHeader, encode_frame, split_response
from tests.faults import attacked_broker
from tests.support import simulation

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the memory of a process in /proc"),
]

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
PATIENCE_S = 120.0
OTHERS_WAIT_S = 1.0
GROWTH_BYTES = 300 << 20
LARGE_CONTENT_BYTES = 127 << 20


class AttackedBroker:
    """The process. A context manager."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", attacked_broker.__name__, str(directory), *arguments]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        environment = os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system"}
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment, **pipes)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the broker has died"
        self.port = int(json.loads(line)["PLAINTEXT"])
        self._correlation_id = 0
        self.connection = connect(HOST, self.port)

    def __enter__(self) -> AttackedBroker:
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()
        with self.process:
            self.process.kill()

    def call(self, request: simulation.Request) -> Any:
        """The response to ``request``."""
        return answer_of(self.connection, request)

    def create_topic(self, name: str, partitions: int, **settings: str) -> None:
        """Make a topic with ``settings``, whose dots are underscores here."""
        configs = {key.replace("_", "."): value for key, value in settings.items()}
        made = self.call(simulation.create_topic(name, partitions, settings=configs))
        assert made.topics[0].error_code == 0
        wait_until(lambda: self.call(simulation.metadata(name)).topics[0].error_code == 0)

    def resident_bytes(self) -> int:
        """The memory of the process now."""
        return self._status("VmRSS")

    def peak_bytes(self) -> int:
        """The most memory since the last ``reset_peak``."""
        return self._status("VmHWM")

    def reset_peak(self) -> None:
        """Measure the peak anew."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5", encoding="ascii")

    def _status(self, name: str) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith(name):
                return int(line.split()[1]) << 10
        raise AssertionError(f"no {name}")


class Others:
    """A client that writes a message and reads it again, until its ``with`` block ends."""

    def __init__(self, broker: AttackedBroker) -> None:
        self._broker = broker
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._error: BaseException | None = None
        self.rounds = 0
        self.longest_s = 0.0

    def __enter__(self) -> Others:
        self._thread.start()
        wait_until(lambda: self.rounds > 10 or self._error is not None)
        self.longest_s = 0.0
        self._broker.reset_peak()
        self._before = self._broker.resident_bytes()
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        self._end.set()
        self._thread.join()
        if kind is None:
            if self._error is not None:
                raise self._error
            grown = self._broker.peak_bytes() - self._before
            how = f"others: {self.rounds} rounds, longest {self.longest_s:.3f} s, grown {grown >> 20} MiB"
            sys.stdout.write(how + "\n")
            assert self.longest_s < OTHERS_WAIT_S
            assert grown < GROWTH_BYTES

    def _run(self) -> None:
        message_set = build_message_set([Record(b"k", b"v", 1)], magic=2)
        try:
            # Several, so that each processor has one.
            with contextlib.ExitStack() as stack:
                connections = [connect(HOST, self._broker.port) for _ in range(3)]
                for connection in connections:
                    stack.callback(connection.close)
                while not self._end.is_set():
                    for connection in connections:
                        began = time.monotonic()
                        write = simulation.produce("steady", message_set, version=3)
                        (part,) = answer_of(connection, write).topics[0].partitions
                        assert part.error_code == 0, part
                        read = simulation.fetch("steady", part.base_offset, version=4)
                        (found,) = answer_of(connection, read).topics[0].partitions
                        assert found.error_code == 0, found
                        self.longest_s = max(self.longest_s, time.monotonic() - began)
                        self.rounds += 1
                    time.sleep(0.002)
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self._error = error


def wait_until(condition: Callable[[], bool]) -> None:
    """Poll until it holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def frame_of(request: simulation.Request, correlation_id: int = 1) -> bytes:
    """The bytes on the wire."""
    header = RequestHeader(int(request.key), request.version, correlation_id, "attacker")
    parts: list[Part] = [header.encode(), *APIS[request.key].encode_request(request.version, request.body)]
    return join(encode_frame(parts))


@contextlib.contextmanager
def asking(
    broker: AttackedBroker, request: simulation.Request, connections: int
) -> Iterator[list[socket.socket]]:
    """So many connections that have asked."""
    data = frame_of(request)
    with contextlib.ExitStack() as stack:
        socks = [
            stack.enter_context(socket.create_connection((HOST, broker.port))) for _ in range(connections)
        ]
        for sock in socks:
            sock.settimeout(PATIENCE_S)
            sock.sendall(data)
        yield socks


def answer_of(connection: SocketConnection, request: simulation.Request) -> Any:
    """The response to ``request``."""
    header = RequestHeader(int(request.key), request.version, 1, "other")
    api = APIS[ApiKey(request.key)]
    parts: list[Part] = [header.encode(), *api.encode_request(request.version, request.body)]
    _, body = split_response(connection.request(parts).result(int(PATIENCE_S * 1000)))
    return api.decode_response(request.version, body)


def read_answer(sock: socket.socket, request: simulation.Request) -> Any:
    """The response to ``request``, which was sent by hand."""
    (size,) = struct.unpack(">i", read_exactly(sock, 4))
    return response_of(read_exactly(sock, size), request.key, request.version)


def response_of(frame: bytes, key: ApiKey, version: int) -> Any:
    """The response in a frame, without the frame's size."""
    _, body = split_response(memoryview(bytearray(frame)))
    return APIS[ApiKey(key)].decode_response(version, body)


def read_exactly(sock: socket.socket, size: int) -> bytes:
    """So many bytes."""
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        assert more, "the broker has closed the connection"
        data += more
    return data


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AttackedBroker]:
    with AttackedBroker(tmp_path / "data") as broker:
        broker.create_topic("steady", 1, retention_ms="-1")
        yield broker


@cache
def large_batch(codec: Codec) -> bytes:
    """A batch of a few kilobytes (lz4 and snappy: more) that holds one record of 127 MiB of zeros."""
    return build_message_set([Record(None, bytes(LARGE_CONTENT_BYTES), 1)], magic=2, codec=codec)


@cache
def large_wrapper(codec: Codec, magic: int) -> bytes:
    """Return the same as ``large_batch``, of magic 0 or 1."""
    return build_message_set([Record(None, bytes(LARGE_CONTENT_BYTES), 1)], magic=magic, codec=codec)


def attack(broker: AttackedBroker, connections: int, request: simulation.Request) -> list[Any]:
    """Send ``request`` on so many connections at a time; the responses."""
    data = frame_of(request)
    with contextlib.ExitStack() as stack:
        socks = [
            stack.enter_context(socket.create_connection((HOST, broker.port))) for _ in range(connections)
        ]
        for sock in socks:
            sock.settimeout(PATIENCE_S)
            sock.sendall(data)
        return [read_answer(sock, request) for sock in socks]


def codes(answers: list[Any]) -> set[int]:
    """All error codes of produce responses."""
    return {part.error_code for answer in answers for topic in answer.topics for part in topic.partitions}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_small_requests_of_large_zstd_content_stop_nobody(broker: AttackedBroker) -> None:
    broker.create_topic("bombs", 40)
    request = simulation.produce("bombs", large_batch(Codec.ZSTD), partitions=tuple(range(40)), version=7)
    with Others(broker):
        answers = attack(broker, 8, request)
    assert codes(answers) == {0}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.SNAPPY])
def test_large_content_of_other_codecs_stops_nobody(broker: AttackedBroker, codec: Codec) -> None:
    broker.create_topic("bombs", 4, max_message_bytes="10000000")
    request = simulation.produce("bombs", large_batch(codec), partitions=tuple(range(4)), version=3)
    with Others(broker):
        answers = attack(broker, 3, request)
    assert codes(answers) == {0}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_request_of_many_large_wrappers_stops_nobody(broker: AttackedBroker) -> None:
    broker.create_topic("bombs", 1)
    request = simulation.produce("bombs", 8 * large_wrapper(Codec.GZIP, 1), version=2)
    with Others(broker):
        answers = attack(broker, 2, request)
    assert codes(answers) == {0}


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("settings", "codec"),
    [
        ({"compression_type": "gzip"}, Codec.ZSTD),
        ({"message_format_version": "0.9.0"}, Codec.LZ4),
        ({"message_format_version": "0.10.0"}, Codec.LZ4),
    ],
)
def test_large_content_that_is_written_anew_stops_nobody(
    broker: AttackedBroker, settings: dict[str, str], codec: Codec
) -> None:
    broker.create_topic("bombs", 1, **settings)
    request = simulation.produce("bombs", large_batch(codec), version=7 if codec is Codec.ZSTD else 3)
    with Others(broker):
        assert codes(attack(broker, 3, request)) == {0}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("magic", "settings"),
    [
        (0, {}),
        pytest.param(1, {}, marks=pytest.mark.long),
        pytest.param(1, {"message_format_version": "0.9.0"}, marks=pytest.mark.long),
        pytest.param(0, {"message_format_version": "0.10.0"}, marks=pytest.mark.long),
    ],
)
def test_requests_of_very_many_wrappers_stop_nobody(
    broker: AttackedBroker, magic: int, settings: dict[str, str]
) -> None:
    one = build_message_set([Record(None, b"x", 1)], magic=magic, codec=Codec.GZIP)
    broker.create_topic("bombs", 1, **settings)
    request = simulation.produce("bombs", (20 << 20) // len(one) * one, version=2)
    with Others(broker):
        assert codes(attack(broker, 2, request)) == {0}


RECORDS = 1_000_000


@cache
def many_records(magic: int) -> bytes:
    """A wrapper or batch of so many records, the last of which is newer."""
    times = np.ones(RECORDS, dtype=np.int64)
    times[-1] = 2
    values, rows = pa.array(RECORDS * [b"x"]), np.arange(RECORDS)
    (records,) = encode(
        None, values, times, rows, magic=magic, codec=Codec.LZ4, max_bytes=LARGE_CONTENT_BYTES
    )
    return bytes(records.data)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("content", "version", "newest_ms", "offset"),
    [
        (lambda: large_batch(Codec.LZ4), 3, 1, 0),
        (lambda: many_records(1), 2, 2, RECORDS - 1),
        (lambda: many_records(2), 3, 2, RECORDS - 1),
    ],
    ids=["large-record", "many-messages", "many-records"],
)
def test_look_ups_by_time_in_large_content_stop_nobody(
    broker: AttackedBroker, content: Callable[[], bytes], version: int, newest_ms: int, offset: int
) -> None:
    broker.create_topic("bombs", 1, max_message_bytes="10000000")
    assert codes([broker.call(simulation.produce("bombs", content(), version=version))]) == {0}
    question = ListOffsetsTopic("bombs", (ListOffsetsPartition(0, -1, newest_ms, 1),))
    request = simulation.Request(ApiKey.LIST_OFFSETS, 1, ListOffsetsRequest(-1, 0, (question,)))
    with Others(broker):
        answers = attack(broker, 6, request)
    assert [part.offset for answer in answers for part in answer.topics[0].partitions] == 6 * [offset]


MANY = 50_000


def many_fetched() -> simulation.Request:
    """A fetch of many partitions that are not there."""
    parts = tuple(FetchPartition(index, -1, 0, -1, 1 << 20) for index in range(1, MANY))
    body = FetchRequest(-1, 0, 1, 1 << 24, 0, 0, -1, (FetchTopic("steady", parts),))
    return simulation.Request(ApiKey.FETCH, 4, body)


def many_offsets() -> simulation.Request:
    """A question for the offsets of many partitions that are not there."""
    parts = tuple(ListOffsetsPartition(index, -1, -1, 1) for index in range(1, MANY))
    body = ListOffsetsRequest(-1, 0, (ListOffsetsTopic("steady", parts),))
    return simulation.Request(ApiKey.LIST_OFFSETS, 1, body)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "request_of",
    [
        many_fetched,
        many_offsets,
        lambda: simulation.metadata(*(f"name-{number}" for number in range(MANY))),
        lambda: simulation.produce("steady", b"", partitions=tuple(range(1, MANY)), version=7),
    ],
    ids=["fetch", "offsets", "metadata", "produce"],
)
def test_requests_that_name_very_many_partitions_stop_nobody(
    broker: AttackedBroker, request_of: Callable[[], simulation.Request]
) -> None:
    request = request_of()
    with Others(broker):
        assert len(attack(broker, 3, request)) == 3


@pytest.mark.timeout(120)
@pytest.mark.parametrize("sent_bytes", [100, (100 << 20) - 1])
def test_large_frames_that_never_come_whole_stop_nobody(broker: AttackedBroker, sent_bytes: int) -> None:
    before = broker.resident_bytes()
    medium = simulation.produce(
        "steady", build_message_set([Record(None, bytes(300_000), 1)], magic=2), version=3
    )
    with Others(broker), contextlib.ExitStack() as stack:
        socks = [stack.enter_context(socket.create_connection((HOST, broker.port))) for _ in range(30)]
        for sock in socks:
            sock.setblocking(False)
        send_all_that_is_taken(socks, struct.pack(">i", 100 << 20), sent_bytes)
        assert codes([broker.call(medium)]) == {0}
    wait_until(lambda: broker.resident_bytes() - before < 64 << 20)


def send_all_that_is_taken(socks: list[socket.socket], head: bytes, most_bytes: int) -> None:
    """Send on all connections until none accepts bytes for a while, or all are sent."""
    left = {sock: most_bytes for sock in socks if sock.send(head)}
    piece = memoryview(bytes(1 << 20))
    while left:
        _, ready, _ = select.select([], list(left), [], 0.5)
        if not ready:
            return
        for sock in ready:
            try:
                left[sock] -= sock.send(piece[: left[sock]])
            except OSError:  # the broker has cut it off
                left[sock] = 0
            if not left[sock]:
                del left[sock]

"""A broker that is attacked, and the others that must not suffer.

The broker is a process of its own with default limits. While the attack lasts, another client writes a
message and reads it again, over and over. None of its rounds may take longer than ``OTHERS_WAIT_S``, or on a
machine with other work, more of the broker's processor time than that. The broker's memory may not grow by
more than ``GROWTH_BYTES``.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from minikafka.net.connection import SocketConnection, connect
from minikafka.records.format.compression import Codec
from minikafka.records.format.message_set import Record, build_message_set
from minikafka.wire.api import ApiKey
from minikafka.wire.api_table import APIS
from minikafka.wire.frame_parts import Part, join
from minikafka.wire.framing import RequestHeader, encode_frame, split_response
from tests.faults import attacked_broker
from tests.support import requests

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
PATIENCE_S = 120.0
OTHERS_WAIT_S = 1.0
OTHERS_STALL_S = 15.0
"""No round may take longer, whatever else the machine does."""
GROWTH_BYTES = 300 << 20
LARGE_CONTENT_BYTES = 127 << 20
CORRELATION_IDS = itertools.count()

reads_proc = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="reads the memory of a process in /proc"
)


class AttackedBroker:
    """The process of a broker, and a connection to it. A context manager."""

    program = attacked_broker.__name__
    # Pools that take address space in advance would hide what is asked for.
    environment: Mapping[str, str] = {"ARROW_DEFAULT_MEMORY_POOL": "system"}

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", self.program, str(directory), *arguments],
            cwd=ROOT,
            env={**os.environ, **self.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            self.ports: dict[str, int] = json.loads(self.line())
            self.port = self.ports["PLAINTEXT"]
            self.connection = connect(HOST, self.port)
        except BaseException:
            self._kill()
            raise

    def __enter__(self) -> AttackedBroker:
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()
        self._kill()

    def _kill(self) -> None:
        # Leaves by its own context manager, which closes the pipes.
        with self.process:
            self.process.kill()

    def line(self) -> str:
        """Return the next line that it writes."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the broker has died"
        return line

    def call(self, request: requests.Request) -> Any:
        """The response to ``request``."""
        return answer_of(self.connection, request)

    def create_topic(self, name: str, partitions: int, **settings: str) -> None:
        """Make a topic with ``settings``, whose dots are underscores here."""
        configs = {key.replace("_", "."): value for key, value in settings.items()}
        made = self.call(requests.create_topic(name, partitions, settings=configs))
        assert made.topics[0].error_code == 0
        wait_until(lambda: self.call(requests.metadata(name)).topics[0].error_code == 0)

    def resident_bytes(self) -> int:
        """The memory of the process now."""
        return self._status("VmRSS")

    def processor_s(self) -> float:
        """The processor time that the process has used, in seconds."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii")
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

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
        self.longest_work_s = 0.0
        """The most of the shorter of a round's time and the broker's processor time in it."""

    def __enter__(self) -> Others:
        self._thread.start()
        wait_until(lambda: self.rounds > 10 or self._error is not None)
        self.longest_s = self.longest_work_s = 0.0
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
            longest = f"longest {self.longest_s:.3f} s (work {self.longest_work_s:.3f} s)"
            sys.stdout.write(f"others: {self.rounds} rounds, {longest}, grown {grown >> 20} MiB\n")
            assert self.longest_work_s < OTHERS_WAIT_S
            assert self.longest_s < OTHERS_STALL_S
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
                        began, worked = time.monotonic(), self._broker.processor_s()
                        write = requests.produce("steady", message_set, version=3)
                        (part,) = answer_of(connection, write).topics[0].partitions
                        assert part.error_code == 0, part
                        read = requests.fetch("steady", part.base_offset, version=4)
                        (found,) = answer_of(connection, read).topics[0].partitions
                        assert found.error_code == 0, found
                        took, work = time.monotonic() - began, self._broker.processor_s() - worked
                        self.longest_s = max(self.longest_s, took)
                        self.longest_work_s = max(self.longest_work_s, min(took, work))
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


def frame_of(request: requests.Request, correlation_id: int = 1) -> bytes:
    """The bytes on the wire."""
    header = RequestHeader(int(request.key), request.version, correlation_id, "attacker")
    parts: list[Part] = [header.encode(), *APIS[request.key].encode_request(request.version, request.body)]
    return join(encode_frame(parts))


@contextlib.contextmanager
def asking(
    broker: AttackedBroker, request: requests.Request, connections: int
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


def answer_of(connection: SocketConnection, request: requests.Request) -> Any:
    """The response to ``request``."""
    header = RequestHeader(int(request.key), request.version, next(CORRELATION_IDS), "other")
    api = APIS[ApiKey(request.key)]
    parts: list[Part] = [header.encode(), *api.encode_request(request.version, request.body)]
    frame = connection.request(parts).result(int(PATIENCE_S * 1000))
    correlation_id, body = split_response(frame, api.has_tagged_response_header(request.version))
    assert correlation_id == header.correlation_id
    return api.decode_response(request.version, body)


def read_answer(sock: socket.socket, request: requests.Request) -> Any:
    """The response to ``request``, which was sent by hand."""
    (size,) = struct.unpack(">i", read_exactly(sock, 4))
    return response_of(read_exactly(sock, size), request.key, request.version)


def response_of(frame: bytes, key: ApiKey, version: int) -> Any:
    """The response in a frame, without the frame's size."""
    api = APIS[ApiKey(key)]
    _, body = split_response(memoryview(bytearray(frame)), api.has_tagged_response_header(version))
    return api.decode_response(version, body)


def read_exactly(sock: socket.socket, size: int) -> bytes:
    """So many bytes."""
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        assert more, "the broker has closed the connection"
        data += more
    return data


@cache
def large_batch(codec: Codec) -> bytes:
    """A batch of a few kilobytes (lz4 and snappy: more) that holds one record of 127 MiB of zeros."""
    return build_message_set([Record(None, bytes(LARGE_CONTENT_BYTES), 1)], magic=2, codec=codec)

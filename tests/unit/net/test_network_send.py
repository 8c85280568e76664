"""Sending parts of frames to sockets."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from minikafka.base.errors import StorageError
from minikafka.base.files import File, FileSlice, RealFiles
from minikafka.base.memory_files import MemoryFiles
from minikafka.net import network_send
from minikafka.net.network_send import MeteredSend, NetworkSend, peer_name
from minikafka.wire.frame_parts import LazyPart, Part, join


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        one.setblocking(False)
        other.setblocking(False)
        yield one, other


@pytest.fixture
def file(tmp_path: Path) -> Iterator[File]:
    file = RealFiles().open(str(tmp_path / "file"), create=True)
    file.write_at(0, os.urandom(1 << 20))
    yield file
    file.close()


def pump(outgoing: NetworkSend, pair: tuple[socket.socket, socket.socket], most: int) -> bytes:
    """Write and read in turn, at most ``most`` bytes a read; return the bytes."""
    one, other = pair
    received = bytearray()
    while not outgoing.done:
        written = outgoing.write(one)
        while written > 0:
            data = other.recv(most)
            received += data
            written -= len(data)
    return bytes(received)


@pytest.mark.parametrize("sendfile", [True, False])
def test_memory_and_slices_arrive_in_order(
    pair: tuple[socket.socket, socket.socket], file: File, monkeypatch: pytest.MonkeyPatch, sendfile: bool
) -> None:
    monkeypatch.setattr(network_send, "HAS_SENDFILE", sendfile and network_send.HAS_SENDFILE)
    parts: list[Part] = [b"a", b"", FileSlice(file, 5, 0), FileSlice(file, 1, 700_000), bytearray(b"b")]
    parts += [memoryview(b"c" * 300_000), FileSlice(file, 0, 3), FileSlice(file, 9, 400_000)]
    assert pump(NetworkSend(parts), pair, 10_000) == join(parts)


def test_more_pieces_than_one_call_takes_arrive_in_order(pair: tuple[socket.socket, socket.socket]) -> None:
    parts: list[Part] = [str(number).encode() * (number % 40) for number in range(3000)]
    assert pump(NetworkSend(parts), pair, 777) == join(parts)


def test_slices_of_files_in_memory_are_read(pair: tuple[socket.socket, socket.socket]) -> None:
    file = MemoryFiles().open("f", create=True)
    file.write_at(0, b"0123456789")
    assert pump(NetworkSend([FileSlice(file, 2, 5)]), pair, 100) == b"23456"


class Encrypted:
    """A transport whose socket has room for some bytes in each call; others are encrypted already.

    Those that wait for the socket must come again.
    """

    def __init__(self, rooms: Iterator[int]) -> None:
        self.received = bytearray()
        self.sizes: list[int] = []
        self._rooms = rooms
        self._encrypted = b""

    def send(self, data: memoryview) -> int:
        assert data[: len(self._encrypted)] == self._encrypted
        room = next(self._rooms)
        sent, self._encrypted = data[:room], bytes(data[room : room + 10_000])
        self.sizes.append(len(data))
        if not sent:
            raise BlockingIOError
        self.received += sent
        return len(sent)


def send_all(parts: list[Part], transport: Encrypted) -> None:
    """Send ``parts``, and prepare lazy ones as a processor does."""
    outgoing = NetworkSend(parts)
    while not outgoing.done:
        outgoing.write(transport)
        if outgoing.waits_for is not None:
            outgoing.waits_for.prepare(lambda: None)
    outgoing.close()


@pytest.mark.parametrize("seed", range(20))
def test_encrypted_pieces_are_offered_again_until_they_are_taken(file: File, seed: int) -> None:
    random = Random(seed)
    in_memory = MemoryFiles().open("f", create=True)
    in_memory.write_at(0, random.randbytes(100_000))

    def part() -> Part:
        size = random.choice([1, 100, 5_000, 300_000])
        start = random.randrange(90_000)
        return random.choice(
            [
                random.randbytes(size),
                bytearray(random.randbytes(size)),
                memoryview(random.randbytes(size)),
                FileSlice(file, start, size),
                FileSlice(in_memory, start, min(size, 10_000)),
                Made([random.randbytes(size), random.randbytes(7)]),
            ]
        )

    parts = [part() for _ in range(random.randrange(1, 30))]
    expected = join(parts)
    transport = Encrypted(iter(lambda: random.choice([0, 1, 1_000, 300_000]), None))
    send_all(parts, transport)
    assert transport.received == expected
    assert max(transport.sizes) <= 256 * 1024


def test_small_pieces_and_files_share_an_encrypted_piece(file: File) -> None:
    transport = Encrypted(itertools.repeat(1 << 20))
    parts: list[Part] = [b"head", FileSlice(file, 0, 1_000), b"middle", FileSlice(file, 5, 70_000)]
    send_all(parts, transport)
    assert transport.sizes == [71_010]


def test_call_ends_when_an_encrypted_connection_takes_a_part_of_a_piece() -> None:
    transport = Encrypted(iter([1 << 20, 1_000, 0]))
    outgoing = NetworkSend([bytes(2 << 20)])
    assert outgoing.write(transport) == (256 << 10) + 1_000
    assert outgoing.write(transport) == 0


def test_file_that_shrinks_between_two_offers_is_an_error(tmp_path: Path) -> None:
    file = RealFiles().open(str(tmp_path / "shrinks"), create=True)
    file.write_at(0, bytes(100_000))
    outgoing = NetworkSend([FileSlice(file, 0, 100_000)])
    transport = Encrypted(iter([60_000]))
    assert outgoing.write(transport) == 60_000
    file.truncate(50_000)
    with pytest.raises(StorageError, match="ends too early: expected 40000 bytes at position 60000"):
        outgoing.write(transport)
    file.close()


def test_nothing_is_sent_beside_the_encryption_of_a_socket() -> None:
    ours, theirs = socket.socketpair()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with (
        theirs,
        context.wrap_socket(ours, do_handshake_on_connect=False, server_hostname="x") as wrapped,
        pytest.raises(AssertionError, match="encryption"),
    ):
        NetworkSend([b"secret"]).write(wrapped)


@pytest.mark.parametrize("sendfile", [True, False])
def test_a_file_that_ends_too_early_is_an_error(
    pair: tuple[socket.socket, socket.socket], file: File, monkeypatch: pytest.MonkeyPatch, sendfile: bool
) -> None:
    monkeypatch.setattr(network_send, "HAS_SENDFILE", sendfile and network_send.HAS_SENDFILE)
    outgoing = NetworkSend([FileSlice(file, (1 << 20) - 10, 11)])
    with pytest.raises(StorageError, match="ends too early: expected 1 bytes"):
        outgoing.write(pair[0])


def test_a_closed_file_is_an_error_and_not_another_files_bytes(
    pair: tuple[socket.socket, socket.socket], file: File
) -> None:
    outgoing = NetworkSend([FileSlice(file, 0, 100)])
    file.close()
    with pytest.raises(StorageError):
        outgoing.write(pair[0])


def test_one_turn_does_not_go_on_for_ever(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_send, "TURN_BYTES", 10)
    outgoing = NetworkSend([bytes(7)] * 200)
    outgoing.write(pair[0])
    assert not outgoing.done


def test_closed_send_is_done(pair: tuple[socket.socket, socket.socket]) -> None:
    outgoing = NetworkSend([bytes(10)])
    outgoing.close()
    outgoing.close()
    assert outgoing.done
    assert outgoing.write(pair[0]) == 0


def test_peers_are_named_as_users_write_them() -> None:
    assert peer_name(("10.0.0.1", 9092)) == ("10.0.0.1", "10.0.0.1:9092")
    assert peer_name(("::1", 9092, 0, 0)) == ("::1", "[::1]:9092")
    assert peer_name("") == ("local", "local")


class Made(LazyPart):
    """A lazy part whose pieces are made when they are requested."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.length = sum(map(len, pieces))
        self.pieces = pieces
        self.is_ready = False
        self.closed = False

    def ready(self) -> memoryview | None:
        return memoryview(self.pieces[0]) if self.is_ready else None

    def prepare(self, done: Callable[[], None]) -> None:
        self.is_ready = True
        done()

    def sent(self, count: int) -> None:
        self.length -= count
        self.pieces[0] = self.pieces[0][count:]
        if not self.pieces[0]:
            self.pieces.pop(0)
            self.is_ready = False

    def close(self) -> None:
        self.closed = True

    def read(self) -> bytes:
        return b"".join(self.pieces)

    def cut(self, length: int) -> None:
        raise NotImplementedError


def test_lazy_part_is_awaited_piece_by_piece(pair: tuple[socket.socket, socket.socket], file: File) -> None:
    lazy = Made([b"x" * 100, b"y" * 300_000, b"z"])
    parts: list[Part] = [b"a", lazy, FileSlice(file, 1, 7), b"b"]
    wanted = join(parts)
    outgoing = NetworkSend(parts)
    one, other = pair
    received, waits = b"", 0
    while not outgoing.done:
        outgoing.write(one)
        with contextlib.suppress(BlockingIOError):
            received += other.recv(1 << 20)
        if outgoing.waits_for is not None:
            assert outgoing.waits_for is lazy
            waits += 1
            lazy.prepare(lambda: None)
    while len(received) < len(wanted):
        received += other.recv(1 << 20)
    assert received == wanted
    assert waits == 3
    assert lazy.closed


def test_closing_a_send_closes_its_lazy_parts() -> None:
    lazy = Made([b"x"])
    NetworkSend([b"a", lazy]).close()
    assert lazy.closed


def test_the_time_to_send_is_told_once_at_the_end(pair: tuple[socket.socket, socket.socket]) -> None:
    class Meter:
        told: list[int] = []  # noqa: RUF012 - one test

        def timed(self, steps: Iterator[int]) -> Iterator[int]:
            raise NotImplementedError

        def sent(self, nanoseconds: int) -> None:
            self.told.append(nanoseconds)

    meter = Meter()
    outgoing = MeteredSend([b"x" * 2_000_000], meter)
    assert pump(outgoing, pair, 1 << 16) == b"x" * 2_000_000
    assert meter.told == []
    outgoing.close()
    outgoing.close()
    assert len(meter.told) == 1
    assert meter.told[0] > 0

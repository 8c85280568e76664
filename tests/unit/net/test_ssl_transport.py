"""The transport over TLS: its limits for clients, and the bytes that both ends get."""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import socket
import ssl
import struct
import termios
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from minikafka.base.errors import RemoteWireError
from minikafka.net.network_send import TlsFailed
from minikafka.net.ssl_transport import PIECE_BYTES, SslTransport
from minikafka.net.tls import ServerTls, client_context
from tests.support.network import HOST
from tests.support.tls import authority, broker_tls, client_tls
from tests.support.tls_records import KEY_UPDATE_BYTES, ClientRecords, hello_requests, renegotiations

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
STRANGERS_SHARE = 4_096
LARGEST_RECORD = 16_645
WASTE = 2 * LARGEST_RECORD


def shaken(*ends: SslTransport) -> None:
    """Do the handshakes of ``ends`` with each other."""
    open_ends = list(ends)
    while open_ends:
        end = open_ends.pop(0)
        try:
            end.handshake()
        except BlockingIOError:
            open_ends.append(end)


@contextlib.contextmanager
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for end in (ours, theirs):
            end.setblocking(False)
        yield ours, theirs


@dataclass
class Pair:
    """A server's end, its client, and their sockets."""

    server: SslTransport
    client: SslTransport
    server_socket: socket.socket
    client_socket: socket.socket
    read: bytearray = field(default_factory=bytearray)
    turns: list[int] = field(default_factory=lambda: [0])
    """The encrypted bytes that were taken in each turn of reads."""

    @property
    def unread_bytes(self) -> int:
        """The encrypted bytes that the server's end has not taken from its socket."""
        found = fcntl.ioctl(self.server_socket, termios.FIONREAD, bytes(4))
        return int(struct.unpack("i", found)[0])

    def read_once(self, size: int = 4_096) -> int:
        """Call ``recv_into`` of the server's end. Return the encrypted bytes that it took."""
        before, space = self.unread_bytes, memoryview(bytearray(size))
        ended = []
        try:
            self.read += space[: self.server.recv_into(space)]
        except BlockingIOError:
            ended = [0]
        taken = before - self.unread_bytes
        self.turns[-1] += taken
        self.turns += ended
        return taken

    def read_all(self, taken: list[int] | None = None, size: int = 4_096) -> None:
        """Read until nothing is left; append to ``taken`` what each call took."""
        while self.unread_bytes or self.server.is_pending():
            count = self.read_once(size)
            if taken is not None:
                taken.append(count)


@contextlib.contextmanager
def connected(client: ssl.SSLContext, outgoing: ssl.MemoryBIO | None = None) -> Iterator[Pair]:
    with sockets() as (ours, theirs):
        server = SslTransport(ours, ServerTls(broker_tls()).context, outgoing=outgoing)
        pair = Pair(server, SslTransport(theirs, client, HOST), ours, theirs)
        shaken(pair.client, pair.server)
        yield pair


@pytest.fixture
def context() -> ssl.SSLContext:
    return client_context(client_tls())


@pytest.fixture
def pair(context: ssl.SSLContext) -> Iterator[Pair]:
    with connected(context) as pair:
        yield pair


@dataclass
class ByHand:
    """A client whose records the test makes."""

    pair: Pair
    records: ClientRecords

    def send(self, data: bytes) -> None:
        """Send all that the socket's buffer has room for, which is more than a test needs."""
        assert self.pair.client_socket.send(data) == len(data)

    @property
    def server(self) -> SslTransport:
        return self.pair.server


@pytest.fixture
def by_hand(context: ssl.SSLContext, tmp_path: Path) -> Iterator[ByHand]:
    key_log = tmp_path / "keys"
    context.keylog_filename = str(key_log)
    with connected(context) as pair:
        yield ByHand(pair, ClientRecords(key_log))


def drained(transport: SslTransport, size: int = 65_536) -> bytes:
    """Return what has arrived."""
    data, space = bytearray(), memoryview(bytearray(size))
    for _ in range(10):  # a share may have no data, and a turn may end
        with contextlib.suppress(BlockingIOError):
            while count := transport.recv_into(space):
                data += space[:count]
    return bytes(data)


# The limits of the work that a client causes.


def test_strangers_key_updates_are_taken_in_small_shares_and_then_refused(by_hand: ByHand) -> None:
    by_hand.send(by_hand.records.key_updates(3_000))
    taken: list[int] = []
    with pytest.raises(
        RemoteWireError, match=r"^it sent \d+ bytes of TLS without data, such as key updates$"
    ):
        by_hand.pair.read_all(taken)
    assert max(taken) == STRANGERS_SHARE
    assert WASTE < sum(taken) <= WASTE + STRANGERS_SHARE
    assert by_hand.pair.unread_bytes


def test_stranger_cannot_hide_key_updates_between_bytes_of_data(by_hand: ByHand) -> None:
    records = by_hand.records
    by_hand.send(b"".join(records.key_updates(20) + records.data(b"x") for _ in range(150)))
    taken: list[int] = []
    with pytest.raises(RemoteWireError, match="without data"):
        by_hand.pair.read_all(taken)
    assert max(taken) <= STRANGERS_SHARE
    assert 0 < len(by_hand.pair.read) < 100


def test_others_are_served_between_key_updates_of_a_known_client(by_hand: ByHand) -> None:
    by_hand.server.is_stranger = False
    records = by_hand.records
    by_hand.send(b"".join(records.data(b"d" * 4_000) for _ in range(10)))
    by_hand.pair.read_all()
    by_hand.send(b"".join(records.key_updates(100) + records.data(b"x") for _ in range(40)))
    by_hand.pair.turns[:] = [0]
    by_hand.pair.read_all()
    assert by_hand.pair.read == b"d" * 40_000 + b"x" * 40
    assert max(by_hand.pair.turns) <= LARGEST_RECORD + 2 * STRANGERS_SHARE


def test_others_are_served_between_records_of_a_byte(by_hand: ByHand) -> None:
    by_hand.server.is_stranger = False
    by_hand.send(b"".join(by_hand.records.data(b"x") for _ in range(5_000)))
    by_hand.pair.read_all()
    assert by_hand.pair.read == b"x" * 5_000
    assert max(by_hand.pair.turns) <= 2 * LARGEST_RECORD


def test_known_client_that_sends_no_data_is_refused(by_hand: ByHand) -> None:
    by_hand.server.is_stranger = False
    by_hand.send(by_hand.records.data(b"hello") + by_hand.records.key_updates(3_000))
    with pytest.raises(RemoteWireError, match="without data"):
        by_hand.pair.read_all()
    assert by_hand.pair.read == b"hello"


@pytest.mark.parametrize("is_stranger", [True, False])
def test_key_updates_among_much_data_are_harmless(by_hand: ByHand, is_stranger: bool) -> None:
    by_hand.server.is_stranger = is_stranger
    for _ in range(300):
        by_hand.send(by_hand.records.key_update() + by_hand.records.data(b"d" * 1_000))
        by_hand.send(b"".join(by_hand.records.data(b"%d" % number) for number in range(10)))
        by_hand.pair.read += drained(by_hand.server)
    assert len(by_hand.pair.read) == 300 * 1_010


def test_one_byte_in_each_record_is_no_waste(by_hand: ByHand) -> None:
    for _ in range(5):
        by_hand.send(b"".join(by_hand.records.data(b"x") for _ in range(1_000)))
        by_hand.pair.read += drained(by_hand.server)
    assert by_hand.pair.read == b"x" * 5_000


def test_largest_records_need_no_second_share_once_a_client_is_known(by_hand: ByHand) -> None:
    by_hand.server.is_stranger = False
    content = os.urandom(16_384)
    by_hand.send(b"".join(by_hand.records.data(content) for _ in range(8)))
    sizes: list[int] = []
    by_hand.pair.read_all(sizes, 1 << 20)
    assert by_hand.pair.read == content * 8
    assert STRANGERS_SHARE in sizes
    assert max(sizes) == 2 * LARGEST_RECORD


def test_client_that_reads_no_answers_to_its_key_updates_is_not_read(by_hand: ByHand) -> None:
    server, records = by_hand.server, by_hand.records
    server.is_stranger = False
    by_hand.pair.server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    flood = b"".join(
        records.key_updates(36, is_asked_back=True) + records.data(b"d" * 1_000) for _ in range(80)
    )
    by_hand.send(flood)
    for _ in range(300):
        by_hand.pair.read_once()
    assert server.reader_wants == WRITE
    left = by_hand.pair.unread_bytes
    assert left
    by_hand.pair.read_once()
    assert by_hand.pair.unread_bytes == left
    answers = 0
    while by_hand.pair.unread_bytes or server.is_pending():
        with contextlib.suppress(BlockingIOError):
            answers += len(by_hand.pair.client_socket.recv(1 << 20))
        by_hand.pair.read_once()
    assert len(by_hand.pair.read) == 80_000
    assert answers > 50 * 36 * KEY_UPDATE_BYTES


@contextlib.contextmanager
def connected_by_1_2(key_log: Path) -> Iterator[tuple[Pair, bytes]]:
    """Both ends of a connection with TLS 1.2, and the first bytes that the server has sent."""
    context = client_context(client_tls(enabled_protocols="TLSv1.2"))
    context.keylog_filename = str(key_log)
    with sockets() as (ours, theirs):
        ends = [SslTransport(theirs, context, HOST), SslTransport(ours, ServerTls(broker_tls()).context)]
        for end in ends:
            with contextlib.suppress(BlockingIOError):
                end.handshake()
        server_hello = theirs.recv(100, socket.MSG_PEEK)
        shaken(*ends)
        yield Pair(ends[1], ends[0], ours, theirs), server_hello


def test_refused_renegotiations_without_end_end_the_connection(tmp_path: Path) -> None:
    with connected_by_1_2(tmp_path / "keys") as (pair, server_hello):
        pair.client_socket.send(renegotiations(tmp_path / "keys", server_hello, 1_500))
        taken = list[int]()
        with pytest.raises(RemoteWireError, match="without data"):
            pair.read_all(taken)
        assert max(taken) == STRANGERS_SHARE


def test_client_that_is_asked_to_renegotiate_goes_on_sending(tmp_path: Path) -> None:
    with connected_by_1_2(tmp_path / "keys") as (pair, server_hello):
        pair.server_socket.send(hello_requests(tmp_path / "keys", server_hello, 3))
        assert drained(pair.client) == b""
        assert pair.client.send(memoryview(b"hello")) == 5  # in a renegotiation it would wait to receive


# The bytes, and the end, that both sides get.


def test_data_comes_before_the_close_that_arrived_with_it(pair: Pair) -> None:
    assert pair.client.send(memoryview(b"the last words")) == 14
    pair.client.shutdown(socket.SHUT_WR)
    space = memoryview(bytearray(100))
    assert bytes(space[: pair.server.recv_into(space)]) == b"the last words"
    assert pair.server.is_pending()
    assert pair.server.recv_into(space) == 0


def test_data_comes_before_the_failure_that_arrived_with_it(by_hand: ByHand) -> None:
    good, damaged = by_hand.records.data(b"first"), bytearray(by_hand.records.data(b"second"))
    damaged[-1] ^= 1
    by_hand.send(good + damaged)
    space = memoryview(bytearray(100))
    assert by_hand.server.recv_into(space) == len(b"first")
    assert by_hand.server.is_pending()
    for _ in range(2):
        with pytest.raises(TlsFailed, match="TLS failed: "):
            by_hand.server.recv_into(space)


def test_cut_is_an_end(pair: Pair) -> None:
    pair.client_socket.shutdown(socket.SHUT_WR)
    assert pair.server.recv_into(memoryview(bytearray(100))) == 0


def test_incomplete_record_is_not_pending(by_hand: ByHand) -> None:
    record = by_hand.records.data(b"hello")
    for byte in record[:-1]:
        by_hand.send(bytes([byte]))
        by_hand.pair.read_once()
        assert not by_hand.server.is_pending()
        assert by_hand.server.reader_wants == READ
    by_hand.send(record[-1:])
    assert drained(by_hand.server) == b"hello"


def test_reads_of_any_size_give_the_same_bytes(pair: Pair) -> None:
    content = os.urandom(50_000)
    assert pair.client.send(memoryview(content)) == len(content)
    received, size = bytearray(), 1
    while len(received) < len(content):
        space = memoryview(bytearray(size))
        with contextlib.suppress(BlockingIOError):
            received += space[: pair.server.recv_into(space)]
        size = size * 3 % 7_919
    assert received == content
    assert not pair.server.is_pending()


def test_both_ends_send_while_no_socket_has_room(pair: Pair) -> None:
    ends = [(pair.server, pair.client), (pair.client, pair.server)]
    contents = [os.urandom(3_000_000), os.urandom(3_000_000)]
    sent, received = [0, 0], [bytearray(), bytearray()]
    blocked = 0
    while any(len(got) < len(content) for got, content in zip(received, contents, strict=True)):
        for number, (end, peer) in enumerate(ends):
            while sent[number] < len(contents[number]):
                try:
                    sent[number] += end.send(memoryview(contents[number])[sent[number] :])
                except BlockingIOError:
                    blocked += 1
                    assert end.writer_wants == WRITE
                    break
            received[number] += drained(peer, 100_000)
    assert received == contents
    assert blocked


def test_server_sends_after_the_rest_of_a_split_key_update(by_hand: ByHand) -> None:
    server, (first, rest) = by_hand.server, by_hand.records.split_key_update()
    by_hand.send(first)
    by_hand.pair.read_once()
    answer, request = memoryview(b"answer"), by_hand.records.data(b"next")
    for part in (b"", rest[:10]):
        by_hand.send(part)
        with pytest.raises(BlockingIOError):
            server.send(answer)
        assert server.writer_wants == READ
        assert not by_hand.pair.unread_bytes
    by_hand.send(rest[10:] + request)
    assert server.send(answer) == len(answer)
    assert drained(by_hand.pair.client) == answer
    assert server.is_pending()
    assert drained(server) == b"next"


def test_half_a_key_update_and_an_end_break_the_connection(by_hand: ByHand) -> None:
    by_hand.send(by_hand.records.split_key_update()[0])
    by_hand.pair.read_once()
    by_hand.pair.client_socket.shutdown(socket.SHUT_WR)
    with pytest.raises(BrokenPipeError, match="the peer closed the connection"):
        by_hand.server.send(memoryview(b"answer"))


def test_what_waits_for_a_socket_is_at_most_a_piece_and_is_encrypted_once(pair: Pair) -> None:
    content = memoryview(os.urandom(4 << 20))
    sent = pair.server.send(content)
    assert 0 < sent < len(content)
    assert len(pair.server._unsent) <= PIECE_BYTES + 100
    waiting = bytes(pair.server._unsent)
    for _ in range(3):
        with pytest.raises(BlockingIOError):
            pair.server.send(content[sent : sent + PIECE_BYTES])
    assert bytes(pair.server._unsent) == waiting
    assert drained(pair.client)[:sent] == content[:sent]
    assert pair.server.send(content[sent : sent + PIECE_BYTES]) == PIECE_BYTES


def test_connections_that_share_memory_keep_their_bytes_apart(context: ssl.SSLContext) -> None:
    outgoing = ssl.MemoryBIO()
    contents = [os.urandom(2_000_000), os.urandom(2_000_000)]
    with connected(context, outgoing) as first, connected(context, outgoing) as second:
        pairs, sent, received = [first, second], [0, 0], [bytearray(), bytearray()]
        while received != contents:
            for number, pair in enumerate(pairs):
                with contextlib.suppress(BlockingIOError):
                    rest = memoryview(contents[number])[sent[number] :]
                    sent[number] += pair.server.send(rest)
                assert not outgoing.pending
                received[number] += drained(pair.client)
        first.server.shutdown(socket.SHUT_WR)
        assert not outgoing.pending


def test_after_the_end_nothing_reaches_the_socket(pair: Pair) -> None:
    pair.server.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionAbortedError):
        pair.server.send(memoryview(b"hello"))
    with pytest.raises(ConnectionAbortedError):
        pair.server.recv_into(memoryview(bytearray(10)))
    assert not pair.server.is_pending()
    assert pair.client.recv_into(memoryview(bytearray(10))) == 0
    assert pair.client_socket.recv(10) == b""


def test_the_broker_is_asked_for_its_certificate_without_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def presented(sock: socket.socket, host: str) -> None:
        asked.append(host)
        assert not client.is_pending(), "it takes the lock"

    monkeypatch.setattr("minikafka.net.ssl_transport.presented_certificate", presented)
    with sockets() as (ours, theirs):
        server = SslTransport(ours, ServerTls(broker_tls()).context)
        client = SslTransport(theirs, client_context(client_tls(ca=authority("strangers"))), HOST)
        with pytest.raises(TlsFailed, match="not trusted"):
            shaken(client, server)
        with pytest.raises(TlsFailed, match="the client does not trust"):
            server.handshake()
    assert asked == [HOST]

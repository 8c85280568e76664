"""Sending a log: slices of 1 MiB from the page cache to a TCP connection, in bytes a second of one core.

    MINIKAFKA_KAFKA_LIBS=DIR python benchmarks/log_read.py [--runs N] [--log-mb MB] [--passes N]

Ours is ``Log.read`` and ``net.network_send.Outgoing`` (``sendfile``), a slice after the other as a consumer
asks for them, on a non-blocking socket that is waited for as in the broker. The peer is ``Log.read`` and
``FileMessageSet.writeTo`` of 0.10.1.1 on the same files, with a selector. Both send over the loopback to the
same process, which throws away what comes without copying it (``MSG_TRUNC``, on Linux), so that the sender is
what is measured. The goal, 1.5 GB/s of one core, is for the sender's processor time; the wall stands beside
it, and needs a second core for the receiver. Before anything is timed, the receiver computes a checksum of
all that either side sends. GB are 10^9 bytes.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import shutil
import socket
import struct
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import log_common as common

from minikafka.log.config import LogConfig
from minikafka.log.log import Log
from minikafka.log.recovery.log_loader import LoadHints
from minikafka.net.network_send import NetworkSend

CHECK, DROP = b"c", b"d"
_TOLD = struct.Struct(">qq")
"""Bytes that came, and their CRC-32 (0 when they were dropped)."""

FIGURES = [
    common.Figure("GB/s of one core of the sender", "GB/s", 1.5),
    common.Figure("GB/s by the wall", "GB/s"),
]


def drain(ready: Connection) -> None:
    """Take one connection after the other and tell what came, until the parent is gone."""
    buffer = bytearray(1 << 20)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ready.send(listener.getsockname()[1])
        while True:
            connection, _ = listener.accept()
            with connection:
                check = connection.recv(1) == CHECK
                flags = 0 if check else getattr(socket, "MSG_TRUNC", 0)
                count = crc = 0
                while size := connection.recv_into(buffer, len(buffer), flags):
                    count += size
                    if check:
                        crc = zlib.crc32(memoryview(buffer)[:size], crc)
                connection.sendall(_TOLD.pack(count, crc))


@contextmanager
def receiver() -> Iterator[int]:
    """A process that drains; its port."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=drain, args=(there,), daemon=True)
    process.start()
    there.close()
    try:
        yield int(here.recv())
    finally:
        process.kill()
        process.join()


def send(log: Log, slice_bytes: int, port: int, passes: int, mode: bytes) -> dict[str, float]:
    """Send the whole log ``passes`` times."""
    message_bytes = common.message_bytes()
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(mode)
        sock.setblocking(False)
        writable = select.poll()
        writable.register(sock, select.POLLOUT)
        sent = 0
        watch = common.Stopwatch()
        for _ in range(passes):
            offset, end = log.start_offset, log.end_offset
            while offset < end:
                found = log.read(offset, slice_bytes)
                assert found.slice is not None
                outgoing = NetworkSend([found.slice])
                outgoing.write(sock)
                while not outgoing.done:
                    writable.poll()
                    outgoing.write(sock)
                sent += found.size_bytes
                offset += found.size_bytes // message_bytes
        sock.shutdown(socket.SHUT_WR)
        sock.setblocking(True)
        came, crc = _TOLD.unpack(sock.recv(_TOLD.size, socket.MSG_WAITALL))
        cpu_s, wall_s = watch.read()
    return {"cpu_s": cpu_s, "wall_s": wall_s, "sent": sent, "came": came, "crc": crc}


def figures(found: dict[str, float]) -> common.Figures:
    """Return the figures of a run."""
    assert found["sent"] == found["came"]
    values = (found["sent"] / found["cpu_s"] / 1e9, found["sent"] / found["wall_s"] / 1e9)
    return dict(zip((figure.name for figure in FIGURES), values, strict=True))


def linked(path: Path, copy: Path) -> None:
    """The same segments once more, with indexes of their own: the peer resizes those of the newest."""
    copy.mkdir(parents=True)
    for name in os.listdir(path):
        (os.link if name.endswith(".log") else shutil.copy)(path / name, copy / name)


@contextmanager
def sides(bench: common.Bench) -> Iterator[tuple[common.Run, common.Run | None]]:
    """Make the log, and check what is sent."""
    options, peer = bench.options, bench.peer
    path, copy = bench.directory / "ours" / "run-0", bench.directory / "peer" / "run-0"
    log = common.open_log(path, LogConfig(segment_bytes=options.segment_mb))
    common.fill(log, common.message_sets(64), options.log_mb)
    log.close()
    common.write_back()
    linked(path, copy)
    common.mark_clean(copy.parent)
    log = common.open_log(path, log.config, LoadHints(clean=True))
    with receiver() as port:
        checked = send(log, options.slice_kb << 10, port, 1, CHECK)
        whole = zlib.crc32(b"".join(data for _, data in common.tree_of(path)))
        assert checked["came"] == checked["sent"] >= log.size_bytes
        # With slices of whole messages nothing is sent twice.
        even = send(log, common.message_bytes() << 13, port, 1, CHECK)
        assert (even["came"], even["crc"]) == (log.size_bytes, whole)

        def words(passes: int, mode: bytes) -> list[object]:
            return [copy, options.slice_kb << 10, common.message_bytes(), port, passes, mode.decode()]

        if peer is not None:
            theirs_checked = peer.call("read", *words(1, CHECK))
            assert all(theirs_checked[name] == checked[name] for name in ("sent", "came", "crc"))

        def ours() -> common.Figures:
            return figures(send(log, options.slice_kb << 10, port, options.passes, DROP))

        def theirs() -> common.Figures:
            assert peer is not None
            return figures(peer.call("read", *words(options.passes, DROP)))

        yield ours, theirs if peer else None


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = common.parser(__doc__)
    parser.add_argument("--log-mb", type=common.megabytes, default=1 << 30)
    parser.add_argument("--segment-mb", type=common.megabytes, default=1 << 28)
    parser.add_argument("--slice-kb", type=int, default=1024)
    parser.add_argument("--passes", type=int, default=4, help="times that each run sends the log")
    return common.compare(parser.parse_args(arguments), FIGURES, sides)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

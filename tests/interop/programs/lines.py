"""The protocol of ``tests/interop/driver.py``, for programs in Python."""

from __future__ import annotations

import base64
import queue
import sys
import threading
import traceback
from collections.abc import Iterable
from typing import Any

_printing = threading.Lock()

FAST_HEARTBEAT_MS = 300
"""Members hear of a rebalance with a heartbeat's answer: by default after up to three seconds."""


def show(line: str) -> None:
    """Print a whole line at once."""
    with _printing:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def reply(*words: object) -> None:
    """A line of the answer."""
    show("> " + " ".join(map(str, words)))


def event(member: str, *words: object) -> None:
    """Print an event of a member."""
    show(f"@ {member} " + " ".join(map(str, words)))


def encode(data: bytes | None) -> str:
    """Bytes as a word."""
    return "-" if data is None else "=" + base64.b64encode(data).decode("ascii")


def decode(word: str) -> bytes | None:
    """A word as bytes."""
    return None if word == "-" else base64.b64decode(word[1:])


def headers_of(word: str) -> list[tuple[str, bytes | None]]:
    """Names and values."""
    pairs = [] if word == "-" else [header.split(":") for header in word.split(",")]
    return [((decode(name) or b"").decode(), decode(value)) for name, value in pairs]


def record(
    partition: int,
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]] | None,
) -> str:
    """A record that was received."""
    pairs = ",".join(f"{encode(name.encode())}:{encode(content)}" for name, content in headers or ())
    return f"{partition} {offset} {timestamp_ms} {encode(key)} {encode(value)} {pairs or '-'}"


def numbers(partitions: Iterable[int]) -> str:
    """Partitions as a word."""
    return ",".join(map(str, sorted(partitions))) or "-"


class Member(threading.Thread):
    """A member of a group on a thread of its own. Whoever derives says how to poll, commit and close."""

    def __init__(self, name: str, group: str, topic: str, mode: str) -> None:
        super().__init__(name=name, daemon=True)
        self.group = group
        self.topic = topic
        self.commits = mode == "commits"
        self._asked: queue.Queue[str] = queue.Queue()
        self._done: queue.Queue[BaseException | None] = queue.Queue()

    def subscribe(self) -> None:
        """Begin."""
        raise NotImplementedError

    def poll(self) -> Iterable[str]:
        """Records that came within a tenth of a second."""
        raise NotImplementedError

    def commit(self) -> None:
        """Commit what was polled, and return when it is committed."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave the group."""
        raise NotImplementedError

    def ask(self, what: str) -> None:
        """Have something done between two polls, and wait for it."""
        self._asked.put(what)
        error = self._done.get()
        if error is not None:
            raise error

    def run(self) -> None:
        """Poll, until it is to leave."""
        self.subscribe()
        what = None
        while what != "leave":
            try:
                for line in self.poll():
                    event(self.name, "record", line)
            except Exception as error:  # noqa: BLE001  # the test decides what an error means
                event(self.name, "error", repr(error).replace("\n", " "))
            try:
                what = self._asked.get_nowait()
            except queue.Empty:
                continue
            self._done.put(self._does(what))

    def _does(self, what: str) -> BaseException | None:
        try:
            if what == "commit" or self.commits:
                self.commit()
            if what == "leave":
                event(self.name, "leaving")
                self.close()
        except Exception as error:  # noqa: BLE001  # handed to whoever asked
            return error
        return None


class Client:
    """The common part of the programs."""

    member: type[Member]

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}

    def join(self, name: str, group: str, topic: str, mode: str) -> None:
        """Start a member."""
        self._members[name] = self.member(name, group, topic, mode)
        self._members[name].start()

    def commit(self, name: str) -> None:
        """Have a member commit."""
        self._members[name].ask("commit")

    def leave(self, name: str) -> None:
        """Have a member leave."""
        self._members.pop(name).ask("leave")


def serve(client: Client) -> None:
    """Do what stdin says until it ends."""
    for line in sys.stdin:
        command, *words = line.rstrip("\n").split(" ")
        arguments: list[Any] = list(words)
        if command == "produce":
            arguments[3] = [next(sys.stdin).rstrip("\n").split(" ") for _ in range(int(words[3]))]
        try:
            getattr(client, command)(*arguments)
            show("ok")
        except Exception as error:  # noqa: BLE001  # the test is told
            traceback.print_exc()
            show(f"failed {error!r}".replace("\n", " "))

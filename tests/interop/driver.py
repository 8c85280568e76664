"""Programs of many languages that do what a test tells them with a client library: one protocol for all.

A program (``programs``, ``java``, ``go``) is started with the broker's address and reads a command a line:

    produce TOPIC CODEC MODE N      then N records; answers with their offsets
                                    MODE: default, idempotent, plain
    read TOPIC PARTITION N LEVEL    N records from the partition's start, without a group
                                    LEVEL: read_uncommitted, read_committed
    times TOPIC MS                  for each partition the first offset of that time or later: P OFFSET, -1
    join MEMBER GROUP TOPIC MODE [NAME=VALUE …]
                                    become a member. MODE: commits (when partitions are revoked), plain;
                                    settings: in Java only
    commit MEMBER                   commit what was received so far
    leave MEMBER
    create TOPIC N [NAME=VALUE …]   topics   describe TOPIC   delete TOPIC   config TOPIC
    alter TOPIC NAME=VALUE …        groups   group GROUP

It answers with lines that begin with ``>``, and at last ``ok`` or ``failed WHY``. Whenever a member is given
or loses partitions or gets a record, a line ``@ MEMBER assigned|revoked|record|leaving|error …`` comes in
between, in the order in which it happened: so the lines of one program show whether two of its members ever
held the same partition.

Bytes are ``-`` for null, else ``=`` and base64. A record is ``PARTITION [OFFSET] MS KEY VALUE HEADERS``,
headers are ``-`` or ``NAME:VALUE`` joined by commas.
"""

from __future__ import annotations

import base64
import contextlib
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

PATIENCE_S = 120.0
GRACE_S = 10.0

Headers = tuple[tuple[str, bytes | None], ...]


def encode(data: bytes | None) -> str:
    """A word of the protocol."""
    return "-" if data is None else "=" + base64.b64encode(data).decode("ascii")


def decode(word: str) -> bytes | None:
    """Decode a word of the protocol."""
    return None if word == "-" else base64.b64decode(word[1:])


@dataclass(frozen=True, slots=True)
class Message:
    """A record as the clients see it. ``offset`` is -1 before it was sent."""

    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    offset: int = -1

    def line(self) -> str:
        """The record to send."""
        headers = ",".join(f"{encode(name.encode())}:{encode(value)}" for name, value in self.headers)
        return (
            f"{self.partition} {self.timestamp_ms} {encode(self.key)} {encode(self.value)} {headers or '-'}"
        )

    @staticmethod
    def parse(words: Sequence[str]) -> Message:
        """A record that was received."""
        partition, offset, timestamp_ms, key, value, headers = words
        pairs = () if headers == "-" else tuple(header.split(":") for header in headers.split(","))
        return Message(
            int(partition),
            int(timestamp_ms),
            decode(key),
            decode(value),
            tuple(((decode(name) or b"").decode(), decode(content)) for name, content in pairs),
            int(offset),
        )


@dataclass(slots=True)
class Member:
    """The assignment and the received messages of a group member."""

    owned: set[int] = field(default_factory=set)
    records: list[Message] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    was_assigned: bool = False
    rebalances: int = 0
    """The number of assignments that it was given, empty ones too."""


class Refused(AssertionError):
    """The program said that it could not do what it was told."""


class Program:
    """A running program. ``members`` and ``wrongs`` change while it runs; look at them through ``until``."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._said = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  # until close()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            encoding="utf-8",
            env=environment,
        )
        self._changed = threading.Condition()
        self._replies: list[list[str]] = []
        self._outcome: str | None = None
        self._ended = False
        self._joined: set[str] = set()
        self.members: dict[str, Member] = {}
        self.wrongs: list[str] = []
        """What no client may do or see: two owners at once, a record of a partition that is another's."""
        self._reader = threading.Thread(target=self._read, name="program", daemon=True)
        self._reader.start()

    def ask(
        self, *words: object, lines: Iterable[str] = (), patience_s: float = PATIENCE_S
    ) -> list[list[str]]:
        """Tell it to do something, and return the words of each line that it answers."""
        self._replies, self._outcome = [], None
        text = "".join(f"{line}\n" for line in (" ".join(map(str, words)), *lines))
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(text)
        stdin.flush()
        self.until(lambda: self._outcome is not None, f"an answer to {words[0]}", patience_s)
        if self._outcome != "ok":
            raise Refused(f"{' '.join(map(str, words))}: {self._outcome}")
        return self._replies

    @property
    def is_idle(self) -> bool:
        """True if all members have left, and no request has failed."""
        return self._outcome in {None, "ok"} and not self._joined

    def forget(self) -> None:
        """Forget the members that have left."""
        self.members, self.wrongs = {}, []

    def join(self, member: str, group: str, topic: str, mode: str = "plain", *settings: str) -> Member:
        """Make a member of a group."""
        joined = self.members[member] = Member()
        self._joined.add(member)
        self.ask("join", member, group, topic, mode, *settings)
        return joined

    def leave(self, *members: str) -> None:
        """Have members leave, one after the other."""
        for member in members:
            self.ask("leave", member)
            self._joined.discard(member)

    def until(self, condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
        """Wait for what the program says."""
        deadline = time.monotonic() + patience_s
        with self._changed:
            while not condition():
                left_s = deadline - time.monotonic()
                if self._ended or left_s <= 0:
                    raise AssertionError(f"not come: {what}; {self._state()}")
                self._changed.wait(min(left_s, 1.0))

    def until_told(self, asked: Callable[[], bool], what: str, patience_s: float = 20.0) -> None:
        """Ask again until the answer is the wanted one: what a controller does comes a moment later."""
        deadline = time.monotonic() + patience_s
        while not asked():
            if time.monotonic() > deadline:
                raise AssertionError(f"not come within {patience_s:g} s: {what}")

    def close(self) -> None:
        """End it: by itself, when its input ends, or else by force."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with contextlib.suppress(OSError):  # what was not written any more
            stdin.close()
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        stdout.close()
        self._said.close()

    def _state(self) -> str:
        self._said.seek(0)
        members = "".join(
            f"{name} owns {sorted(one.owned)} and has {len(one.records)} records {one.errors}; "
            for name, one in self.members.items()
        )
        return f"{members}it {'has ended' if self._ended else 'runs'} and said: {self._said.read()[-3000:]}"

    def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        for line in stdout:
            with self._changed:
                self._heed(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _heed(self, line: str) -> None:
        kind, _, rest = line.partition(" ")
        if kind == ">":
            self._replies.append(rest.split(" "))
        elif kind in {"ok", "failed"}:
            self._outcome = line
        elif kind == "@":
            name, what, *words = rest.split(" ")
            self._happened(name, self.members.setdefault(name, Member()), what, words)

    def _happened(self, name: str, member: Member, what: str, words: list[str]) -> None:
        if what == "record":
            record = Message.parse(words)
            member.records.append(record)
            if record.partition not in member.owned:
                self.wrongs.append(f"{name} got a record of {record.partition}, which it does not own")
        elif what == "error":
            member.errors.append(" ".join(words))
        elif what == "leaving":
            member.owned.clear()
        else:
            partitions = set() if words == ["-"] else set(map(int, words[0].split(",")))
            if what == "revoked":
                member.owned -= partitions
                return
            member.was_assigned = True
            member.rebalances += 1
            member.owned |= partitions
            for other, one in self.members.items():
                if one is not member and one.owned & partitions:
                    self.wrongs.append(f"{name} is given {one.owned & partitions}, which {other} still owns")

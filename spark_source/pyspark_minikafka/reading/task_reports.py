"""Reports of read tasks to a listener in the user's program: rows, bytes, and times to fetch and decode.

Spark gives a Python source no way to count in its tasks, neither metrics nor accumulators. So each task sends
datagrams (UDP) to the address in its reader's option, which ``MetricsListener.reader_options`` makes::

    TOKEN {"query": ID, "first": true, "ranges": [[TOPIC, PARTITION, ROWS, BYTES, FETCH_NS, …], …]}

A task never fails because of it: a datagram that is lost is not counted. It waits for nothing but the look-up
of the listener's name: at most a second, once in a process, and once a minute if that name is not known. The
token tells the listener's own datagrams from others. They hold names of topics, in the clear.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from minikafka.base.config.types import digits, text_type
from minikafka.base.ids import TopicPartition, host_port

RANGES_MAX = 32
"""The ranges of one datagram: about 10 kB with the longest names of topics."""

RangeTotals = tuple[int, int, int, int, int]
"""Rows, bytes as fetched, nanoseconds to fetch and to decode, and offsets skipped."""


@dataclass(frozen=True, slots=True)
class ReportAddress:
    """The address of a listener. Its text is the value of the option."""

    host: str
    port: int
    token: str

    def __str__(self) -> str:
        return f"{host_port(self.host, self.port)}/{self.token}"


def new_token() -> str:
    """Return a token that nobody guesses."""
    return secrets.token_hex(16)


def _address(text: str) -> ReportAddress:
    address, _, token = text.strip().partition("/")
    host, _, port = address.rpartition(":")
    number = digits(port, 65_535)
    if not (host and token.isalnum() and number):
        raise ValueError
    return ReportAddress(host.removeprefix("[").removesuffix("]"), number, token)


ADDRESS = text_type("HOST:PORT/TOKEN, from reader_options() of a MetricsListener", _address)
"""The type of the option."""


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The report of a task, or a part of it: ``is_first`` of one of them. ``query_id`` is empty for a batch
    query.
    """

    query_id: str
    is_first: bool
    ranges: tuple[tuple[TopicPartition, RangeTotals], ...]


def datagrams(
    token: str, query_id: str, ranges: Iterable[tuple[TopicPartition, RangeTotals]]
) -> Iterator[bytes]:
    """Yield the datagrams about the ranges of a task."""
    left, is_first = iter(ranges), True
    while some := list(islice(left, RANGES_MAX)):
        rows = [[*tp, *totals] for tp, totals in some]
        document = {"query": query_id, "first": is_first, "ranges": rows}
        yield f"{token} {json.dumps(document)}".encode()
        is_first = False


def parse(datagram: bytes, token: str) -> TaskReport | None:
    """Return the report in a datagram; None if it is none of ours."""
    given, _, document = datagram.partition(b" ")
    if not hmac.compare_digest(given, token.encode()):
        return None
    try:
        found = json.loads(document)
        return TaskReport(str(found["query"]), bool(found["first"]), tuple(map(_range, found["ranges"])))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _range(row: Sequence[object]) -> tuple[TopicPartition, RangeTotals]:
    topic, *numbers = row
    partition, rows, bytes_, fetch_ns, decode_ns, skipped = (_number(number) for number in numbers)
    return TopicPartition(str(topic), partition), (rows, bytes_, fetch_ns, decode_ns, skipped)


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError
    return value

"""Lines of the log of a process that serves: one line an event, as text or as JSON.

``log.format`` chooses the form::

    2026-11-27T18:00:00.123Z INFO deleted topic flights (minikafka.server.control)
    {"ts":"2026-11-27T18:00:00.123Z","level":"INFO","logger":"minikafka.server.control","thread":"registrar",
     "broker_id":0,"cluster_id":"…","msg":"deleted topic flights","topic":"flights"}

Times are UTC in both. In text a traceback follows with its lines indented; in JSON it is one string, in the
field ``traceback``. JSON has the ids of an event as fields, which ``fields_of`` finds in the arguments of
usual log calls.

Lines that repeat are counted (``RepeatedLines``): the first ones are written, then at the end of each
interval the last one with the number of those that were not.
"""

from __future__ import annotations

import copy
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from minikafka.base.ids import TopicPartition
from minikafka.base.printable import printable
from minikafka.base.text import counted
from minikafka.base.times import utc_text

LOG_FORMAT = "log.format"


class LogFormat(Enum):
    """The form of log lines: for people, or for programs that collect them."""

    TEXT = "text"
    JSON = "json"

    @classmethod
    def among(cls, properties: Mapping[str, str]) -> LogFormat:
        """Return ``log.format`` of properties that are not validated yet; text if it is not valid."""
        return cls.JSON if properties.get(LOG_FORMAT, "").strip().lower() == "json" else cls.TEXT


_PLACEHOLDER = re.compile(r"%(?:%|[-#0 +]*\d*(?:\.\d+)?[a-zA-Z])")
_NAMED = re.compile(
    r"(?:\b([a-z][a-z0-9_.]*)="
    r"|\b(topic|group|listener|partition|broker|transactional id|connection) (?:from )?)\Z"
)
"""The end of the text before a placeholder that names the value: ``host=%s`` or ``topic %s``."""
_RESERVED = frozenset(
    {"ts", "level", "logger", "thread", "broker_id", "cluster_id", "msg", "repeated", "traceback"}
)


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """Return the ids of an event, by name.

    They are the topic and the number of a TopicPartition or of ``%s-%d``, the ``log_fields`` of an argument
    that has them, and the arguments that the message names as ``host=%s`` or ``topic %s``.
    """
    found: dict[str, object] = {}
    arguments = record.args if isinstance(record.args, tuple) else ()
    for name, value in _named(str(record.msg), arguments):
        if isinstance(value, TopicPartition):
            found.setdefault("topic", value.topic)
            found.setdefault("partition", value.partition)
        elif (fields := getattr(value, "log_fields", None)) is not None:
            found |= fields
        elif name:
            is_plain = value is None or isinstance(value, bool | int | float)
            found.setdefault(name, value if is_plain else str(value))
    return {name: value for name, value in found.items() if name not in _RESERVED}


def _named(template: str, arguments: Sequence[object]) -> Iterator[tuple[str, object]]:
    """Yield each argument of a message with its name there; "" if it has none."""
    left = iter(arguments)
    for placeholder in _PLACEHOLDER.finditer(template):
        if placeholder[0] == "%%":
            continue
        for value in left:
            yield _name_at(template, placeholder.start(), placeholder.end()), value
            break


def _name_at(template: str, start: int, end: int) -> str:
    """Return the name of the value of a placeholder; "" if it has none."""
    if template.startswith("-%d", end):
        return "topic"
    if template.endswith("%s-", 0, start):
        return "partition"
    name = _NAMED.search(template, 0, start)
    return re.sub(r"[ .]", "_", name[1] or name[2]) if name else ""


def _message(record: logging.LogRecord) -> str:
    return str(getattr(record, "held_text", None) or record.getMessage())


def _traceback(record: logging.LogRecord) -> str:
    """Return the traceback of a record, and its stack, or ""."""
    if record.exc_info and not record.exc_text:
        record.exc_text = logging.Formatter().formatException(record.exc_info)
    return "\n".join(text.rstrip("\n") for text in (record.exc_text, record.stack_info) if text)


class LineFormatter(logging.Formatter):
    """Formats a record as one line of text; a traceback follows with each of its lines indented.

    So a line that begins at the margin is a record, whatever a name or an error's text contains.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line, and its traceback if it has one."""
        line = f"{utc_text(int(record.created * 1000))} {record.levelname} {_message(record)} ({record.name})"
        # ``splitlines`` would also split at characters that names may contain.
        lines = [f"  {printable(text)}" for text in _traceback(record).split("\n") if text]
        return "\n".join([printable(line), *lines])


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON, in ASCII. ``identity``: fields of every line."""

    def __init__(self, identity: Mapping[str, object]) -> None:
        super().__init__()
        self._identity = identity

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line."""
        line: dict[str, object] = {
            "ts": utc_text(int(record.created * 1000)),
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName,
            **self._identity,
            "msg": _message(record),
            **fields_of(record),
        }
        if (repeated := getattr(record, "repeated", None)) is not None:
            line["repeated"] = repeated
        if traceback := _traceback(record):
            line["traceback"] = traceback
        return json.dumps(line, separators=(",", ":"), default=str).replace("\x7f", "\\u007f")


@dataclass(slots=True)
class _Held:
    """The lines of one text, or of all further texts of a site, within an interval."""

    written: int = 0
    count: int = 0
    """Those that were not written."""
    last: logging.LogRecord | None = None
    """The last of those."""
    text: str = ""
    """Its message."""


@dataclass(slots=True)
class _Site:
    """The place of a log call, and its lines since ``began_ms``."""

    began_ms: int
    texts: dict[str, _Held] = field(default_factory=dict)
    others: _Held = field(default_factory=_Held)


class RepeatedLines:
    """Counts lines that repeat. Not thread-safe. Times are monotonic, in ms.

    A place in the code may write ``SAME`` lines of one text and ``SIMILAR`` lines of different texts in an
    interval. Of those above it the last one of each text is kept, and is ``due`` at the interval's end, with
    the number of all. ``every_line``: loggers whose lines are all written, by the start of their names.
    """

    INTERVAL_MS = 30_000
    SAME = 3
    SIMILAR = 100
    SITES_MAX = 1_000
    """The most places that are remembered; lines of others are written."""

    def __init__(self, every_line: tuple[str, ...] = ()) -> None:
        self._every_line = every_line
        self._sites: dict[tuple[str, str, int], _Site] = {}

    def admit(self, record: logging.LogRecord, now_ms: int) -> bool:
        """Return True if the line is to be written now."""
        if record.name.startswith(self._every_line):
            return True
        text, place = record.getMessage(), (record.name, record.pathname, record.lineno)
        site = self._sites.get(place)
        if site is None or (now_ms - site.began_ms >= self.INTERVAL_MS and not _holds(site)):
            if site is None and len(self._sites) >= self.SITES_MAX and not self._forget(now_ms):
                return True
            site = self._sites[place] = _Site(now_ms)
        held, most = site.texts.get(text), self.SAME
        if held is None and len(site.texts) < self.SIMILAR:
            held = site.texts[text] = _Held()
        elif held is None:
            held, most = site.others, 0
        if held.written < most:
            held.written += 1
            return True
        held.count += 1
        held.last, held.text = _kept(record), text
        return False

    def due(self, now_ms: int, *, final: bool = False) -> list[logging.LogRecord]:
        """Return the lines that end an interval, oldest first. ``final``: of all that are held."""
        found: list[logging.LogRecord] = []
        for place, site in list(self._sites.items()):
            if not _holds(site) or not (final or now_ms - site.began_ms >= self.INTERVAL_MS):
                continue
            seconds = max(1, round((now_ms - site.began_ms) / 1000))
            texts = site.texts.values()
            found += [_closing(held, f"repeated %s in {seconds} s") for held in texts if held.count]
            if site.others.count:
                found.append(_closing(site.others, f"the last of %s like it in {seconds} s", "line"))
            # Texts that go on to repeat are not written again as if they were new.
            still = {text: _Held(self.SAME) for text, held in site.texts.items() if held.count}
            self._sites[place] = _Site(now_ms, still)
        return sorted(found, key=lambda record: record.created)

    def next_due_ms(self) -> int | None:
        """Return the time at which lines are due; None if none is held."""
        began = [site.began_ms for site in self._sites.values() if _holds(site)]
        return min(began) + self.INTERVAL_MS if began else None

    def _forget(self, now_ms: int) -> bool:
        """Forget the places whose interval has ended. Return True if there is room for another one."""
        self._sites = {
            place: site
            for place, site in self._sites.items()
            if _holds(site) or now_ms - site.began_ms < self.INTERVAL_MS
        }
        return len(self._sites) < self.SITES_MAX


def _holds(site: _Site) -> bool:
    return site.others.count > 0 or any(held.count for held in site.texts.values())


def _kept(record: logging.LogRecord) -> logging.LogRecord:
    """Return a copy that keeps no frames alive."""
    kept = copy.copy(record)
    kept.exc_text = _traceback(record)
    kept.exc_info = kept.stack_info = None
    return kept


def _closing(held: _Held, text: str, noun: str = "time") -> logging.LogRecord:
    record = held.last
    assert record is not None
    record.held_text = f"{held.text} ({text % counted(held.count, noun)})"
    record.repeated = held.count
    return record

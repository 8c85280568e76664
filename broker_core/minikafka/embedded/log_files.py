"""The log files of a data directory's processes, read in the order of time: ``D/logs/NAME.log`` and the older
``NAME.log.1``, ``NAME.log.2``, … (``supervisor`` rotates them).

A line of a broker or of the daemon is text or JSON (``base.log_lines``); one of ZooKeeper is text of log4j.
An entry is such a line with the lines that belong to it. Lines of neither form come from the process itself,
such as the ready line, or what Python or Java print when they crash.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import logging
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from minikafka.base.errors import ConfigError
from minikafka.base.times import parse_time

_LOG_FILE = re.compile(r"(?P<source>[\w.-]+?)\.log(?:\.(?P<age>\d+))?", re.ASCII)
_LINE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) ([A-Z]+) (.*)", re.ASCII | re.DOTALL)
_LOGGER_AT_END = re.compile(r" \(([\w.]+)\)\Z", re.ASCII)
_BELONGS = re.compile(r"\s|Caused by: |[\w.$]+(?:Exception|Error)\b")
"""The begin of a line that belongs to the one before: of a traceback, or of a stack of Java."""
_CHUNK_BYTES = 1 << 16
_LINE_BYTES_MAX = 1 << 20
"""A longer line is cut into several."""

ZOOKEEPER = "zookeeper"
LEVELS = {
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "CRITICAL": logging.CRITICAL,
}


@dataclass(slots=True)
class LogEntry:
    """One event of a log file."""

    source: str
    """The process: ``broker-N``, ``zookeeper`` or ``embedded``."""
    time_ms: int
    """ms since the epoch; for a line without a time that of the line before, or 0."""
    level: int
    """As in ``logging``."""
    line: str
    """As text."""
    more: list[str] = field(default_factory=list)
    """The lines that belong to it, such as a traceback."""
    fields: Mapping[str, object] | None = None
    """The object of a line in JSON."""
    order_ms: int = 0
    """The latest time up to this entry in its file, so that sorting never changes the order of a file."""

    def to_json(self) -> dict[str, object]:
        """Return the entry as an object, with ``source``."""
        if self.fields is not None:
            return {"source": self.source, **self.fields}
        found = _LINE.fullmatch(self.line)
        if found is None:
            entry: dict[str, object] = {"source": self.source, "msg": self.line}
        else:
            logger, message = _logger_of(self.source, found[3])
            entry = {
                "source": self.source,
                "ts": found[1],
                "level": logging.getLevelName(self.level),
                "logger": logger,
                "msg": message,
            }
        if self.more:
            entry["traceback"] = "\n".join(line.removeprefix("  ") for line in self.more)
        return entry


def _logger_of(source: str, text: str) -> tuple[str, str]:
    """Return the logger's name and the message of a text line."""
    if source == ZOOKEEPER:
        logger, _, message = text.partition(" ")
        return logger, message
    found = _LOGGER_AT_END.search(text)
    return (found[1], text[: found.start()]) if found else ("", text)


class _EntryParser:
    """Makes entries of the lines of one process's log."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._open: LogEntry | None = None
        self._last_ms = self._order_ms = 0
        self._level = logging.INFO

    def entries(self, lines: Iterator[str]) -> Iterator[LogEntry]:
        """Yield the entries of complete lines. The last one is complete too: each is one write."""
        for line in lines:
            entry = self._parsed(line)
            if entry is None and self._open is not None:
                self._open.more.append(line)
                continue
            if self._open is not None:
                yield self._open
            self._open = entry or LogEntry(self._source, self._last_ms, self._level, line)
            self._open.order_ms = self._order_ms
        if self._open is not None:
            yield self._open
            self._open = None

    def _parsed(self, line: str) -> LogEntry | None:
        """Return the entry that begins with this line; None if it belongs to the one before."""
        entry = self._from_json(line) if line.startswith("{") else self._from_text(line)
        if entry is not None:
            self._last_ms, self._level = entry.time_ms, entry.level
            self._order_ms = max(self._order_ms, entry.time_ms)
            return entry
        if _BELONGS.match(line):
            return None
        level = logging.INFO if line.startswith("ready ") else logging.ERROR
        return LogEntry(self._source, self._last_ms, level, line)

    def _from_text(self, line: str) -> LogEntry | None:
        found = _LINE.fullmatch(line)
        if found is None or found[2] not in LEVELS:
            return None
        with contextlib.suppress(ConfigError):
            return LogEntry(self._source, parse_time("", found[1]), LEVELS[found[2]], line)
        return None

    def _from_json(self, line: str) -> LogEntry | None:
        try:
            fields = json.loads(line)
            time, level, message = (str(fields[name]) for name in ("ts", "level", "msg"))
            time_ms = parse_time("", time)
        except (ValueError, LookupError, TypeError, ConfigError):
            return None
        text = f"{time} {level} {message} ({fields.get('logger', '')})"
        more = [f"  {part}" for part in str(fields.get("traceback", "")).split("\n") if part]
        return LogEntry(self._source, time_ms, LEVELS.get(level, logging.INFO), text, more, fields)


class _SourceLog:
    """The log of one process: the older files, then the one that is written. Follows rotation."""

    def __init__(self, directory: Path, source: str) -> None:
        self._path = directory / f"{source}.log"
        self._parser = _EntryParser(source)
        self._left = b""
        """The begin of a line that is not complete."""
        # Opened before anything is read: a rotation meanwhile renames them, and loses none.
        self._files = self._opened()

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()

    def entries(self) -> Iterator[LogEntry]:
        """Yield the entries that were not read yet."""
        return self._parser.entries(self._lines())

    def _opened(self) -> list[BinaryIO]:
        found: dict[int, BinaryIO] = {}
        ages = sorted(_ages(self._path))
        for path in (self._path, *(self._path.with_name(f"{self._path.name}.{age}") for age in ages)):
            with contextlib.suppress(OSError):
                file = path.open("rb")
                if found.setdefault(os.fstat(file.fileno()).st_ino, file) is not file:
                    file.close()
        return list(found.values())[::-1]

    def _lines(self) -> Iterator[str]:
        self._files = self._files or self._opened()
        while self._files:
            yield from self._read(self._files[0])
            if len(self._files) == 1:
                if not self._open_newer():
                    return
                yield from self._read(self._files[0])  # written between its end and the rotation
            self._files.pop(0).close()

    def _open_newer(self) -> bool:
        """Open the files that came after the last one. Return True if there are any."""
        current = os.fstat(self._files[-1].fileno()).st_ino
        try:
            if self._path.stat().st_ino == current:
                return False
        except OSError:
            return False  # it was removed, or is being rotated
        found = self._opened()
        known = [os.fstat(file.fileno()).st_ino for file in found]
        first = known.index(current) + 1 if current in known else 0
        for file in found[:first]:
            file.close()
        self._files += found[first:]
        return len(found) > first

    def _read(self, file: BinaryIO) -> Iterator[str]:
        if os.fstat(file.fileno()).st_size < file.tell():  # it was truncated
            file.seek(0)
        while data := file.read(_CHUNK_BYTES):
            *lines, self._left = (self._left + data).split(b"\n")
            if len(self._left) > _LINE_BYTES_MAX:
                lines, self._left = [*lines, self._left], b""
            for line in lines:
                if text := line.decode("utf-8", "backslashreplace").rstrip("\r"):
                    yield text


def _ages(path: Path) -> Iterator[int]:
    for found in _found_in(path.parent):
        if found["age"] and f"{found['source']}.log" == path.name:
            yield int(found["age"])


def _found_in(directory: Path) -> Iterator[re.Match[str]]:
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(directory)):
            if found := _LOG_FILE.fullmatch(name):
                yield found


class ClusterLogs:
    """The logs of the processes of a data directory; a context manager.

    wanted: the processes to read, such as ``{"broker-0"}``; None: all. Raises ConfigError if there are none.
    """

    def __init__(self, data_dir: Path, wanted: Collection[str] | None = None) -> None:
        self._directory = data_dir / "logs"
        self._wanted = wanted
        self._logs: dict[str, _SourceLog] = {}
        self._find()
        if not self._logs:
            of = "" if wanted is None else f" of {' and '.join(sorted(wanted))}"
            there = sorted({found["source"] for found in _found_in(self._directory)})
            clusters = "`minikafka ps` lists the data directories of running clusters"
            have = f"it has those of {', '.join(there)}" if there else clusters
            raise ConfigError("D", str(data_dir), f"has no log{of} in {self._directory}; {have}")

    def __enter__(self) -> ClusterLogs:
        return self

    def __exit__(self, *exception: object) -> None:
        for log in self._logs.values():
            log.close()

    @property
    def sources(self) -> list[str]:
        """The processes whose logs are read."""
        return list(self._logs)

    def entries(self) -> Iterator[LogEntry]:
        """Yield the entries that were not read yet, also of new files, in the order of time."""
        self._find()
        return heapq.merge(*(log.entries() for log in self._logs.values()), key=lambda entry: entry.order_ms)

    def _find(self) -> None:
        for found in _found_in(self._directory):
            source = found["source"]
            if source not in self._logs and (self._wanted is None or source in self._wanted):
                self._logs[source] = _SourceLog(self._directory, source)

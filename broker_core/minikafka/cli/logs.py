"""``minikafka logs``: prints the logs of a data directory's processes in the order of time."""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minikafka.base.config.types import integer
from minikafka.base.errors import ConfigError
from minikafka.base.log_lines import LogFormat
from minikafka.cli.options import DEFAULT_DATA_DIR, number_option, parse_data_dir, value_option
from minikafka.cli.terminal.output import print_json, say
from minikafka.cli.terminal.signals import stop_on_signal

if TYPE_CHECKING:
    from minikafka.embedded.log_files import LogEntry

POLL_S = 0.25
"""The interval at which ``--follow`` looks for new lines."""
LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}
_BROKER = integer(0, 2**31 - 1)


def _data_dir(text: str) -> Path:
    return parse_data_dir(text, "D")


def _level(text: str) -> int:
    try:
        return LEVELS[str(text).strip().lower()]
    except KeyError:
        raise ConfigError("--level", text, "must be debug, info, warning or error") from None


def _since(text: str) -> int:
    from minikafka.base.times import check_not_future, parse_moment

    now_ms = time.time_ns() // 1_000_000
    return check_not_future("--since", text, parse_moment("--since", text, now_ms), now_ms)


def _format(text: str | LogFormat) -> LogFormat:
    try:
        return LogFormat(text)
    except ValueError:
        raise ConfigError("--format", text, "must be text or json") from None


def logs(
    data_dir: Annotated[
        Path, typer.Argument(parser=_data_dir, metavar="[D]", help="The data directory.")
    ] = DEFAULT_DATA_DIR,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until Ctrl-C.")] = False,
    brokers: Annotated[
        list[int] | None,
        value_option(
            "--broker",
            "N",
            "Only the log of this broker; may be repeated.",
            lambda text: _BROKER.parse("--broker", text),
        ),
    ] = None,
    level: Annotated[
        int | None, value_option("--level", "L", "Only debug, info, warning or error, and above.", _level)
    ] = None,
    since: Annotated[
        int | None,
        value_option("--since", "TIME", "Only lines from then on: 2013-01-01T05:00, or 10m ago.", _since),
    ] = None,
    tail: Annotated[
        int | None, number_option("--tail", "N", "Begin with the last N of them.", 0, show_default=False)
    ] = None,
    style: Annotated[
        LogFormat,
        typer.Option(
            "--format",
            parser=_format,
            metavar="text|json",
            help="text, the default, or json with one object a line.",
            show_default=False,
        ),
    ] = LogFormat.TEXT,
) -> None:
    """Print what brokers and ZooKeeper have logged, in the order of time, with older files."""
    from minikafka.embedded.log_files import ClusterLogs

    wanted = None if not brokers else {f"broker-{number}" for number in brokers}
    with ClusterLogs(data_dir, wanted) as found, stop_on_signal():
        width = max(map(len, found.sources))

        def print_all(entries: Iterable[LogEntry]) -> None:
            for entry in entries:
                if style is LogFormat.JSON:
                    print_json(entry.to_json())
                else:
                    for line in (entry.line, *entry.more):
                        say(f"{entry.source:{width}} | {line}")

        entries = _chosen(found.entries(), level or 0, since or 0)
        print_all(entries if tail is None else deque(entries, tail))
        while follow:
            sys.stdout.flush()
            time.sleep(POLL_S)
            print_all(_chosen(found.entries(), level or 0, since or 0))


def _chosen(entries: Iterable[LogEntry], level: int, since_ms: int) -> Iterator[LogEntry]:
    return (entry for entry in entries if entry.level >= level and entry.time_ms >= since_ms)

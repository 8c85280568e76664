"""``minikafka broker``: one broker with Kafka's own property names and a running ZooKeeper."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from minikafka.base.config.property_files import key_values, read_properties
from minikafka.cli.options import Settings


def broker(
    properties: Annotated[
        Path,
        typer.Argument(metavar="FILE.properties", help="Kafka's own property names.", show_default=False),
    ],
    settings: Settings = None,
) -> int:
    """Run one broker in the foreground; print one `ready` line; stop cleanly on Ctrl-C or SIGTERM."""
    overrides = key_values("--set", settings)

    check_stays_secured(properties, overrides)
    from minikafka.server.__main__ import main

    arguments = [str(properties), *(f"--set={name}={value}" for name, value in overrides.items())]
    return main(arguments, log_stream=log_stream(properties))


def log_stream(path: Path) -> CopiedLog | None:
    """Return the log of a broker of `minikafka up` that is started by hand; None for another file."""
    from minikafka.embedded import data_directory

    data_dir = path.absolute().parent
    number = _broker_of(path, data_directory.existing_brokers(data_dir))
    log = data_dir / "logs" / f"broker-{number}.log"
    if number is not None and not _is_standard_error(log):
        with contextlib.suppress(OSError):  # the broker needs standard error alone
            return CopiedLog(log)
    return None


def _broker_of(path: Path, numbers: Iterable[int]) -> int | None:
    """Return which of the brokers of the file's directory the file is of."""
    from minikafka.embedded.data_directory import broker_properties_path

    absolute = path.absolute()
    return next(
        (number for number in numbers if broker_properties_path(absolute.parent, number) == absolute), None
    )


def _is_standard_error(log: Path) -> bool:
    """Return True if the shell has redirected standard error to the log."""
    try:
        return os.path.samestat(os.fstat(sys.stderr.fileno()), log.stat())
    except (OSError, ValueError):
        return False


class CopiedLog(io.StringIO):
    """Standard error, with a copy in a log file, which is rotated as those of `minikafka up`."""

    def __init__(self, path: Path) -> None:
        from minikafka.embedded.process import LOG_KEEP, LOG_MAX_BYTES
        from minikafka.embedded.supervisor import RotatingLog

        super().__init__()
        self._copy = RotatingLog(str(path), LOG_MAX_BYTES, LOG_KEEP)

    def write(self, text: str, /) -> int:
        """Write to both."""
        self._copy.write(text.encode("utf-8", "backslashreplace"))
        return sys.stderr.write(text)

    def flush(self) -> None:
        """Write what standard error still has."""
        sys.stderr.flush()


def check_stays_secured(path: Path, overrides: Mapping[str, str]) -> None:
    """Raise ConfigError if the file is of a secured data directory, and the broker would serve anybody."""
    from minikafka.embedded import data_directory, secured_directory
    from minikafka.embedded.cluster_security import AUTHORIZER
    from minikafka.security.zookeeper_config import PRIVATE, SET_ACL

    data_dir = path.absolute().parent
    number = _broker_of(path, data_directory.configured_brokers(data_dir))
    if not secured_directory.is_secured(data_dir) or number is None:
        return
    written = read_properties(str(path), "FILE.properties")
    given = {AUTHORIZER: "", **written, **overrides}
    for listener in secured_directory.listeners_of(given):
        secured_directory.check_has_login(data_dir, listener)
    secured_directory.check_stays_closed(given, own_zookeeper=written.get(SET_ACL) == PRIVATE)

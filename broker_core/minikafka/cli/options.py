"""Options that several commands share, as annotated types: they read and behave the same everywhere."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

import typer

from minikafka.base.cache_dirs import make_private
from minikafka.base.errors import ConfigError

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "MINIKAFKA_BOOTSTRAP"
"""Where ``minikafka up`` serves when nothing else is said."""
DATA_DIR_OPTION = "--data-dir"


def parse_data_dir(text: str | Path, option: str = DATA_DIR_OPTION) -> Path:
    """Return the directory. ConfigError for an empty name, which would mean the current directory."""
    if not str(text).strip():
        raise ConfigError(option, text, "must name a directory; use . for the current one")
    return Path(text)


class Format(str, Enum):
    """How results are printed: aligned for people, or one JSON value a line for programs."""

    TABLE = "table"
    JSON = "json"


# `Optional` and not `| None`: the annotations are read at run time, also by the oldest supported typer.
Bootstrap = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--bootstrap",
        envvar=BOOTSTRAP_VARIABLE,
        metavar="HOST:PORT",
        help=f"Brokers to ask first, separated by commas. Without it and --data-dir: {DEFAULT_BOOTSTRAP}.",
        show_default=False,
    ),
]
DataDir = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--data-dir",
        parser=parse_data_dir,
        metavar="D",
        help="In place of --bootstrap: the cluster of this data directory, started when it is not running.",
        show_default=False,
    ),
]
ZooKeeper = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--zookeeper",
        metavar="HOST:PORT/CHROOT",
        help="Past the brokers, through ZooKeeper: the address that `up` printed.",
        show_default=False,
    ),
]
RequiredZooKeeper = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--zookeeper",
        metavar="HOST:PORT/CHROOT",
        help="Where the cluster is coordinated: the address that `up` printed. Or --data-dir.",
        show_default=False,
    ),
]
GroupsZooKeeper = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--zookeeper",
        metavar="HOST:PORT/CHROOT",
        help="Groups that live in ZooKeeper too: the address that `up` printed. The brokers are found there.",
        show_default=False,
    ),
]
DisableRackAware = Annotated[
    bool, typer.Option("--disable-rack-aware", help="Spread replicas as if no broker had a rack.")
]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]
CodecName = Annotated[str, typer.Option("--codec", metavar="C", help="none, gzip, snappy, lz4 or zstd.")]
OutputFormat = Annotated[Format, typer.Option("--format", help="A table, or JSON a line.")]
Settings = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--set", metavar="KEY=VALUE", help="A broker property; may be given again.", show_default=False
    ),
]


def key_values(name: str, given: list[str] | None) -> dict[str, str]:
    """``key=value`` texts as a dict; the later one wins. Raises ConfigError under ``name``."""
    pairs: dict[str, str] = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(name, text, "must be KEY=VALUE")
        pairs[key.strip()] = value.strip()
    return pairs


def check_data_dir(data_dir: Path) -> None:
    """Raise ConfigError unless a cluster can be kept in the directory, which need not exist yet."""
    path = data_dir.absolute()
    existing = next(parent for parent in (path, *path.parents) if os.path.lexists(parent))
    name = "it" if existing == path else str(existing)
    if not existing.is_dir():
        reason = f"{name} is not a directory; choose another path"
    elif not os.access(existing, os.W_OK | os.X_OK):
        reason = f"{name} is not writable for this user; choose another path"
    else:
        return
    raise ConfigError(DATA_DIR_OPTION, str(data_dir), reason)


def make_data_dir(data_dir: Path) -> None:
    """Create the directory and its parents, private to this user. Raises ConfigError."""
    try:
        make_private(data_dir)
    except OSError as error:
        reason = f"cannot be created ({error.strerror}); choose another path"
        raise ConfigError(DATA_DIR_OPTION, str(data_dir), reason) from None


def check_has_cluster(data_dir: Path) -> None:
    """Raise ConfigError unless the directory has a cluster: a reader must not start an empty one."""
    check_data_dir(data_dir)
    # Written at every start, before anything else of a broker.
    if not (data_dir / "broker-0.properties").is_file():
        raise ConfigError(
            DATA_DIR_OPTION,
            str(data_dir),
            f"no minikafka cluster in this directory; start one with `minikafka up --data-dir {data_dir}`, "
            "or correct the path",
        )

"""Options that several commands share, as annotated types with the same text and behaviour everywhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from minikafka.base.cache_dirs import make_private
from minikafka.base.config.types import digit_list, integer
from minikafka.base.errors import ConfigError
from minikafka.base.text import is_unicode

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
"""The default address of ``minikafka up``."""
BOOTSTRAP_VARIABLE = "MINIKAFKA_BOOTSTRAP"
COMMAND_CONFIG_OPTION = "--command-config"
COMMAND_CONFIG_VARIABLE = "MINIKAFKA_CONFIG"
DATA_DIR_OPTION = "--data-dir"
DEFAULT_DATA_DIR = Path("minikafka-data")
"""The data directory of ``minikafka up``."""


class NotExactlyOne(ConfigError):
    """None of several options is set, which ``missing`` describes, or more than one."""

    def __init__(self, given: Sequence[str], missing: str, options: str) -> None:
        super().__init__(given[1] if given else options, "", f"set exactly one of {options}")
        self._problem = f"{' and '.join(given)} conflict" if given else missing

    def __str__(self) -> str:
        return f"{self._problem}; {self.allowed}"


def parse_data_dir(text: str | Path, option: str = DATA_DIR_OPTION) -> Path:
    """Return the directory. Raise ConfigError for an empty name, which would mean the current directory."""
    if not str(text).strip():
        raise ConfigError(option, text, "must name a directory; use . for the current one")
    return Path(text)


class Format(str, Enum):
    """The output format of results: an aligned table for people; for programs one JSON value a line, a list
    in YAML, or CSV.
    """

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"

    def __str__(self) -> str:
        return self.value  # older releases of typer look up the parsed value by its text


# Options have parsers of their own: the messages of typer's differ between its releases, and some lack the
# value.


def number_option(
    name: str,
    metavar: str,
    text: str,
    least: int,
    most: int | None = None,
    *,
    show_default: bool = True,
    others: Sequence[str] = (),
) -> object:
    """Return an option for a whole number; its parser also takes the default. text: its help. others: its
    other names.
    """
    number_type = integer(least, most)

    def parse_number(given: str | int) -> int:
        number: int = number_type.parse(name, given)
        return number

    return typer.Option(
        name, *others, parser=parse_number, metavar=metavar, help=text, show_default=show_default
    )


def parse_partitions(text: str, option: str = "--partition") -> frozenset[int]:
    """Parse numbers of partitions, separated by commas. Raise ConfigError."""
    found = digit_list(text)
    if found is None:
        raise ConfigError(option, text, "must be numbers of partitions, such as 0 or 0,1")
    return frozenset(found)


def utf8(name: str) -> Callable[[str], str]:
    """Return the parser of texts, which raises ConfigError for one that is not UTF-8: brokers and ZooKeeper
    would store another name. name: that of the option or argument.
    """

    def parse_utf8(given: str) -> str:
        if not is_unicode(given):
            raise ConfigError(name, given, "must be UTF-8")
        return given

    return parse_utf8


def value_option(
    name: str,
    metavar: str,
    text: str,
    parser: Callable[[str], object] | None = None,
    *,
    others: Sequence[str] = (),
) -> object:
    """Return an option with a value and without a default; for a list it may be repeated. text: its help.
    parser: None for a text. others: its other names.
    """
    return typer.Option(
        name, *others, metavar=metavar, help=text, parser=parser or utf8(name), show_default=False
    )


def text_argument(metavar: str, text: str | None = None) -> object:
    """Return an argument that is a text, such as the name of a topic; for a list there may be several. text:
    its help.
    """
    return typer.Argument(metavar=metavar, help=text, parser=utf8(metavar), show_default=False)


def zookeeper_option(text: str) -> object:
    """Return the option for ZooKeeper's address. text: its help, by the use that a command makes of it."""
    return value_option("--zookeeper", "HOST:PORT/CHROOT", text)


def parse_format(text: str | Format) -> Format:
    """Parse ``--format``. Raise ConfigError."""
    if text not in list(Format):
        raise ConfigError("--format", text, "must be table, json, yaml or csv")
    return Format(text)


Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "--bootstrap-server",
        "-b",
        envvar=BOOTSTRAP_VARIABLE,
        metavar="HOST:PORT",
        help=f"Bootstrap brokers, separated by commas. [{DEFAULT_BOOTSTRAP}, unless --data-dir is set]",
        show_default=False,
    ),
]


CommandConfig = Annotated[
    str | None,
    typer.Option(
        COMMAND_CONFIG_OPTION,
        envvar=COMMAND_CONFIG_VARIABLE,
        metavar="FILE",
        help="A file of client properties: security.protocol, ssl.*, sasl.*, zookeeper.*, and also "
        "bootstrap.servers.",
        show_default=False,
    ),
]


def data_dir_option(other: str) -> object:
    """Return the option for the data directory of a cluster, which replaces the option ``other``."""
    text = f"Instead of {other}: the cluster of this data directory, started if it is not running."
    return value_option("--data-dir", "D", text, parser=parse_data_dir)


DataDir = Annotated[Path | None, data_dir_option("--bootstrap")]
ZooKeeperDataDir = Annotated[Path | None, data_dir_option("--zookeeper")]
ZooKeeper = Annotated[
    str | None, zookeeper_option("Use ZooKeeper instead of the brokers: the address that `up` printed.")
]
RequiredZooKeeper = Annotated[
    str | None,
    zookeeper_option("ZooKeeper of the cluster: the address that `up` printed. Required without --data-dir."),
]
GroupsZooKeeper = Annotated[
    str | None,
    zookeeper_option(
        "Include groups in ZooKeeper: the address that `up` printed. The brokers are found there."
    ),
]
DisableRackAware = Annotated[
    bool, typer.Option("--disable-rack-aware", help="Spread replicas as if no broker had a rack.")
]
Topic = Annotated[str, text_argument("TOPIC")]
SomePartitions = Annotated[
    frozenset[int] | None,
    typer.Option(
        "--partition",
        "--partitions",
        "-p",
        metavar="P,P",
        help="Only these partitions of each topic.",
        parser=parse_partitions,
        show_default=False,
    ),
]
CodecName = Annotated[
    str, typer.Option("--codec", "--compression", "-z", metavar="C", help="none, gzip, snappy, lz4 or zstd.")
]
OutputFormat = Annotated[
    Format,
    typer.Option(
        "--format",
        parser=parse_format,
        metavar="table|json|yaml|csv",
        help="table; json with one object a line; yaml with a list of these; csv.",
    ),
]
Settings = Annotated[
    list[str] | None, value_option("--set", "KEY=VALUE", "A broker property; may be repeated.")
]


def read_file(file: Path, option: str = "--file") -> bytes:
    """Return the bytes of a file that an option names. Raise ConfigError if it cannot be read."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(option, str(file), f"cannot be read: {error.strerror}") from None


def check_data_dir(data_dir: Path) -> None:
    """Raise ConfigError unless the directory is usable for a cluster. It need not exist yet."""
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
    """Create the directory and its parents, private to this user. Raise ConfigError if that fails."""
    try:
        make_private(data_dir)
    except OSError as error:
        reason = f"cannot be created ({error.strerror}); choose another path"
        raise ConfigError(DATA_DIR_OPTION, str(data_dir), reason) from None


def check_has_cluster(data_dir: Path) -> None:
    """Raise ConfigError unless the directory has a cluster: a reader must not start an empty one."""
    check_data_dir(data_dir)
    # A broker writes this file first, at every start.
    if not (data_dir / "broker-0.properties").is_file():
        raise ConfigError(
            DATA_DIR_OPTION,
            str(data_dir),
            f"no minikafka cluster in this directory; start one with `minikafka up --data-dir {data_dir}`, "
            "or correct the path",
        )

"""The brokers of a data directory, and the configuration that they can share.

Broker N always keeps its logs in ``D/broker-N``: a partition that ZooKeeper assigns to it has its data
nowhere else, unless it has other replicas. So a cluster is started with all brokers that it has, or with
more.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from minikafka.base.config.property_files import read_properties
from minikafka.base.errors import ConfigError
from minikafka.base.log_lines import LOG_FORMAT, LogFormat
from minikafka.log.layout import LOCK_FILE
from minikafka.server.config.metrics import METRICS_LISTENERS, listeners_of

PER_BROKER_PROPERTIES = frozenset(
    {
        "broker.id",
        "listeners",
        "advertised.listeners",
        "host.name",
        "port",
        "advertised.host.name",
        "advertised.port",
        "log.dir",
        "log.dirs",
    }
)
"""Properties that must differ between brokers."""

PORT_MAX = 65535


def broker_directory(data_dir: Path, number: int) -> Path:
    """Return the directory of broker ``number``: ``D/broker-N``, or that in ``_doubled`` if only that was
    used.
    """
    own, before = (place / f"broker-{number}" for place in (data_dir, _doubled(data_dir)))
    return before if _has_run(before) and not _has_run(own) else own


def _doubled(data_dir: Path) -> Path:
    """Return the path that earlier versions used for a data directory: with each backslash doubled, as they
    wrote escapes to properties files and did not undo them.
    """
    return Path(str(data_dir).replace("\\", r"\\"))


def _has_run(directory: Path) -> bool:
    return os.path.isfile(directory / "meta.properties")


def broker_properties_path(data_dir: Path, number: int) -> Path:
    """Return the path of the properties file of broker ``number``."""
    return data_dir / f"broker-{number}.properties"


def existing_brokers(data_dir: Path) -> list[int]:
    """Return the numbers of the brokers that have data in a directory, in ascending order."""
    places = dict.fromkeys((data_dir, _doubled(data_dir)))
    paths = (
        path for place in places if os.path.isdir(place) for path in place.glob("broker-*/meta.properties")
    )
    names = {path.parent.name.removeprefix("broker-") for path in paths}
    return sorted(int(number) for number in names if number.isascii() and number.isdecimal())


def configured_brokers(data_dir: Path) -> list[int]:
    """Return the numbers of the brokers that were ever started in a directory, in ascending order."""
    if not os.path.isdir(data_dir):
        return []
    names = (path.stem.removeprefix("broker-") for path in data_dir.glob("broker-*.properties"))
    return sorted(int(number) for number in names if number.isascii() and number.isdecimal())


def log_format(data_dir: Path) -> LogFormat:
    """Return the form of the logs of the brokers that were started last in a directory."""
    found = {LogFormat.TEXT}
    for number in configured_brokers(data_dir):
        with contextlib.suppress(ConfigError):
            path = broker_properties_path(data_dir, number)
            found.add(LogFormat.among(read_properties(str(path), LOG_FORMAT)))
    return LogFormat.JSON if LogFormat.JSON in found else LogFormat.TEXT


def broker_lock_paths(data_dir: Path, number: int) -> list[Path]:
    """Return the files that broker ``number`` locks while it runs: one in each of its log directories.

    These are the directories in its properties file, and its own in ``data_dir``, which may have been moved.
    """
    path = broker_properties_path(data_dir, number)
    try:
        properties = read_properties(str(path), "log.dirs")
    except ConfigError:
        properties = {}
    given = (properties.get("log.dirs") or properties.get("log.dir") or "").split(",")
    directories = [
        broker_directory(data_dir, number),
        *(Path(name.strip()) for name in given if name.strip()),
    ]
    return [directory / LOCK_FILE for directory in dict.fromkeys(directories)]


def broker_count(data_dir: Path | None, wanted: int | None, option: str = "brokers") -> int:
    """Return the number of brokers to start. ``wanted`` None: all that ``data_dir`` has, or 1 if it has none.
    ``data_dir`` None: a new directory.

    Raises ConfigError for fewer brokers than it has.
    """
    if wanted is not None and wanted < 1:
        raise ConfigError(option, wanted, "must be at least 1")
    if data_dir is None or not (found := existing_brokers(data_dir)):
        return wanted or 1
    needed = found[-1] + 1
    if wanted is None:
        return needed
    if wanted < needed:
        left_out = [number for number in found if number >= wanted]
        raise ConfigError(
            option,
            wanted,
            f"{data_dir} has {broker_names(found)}, and would be started without {broker_names(left_out)}: "
            f"use {needed}; or move the partitions away with `minikafka reassign`, stop, and remove "
            f"{' and '.join(str(broker_directory(data_dir, number)) for number in left_out)}",
        )
    return wanted


def check_shared_config(config: Iterable[str], count: int, option: str = "config") -> None:
    """Raise ConfigError for a property that several brokers cannot share, if there are several."""
    for key in config:
        if count > 1 and key in PER_BROKER_PROPERTIES:
            raise ConfigError(
                option,
                key,
                f"cannot be the same for {count} brokers: each needs its own port and directory (--host, "
                "--port, --data-dir); in Python, use Cluster(broker_configs={0: {…}, 1: {…}})",
            )


def with_own_metrics_port(config: Mapping[str, str], number: int) -> dict[str, str]:
    """Return the configuration of a broker: its metrics have the port after those of the one before."""
    given = config.get(METRICS_LISTENERS)
    with contextlib.suppress(ValueError):  # the broker reports it
        return {**config, METRICS_LISTENERS: listeners_of(given, number)} if given else dict(config)
    return dict(config)


def check_broker_configs(configs: Mapping[int, object], count: int) -> None:
    """Raise ConfigError for properties of a broker that does not exist."""
    for number in configs:
        if number not in range(count):
            raise ConfigError(
                "broker_configs", number, f"no such broker: the cluster has {broker_names(range(count))}"
            )


def broker_ports(port: int, count: int, option: str = "port") -> list[int]:
    """Return one port for each broker, from ``port`` on; all 0, for free ports, if ``port`` is 0."""
    if port and port + count - 1 > PORT_MAX:
        raise ConfigError(
            option, port, f"{count} brokers need ports up to {port + count - 1}; the largest is {PORT_MAX}"
        )
    return [port + number if port else 0 for number in range(count)]


def broker_names(numbers: Iterable[int]) -> str:
    """Return ``broker 2`` or ``brokers 0, 1 and 2``."""
    texts = [str(number) for number in numbers]
    if len(texts) == 1:
        return f"broker {texts[0]}"
    return f"brokers {', '.join(texts[:-1])} and {texts[-1]}" if texts else "no broker"

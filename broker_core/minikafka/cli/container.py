"""``minikafka container``: runs one broker by environment variables, as the process of a container image.

    D/data                 the broker's records (``log.dirs``), whatever its id: they belong to one broker
    D/server.properties    all properties of the last start, for its owner alone: it may hold passwords
    D/zookeeper, D/logs    ZooKeeper and its log, if none is named

A property comes from the first of: an environment variable (``server.config.environment``), the mounted file,
``DEFAULTS``. The broker logs to standard error.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.cli.options import check_data_dir, make_data_dir, parse_data_dir

if TYPE_CHECKING:
    from minikafka.embedded.zookeeper import EmbeddedZooKeeper

DATA_DIR = Path("/var/lib/minikafka")
PROPERTIES_FILE = Path("/etc/minikafka/server.properties")
DEFAULTS = {
    "advertised.listeners": "PLAINTEXT://localhost:9092",
    "listeners": "PLAINTEXT://0.0.0.0:9092",
    "metrics.listeners": "http://0.0.0.0:9308",
    # ZooKeeper's container may start later.
    "zookeeper.connection.timeout.ms": "60000",
}
_LISTENERS = ("listeners", "advertised.listeners")
_WATCH_S = 1.0
"""The interval at which ZooKeeper is checked."""
_RESTART_PAUSE_S = 5.0
"""The pause after a restart of ZooKeeper that has failed."""

_log = logging.getLogger(__name__)


def container(
    data_dir: Annotated[
        Path, typer.Option("--data-dir", parser=parse_data_dir, metavar="D", help="The volume, for all data.")
    ] = DATA_DIR,
    properties: Annotated[
        Path, typer.Option("--properties", metavar="FILE", help="A mounted file of properties, if it exists.")
    ] = PROPERTIES_FILE,
) -> int:
    """Run one broker by KAFKA_… environment variables, as a container does, and its ZooKeeper if
    KAFKA_ZOOKEEPER_CONNECT names none.
    """
    from minikafka.base.config.property_files import read_properties, write_properties
    from minikafka.embedded import data_directory
    from minikafka.server.config.environment import read_environment

    found = read_environment(os.environ, _secret)
    mounted = read_properties(str(properties), "--properties") if properties.exists() else {}
    check_data_dir(data_dir)
    make_data_dir(data_dir)
    if data_directory.existing_brokers(data_dir):
        problem = f"has a cluster of `minikafka up`; serve it by `minikafka up --data-dir {data_dir}`"
        raise ConfigError("--data-dir", str(data_dir), f"{problem}, or use another directory")
    given = container_properties(found.properties, mounted, data_dir)

    from minikafka.server.__main__ import main

    with contextlib.ExitStack() as stack:
        if "zookeeper.connect" not in given:
            given["zookeeper.connect"] = stack.enter_context(_zookeeper(data_dir))
        path = str(data_dir / "server.properties")
        write_properties(path, given)
        ignored = f"ignored {', '.join(found.ignored)}: for Java, or for Kafka without ZooKeeper"
        return main([path], [ignored] if found.ignored else [])


def container_properties(
    variables: Mapping[str, str], mounted: Mapping[str, str], data_dir: Path
) -> dict[str, str]:
    """Return the properties of the broker.

    Listeners are one setting: where a variable or the file sets them, the default ones are not mixed in.
    """
    from minikafka.server.config.environment import with_bind_addresses

    given = {**mounted, **variables}
    if variables.keys() & set(_LISTENERS) and "listeners" not in variables:
        given.pop("listeners", None)
    given = with_bind_addresses(given)
    own_listeners = given.keys() & {*_LISTENERS, "port", "host.name"}
    defaults = {name: value for name, value in DEFAULTS.items() if not (own_listeners and name in _LISTENERS)}
    if "log.dir" not in given:
        defaults["log.dirs"] = str(data_dir / "data")
    if "zookeeper.connect" not in given:
        defaults["broker.id"] = "0"
    return {**defaults, **given}


def _secret(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(path, "", f"cannot be read: {error}") from None


@contextlib.contextmanager
def _zookeeper(data_dir: Path) -> Iterator[str]:
    """Run ZooKeeper in the block, and yield its address. It is restarted when it ends."""
    from minikafka.embedded.zookeeper import EmbeddedZooKeeper

    stopping = threading.Event()
    with EmbeddedZooKeeper(str(data_dir)) as zookeeper:
        watcher = threading.Thread(target=_keep_running, args=(zookeeper, stopping), name="zookeeper")
        watcher.start()
        try:
            yield zookeeper.connect
        finally:
            stopping.set()
            watcher.join()


def _keep_running(zookeeper: EmbeddedZooKeeper, stopping: threading.Event) -> None:
    while not stopping.wait(_WATCH_S):
        if zookeeper.ended:
            try:
                zookeeper.restart()
                _log.warning("ZooKeeper at %s had ended and was restarted", zookeeper.connect)
            except MinikafkaError as error:
                _log.error("ZooKeeper at %s ended and cannot be restarted yet: %s", zookeeper.connect, error)
                stopping.wait(_RESTART_PAUSE_S)

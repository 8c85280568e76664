"""``minikafka broker``: one broker with Kafka's own property names and a running ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping
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

    return main([str(properties), *(f"--set={name}={value}" for name, value in overrides.items())])


def check_stays_secured(path: Path, overrides: Mapping[str, str]) -> None:
    """Raise ConfigError if the file is of a secured data directory, and the broker would serve anybody."""
    from minikafka.embedded import data_directory, secured_directory
    from minikafka.embedded.cluster_security import AUTHORIZER
    from minikafka.security.zookeeper_config import PRIVATE, SET_ACL

    data_dir = path.absolute().parent
    files = (
        data_directory.broker_properties_path(data_dir, n)
        for n in data_directory.configured_brokers(data_dir)
    )
    if not secured_directory.is_secured(data_dir) or path.absolute() not in files:
        return
    written = read_properties(str(path), "FILE.properties")
    given = {AUTHORIZER: "", **written, **overrides}
    for listener in secured_directory.listeners_of(given):
        secured_directory.check_has_login(data_dir, listener)
    secured_directory.check_stays_closed(given, own_zookeeper=written.get(SET_ACL) == PRIVATE)

"""``minikafka broker``: one broker with Kafka's own property names and a running ZooKeeper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from minikafka.base.config.property_files import key_values
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

    from minikafka.server.__main__ import main

    return main([str(properties), *(f"--set={name}={value}" for name, value in overrides.items())])

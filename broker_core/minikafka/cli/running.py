"""``minikafka ps`` and ``stop``: clusters of this user and host, whoever started them: Spark, a command or
``up``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from minikafka.cli.options import Format, OutputFormat


def ps(style: OutputFormat = Format.TABLE) -> None:
    """List the clusters that run on this machine."""
    from minikafka.cli.output import print_rows
    from minikafka.embedded import local

    rows = [
        {
            "data_dir": one.data_dir,
            "bootstrap": one.bootstrap_servers,
            "zookeeper": one.zookeeper_connect,
            "cluster": one.cluster_id,
            "pid": one.pid,
        }
        for one in local.list_running()
    ]
    print_rows(rows, ["data_dir", "bootstrap", "zookeeper", "cluster", "pid"], style)


def stop(
    data_dir: Annotated[Path, typer.Argument(metavar="D", help="Its data directory.", show_default=False)],
) -> None:
    """Stop the cluster of a data directory cleanly."""
    from minikafka.embedded import local

    local.stop(str(data_dir))
    print(f"stopped {data_dir}")

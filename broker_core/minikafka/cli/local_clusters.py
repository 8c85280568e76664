"""``minikafka ps`` and ``stop``: the local clusters of this user, started by Spark, a command or ``up``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minikafka.base.errors import MinikafkaError
from minikafka.cli.options import Format, OutputFormat, parse_data_dir
from minikafka.cli.terminal.output import note, print_rows, say

if TYPE_CHECKING:
    from minikafka.embedded.local_files import LocalCluster


def ps(style: OutputFormat = Format.TABLE) -> None:
    """List the clusters that run on this machine, and brokers that were started in them by hand."""
    from minikafka.embedded import local

    columns = ["data_dir", "bootstrap", "zookeeper", "cluster", "pid", "broker"]
    clusters = local.list_running()
    rows: list[dict[str, object]] = [
        {
            "data_dir": cluster.data_dir,
            "bootstrap": cluster.bootstrap_servers,
            "zookeeper": cluster.zookeeper_connect,
            "cluster": cluster.cluster_id,
            "pid": cluster.pid,
            "broker": None,
        }
        for cluster in clusters
    ]
    strays = local.list_strays()
    rows += [
        dict.fromkeys(columns)
        | {
            "data_dir": stray.data_dir,
            "bootstrap": stray.address or None,
            "pid": stray.pid,
            "broker": stray.number,
        }
        for stray in strays
    ]
    rows.sort(key=lambda row: str(row["data_dir"]))
    print_rows(rows, columns if strays else columns[:-1], style, nothing="no cluster of this user is running")
    served = {cluster.data_dir for cluster in clusters}
    for stray in strays:
        if stray.data_dir not in served:
            note(f"minikafka: {stray} {stray.status}")


def _named(text: str) -> Path:
    return parse_data_dir(text, "D")


def stop(
    data_dir: Annotated[
        Path, typer.Argument(parser=_named, metavar="D", help="Its data directory.", show_default=False)
    ],
) -> None:
    """Stop the cluster of a data directory cleanly, with brokers that were started in it by hand."""
    from minikafka.embedded import local
    from minikafka.embedded.strays import stray_brokers

    cluster = local.running(str(data_dir))
    left = None if cluster else cluster_without_directory(data_dir)
    strays = stray_brokers(data_dir)
    if left is not None:
        stop_by_signal(left)
        say(f"stopped {data_dir}, which had been removed")
    elif cluster is not None or not strays:
        local.stop(str(data_dir))
        say(f"stopped {data_dir}")
    for stray in strays:  # after the cluster: it might end with the last one, or elect new leaders
        stray.stop()
        origin = "whose cluster had been killed" if stray.ending else "which was started by hand"
        say(f"stopped {stray}, {origin}")


def cluster_without_directory(data_dir: Path) -> LocalCluster | None:
    """Return the running cluster whose directory, with all files that `stop` uses, was removed; or None."""
    from minikafka.embedded import local

    wanted = os.path.realpath(data_dir)
    return next((cluster for cluster in local.list_running() if cluster.data_dir == wanted), None)


def stop_by_signal(cluster: LocalCluster) -> None:
    """Stop a cluster by SIGTERM, and wait for its end. Its own watch of the directory may end it first."""
    from minikafka.embedded.process import terminate

    if not terminate(cluster.owner):
        raise MinikafkaError(
            f"timed out stopping process {cluster.pid} (data directory {cluster.data_dir}, removed)"
        )

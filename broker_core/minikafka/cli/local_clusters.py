"""``minikafka ps`` and ``stop``: clusters of this user and host, whoever started them: Spark, a command or
``up``.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minikafka.base.errors import MinikafkaError
from minikafka.cli.options import Format, OutputFormat, parse_data_dir

if TYPE_CHECKING:
    from minikafka.embedded.local import LocalCluster


def ps(style: OutputFormat = Format.TABLE) -> None:
    """List the clusters that run on this machine, and brokers that were started in them by hand."""
    from minikafka.cli.output import note, print_rows
    from minikafka.embedded import local

    columns = ["data_dir", "bootstrap", "zookeeper", "cluster", "pid", "broker"]
    clusters = local.list_running()
    rows: list[dict[str, object]] = [
        {
            "data_dir": one.data_dir,
            "bootstrap": one.bootstrap_servers,
            "zookeeper": one.zookeeper_connect,
            "cluster": one.cluster_id,
            "pid": one.pid,
            "broker": None,
        }
        for one in clusters
    ]
    strays = local.list_strays()
    rows += [
        dict.fromkeys(columns)
        | {"data_dir": one.data_dir, "bootstrap": one.address or None, "pid": one.pid, "broker": one.number}
        for one in strays
    ]
    rows.sort(key=lambda row: str(row["data_dir"]))
    print_rows(rows, columns if strays else columns[:-1], style, nothing="no cluster of this user runs here")
    served = {one.data_dir for one in clusters}
    for one in strays:
        if one.data_dir not in served:
            note(f"minikafka: {one} {one.status}")


def _named(text: str) -> Path:
    return parse_data_dir(text, "D")


def stop(
    data_dir: Annotated[
        Path, typer.Argument(parser=_named, metavar="D", help="Its data directory.", show_default=False)
    ],
) -> None:
    """Stop the cluster of a data directory cleanly, with brokers that were started in it by hand."""
    from minikafka.cli.output import say
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
    for stray in strays:  # after the cluster, which might end with the last of them, or have others take over
        stray.stop()
        origin = "whose cluster had been killed" if stray.ending else "which was started by hand"
        say(f"stopped {stray}, {origin}")


def cluster_without_directory(data_dir: Path) -> LocalCluster | None:
    """The cluster that still runs although its directory, with all that `stop` goes by, was removed."""
    from minikafka.embedded import local

    wanted = os.path.realpath(data_dir)
    return next((one for one in local.list_running() if one.data_dir == wanted), None)


def stop_by_signal(cluster: LocalCluster) -> None:
    """Tell a cluster to stop, and wait for its end: it notices by itself that its directory is gone."""
    from minikafka.embedded import local, owners, process

    owner = owners.Owner(cluster.pid, cluster.started)
    with contextlib.suppress(ProcessLookupError):
        os.kill(cluster.pid, signal.SIGTERM)
    if not process.wait_until(lambda: not owners.is_alive(owner), local.STOP_TIMEOUT_S):
        raise MinikafkaError(f"process {cluster.pid}, which served {cluster.data_dir}, does not stop")

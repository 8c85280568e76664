"""The number of cores that the tasks of a query share, as far as a driver's Python worker can know it.

Spark tells its planners nothing of its own configuration. The command line of the driver's JVM has what was
given to ``spark-submit`` or to the builder of a PySpark session; ``spark-defaults.conf``, and a master set in
a program that ``spark-submit`` runs, are not seen. Then the cores of the driver's host are assumed. Too small
a number costs little: a read that is large enough has more tasks than cores.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

_FLAGS = {
    "--master": "spark.master",
    "--num-executors": "spark.executor.instances",
    "--executor-cores": "spark.executor.cores",
    "--total-executor-cores": "spark.cores.max",
}
_PROPERTY = re.compile(r"(?:-D)?(spark\.[\w.]+)=(.*)", re.DOTALL)
_LOCAL = re.compile(r"local(?:\[\s*(\d+|\*)\s*(?:,\s*\d+\s*)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,.*\]")


def find_cores() -> int:
    """Return the cores of this query's Spark. Driver only."""
    from minikafka.embedded import owners

    return cores_of(owners.command_line(owners.find_owner().pid), host_cores())


def host_cores() -> int:
    """Return the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cores_of(command_line: Sequence[str], host: int) -> int:
    """Return the cores by the command line of a driver's JVM; ``host`` where it does not say.

    The last value of a property counts, as in ``spark-submit``.
    """
    conf: dict[str, str] = {}
    for word, following in zip(command_line, [*command_line[1:], ""], strict=True):
        if word in _FLAGS:
            conf[_FLAGS[word]] = following
        elif (given := _PROPERTY.fullmatch(word)) is not None:
            conf[given[1]] = given[2]
    master = conf.get("spark.master", "").strip()
    cpus = max(1, _number(conf, "spark.task.cpus") or 1)
    if (local := _LOCAL.fullmatch(master)) is not None:
        slots = {"*": host, None: 1}.get(local[1]) or int(local[1])
    elif (cluster := _LOCAL_CLUSTER.fullmatch(master)) is not None:
        slots = int(cluster[1]) * int(cluster[2])
    else:
        instances, each = _number(conf, "spark.executor.instances"), _number(conf, "spark.executor.cores")
        slots = _number(conf, "spark.cores.max") or (instances or 0) * (each or 1) or host
    return max(1, slots // cpus)


def _number(conf: dict[str, str], name: str) -> int | None:
    text = conf.get(name, "").strip()
    return int(text) if text.isdecimal() else None

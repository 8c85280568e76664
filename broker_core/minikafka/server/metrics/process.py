"""The metrics of the process, under the names of Prometheus's own client libraries."""

from __future__ import annotations

import gc
import os
import resource
import sys
import threading
import time

from minikafka.base.exposition import MetricSink
from minikafka.server.metrics import definitions as d

_PROC = "/proc/self"
_PAGE_BYTES = resource.getpagesize()
_KIB = 1024


def expose_process(out: MetricSink, started_s: float) -> None:
    """Add them. started_s: the start of the process, since the epoch."""
    out.add(d.CPU, time.process_time())
    out.add(d.RESIDENT, _resident_bytes())
    opened = _open_files()
    if opened is not None:
        out.add(d.OPEN_FILES, opened)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most != resource.RLIM_INFINITY:
        out.add(d.MAX_FILES, most)
    out.add(d.START_TIME, started_s)
    out.add(d.THREADS, threading.active_count())
    out.add_all(
        d.GC_COLLECTIONS, [((number,), stats["collections"]) for number, stats in enumerate(gc.get_stats())]
    )


def _resident_bytes() -> int:
    """Return the resident memory; where the system does not tell it, the most there has been."""
    try:
        with open(f"{_PROC}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * _KIB


def _open_files() -> int | None:
    for directory in (f"{_PROC}/fd", "/dev/fd"):
        try:
            return len(os.listdir(directory))
        except OSError:
            continue
    return None

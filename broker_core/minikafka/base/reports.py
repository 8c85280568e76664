"""Reports of a child process to the process that started it: JSON objects, one per line, with a ``type``.

The parent passes the number of a pipe's descriptor in ``MINIKAFKA_REPORTS_FD``. If it does not, nothing is
written. No program parses log messages, which are for people.

    {"type": "phase", "phase": TEXT}                   the phase of a starting broker
    {"type": "compiling", "done": 5, "of": 17}         progress of compiling kernels
    {"type": "compiled", "kernel": NAME}               one more kernel, from a process that compiles
    {"type": "opening", "opened": 3, "of": 9, "checked_bytes": N}     progress of opening logs
    {"type": "refused", "principal": "User:NAME", "host": ADDRESS}    ACLs deny ClusterAction to a controller
    {"type": "ready", "address": "HOST:PORT", "cluster_id": ID}       a broker serves
    {"type": "warning", "message": TEXT}               records may be lost, or a log is offline
    {"type": "failed", "message": TEXT}                the reason why the process ends
"""

from __future__ import annotations

import contextlib
import json
import os
import stat

VARIABLE = "MINIKAFKA_REPORTS_FD"
_TEXT_MAX = 2_000
_LINE_MAX = 4_096
"""The size up to which writes to a pipe are atomic, so that the lines of several threads do not mix."""


def _listener() -> int | None:
    """Return the descriptor from the environment, and hide it from child processes; None if there is none."""
    text = os.environ.pop(VARIABLE, "")
    if not text.isascii() or not text.isdecimal():
        return None
    descriptor = int(text)
    with contextlib.suppress(OSError):
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            os.set_inheritable(descriptor, False)
            os.set_blocking(descriptor, False)
            return descriptor
    return None


_descriptor = _listener()


def report(kind: str, **fields: str | int) -> None:
    """Send a report to the parent, if it listens. Never blocks and never fails: a full pipe loses reports."""
    if _descriptor is None:
        return
    length = _TEXT_MAX
    while True:
        cut = {name: value[:length] if isinstance(value, str) else value for name, value in fields.items()}
        line = json.dumps({"type": kind, **cut}).encode("ascii") + b"\n"
        if len(line) <= _LINE_MAX or not length:
            break
        length //= 2  # characters outside ASCII take six bytes
    with contextlib.suppress(OSError):
        os.write(_descriptor, line)


def parse_report(line: bytes) -> dict[str, object] | None:
    """Parse a line; None if it is not a report."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("type"), str) else None

"""What a child process tells the process that started it: JSON objects, a line each, with a ``type``.

The starter passes the number of a pipe's descriptor in ``MINIKAFKA_REPORTS_FD``. Where it does not, nobody
listens and nothing is written. Nobody reads what a log says for people.

    {"type": "phase", "phase": TEXT}                   what a broker that starts does now
    {"type": "compiling", "done": 5, "of": 17}         kernels
    {"type": "compiled", "kernel": NAME}               one more, from a process that compiles
    {"type": "opening", "opened": 3, "of": 9, "checked_bytes": N}     logs
    {"type": "refused", "host": ADDRESS}               access rules refuse the controller there ClusterAction
    {"type": "ready", "address": "HOST:PORT", "cluster_id": ID}       a broker serves
    {"type": "warning", "message": TEXT}               records that may be lost, or a log that takes no more
    {"type": "failed", "message": TEXT}                why it ends
"""

from __future__ import annotations

import contextlib
import json
import os
import stat

VARIABLE = "MINIKAFKA_REPORTS_FD"
_TEXT_MAX = 2_000
_LINE_MAX = 4_096
"""What a pipe takes in one piece, so that lines of several threads do not mix."""


def _listener() -> int | None:
    """The descriptor that was passed; it is nobody else's business, so it is neither told nor passed on."""
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
    """Tell the starter, if one listens. Never blocks and never fails: what it cannot take is lost."""
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
    """The report of one line; None for anything else."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("type"), str) else None

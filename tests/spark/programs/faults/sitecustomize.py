"""Kills the driver of a query at one step of its commit, in the workers of a Spark that has this on its path.

MINIKAFKA_TEST_DIES_AT: the step, as ``Publisher`` has it. MINIKAFKA_TEST_DRIVER: a file with the ids of the
processes to kill. ``between portions``: a transaction may have ten rows, and the third one is not committed.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

_STEP = os.environ.get("MINIKAFKA_TEST_DIES_AT", "")
_MODULE = "pyspark_minikafka.writing.publisher"


def _die(*_: Any, **__: Any) -> None:
    for number in Path(os.environ["MINIKAFKA_TEST_DRIVER"]).read_text().split():
        os.kill(int(number), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _patch(module: Any) -> None:
    producer = module.TransactionalProducer
    if _STEP == "before copy":
        module.copy = _die
    elif _STEP == "during copy":
        copy = module.copy

        def copied_in_part(cluster: Any, producer: Any, topic: str, batches: Any, *rest: Any) -> None:
            copy(cluster, producer, topic, list(batches)[:1], *rest)
            producer.flush()
            _die()

        module.copy = copied_in_part
    elif _STEP == "between portions":
        _split(module)
    elif _STEP == "before end":
        producer.commit = _die
    elif _STEP == "after end":
        commit = producer.commit

        def committed(self: Any, timeout_ms: int | None = None) -> None:
            commit(self, timeout_ms)
            _die()

        producer.commit = committed


def _split(module: Any) -> None:
    commit = module.TransactionalProducer.commit
    commits: list[object] = []

    def pace(clock: object, rows: int, timeout_ms: int) -> Any:
        def check(copied: int) -> None:
            if rows > 10:
                raise module.TooSlow(10)

        return check

    def counted(self: Any, timeout_ms: int | None = None) -> None:
        commits.append(self)
        if len(commits) == 3:
            _die()
        commit(self, timeout_ms)

    module.Pace = pace
    module.TransactionalProducer.commit = counted


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != _MODULE:
            return None
        spec = PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.loader is not None
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            _patch(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if _STEP:
    sys.meta_path.insert(0, _Finder())

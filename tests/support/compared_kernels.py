"""A pytest plugin that runs every kernel twice: as the process has it, and as a wheel would bring it.

    MINIKAFKA_READY_MADE=FILE pytest -p tests.support.compared_kernels tests/unit/records

Both get the same arguments. The results, and what is in each array afterwards, must be equal byte for byte.
The summary counts the calls, and the run fails if there were none. Tests that measure memory are left as they
are.
"""

from __future__ import annotations

import copy
import json
import os
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minikafka.records import kernels
from minikafka.records.kernels import cache
from minikafka.records.kernels.native import Kernel, Loader
from minikafka.records.kernels.targets import TARGETS

FILE = Path(os.environ["MINIKAFKA_READY_MADE"])
TARGET = next(target for target in TARGETS if target.file_name == FILE.name)

calls: Counter[str] = Counter()


def compare_all(addresses: dict[str, int]) -> None:
    """Let every call of a kernel be made by both codes."""
    call: Any = Kernel.__call__
    others: dict[str, Kernel] = {}

    def other(kernel: Kernel) -> Kernel:
        name = kernel.__name__
        if name not in others:
            others[name] = copy.copy(kernel)
            others[name].function = type(kernel.function)(addresses[name])
        return others[name]

    def both(kernel: Kernel, *given: Any) -> int:
        if tracemalloc.is_tracing():
            return call(kernel, *given)  # type: ignore[no-any-return]
        copied = [value.copy() if isinstance(value, np.ndarray) else value for value in given]
        result: int = call(kernel, *given)
        calls[kernel.__name__] += 1
        assert call(other(kernel), *copied) == result, f"{kernel.__name__}: another result"
        for number, (value, changed) in enumerate(zip(given, copied, strict=True)):
            if isinstance(value, np.ndarray):
                assert value.tobytes() == changed.tobytes(), f"{kernel.__name__}: argument {number} differs"
        return result

    class Repeated:
        """A prepared call that is made by both codes."""

        def __init__(self, kernel: Kernel, *given: Any) -> None:
            self._kernel, self._given = kernel, list(given)

        def __call__(self) -> int:
            return both(self._kernel, *self._given)

        def replace(self, index: int, array: Any) -> None:
            self._kernel.words(self._kernel.arguments[index : index + 1], (array,))
            self._given[index] = array

    Kernel.__call__ = both  # type: ignore[method-assign]
    prepared: Any = Kernel.prepared

    def prepared_of_both(kernel: Kernel, *given: Any) -> Any:
        prepared(kernel, *given)  # it refuses what it would refuse
        return Repeated(kernel, *given)

    Kernel.prepared = prepared_of_both  # type: ignore[method-assign]


def pytest_configure(config: pytest.Config) -> None:
    """Load both codes."""
    kernels.warm_up()
    codes = cache._unpacked(cache._target_state(TARGET), FILE.read_text())
    assert codes is not None, f"{FILE} is damaged, or was made of other sources"
    loader = Loader()
    config.add_cleanup(lambda: loader and None)  # the code lives as long as its loader
    compare_all(loader.load(codes))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Count the calls."""
    terminalreporter.write_line(json.dumps({"compared": calls.total(), "kernels": sorted(calls)}))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if nothing was compared."""
    if not calls and not session.exitstatus:
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED

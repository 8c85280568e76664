"""The machines for which a wheel may bring the kernels' machine code ready-made.

A target is the least of its kind that is in use: of x86-64 what every processor since 2011 has (x86-64-v2 and
the carry-less multiplication of ``folding``), of ARM what all have. Code for exactly one processor is a tenth
faster at most, in kernels alone (decision 0034). numba compiles for a target by its own settings of processor
and features, and for the triple that ``compiler`` gives it. The object files need nothing of the system or of
the version of Python or LLVM, so one file serves all of a target's machines.
"""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass

from llvmlite import binding  # type: ignore[import-untyped]

COMPILES_FOR = "MINIKAFKA_COMPILING_KERNELS"
"""The environment variable of a compiling child: the name of a target, or NATIVE."""
NATIVE = "native"


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of processor on an operating system."""

    name: str
    machines: tuple[str, ...]
    """Its names in ``platform.machine()``."""
    triple: str
    cpu: str
    """LLVM's name of the processor."""
    extra_features: tuple[str, ...]
    """Features that code uses beyond those of ``cpu``."""
    needed_features: tuple[str, ...]
    """Features that a processor must have, by LLVM's names."""

    @property
    def file_name(self) -> str:
        """The file with the code, beside the kernels' sources."""
        return f"{self.name}.json"

    def runs_here(self) -> bool:
        """Return True if this machine executes the target's code."""
        if sys.platform != "linux" or platform.machine() not in self.machines:
            return False
        features = binding.get_host_cpu_features() if self.needed_features else {}
        return all(features.get(name) for name in self.needed_features)


TARGETS = (
    Target(
        name="x86_64-linux",
        machines=("x86_64", "AMD64"),
        triple="x86_64-unknown-linux-gnu",
        cpu="x86-64-v2",
        extra_features=("pclmul",),
        needed_features=("cx16", "pclmul", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"),
    ),
    Target(
        name="aarch64-linux",
        machines=("aarch64", "arm64"),
        triple="aarch64-unknown-linux-gnu",
        cpu="generic",
        extra_features=(),
        needed_features=(),
    ),
)


def for_this_machine() -> Target | None:
    """Return the target that this machine executes; None if there is none."""
    return next((target for target in TARGETS if target.runs_here()), None)


def compiled_for() -> Target | None:
    """Return the target for which this child process compiles; None for this machine itself."""
    name = os.environ.get(COMPILES_FOR)
    return next((target for target in TARGETS if target.name == name), None)

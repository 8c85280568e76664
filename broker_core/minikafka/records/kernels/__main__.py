"""Compile the kernels ahead of time: ``python -m minikafka.records.kernels [--output DIR] [--ready-made]``.

Without ``--output`` the machine code goes into the installation, where all its users find it: for an image,
or a host whose users cannot write there. It is for processors with the same features as this one; others
compile it again. With ``--ready-made`` it is what a wheel brings, for every machine of ``targets``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from minikafka.records.kernels import cache
from minikafka.records.kernels.targets import TARGETS


def main(arguments: list[str] | None = None) -> int:
    """Compile, and print the paths of the machine code. Return 1 on failure."""
    parser = argparse.ArgumentParser(
        prog="python -m minikafka.records.kernels", description="Compile the kernels ahead of time."
    )
    parser.add_argument("--output", type=Path, metavar="DIR", help="in place of the installation")
    parser.add_argument("--ready-made", action="store_true", help="for all machines that a wheel serves")
    options = parser.parse_args(arguments)
    if options.ready_made:
        return _make_ready(options.output or Path(cache.__file__).parent)
    found = cache.compile_ahead(options.output or cache.beside_sources())
    if found is None:
        return 1
    sys.stdout.write(f"{found}\n")
    return 0


def _make_ready(directory: Path) -> int:
    try:
        for target in TARGETS:
            sys.stdout.write(f"{cache.make_ready(directory, target)}\n")
    except (OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"minikafka: failed to compile the kernels into {directory}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Compile the kernels ahead of time: ``python -m minikafka.records.kernels [--output DIR]``.

Without ``--output`` the machine code goes into the installation, where all its users find it: for an image,
or a host whose users cannot write there. It is for processors with the same features as this one; others
compile it again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from minikafka.records.kernels import cache


def main(arguments: list[str] | None = None) -> int:
    """Compile, and print the path of the machine code. Return 1 on failure."""
    parser = argparse.ArgumentParser(
        prog="python -m minikafka.records.kernels", description="Compile the kernels ahead of time."
    )
    parser.add_argument("--output", type=Path, default=cache.beside_sources(), metavar="DIR")
    found = cache.compile_ahead(parser.parse_args(arguments).output)
    if found is None:
        return 1
    sys.stdout.write(f"{found}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Compile the kernels ahead of time: ``python -m minikafka.records.kernels [--output DIR]``.

Without ``--output`` the machine code goes into the installation, where every user of it finds it: for an
image, or a host whose users cannot write. It is for processors with the same features as this one; on others
it is compiled anew.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from minikafka.records.kernels import cache


def main(arguments: list[str] | None = None) -> int:
    """Compile, and print where the machine code lies. Status 1 when that cannot be."""
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

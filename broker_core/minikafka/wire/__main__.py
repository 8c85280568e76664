"""Print all APIs, versions and fields of the schemas."""

from __future__ import annotations

import sys

from minikafka.wire.api_table import describe


def main() -> None:
    """Write the table to stdout."""
    sys.stdout.write(describe() + "\n")


if __name__ == "__main__":
    main()

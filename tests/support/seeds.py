"""How many seeds the tests with faults by chance try: few in every run, many in scripts/soak."""

from __future__ import annotations

import os


def seeds(usual: int) -> range:
    """Seeds from MINIKAFKA_FIRST_SEED (1) on: ``usual``, or MINIKAFKA_SEEDS where that is more.

    A failing test names its seed.
    """
    first = int(os.environ.get("MINIKAFKA_FIRST_SEED", "1"))
    return range(first, first + max(usual, int(os.environ.get("MINIKAFKA_SEEDS", "0"))))

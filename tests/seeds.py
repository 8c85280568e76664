"""How many seeds the tests with faults by chance try: few in every run, many in scripts/soak."""

from __future__ import annotations

import os


def seeds(usual: int) -> range:
    """1 to ``usual``, or to MINIKAFKA_SEEDS where that is more. A failing test names its seed."""
    return range(1, 1 + max(usual, int(os.environ.get("MINIKAFKA_SEEDS", "0"))))

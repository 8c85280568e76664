"""What every test of the project shares.

Hypothesis profiles: ``default`` for each run; ``--hypothesis-profile=thorough`` for a long search. No profile
has a deadline, because a busy machine is no finding; both print what replays a failure.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent

settings.register_profile(
    "default", max_examples=50, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=2_000)
settings.load_profile("default")

WITH_PROCESSES = ("faults", "interop", "spark", "unit/embedded")
"""Directories whose tests are all marked ``process``; elsewhere a test that starts one says so itself."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the pure suite (``-m "not process and not slow"``) free of real processes."""
    directories = tuple(ROOT / name for name in WITH_PROCESSES)
    for item in items:
        if any(directory in item.path.parents for directory in directories):
            item.add_marker(pytest.mark.process)

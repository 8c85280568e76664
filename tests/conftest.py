"""What every test of the project shares.

Hypothesis profiles: ``default`` for each run; ``--hypothesis-profile=thorough`` for a long search. No profile
has a deadline, because a busy machine is no finding; both print what replays a failure.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "default", max_examples=25, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=2_000)
settings.load_profile("default")

WITH_PROCESSES = ("faults", "interop", "spark", "unit/embedded")
"""Directories whose tests are all marked ``process``; elsewhere a test that starts one says so itself."""

ONE_BY_ONE = ("faults", "spark")
"""Directories whose tests share no fixture but ``spark``: each of them can go to another pytest worker."""

# The tests start many Java programs that live for seconds: these come up in half the time.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Keep the pure suite (``-m "not process and not slow"``) free of real processes.

    For ``-n N --dist loadgroup``: tests that share a costly fixture stay on one worker.
    """
    if _is_in(item, WITH_PROCESSES):
        item.add_marker(pytest.mark.process)
    group = _group(item)
    if group is not None:
        item.add_marker(pytest.mark.xdist_group(group))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest comes first (with ``--no-loadscope-reorder``): nobody waits for it at the end."""
    items.sort(key=_rank)


def _is_in(item: pytest.Item, directories: tuple[str, ...]) -> bool:
    return item.nodeid.startswith(tuple(f"tests/{name}/" for name in directories))


def _uses_the_session(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ())


def _group(item: pytest.Item) -> str | None:
    if _uses_the_session(item):
        return "spark session"
    return None if _is_in(item, ONE_BY_ONE) else item.path.stem


def _rank(item: pytest.Item) -> int:
    if _uses_the_session(item):
        return 0
    return 1 if item.get_closest_marker("slow") or _is_in(item, ("spark",)) else 2

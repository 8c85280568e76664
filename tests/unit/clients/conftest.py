"""A group of consumers for each test, which are closed at its end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.group_consumer_harness import GroupHarness


@pytest.fixture
def harness() -> Iterator[GroupHarness]:
    harness = GroupHarness()
    yield harness
    for consumer in harness.consumers:
        consumer.close()

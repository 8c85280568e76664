"""What scenarios without a script share."""

from __future__ import annotations

import pytest

from tests.support.simulation import Simulation


@pytest.fixture
def simulation() -> Simulation:
    """Machines without brokers."""
    return Simulation()

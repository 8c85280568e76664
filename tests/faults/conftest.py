"""What tests of faults share."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Silence the product's log of each fault."""
    caplog.set_level(logging.CRITICAL + 1, logger="minikafka")

"""Fixtures of the tests of faults."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.attack import AttackedBroker


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Silence the product's log of each fault."""
    caplog.set_level(logging.CRITICAL + 1, logger="minikafka")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AttackedBroker]:
    with AttackedBroker(tmp_path / "data") as broker:
        broker.create_topic("steady", 1, retention_ms="-1")
        yield broker

"""What the tests of logs share."""

from __future__ import annotations

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.log import Log
from minikafka.log.manager import LogManager
from tests.support.logs import NOW_MS, manager_of, open_log


@pytest.fixture
def files() -> MemoryFiles:
    """A disk in memory, at NOW_MS."""
    return MemoryFiles(clock=ManualClock(NOW_MS))


@pytest.fixture
def log(files: MemoryFiles) -> Log:
    return open_log(files)


@pytest.fixture
def manager(files: MemoryFiles) -> LogManager:
    """The logs of a broker with the directory ``d1``."""
    return manager_of(files)

"""A work pool whose jobs wait until a test runs them."""

from __future__ import annotations

from collections import deque

from minikafka.server.workers.work_pool import Steps


class HoldingPool:
    """See ``server.workers.work_pool.WorkPool``."""

    def __init__(self) -> None:
        self.jobs: deque[Steps] = deque()

    def submit(self, steps: Steps) -> None:
        self.jobs.append(steps)

    def stop(self) -> None:
        pass

    def run(self) -> int:
        """Run all jobs; how many steps they had."""
        count = 0
        while self.jobs:
            count += sum(1 for _ in self.jobs.popleft())
        return count

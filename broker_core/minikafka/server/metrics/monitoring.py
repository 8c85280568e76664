"""The monitoring of one broker process, from before the start of its broker to the end.

Without an address in ``metrics.listeners`` it only counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from minikafka.net.interfaces import Connector
from minikafka.server.assembly import RunningBroker
from minikafka.server.config.metrics import HttpAddress
from minikafka.server.metrics.broker_collector import BrokerCollector
from minikafka.server.metrics.broker_metrics import BrokerMetrics, GcPauses
from minikafka.server.metrics.end_offsets import EndOffsets
from minikafka.server.metrics.health import Health
from minikafka.server.metrics.metrics_endpoint import MetricsEndpoint


class Monitoring:
    """Counts for a broker, and serves its metrics and its health."""

    def __init__(self) -> None:
        self._started_s = time.time()
        self._health = Health()
        self._endpoint: MetricsEndpoint | None = None
        self._ends = ExitStack()
        self.metrics = BrokerMetrics()

    @property
    def urls(self) -> list[str]:
        """The addresses of the endpoint."""
        return [] if self._endpoint is None else self._endpoint.urls

    def listen(self, addresses: Sequence[HttpAddress]) -> None:
        """Serve the health of the process. Raises NetworkError for an address that cannot be used."""
        if addresses:
            self._endpoint = MetricsEndpoint(addresses, self._health)
            self._ends.callback(self._endpoint.stop)
            self._ends.callback(GcPauses(self.metrics.gc_pauses).close)

    def watch(self, running: RunningBroker, connector: Callable[[], Connector]) -> None:
        """Serve the metrics of a broker that has started. connector: makes that to other brokers."""
        self._health.started(running)
        if self._endpoint is not None:
            ends = EndOffsets(running.broker, connector())
            self._ends.callback(ends.close)
            collector = BrokerCollector(running, self._health, ends, self._started_s)
            self._endpoint.collect = collector.expose

    def stopping(self) -> None:
        """Report that the broker is not ready any more."""
        self._health.stopping()

    def stop(self) -> None:
        """Stop serving."""
        self._ends.close()

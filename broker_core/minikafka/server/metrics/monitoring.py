"""The monitoring of one broker process, from before the start of its broker to the end.

Without an address in ``metrics.listeners``, or for a push, it only counts, and requests not even that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

from minikafka.net.interfaces import Connector
from minikafka.server.assembly import RunningBroker
from minikafka.server.config.properties import BrokerConfig
from minikafka.server.metrics.broker_collector import BrokerCollector
from minikafka.server.metrics.broker_metrics import BrokerMetrics, GcPauses
from minikafka.server.metrics.end_offsets import EndOffsets
from minikafka.server.metrics.health import Health
from minikafka.server.metrics.metrics_endpoint import MetricsEndpoint
from minikafka.server.metrics.otlp import OtlpPusher, check_packages


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

    def listen(self, config: BrokerConfig) -> None:
        """Serve the health of the process. Raises NetworkError for an address that cannot be used, and
        ConfigError for a push without its packages.
        """
        check_packages(config.metrics.otlp)
        if config.metrics.listeners:
            self._endpoint = MetricsEndpoint(config.metrics.listeners, self._health)
            self._ends.callback(self._endpoint.stop)
            self._ends.callback(GcPauses(self.metrics.gc_pauses).close)

    def watch(self, running: RunningBroker, connector: Callable[[], Connector]) -> None:
        """Serve and push the metrics of a broker that has started. connector: makes that to other brokers."""
        self._health.started(running)
        broker, otlp = running.broker, running.broker.config.metrics.otlp
        if not broker.config.metrics.are_served:
            return
        ends = EndOffsets(broker, connector())
        self._ends.callback(ends.close)
        collector = BrokerCollector(running, self._health, ends, self._started_s)
        if self._endpoint is not None:
            self._endpoint.collect = collector.expose
        if otlp.endpoint:
            resource = {
                "service.name": "minikafka",
                "service.namespace": broker.metadata_cache.cluster_id,
                "service.instance.id": str(broker.broker_id),
            }
            self._ends.callback(OtlpPusher(otlp, collector.expose, resource).close)

    def stopping(self) -> None:
        """Report that the broker is not ready any more."""
        self._health.stopping()

    def stop(self) -> None:
        """Stop serving."""
        self._ends.close()

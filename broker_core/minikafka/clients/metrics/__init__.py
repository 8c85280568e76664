"""The metrics of clients, under the names of Kafka's Java clients, as kafka-python shows them.

    {"producer-metrics": {"record-send-total": 20.0, …}, "producer-topic-metrics.orders": {…}, …}

``sensor`` measures numbers over windows of time, ``registry`` has the table of all names and turns sensors
into such a mapping, and there is a module for each kind of client. They import ``base`` alone, so that every
client can have them. ``prometheus_text`` returns the metrics of clients as Prometheus reads them, for the
content type ``PROMETHEUS_TEXT``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minikafka.base.exports import lazy_exports

if TYPE_CHECKING:
    from minikafka.clients.metrics.prometheus import PROMETHEUS_TEXT, prometheus_text

__all__ = ["PROMETHEUS_TEXT", "prometheus_text"]

__getattr__ = lazy_exports(__name__, dict.fromkeys(__all__, "minikafka.clients.metrics.prometheus"))

"""The metrics of streaming queries: see ``pyspark_minikafka.monitoring``."""

from pyspark_minikafka.monitoring.metrics_listener import MetricsListener
from pyspark_minikafka.monitoring.query_metrics import (
    PartitionMetrics,
    QueryMetrics,
    ReadTotals,
    SourceMetrics,
)

__all__ = ["MetricsListener", "PartitionMetrics", "QueryMetrics", "ReadTotals", "SourceMetrics"]

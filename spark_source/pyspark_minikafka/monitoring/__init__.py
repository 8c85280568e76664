"""The progress of streaming queries, and how far they are behind their topics, for the user's program.

``query_progress`` has the values, made from what Spark reports of each batch; ``lag`` looks up the present
ends of the logs; ``listener`` writes lines to the driver's log. Nothing here runs in Spark's Python workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minikafka.base.exports import lazy_exports

if TYPE_CHECKING:
    from pyspark_minikafka.monitoring.query_progress import PartitionProgress, QueryProgress, SourceProgress

__all__ = ["PartitionProgress", "QueryProgress", "SourceProgress"]

__getattr__ = lazy_exports(__name__, dict.fromkeys(__all__, "pyspark_minikafka.monitoring.query_progress"))

"""Clients of other projects, without the warnings that their imports give."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import confluent_kafka
    import confluent_kafka.admin
    import kafka

__all__ = ["confluent_kafka", "kafka"]

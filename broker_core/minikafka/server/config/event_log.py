"""The properties of the broker's own log, which are ours: Kafka has log4j."""

from __future__ import annotations

from dataclasses import dataclass

from minikafka.base.config.config_def import setting
from minikafka.base.config.types import choice, int32
from minikafka.base.log_lines import LOG_FORMAT, LogFormat

EVENT_LOG = "The broker's own log"
"""The section of the reference page."""
SLOW_REQUEST_MS = 5_000
"""A sixth of the time that clients wait for a response by default: a healthy broker never takes that long."""


@dataclass(frozen=True, slots=True)
class EventLogConfig:
    """The configuration of the broker's own log."""

    form: LogFormat = setting(
        LOG_FORMAT,
        choice({form.value: form for form in LogFormat}),
        "text",
        "The form of the broker's own log lines: `text`, or `json` with one object a line.",
    )
    slow_request_ms: int = setting(
        "slow.request.ms",
        int32(-1),
        SLOW_REQUEST_MS,
        "A request that takes the broker so long is logged with its times. -1: none. What a fetch or a "
        "consumer's join waits for does not count.",
    )

"""The properties of replication between brokers, and between the data directories of a broker."""

from __future__ import annotations

from dataclasses import dataclass

from minikafka.base.config.config_def import setting
from minikafka.base.config.types import int32, int64, seconds
from minikafka.log.config import REPLICATION

CONTROLLER, QUOTAS = "Controller", "Quotas"
"""Sections of the reference page, beside REPLICATION."""


@dataclass(frozen=True, slots=True)
class ReplicationConfig:
    """The configuration of replication. Times are milliseconds, sizes bytes."""

    fetchers: int = setting("num.replica.fetchers", int32(1), 1, "Fetcher threads for each leading broker.")
    fetch_max_bytes: int = setting(
        "replica.fetch.max.bytes", int32(0), 1_048_576, "Bytes of one partition in a response to a follower."
    )
    fetch_response_max_bytes: int = setting(
        "replica.fetch.response.max.bytes", int32(0), 10_485_760, "Bytes of a whole response to a follower."
    )
    fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms", int32(0), 500, "How long a leader may wait for messages for a follower."
    )
    fetch_min_bytes: int = setting("replica.fetch.min.bytes", int32(0), 1, "Bytes for which a leader waits.")
    fetch_backoff_ms: int = setting(
        "replica.fetch.backoff.ms", int32(0), 1_000, "The longest wait after an error."
    )
    socket_timeout_ms: int = setting(
        "replica.socket.timeout.ms", int32(1), 30_000, "How long to wait for the answer of a leader."
    )
    lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms", int64(1), 10_000, "How long a follower may lag before it leaves the ISR."
    )
    checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms",
        int64(1),
        5_000,
        "How often high watermarks are written.",
    )
    controller_timeout_ms: int = setting(
        "controller.socket.timeout.ms",
        int32(1),
        30_000,
        "How long the controller waits for a broker's answer.",
        CONTROLLER,
    )
    throttle_windows: int = setting(
        "replication.quota.window.num",
        int32(1),
        11,
        "Windows over which the rate of throttled replicas is measured.",
        QUOTAS,
    )
    throttle_window_ms: int = setting(
        "replication.quota.window.size.seconds", seconds(int32(1)), 1, "The length of a window.", QUOTAS
    )
    alter_log_dirs_threads: int | None = setting(
        "num.replica.alter.log.dirs.threads",
        int32(1),
        None,
        "Threads that copy logs between directories; by default one a directory.",
        REPLICATION,
    )
    alter_log_dirs_windows: int = setting(
        "alter.log.dirs.replication.quota.window.num",
        int32(1),
        11,
        "Windows over which the rate of such copies is measured.",
        QUOTAS,
    )
    alter_log_dirs_window_ms: int = setting(
        "alter.log.dirs.replication.quota.window.size.seconds",
        seconds(int32(1)),
        1,
        "The length of such a window.",
        QUOTAS,
    )

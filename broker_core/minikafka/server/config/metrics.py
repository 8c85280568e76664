"""The properties of the metrics endpoint, which are ours: Kafka has JMX."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from minikafka.base.config.config_def import setting
from minikafka.base.config.types import int32, text_type
from minikafka.base.ids import host_port

METRICS = "Metrics and health"
"""The section of the reference page."""
METRICS_LISTENERS = "metrics.listeners"


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """An address of the metrics endpoint."""

    host: str
    """"": all addresses."""
    port: int
    """0: a free port."""


def _addresses(text: str) -> tuple[HttpAddress, ...]:
    return tuple(_address(part.strip()) for part in text.split(",") if part.strip())


def _address(text: str) -> HttpAddress:
    url = urlsplit(text)
    if url.scheme != "http" or url.port is None or url.path not in {"", "/"} or url.query or url.username:
        raise ValueError
    return HttpAddress(url.hostname or "", url.port)


def _collector(text: str) -> str:
    url = urlsplit(text)
    if "@" in url.netloc:
        raise ValueError("must not have a user: give headers in the environment, OTEL_EXPORTER_OTLP_HEADERS")
    if text and (url.scheme not in {"http", "https"} or not url.hostname or url.port == 0):
        raise ValueError
    return text


def listeners_of(text: str, number: int) -> str:
    """Return the addresses of broker ``number`` of a cluster on one host, whose first broker has ``text``.

    Each has the next port. Raises ValueError for an invalid text.
    """
    addresses = ((address.host, address.port and address.port + number) for address in _addresses(text))
    return ",".join(f"http://{host_port(host, port)}" for host, port in addresses)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error:
        raise ValueError from None


_PATTERN = text_type("a regular expression", _pattern)
_NOTHING = "^$"


OTLP_ENDPOINT = "metrics.otlp.endpoint"


@dataclass(frozen=True, slots=True)
class OtlpConfig:
    """The configuration of the push to a collector of OpenTelemetry."""

    endpoint: str = setting(
        OTLP_ENDPOINT,
        text_type("an address as http://HOST:PORT/v1/metrics, or empty", _collector),
        "",
        "The address for metrics of an OpenTelemetry collector (OTLP over HTTP), to which they are pushed. "
        "Empty: none. Headers come from the environment, `OTEL_EXPORTER_OTLP_HEADERS`. Needs "
        "`minikafka[otel]`.",
    )
    interval_ms: int = setting(
        "metrics.otlp.interval.ms", int32(1), 60_000, "How often metrics are pushed there."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """The configuration of metrics."""

    otlp: OtlpConfig
    listeners: tuple[HttpAddress, ...] = setting(
        METRICS_LISTENERS,
        text_type("addresses as http://HOST:PORT, separated by commas", _addresses),
        "",
        "The addresses of `/metrics`, `/livez` and `/readyz`, which need no login. Empty: none.",
    )
    topic_filter: re.Pattern[str] = setting(
        "metrics.topic.filter",
        _PATTERN,
        ".*",
        "Topics with metrics of their own: a regular expression that matches any part of the name.",
    )
    topic_exclude: re.Pattern[str] = setting(
        "metrics.topic.exclude", _PATTERN, _NOTHING, "Topics among these without metrics of their own."
    )
    group_filter: re.Pattern[str] = setting(
        "metrics.group.filter",
        _PATTERN,
        ".*",
        "Groups with metrics of their own: a regular expression that matches any part of the name.",
    )
    group_exclude: re.Pattern[str] = setting(
        "metrics.group.exclude", _PATTERN, _NOTHING, "Groups among these without metrics of their own."
    )
    client_filter: re.Pattern[str] = setting(
        "metrics.client.filter",
        _PATTERN,
        ".*",
        "Clients whose use of quotas has metrics: a regular expression that matches any part of "
        "`user=USER,client-id=ID`. USER or ID is empty where all of them share a quota.",
    )
    client_exclude: re.Pattern[str] = setting(
        "metrics.client.exclude", _PATTERN, _NOTHING, "Clients among these without such metrics."
    )
    max_series: int = setting(
        "metrics.max.series",
        int32(0),
        200_000,
        "The most series of topics, partitions, groups and quotas. What is above is left out and counted.",
    )

    @property
    def are_served(self) -> bool:
        """True if anybody can read metrics."""
        return bool(self.listeners or self.otlp.endpoint)

    def wants_topic(self, topic: str) -> bool:
        """Return True for a topic with metrics of its own."""
        return self.topic_filter.search(topic) is not None and self.topic_exclude.search(topic) is None

    def wants_group(self, group_id: str) -> bool:
        """Return True for a group with metrics of its own."""
        return self.group_filter.search(group_id) is not None and self.group_exclude.search(group_id) is None

    def wants_client(self, user: str, client_id: str) -> bool:
        """Return True for clients whose use of quotas has metrics; "" for all users, or all client ids."""
        text = f"user={user},client-id={client_id}"
        return self.client_filter.search(text) is not None and self.client_exclude.search(text) is None

"""The properties of metrics."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError
from minikafka.server.config.metrics import OTLP_ENDPOINT
from minikafka.server.config.properties import BrokerConfig


def endpoint(text: str) -> str:
    return BrokerConfig.from_properties(
        {"zookeeper.connect": "h:1", OTLP_ENDPOINT: text}
    ).metrics.otlp.endpoint


@pytest.mark.parametrize("text", ["", "http://h:4318/v1/metrics", "https://[::1]/v1/metrics"])
def test_an_address_of_a_collector_is_read(text: str) -> None:
    assert endpoint(text) == text


@pytest.mark.parametrize("text", ["h:4318", "ftp://h/v1/metrics", "http:///v1/metrics", "http://h:99999/"])
def test_another_address_of_a_collector_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=OTLP_ENDPOINT):
        endpoint(text)


@pytest.mark.parametrize("user", ["user:s3cret", "s3cret", ":s3cret"])
def test_a_collector_with_a_login_in_its_address_is_refused(user: str) -> None:
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_HEADERS") as caught:
        endpoint(f"https://{user}@h/v1/metrics")
    assert "s3cret" not in str(caught.value)

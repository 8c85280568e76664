"""The probes of a broker: live, ready, and the document that says why not."""

from __future__ import annotations

import json
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.base.exposition import MetricSink
from minikafka.server.metrics import health as health_module
from minikafka.server.metrics.health import BrokerState, Health
from minikafka.server.metrics.metrics_endpoint import MetricsEndpoint


def running(*, serving: bool = True, **changes: Any) -> Any:
    """A broker that is well but for ``changes``."""
    started = threading.Event()
    if serving:
        started.set()
    broker = SimpleNamespace(
        turns=lambda timeout_s: changes.get("turns", True),
        zk_client=SimpleNamespace(connected=changes.get("connected", True)),
        metadata_cache=SimpleNamespace(controller_id=changes.get("controller_id", 0)),
    )
    return SimpleNamespace(serving=started, broker=broker, stopped_threads=lambda: changes.get("ended", ""))


def health_of(broker: Any) -> Health:
    health = Health()
    health.started(broker)
    return health


def probe(health: Health, path: str) -> tuple[int, dict[str, str]]:
    response = MetricsEndpoint((), health).respond(path, "")
    assert response is not None
    return response.status, json.loads(response.body)["checks"]


def test_starting_process_is_live_and_not_ready() -> None:
    health = Health()
    assert probe(health, "/livez")[0] == 200
    assert probe(health, "/readyz") == (503, {"state": "starting"})
    assert health.state is BrokerState.STARTING


def test_broker_that_serves_is_live_and_ready() -> None:
    health = health_of(running())
    assert probe(health, "/livez")[0] == probe(health, "/readyz")[0] == 200
    assert health.state is BrokerState.RUNNING_AS_BROKER


def test_broker_without_metadata_is_not_ready() -> None:
    assert probe(health_of(running(serving=False)), "/readyz")[1]["state"] == "starting"


@pytest.mark.parametrize(
    ("change", "check", "complaint"),
    [({"connected": False}, "zookeeper", "no session"), ({"controller_id": -1}, "controller", "not known")],
)
def test_missing_peer_makes_it_unready_but_not_dead(
    change: dict[str, Any], check: str, complaint: str
) -> None:
    health = health_of(running(**change))
    status, checks = probe(health, "/readyz")
    assert (status, checks[check]) == (503, complaint)
    assert probe(health, "/livez")[0] == 200


def test_stopping_broker_is_live_and_not_ready() -> None:
    health = health_of(running())
    health.stopping()
    assert probe(health, "/readyz") == (
        503,
        {"state": "shutting_down", "zookeeper": "ok", "controller": "ok"},
    )
    assert probe(health, "/healthz")[0] == 200


def test_blocked_core_is_not_live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_module, "CORE_TIMEOUT_S", 0.01)
    status, checks = probe(health_of(running(turns=False)), "/livez")
    assert (status, checks["core"]) == (503, "its lock was not free for 0.01 s")


def test_ended_thread_is_not_live_and_named() -> None:
    status, checks = probe(health_of(running(ended="cleaner")), "/livez")
    assert (status, checks["threads"]) == (503, "ended: cleaner")


def test_unknown_path_has_no_response() -> None:
    assert MetricsEndpoint((), Health()).respond("/other", "") is None


def test_starting_process_has_its_state_in_the_metrics() -> None:
    response = MetricsEndpoint((), Health()).respond("/metrics", "")
    assert response is not None
    assert b"\nminikafka_broker_state 1\n" in response.body


def test_text_of_an_expensive_scrape_is_used_again() -> None:
    endpoint = MetricsEndpoint((), Health())
    scrapes: list[MetricSink] = []

    def collect(out: MetricSink) -> None:
        scrapes.append(out)
        began_s = time.monotonic()
        while time.monotonic() - began_s < 0.05:
            pass

    endpoint.collect = collect
    for _ in range(3):
        endpoint.respond("/metrics", "")
    assert len(scrapes) == 1

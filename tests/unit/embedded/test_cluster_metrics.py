"""The metrics and the health of real brokers, over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce.producer import BatchingProducer
from minikafka.embedded import Cluster
from minikafka.embedded.process import wait_until

pytestmark = pytest.mark.process
DEADLINE_S = 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, config={"metrics.listeners": "http://127.0.0.1:0"}) as cluster:
        yield cluster


def get(url: str, accept: str = "*/*") -> tuple[int, str, str]:
    """Return the status, the content type and the body."""
    request = urllib.request.Request(url, headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:
            return response.status, response.headers["Content-Type"], response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def scraped(url: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(get(url)[2])}


def test_each_broker_has_metrics_of_its_own(cluster: Cluster) -> None:
    assert len(cluster.metrics_urls) == 2
    ids = []
    for url in cluster.metrics_urls:
        (sample,) = scraped(url)["minikafka_build_info"].samples
        ids.append(sample.labels["broker_id"])
    assert ids == ["0", "1"]


def test_both_forms_of_text_have_the_same_series(cluster: Cluster) -> None:
    url = cluster.metrics_urls[0]
    status, kind, text = get(url, "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert (status, kind) == (200, "application/openmetrics-text; version=1.0.0; charset=utf-8")
    names = {family.name for family in openmetrics.text_string_to_metric_families(text)}
    assert names == set(scraped(url))


def test_requests_of_real_clients_are_timed(cluster: Cluster) -> None:
    cluster.create_topic("timed", replicas=2)
    with ClusterClient(cluster.bootstrap_servers) as client, BatchingProducer(client) as producer:
        producer.send("timed", b"a message").result()

    def produce_requests() -> float:
        samples = [
            sample
            for url in cluster.metrics_urls
            for sample in scraped(url)["minikafka_request_duration_seconds"].samples
        ]
        return sum(
            sample.value
            for sample in samples
            if sample.labels.get("api") == "Produce" and sample.name.endswith("_count")
        )

    # A request is counted a moment after its client has the response.
    assert wait_until(lambda: produce_requests() == 1, DEADLINE_S)


def test_probes_answer_with_a_document(cluster: Cluster) -> None:
    for url in cluster.metrics_urls:
        base = url.removesuffix("/metrics")
        for path in ("/livez", "/readyz", "/healthz"):
            status, kind, body = get(base + path)
            assert (status, kind, json.loads(body)["status"]) == (200, "application/json", "ok"), path


def test_restarted_broker_serves_metrics_again(cluster: Cluster) -> None:
    url = cluster.metrics_urls[-1]
    cluster.stop_broker(1)
    assert not _answers(url)
    cluster.restart(1)
    assert wait_until(lambda: _answers(cluster.metrics_urls[-1]), DEADLINE_S)


def _answers(url: str) -> bool:
    try:
        return get(url)[0] == 200
    except OSError:
        return False

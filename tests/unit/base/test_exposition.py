"""The text of metrics, as Prometheus's own parsers read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from prometheus_client import Metric as ParsedMetric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from minikafka.base.exposition import Exposition, wants_openmetrics
from minikafka.base.metrics import BOUNDS_S, Kind, Metric, TimeHistogram

SENT = Metric("sent_total", Kind.COUNTER, "Messages\nsent \\ all.", ("topic",))
TEMPERATURE = Metric("temperature", Kind.GAUGE, "Degrees.")
TIMES = Metric("request_seconds", Kind.HISTOGRAM, "Times.")

Parse = Callable[[str], Iterable[ParsedMetric]]
FORMS = pytest.mark.parametrize(
    ("is_openmetrics", "parse"),
    [(False, text_string_to_metric_families), (True, openmetrics.text_string_to_metric_families)],
    ids=["text", "openmetrics"],
)


def parsed(out: Exposition, parse: Parse) -> dict[str, ParsedMetric]:
    return {family.name: family for family in parse(out.encode().decode())}


@FORMS
def test_parsers_read_counters_gauges_and_histograms(is_openmetrics: bool, parse: Parse) -> None:
    times = TimeHistogram()
    times.observe(1_000_000)
    out = Exposition(openmetrics=is_openmetrics)
    out.add_all(SENT, [(("t",), 3), (("u",), 0)])
    out.add(TEMPERATURE, -1.5)
    out.add_histograms(TIMES, {(): times.read()})
    found = parsed(out, parse)
    assert {name: family.type for name, family in found.items()} == {
        "sent": "counter",
        "temperature": "gauge",
        "request_seconds": "histogram",
    }
    assert [(sample.labels["topic"], sample.value) for sample in found["sent"].samples] == [
        ("t", 3),
        ("u", 0),
    ]
    buckets = [sample for sample in found["request_seconds"].samples if sample.name.endswith("_bucket")]
    assert [float(sample.labels["le"]) for sample in buckets] == [*BOUNDS_S, float("inf")]
    assert [sample.value for sample in buckets].count(0) == sum(bound < 0.001 for bound in BOUNDS_S)


@FORMS
@pytest.mark.parametrize("value", ['a"b', "back\\slash", "two\nlines", "naïve \U0001f600", "}{,=", ""])
def test_any_label_value_survives(is_openmetrics: bool, parse: Parse, value: str) -> None:
    out = Exposition(openmetrics=is_openmetrics)
    out.add(SENT, 1, value)
    (sample,) = parsed(out, parse)["sent"].samples
    assert sample.labels == {"topic": value}


@FORMS
def test_rows_have_the_labels_of_their_own_metrics(is_openmetrics: bool, parse: Parse) -> None:
    read = Metric("read_total", Kind.COUNTER, "Messages.", ("group", "topic"))
    lost = Metric("lost_total", Kind.COUNTER, "Messages.", ("group", "topic"))
    out = Exposition(openmetrics=is_openmetrics)
    out.add_rows((read, lost), [(("g", "t"), 1, 2), (('"', 7), 3, 4)])
    out.add(SENT, 5, "t")
    found = parsed(out, parse)
    samples = {
        (name, *sample.labels.items()): sample.value
        for name, family in found.items()
        for sample in family.samples
    }
    assert samples == {
        ("read", ("group", "g"), ("topic", "t")): 1,
        ("read", ("group", '"'), ("topic", "7")): 3,
        ("lost", ("group", "g"), ("topic", "t")): 2,
        ("lost", ("group", '"'), ("topic", "7")): 4,
        ("sent", ("topic", "t")): 5,
    }


@FORMS
def test_metric_without_samples_is_left_out(is_openmetrics: bool, parse: Parse) -> None:
    out = Exposition(openmetrics=is_openmetrics)
    out.add_all(SENT, [])
    out.add_histograms(TIMES, {})
    assert parsed(out, parse) == {}


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain;version=0.0.4;q=1,*/*;q=0.1", False),
        (
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75",
            True,
        ),
        ("application/openmetrics-text;q=0", False),
        ("text/plain, application/openmetrics-text; version=1.0.0; q=0.5", True),
    ],
)
def test_openmetrics_is_chosen_by_accept(accept: str, wanted: bool) -> None:
    assert wants_openmetrics(accept) is wanted

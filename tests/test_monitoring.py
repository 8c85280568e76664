"""The files of ``deploy/monitoring``: what they ask for is there, and Prometheus takes them."""

from __future__ import annotations

import json
import re
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from minikafka.base.metrics import Kind
from minikafka.cli.up import DEFAULT_METRICS_PORT
from minikafka.clients.metrics import prometheus
from minikafka.registry.store import SessionState
from minikafka.server.config.properties import BROKER_CONFIG
from minikafka.server.metrics import definitions
from tests.support.prometheus import (
    ALERTS,
    DASHBOARD,
    MONITORING,
    dashboard,
    documents,
    needs_prometheus,
    panel_queries,
    panels,
    program,
    query,
    replaced,
    rules,
)

ROOT = MONITORING.parent.parent
COMMANDS = (ROOT / "docs/reference/cli.md").read_text("utf-8")
OF_PROMETHEUS = {"up": {"job", "instance"}, "ALERTS": {"job", "alertstate"}}
"""The series that Prometheus makes itself."""
OF_SCRAPES = {"job", "instance"}
VARIABLES = {
    "job": "minikafka",
    "instance": ".+",
    "topic": ".+",
    "group": ".+",
    "api": "Produce",
    "__rate_interval": "1m",
}


def known_series() -> dict[str, set[str]]:
    """Return every name that a query may have, with its labels."""
    known = dict(OF_PROMETHEUS)
    for metric in definitions.all_metrics():
        labels = OF_SCRAPES | set(metric.labels)
        if metric.kind is Kind.HISTOGRAM:
            known[f"{metric.name}_bucket"] = labels | {"le"}
            known |= {f"{metric.name}_sum": labels, f"{metric.name}_count": labels}
        else:
            known[metric.name] = labels
    for rule in rules():
        if "record" in rule:
            known[rule["record"]] = set(query(rule["expr"]).grouping)
    return known


KNOWN = known_series()


def unknown_names(expression: str) -> list[str]:
    """Return the metrics and labels of a query that do not exist."""
    found, labels = query(expression), set[str]()
    unknown = [] if found.selectors else ["no metric"]
    for name, asked in found.selectors:
        of_metric = KNOWN.get(name)
        if of_metric is None:
            unknown.append(name)
            continue
        labels |= of_metric
        unknown += [f"{name}{{{label}}}" for label in sorted(asked - of_metric)]
    return unknown + sorted(found.grouping - labels)


ALL_QUERIES = [*panel_queries(VARIABLES), *((rule.get("alert", "record"), rule["expr"]) for rule in rules())]


def test_queries_name_metrics_and_labels_that_exist() -> None:
    found = {title: unknown_names(expression) for title, expression in ALL_QUERIES}
    assert {title: unknown for title, unknown in found.items() if unknown} == {}


@pytest.mark.parametrize(
    ("expression", "unknown"),
    [
        ('sum by (topic) (rate(kafka_no_such{topic="t"}[1m]))', ["kafka_no_such", "topic"]),
        ('kafka_brokers{job="a", topic=~"b"}', ["kafka_brokers{topic}"]),
        ("sum by (api, color) (minikafka_requests_total offset 5m)", ["color"]),
        ("max by (le) (minikafka_gc_pause_seconds)", ["minikafka_gc_pause_seconds", "le"]),
        ("up == 1 and on (job) kafka_brokers > 1e3", []),
        ("1 + 1", ["no metric"]),
    ],
)  # fmt: skip
def test_a_name_that_does_not_exist_is_found(expression: str, unknown: list[str]) -> None:
    assert unknown_names(expression) == unknown


def test_variables_ask_for_labels_that_exist() -> None:
    asked = [
        re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
        for variable in dashboard()["templating"]["list"]
        if variable["type"] == "query"
    ]
    for found in asked:
        assert found is not None
        assert unknown_names(f"sum by ({found[2]}) ({replaced(found[1], VARIABLES)})") == []


def test_panels_are_told_apart_and_explained() -> None:
    ids = [panel["id"] for panel in panels()]
    assert len(set(ids)) == len(ids)
    shown = [panel for panel in panels() if panel["type"] != "row"]
    titles = [panel["title"] for panel in shown]
    assert len(set(titles)) == len(titles)
    assert [panel["title"] for panel in shown if not panel.get("description")] == []
    graphs = [panel for panel in shown if panel["type"] in {"stat", "timeseries"}]
    assert [panel["title"] for panel in graphs if not panel["fieldConfig"]["defaults"].get("unit")] == []


def test_lines_of_a_panel_have_a_legend_of_their_labels() -> None:
    for panel in panels():
        if panel["type"] != "timeseries":
            continue
        legends = [target["legendFormat"] for target in panel["targets"]]
        assert len(set(legends)) == len(legends), panel["title"]
        for target in panel["targets"]:
            named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert named <= query(target["expr"]).grouping | OF_SCRAPES, panel["title"]


def test_panels_do_not_overlap() -> None:
    places: dict[tuple[int, int], str] = {}
    for panel in panels():
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert x < 24
                assert places.setdefault((x, y), panel["title"]) == panel["title"]


def test_dashboard_uses_the_chosen_data_source() -> None:
    def sources(part: Any) -> list[Any]:
        if isinstance(part, list):
            return [found for item in part for found in sources(item)]
        if not isinstance(part, dict):
            return []
        own = [part["datasource"]] if "datasource" in part else []
        return own + [found for item in part.values() for found in sources(item)]

    assert {json.dumps(found) for found in sources(dashboard())} == {
        '{"type": "prometheus", "uid": "${datasource}"}'
    }


def test_alerts_say_how_bad_it_is_and_what_to_do() -> None:
    for rule in rules():
        if "alert" in rule:
            assert rule["labels"]["severity"] in {"critical", "warning"}
            assert set(rule["annotations"]) == {"summary", "description"}
            assert (
                "{{ $labels.job }}" in rule["annotations"]["summary"]
                or "group" in rule["annotations"]["summary"].lower()
            ), rule["alert"]


def test_alerts_name_metrics_and_commands_that_exist() -> None:
    text = " ".join(rule["annotations"]["description"] for rule in rules() if "alert" in rule)
    names = set(re.findall(r"\b(?:minikafka|kafka|process)_\w+", text))
    assert names - {metric.name for metric in definitions.all_metrics()} == set()
    for command in set(re.findall(r"`(minikafka [^`]+)`", text)):
        words, _, options = command.partition(" --")
        _, begins, section = COMMANDS.partition(f"\n## {words}\n")
        assert begins, command
        assert not options or f"`--{options}`" in section.partition("\n## ")[0], command
    for page in set(re.findall(r"docs/[\w/-]+\.md", text)):
        assert (ROOT / page).exists()


def test_guide_names_metrics_alerts_and_properties_that_exist() -> None:
    text = (ROOT / "docs" / "guides" / "monitor.md").read_text("utf-8")
    names = set(re.findall(r"\b(?:minikafka|kafka|process)_[a-z]\w+", text))
    assert names - KNOWN.keys() - prometheus.names() - {"kafka_exporter"} == set()
    alerts = {rule.get("alert") for rule in rules()}
    assert set(re.findall(r"\bMinikafka\w+", text)) - alerts == set()
    assert set(re.findall(r"(?<![/-])\bmetrics\.[a-z.]+[a-z]", text)) - BROKER_CONFIG.keys.keys() == set()


def test_events_of_a_session_are_those_in_the_reference() -> None:
    text = definitions.ZOOKEEPER_SESSION_EVENTS.help
    assert [state.value for state in SessionState if state.value not in text] == []


def test_example_scrapes_the_brokers_of_up() -> None:
    (job,) = documents(MONITORING / "prometheus.yml")["scrape_configs"]
    ports = [int(target.partition(":")[2]) for target in job["static_configs"][0]["targets"]]
    assert ports == [DEFAULT_METRICS_PORT + number for number in range(3)]


def test_composed_prometheus_scrapes_the_composed_brokers() -> None:
    (job,) = documents(MONITORING / "prometheus.compose.yml")["scrape_configs"]
    services = [
        name
        for file in ("compose.yaml", "compose.cluster.yaml")
        for name in documents(MONITORING.parent / file)["services"]
        if "broker" in name
    ]
    assert job["dns_sd_configs"][0]["names"] == services


def test_composed_grafana_shows_the_dashboard() -> None:
    composed = documents(MONITORING / "compose.yaml")
    schema = resources.files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    jsonschema.validate(composed, json.loads(schema.read_text("utf-8")))
    mounts: dict[str, Path] = {}
    for service in composed["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        for volume in service["volumes"]:
            source, target, *_ = volume.split(":")
            if source.startswith("."):
                mounts[target] = (MONITORING.parent / source).resolve()
    assert all(path.exists() for path in mounts.values())
    (provider,) = documents(mounts["/etc/grafana/provisioning"] / "dashboards" / "minikafka.yml")["providers"]
    folder = provider["options"]["path"]
    assert mounts[folder] == DASHBOARD.parent
    home = composed["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{folder}/{DASHBOARD.name}"


def promtool(*arguments: str | Path) -> str:
    """Run promtool; return what it says."""
    tool = program("promtool")
    assert tool is not None
    done = subprocess.run([tool, *arguments], capture_output=True, text=True, timeout=60)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


@pytest.mark.process
@needs_prometheus
def test_prometheus_takes_rules_and_configurations() -> None:
    assert f"{len(rules())} rules found" in promtool("check", "rules", ALERTS)
    for name in ("prometheus.yml", "prometheus.compose.yml"):
        assert "is valid" in promtool("check", "config", MONITORING / name)


@pytest.mark.process
@needs_prometheus
def test_prometheus_takes_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    found = [
        {"record": f"panel:{number}", "expr": expression}
        for number, (_, expression) in enumerate(panel_queries(VARIABLES))
    ]
    path = tmp_path / "queries.json"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": found}]}))
    assert f"{len(found)} rules found" in promtool("check", "rules", path)


@pytest.mark.process
@needs_prometheus
def test_alerts_fire_when_they_should_and_else_not() -> None:
    assert "SUCCESS" in promtool("test", "rules", ROOT / "tests" / "data" / "alert_cases.yml")


def test_every_alert_fires_in_a_case() -> None:
    text = (ROOT / "tests" / "data" / "alert_cases.yml").read_text("utf-8")
    alerts = {rule["alert"] for rule in rules() if "alert" in rule}
    assert set(re.findall(r'alertname="(Minikafka\w+)', text)) == alerts

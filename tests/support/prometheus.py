"""Prometheus itself, and the queries of dashboards and rules.

``prometheus`` and ``promtool`` are those on PATH, or what ``scripts/prepare.sh`` has put beside this Python.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from minikafka.embedded.process import ChildProcess, wait_until
from minikafka.net.ports import free_port

PATIENCE_S = 30
MONITORING = Path(__file__).resolve().parents[2] / "deploy" / "monitoring"
DASHBOARD = MONITORING / "grafana" / "dashboards" / "minikafka.json"
ALERTS = MONITORING / "alerts.yml"
BESIDE_PYTHON = Path(sys.prefix) / "prometheus"


def program(name: str) -> str | None:
    """Return the path of ``prometheus`` or ``promtool``; None if there is none."""
    return shutil.which(name) or shutil.which(name, path=str(BESIDE_PYTHON))


needs_prometheus = pytest.mark.skipif(
    program("promtool") is None or program("prometheus") is None,
    reason="needs prometheus and promtool: apt-get install prometheus",
)


def documents(path: Path) -> Any:
    """Return the content of a file of YAML."""
    return YAML(typ="safe").load(path.read_text("utf-8"))


def rules() -> list[dict[str, Any]]:
    """Return the rules of ``alerts.yml``."""
    return [rule for group in documents(ALERTS)["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    """Return the dashboard."""
    found: dict[str, Any] = json.loads(DASHBOARD.read_text("utf-8"))
    return found


def panels() -> list[dict[str, Any]]:
    """Return the panels of the dashboard, with the titles of its rows."""
    found: list[dict[str, Any]] = dashboard()["panels"]
    return found


def panel_queries(variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the title and each query of all panels, with values for the dashboard's variables."""
    for panel in panels():
        for target in panel.get("targets", ()):
            yield panel["title"], replaced(target["expr"], variables)


def replaced(expression: str, variables: Mapping[str, str]) -> str:
    """Return a query with values for ``$name``. Raises KeyError for one without."""
    return re.sub(r"\$(\w+)", lambda found: variables[found[1]], expression)


@dataclass(frozen=True)
class Query:
    """The names in a query of Prometheus, found by their places; not a parser of the language."""

    selectors: tuple[tuple[str, frozenset[str]], ...]
    """Each metric with the labels that are asked of it."""
    grouping: frozenset[str]
    """The labels in ``by (…)`` and ``on (…)``."""


_LISTS = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_SELECTOR = re.compile(r"(?<![\w.])([A-Za-z_:][\w:]*)\s*(\{[^}]*\})?(?!\s*\(|[\w:])")
_WORDS = frozenset({"and", "or", "unless", "offset", "bool", "inf", "nan"})


def query(expression: str) -> Query:
    """Return the names in a query."""
    text = re.sub(r'"[^"]*"', '""', expression)
    grouping = {name.strip() for names in _LISTS.findall(text) for name in names.split(",") if name.strip()}
    text = re.sub(r"\[[^\]]*\]|\boffset\s+\w+", "", _LISTS.sub("", text))
    selectors = tuple(
        (name, frozenset(re.findall(r"(\w+)\s*[=!]", labels)))
        for name, labels in _SELECTOR.findall(text)
        if name not in _WORDS
    )
    return Query(selectors, frozenset(grouping))


def names_of(queries: Iterable[str]) -> set[str]:
    """Return the names of metrics in queries."""
    return {name for text in queries for name, _ in query(text).selectors}


class Prometheus:
    """A server of Prometheus in ``directory``, with its configuration."""

    def __init__(self, directory: Path, config: Mapping[str, Any]) -> None:
        executable = program("prometheus")
        assert executable is not None
        path = directory / "prometheus.json"  # JSON is YAML
        path.write_text(json.dumps(config))
        self.address = f"127.0.0.1:{free_port()}"
        command = [
            executable,
            f"--config.file={path}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address={self.address}",
            "--log.level=warn",
        ]
        self.log = directory / "prometheus.log"
        self._process = ChildProcess(command, name="prometheus", log=str(self.log))

    def __enter__(self) -> Prometheus:
        assert wait_until(self._is_ready, PATIENCE_S), self.log.read_text()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=PATIENCE_S):
                return True
        except OSError:
            assert self._process.exit_code is None, self.log.read_text()
            return False

    def _result(self, path: str, **parameters: str) -> list[dict[str, Any]]:
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as response:
            found: list[dict[str, Any]] = json.load(response)["data"]["result"]
        return found

    def query(self, expression: str) -> dict[tuple[str, ...], float]:
        """Return the values now, by the values of the labels in the order of their names."""
        return {
            tuple(value for _, value in sorted(sample["metric"].items())): float(sample["value"][1])
            for sample in self._result("query", query=expression)
        }

    def value(self, expression: str) -> float:
        """Return the only value now; NaN if there is none."""
        (found,) = self.query(expression).values() or (math.nan,)
        return found

    def has_data(self, expression: str, start_s: float) -> bool:
        """Return True if a query had numbers at some second since a time."""
        span = {"start": str(start_s), "end": str(time.time()), "step": "1"}
        series = self._result("query_range", query=expression, **span)
        return any(value != "NaN" for found in series for _, value in found["values"])

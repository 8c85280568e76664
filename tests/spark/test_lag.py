"""The example that looks at a query's lag with a group's tool."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from minikafka.embedded import local
from tests.support.processes import output_of, python, wait_until


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_group_tool_sees_the_lag_of_a_running_query_go_down_to_nothing(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with python(["-m", "examples.lag", "--data-dir", str(data_dir)], tmp_path) as example:
        assert example.wait(300) == 0, output_of(tmp_path)
    wait_until(lambda: local.running(str(data_dir)) is None, "the end of the embedded broker", 30)
    tables = output_of(tmp_path).split("$ minikafka group describe dashboard")[1:]
    assert all("dashboard: Stable, 1 member, dashboard_" in table for table in tables)
    rows = [[line.split() for line in table.splitlines() if line.startswith("orders-")] for table in tables]
    lags = [sum(int(row[4]) for row in table) for table in rows]
    # The query runs on between a look at its lag and the table: two tables may be the same.
    assert all(earlier >= later for earlier, later in pairwise(lags))
    assert lags[0] > lags[-1] == 0

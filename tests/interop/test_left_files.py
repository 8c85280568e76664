"""``DumpLogSegments`` over every file that a broker of ours leaves, after a clean stop and after a kill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingProducer
from minikafka.embedded.cluster import Cluster
from tests.interop.conftest import Pair
from tests.interop.releases import KAFKA_3_9, Release

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

KNOWN = {".log", ".index", ".timeindex", ".snapshot"}
TOPICS: dict[str, dict[str, str]] = {
    "idle": {},
    "few": {},
    "many": {"segment.bytes": "20000", "index.interval.bytes": "512"},
    "sparse": {"segment.bytes": "20000", "index.interval.bytes": "1000000"},
    "compacted": {"segment.bytes": "20000", "cleanup.policy": "compact"},
    "gzip": {"compression.type": "gzip", "segment.bytes": "20000"},
}


@pytest.fixture(scope="module", params=["stopped", "killed", "killed twice"])
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """The files of each partition, in order."""
    KAFKA_3_9.libs()
    pairs: list[Pair] = [(b"k%d" % (number % 50), b"v" * (number % 300)) for number in range(2_000)]
    directory = tmp_path_factory.mktemp("left")
    with Cluster(data_dir=directory, config={"log.layout": "apache"}) as cluster:
        for topic, config in TOPICS.items():
            cluster.create_topic(topic, partitions=2, config=config)
        send(cluster, pairs)
        if request.param == "killed twice":
            cluster.kill(0)
            cluster.restart(0)
            send(cluster, pairs)
        if request.param == "stopped":
            cluster.stop_broker(0)
        else:
            cluster.kill(0)
        yield sorted(path for path in (directory / "broker-0").glob("*-*/*") if path.is_file())


def send(cluster: Cluster, pairs: list[Pair]) -> None:
    with Client(cluster.bootstrap_servers) as client, BatchingProducer(client) as producer:
        for topic in TOPICS:
            for key, value in {"idle": [], "few": pairs[:1]}.get(topic, pairs):
                producer.send(topic, value, key=key)


def test_all_segments_have_both_indexes(left: list[Path]) -> None:
    segments = [path for path in left if path.suffix == ".log"]
    assert len(segments) > 3 * len(TOPICS)
    lacking = [
        path.with_suffix(suffix)
        for path in segments
        for suffix in (".index", ".timeindex")
        if not path.with_suffix(suffix).exists()
    ]
    assert lacking == []


@pytest.mark.parametrize("release", [KAFKA_3_9], ids=str)
@pytest.mark.parametrize("suffix", sorted(KNOWN))
def test_the_tool_reads_every_file(left: list[Path], release: Release, suffix: str) -> None:
    files = [path for path in left if path.suffix == suffix]
    printed = release.dump_log_segments(files, *(["--deep-iteration"] if suffix == ".log" else []))
    assert [line for line in printed.err.splitlines() if not line.startswith("log4j:")] == []
    assert [line for line in printed.out.splitlines() if line.startswith("Dumping ")] == [
        f"Dumping {path}" for path in files
    ]

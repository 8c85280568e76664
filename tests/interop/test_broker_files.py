"""Files of our broker, read by Apache Kafka's own ``DumpLogSegments``."""

from __future__ import annotations

import re

import pytest

from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingProducer
from minikafka.embedded.cluster import Cluster
from tests.interop.conftest import Pair
from tests.interop.releases import KAFKA_0_10, KAFKA_3_9, Release

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


@pytest.mark.parametrize(
    ("release", "row"), [(KAFKA_0_10, r"^offset: (\d+) .*isvalid: true "), (KAFKA_3_9, r"\| offset: (\d+) ")]
)
def test_a_release_dumps_a_segment_that_the_broker_wrote_for_it(
    apache_cluster: Cluster, pairs: list[Pair], release: Release, row: str
) -> None:
    topic = f"dumped-{release}"
    apache_cluster.create_topic(topic, config={"message.format.version": release.number.rpartition(".")[0]})
    with Client(apache_cluster.bootstrap_servers) as client, BatchingProducer(client) as producer:
        for key, value in pairs:
            producer.send(topic, value, key=key, timestamp_ms=1000)
    segment = apache_cluster.data_dir / "broker-0" / f"{topic}-0" / f"{0:020d}.log"
    dumped = release.dump_log_segments([segment], "--deep-iteration", "--print-data-log").out
    assert re.findall(row, dumped, flags=re.MULTILINE) == [str(number) for number in range(len(pairs))]

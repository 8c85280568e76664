"""Topics by their ids, as the admin clients of Kafka 3.9 and 4 use them."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from minikafka.embedded.cluster import Cluster
from tests.interop.releases import KAFKA_3_9, KAFKA_4, Release

PROGRAM = Path(__file__).parent / "java" / "TopicIds.java"


@pytest.mark.interop
@pytest.mark.timeout(180)
@pytest.mark.parametrize("release", [KAFKA_3_9, KAFKA_4], ids=str)
def test_topic_made_again_is_another_one(minikafka_cluster: Cluster, release: Release) -> None:
    topic = f"made-{uuid.uuid4().hex[:8]}"
    printed = release.run(str(PROGRAM), minikafka_cluster.bootstrap_servers, topic)
    assert printed.out.splitlines() == [
        "made 1 1 compact",
        f"{topic} true 8",
        "deleted",
        "made 1 1 compact",
        "another",
        "UnknownTopicIdException",
        "UnknownTopicIdException",
        f"{topic} true 8",
    ]

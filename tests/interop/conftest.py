"""What the interoperability tests share: records that are hard to carry, and the jars of real Kafka."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.embedded.cluster import Cluster
from tests.interop.releases import KAFKA_0_10

Pair = tuple[bytes | None, bytes | None]


@pytest.fixture(scope="session")
def pairs() -> list[Pair]:
    """Keys and values: null, empty, no UTF-8, one large, many small."""
    chance = random.Random(20130101)
    hard: list[Pair] = [
        (None, None),
        (b"", b""),
        (b"key", None),
        (None, b"value"),
        (b"\xff\xfe\x00", b"\x80\x00\xff"),
        (b"large", chance.randbytes(200_000)),
    ]
    return hard + [(b"k%d" % number, chance.randbytes(chance.randrange(300))) for number in range(500)]


@pytest.fixture
def kafka_libs() -> Path:
    """The folder with the jars of Apache Kafka 0.10.1.1; the test is skipped where nobody gave one."""
    return KAFKA_0_10.libs()


@pytest.fixture(scope="session")
def apache_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that names its files as the release does, so that the release's tools can read them."""
    data_dir = tmp_path_factory.mktemp("apache-layout")
    with Cluster(
        data_dir=data_dir, config={"log.layout": "apache", "log.index.interval.bytes": "512"}
    ) as cluster:
        yield cluster

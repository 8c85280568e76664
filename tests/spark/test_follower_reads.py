"""Real Spark reads from the replica in its rack (``kafka.client.rack``, KIP-392)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.racks import COUNT, TwoRacks, brokers_of_ours

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def racks() -> Iterator[TwoRacks]:
    with brokers_of_ours() as made:
        yield made


@pytest.mark.parametrize(
    ("options", "fetched"),
    [
        ({"kafka.client.rack": "b"}, [False, True]),
        ({"kafka.client.rack": "a"}, [True, False]),
        ({}, [True, False]),
    ],
    ids=["rack of the follower", "rack of the leader", "no rack"],
)
def test_executors_read_from_the_replica_in_their_rack(
    spark: SparkSession, racks: TwoRacks, options: dict[str, str], fetched: list[bool]
) -> None:
    racks.fetched()
    given = {"kafka.bootstrap.servers": racks.servers, "subscribe": racks.topic, **options}
    assert spark.read.format("minikafka").options(**given).load().count() == COUNT
    assert racks.fetched() == fetched

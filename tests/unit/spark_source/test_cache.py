"""Which connections a worker keeps, and what they are made for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minikafka.clients import produce
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce import BatchingConfig
from pyspark_minikafka import cache
from pyspark_minikafka.options.options import Mode, source_options

CONNECTION = source_options({"subscribe": "t", "kafka.client.id": "me"}, Mode.BATCH).connection


logins: list[str] = []
"""The servers that were asked whether they accept a login."""


class FakeCluster:
    """Stands for a cluster that nobody has asked yet."""

    def __init__(self, bootstrap: str, **options: Any) -> None:
        self.bootstrap = bootstrap
        self.options = options
        self.closed = False
        self.looked_after = 0

    def __enter__(self) -> FakeCluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def check_login(self, timeout_ms: int) -> bool:
        logins.append(self.bootstrap)
        return self.bootstrap != "away:1"

    def close_idle(self) -> None:
        self.looked_after += 1

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    logins.clear()
    monkeypatch.setattr(cache, "ClusterClient", FakeCluster)
    monkeypatch.setattr(produce, "BatchingProducer", FakeProducer)
    yield
    cache.close_all()


def made(kept: object) -> Any:
    return kept


def test_what_is_read_from_creates_no_topics_and_what_is_written_to_may() -> None:
    assert made(cache.reading("a:1", CONNECTION)).options["creates_topics"] is False
    assert made(cache.writing("a:1", CONNECTION)).options["creates_topics"] is True


def test_what_is_written_to_is_looked_at_again_when_the_user_says() -> None:
    given = {"subscribe": "t", "kafka.metadata.max.age.ms": "20000"}
    connection = source_options(given, Mode.BATCH).connection
    assert made(cache.writing("a:1", connection)).options["metadata_max_age_ms"] == 20_000
    assert made(cache.writing("a:1", CONNECTION)).options["metadata_max_age_ms"] == 300_000


def test_the_same_purpose_and_settings_share_one() -> None:
    first = cache.reading("a:1", CONNECTION)
    assert cache.reading("a:1", CONNECTION) is first
    assert cache.reading("b:1", CONNECTION) is not first
    assert cache.writing("a:1", CONNECTION) is not first


def test_the_one_used_longest_ago_is_closed_when_there_are_too_many() -> None:
    kept = [made(cache.reading(f"a:{port}", CONNECTION)) for port in range(1, cache.KEPT_MAX + 1)]
    cache.reading("a:1", CONNECTION)
    cache.reading("b:1", CONNECTION)
    assert [cluster.closed for cluster in kept[:3]] == [False, True, False]


def test_at_the_end_all_are_closed() -> None:
    kept = [made(cache.reading("a:1", CONNECTION)), made(cache.writing("a:1", CONNECTION))]
    cache.close_all()
    assert all(cluster.closed for cluster in kept)


class FakeProducer:
    """Stands for a producer that has nothing to send."""

    def __init__(self, cluster: object, config: BatchingConfig) -> None:
        self.config = config
        self.closed = False

    def close(self, timeout_ms: int | None = None) -> None:
        self.closed = True


ONE = BatchingConfig()


def borrowed(cluster: ClusterClient, config: BatchingConfig = ONE) -> Any:
    with cache.producing(cluster, config) as kept:
        return kept


def test_tasks_use_one_producer_after_the_other() -> None:
    cluster = cache.writing("a:1", CONNECTION)
    first = borrowed(cluster)
    assert borrowed(cluster) is first
    assert borrowed(cluster, BatchingConfig(acks=-1)) is not first
    assert not first.closed


def test_two_tasks_at_a_time_do_not_share_a_producer() -> None:
    cluster = cache.writing("a:1", CONNECTION)
    with cache.producing(cluster, BatchingConfig()) as first:
        second = borrowed(cluster)
        assert second is not first
    assert made(first).closed
    assert borrowed(cluster) is second


def test_the_producer_of_a_failed_task_is_used_no_more() -> None:
    cluster = cache.writing("a:1", CONNECTION)
    with pytest.raises(RuntimeError), cache.producing(cluster, BatchingConfig()) as failed:
        raise RuntimeError
    assert made(failed).closed
    assert borrowed(cluster) is not failed


def test_a_producer_goes_with_its_connections() -> None:
    kept = borrowed(cache.writing("a:1", CONNECTION))
    cache.close_all()
    assert kept.closed


def test_every_task_closes_idle_connections_of_all_clusters() -> None:
    forgotten = made(cache.reading("a:1", CONNECTION))
    before = forgotten.looked_after
    cache.writing("b:1", CONNECTION)
    assert forgotten.looked_after == before + 1


@pytest.mark.parametrize(("given", "idle_ms"), [("540000", 540_000), ("0", 0), ("-1", 2**63 - 1)])
def test_how_long_a_connection_may_be_idle_is_kafkas_own_option(given: str, idle_ms: int) -> None:
    options = {"subscribe": "t", "kafka.connections.max.idle.ms": given}
    connection = source_options(options, Mode.BATCH).connection
    assert made(cache.reading("a:1", connection)).options["connections_max_idle_ms"] == idle_ms


def test_reads_use_one_connection_and_writes_two() -> None:
    assert made(cache.reading("a:1", CONNECTION)).options["one_connection"] is True
    assert made(cache.writing("a:1", CONNECTION)).options["one_connection"] is False


def test_a_login_that_was_accepted_is_not_checked_again() -> None:
    other = source_options({"subscribe": "t", "kafka.client.id": "other"}, Mode.BATCH).connection
    for connection in (CONNECTION, CONNECTION, other):
        cache.check_login("a:1", connection)
    assert logins == ["a:1", "a:1"]


def test_a_login_is_checked_until_somebody_answers() -> None:
    cache.check_login("away:1", CONNECTION)
    cache.check_login("away:1", CONNECTION)
    assert logins == ["away:1", "away:1"]

"""Look-ups of committed offsets, at brokers and in ZooKeeper, and of log ends."""

from __future__ import annotations

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.wire.api import ApiKey
from pyspark_minikafka.location import Target
from pyspark_minikafka.options.options import Mode, source_options
from pyspark_minikafka.planning import lookup
from pyspark_minikafka.planning.lookup import ClusterLookup
from tests.support.broker_harness import BrokerHarness

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def looking(
    monkeypatch: pytest.MonkeyPatch, zookeeper: dict[TopicPartition, int], **given: str
) -> ClusterLookup:
    """A group ``g``: Kafka has 5 and 6 of the first partitions, ZooKeeper what is given."""
    brokers = BrokerHarness(1, {"t": 3})
    brokers.commit("g", {T0: 5, T1: 6})
    monkeypatch.setattr(lookup, "_in_zookeeper", lambda target, group: zookeeper if group == "g" else {})
    options = source_options({"subscribe": "t", **given}, Mode.BATCH)
    return ClusterLookup(brokers.client(), options, target=Target("b:9092", zookeeper_connect="zk:2181"))


def test_of_what_both_storages_have_the_higher_offset_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    found = looking(monkeypatch, {T0: 4, T1: 7, T2: 1}).committed("g")
    assert found == {T0: 5, T1: 7, T2: 1}


@pytest.mark.parametrize(("storage", "expected"), [("kafka", {T0: 5, T1: 6}), ("zookeeper", {T1: 7})])
def test_one_storage_may_be_named(
    monkeypatch: pytest.MonkeyPatch, storage: str, expected: dict[TopicPartition, int]
) -> None:
    assert looking(monkeypatch, {T1: 7}, **{"offsets.storage": storage}).committed("g") == expected


def test_a_group_without_offsets_is_an_error_that_says_where_was_looked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(BrokerError, match=r"'nix'.*Kafka or in ZooKeeper at zk:2181") as problem:
        looking(monkeypatch, {T0: 4}).committed("nix")
    assert problem.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_logs_reach_as_far_as_their_leaders_have_them() -> None:
    brokers = BrokerHarness(1, {"t": 2})
    brokers.fill(T0, b"a", b"b")
    found = ClusterLookup(brokers.client(), source_options({"subscribe": "t"}, Mode.STREAM))
    assert found.logs_reach({T0: 2, T1: 1}) == {T0}
    assert found.logs_reach({T0: 3, T1: 0}) == {T1}
    assert found.logs_reach({T0: 2, T2: 0}) == {T0}  # the last one is not there


def test_ids_are_those_of_the_topics_that_were_looked_up_last() -> None:
    brokers = BrokerHarness(1, {"t": 2})
    found = ClusterLookup(brokers.client(), source_options({"subscribe": "t"}, Mode.STREAM))
    assert found.topic_ids() == {}
    found.partitions(refresh=True)
    before = found.topic_ids()["t"]
    brokers.delete_topic("t")
    brokers.add_topic("t", 1)
    found.partitions(refresh=True)
    assert found.topic_ids().keys() == {"t"}
    assert found.topic_ids()["t"] != before


def test_brokers_without_ids_name_none() -> None:
    brokers = BrokerHarness(1, {"t": 2})
    brokers.newest[ApiKey.METADATA] = 9
    found = ClusterLookup(brokers.client(), source_options({"subscribe": "t"}, Mode.STREAM))
    assert found.partitions(refresh=True) == {"t": (0, 1)}
    assert found.topic_ids() == {}

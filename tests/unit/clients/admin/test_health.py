from __future__ import annotations

from dataclasses import replace

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, BrokerAddress, TopicPartition
from minikafka.clients.admin.health import FewReplicas, InternalTopicSettings, LowMinIsr, findings, health_of
from minikafka.clients.admin.log_dirs import OfflineLogDir
from minikafka.clients.network.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata

INTERNAL = [OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC]


def metadata(
    *partitions: tuple[int, tuple[int, ...], tuple[int, ...]], brokers: int = 3, controller: int | None = 0
) -> ClusterMetadata:
    """Partitions of one topic: leader, replicas, those in sync."""
    found = tuple(
        PartitionMetadata(TopicPartition("t", number), leader, replicas, in_sync)
        for number, (leader, replicas, in_sync) in enumerate(partitions)
    )
    return ClusterMetadata(
        {number: BrokerAddress(number, "h", 9000 + number) for number in range(brokers)},
        {"t": TopicMetadata("t", ErrorCode.NONE, False, found)},
        controller,
        "c",
    )


def test_a_cluster_is_healthy_when_all_is_led_and_in_sync() -> None:
    health = health_of(metadata((0, (0, 1), (0, 1)), (2, (1, 2), (2, 1))))
    assert health.healthy
    assert (health.live, health.topics, health.partitions) == ((0, 1, 2), 1, 2)
    # Leads, follows, is preferred for, out of sync.
    assert [
        (broker.leads, broker.follows, broker.preferred, broker.out_of_sync) for broker in health.brokers
    ] == [(1, 0, 1, 0), (0, 2, 1, 0), (1, 0, 0, 0)]


def test_a_dead_broker_is_known_by_its_replicas() -> None:
    health = health_of(metadata((0, (2, 0), (0,)), (-1, (2,), (2,)), brokers=2))
    assert not health.healthy
    assert health.live == (0, 1)
    dead = health.brokers[2]
    assert (dead.broker_id, dead.address, dead.preferred, dead.out_of_sync) == (2, None, 2, 1)
    assert [partition.topic_partition.partition for partition in health.under_replicated] == [0]
    assert [partition.topic_partition.partition for partition in health.leaderless] == [1]


def test_a_leader_that_does_not_live_is_none() -> None:
    assert not health_of(metadata((2, (2,), (2,)), brokers=2)).healthy


def test_cluster_is_not_healthy_if_acls_may_hide_every_topic() -> None:
    hidden = health_of(ClusterMetadata(controller_id=1), access_rules=True)
    assert (hidden.healthy, hidden.unseen) == (False, True)
    seen = health_of(metadata((0, (0,), (0,))), access_rules=True)
    assert (seen.healthy, seen.unseen) == (True, False)


def test_partitions_of_internal_topics_come_last() -> None:
    one = metadata((0, (0, 1), (0,)))
    rows = (PartitionMetadata(TopicPartition("__own", 0), 0, (0, 1), (0,)),)
    topics = {"__own": TopicMetadata("__own", ErrorCode.NONE, True, rows), **one.topics}
    found = health_of(replace(one, topics=topics)).under_replicated
    assert [partition.topic_partition.topic for partition in found] == ["t", "__own"]


def test_a_cluster_without_a_controller_is_not_healthy() -> None:
    assert not health_of(metadata((0, (0,), (0,)), controller=None)).healthy
    assert health_of(ClusterMetadata(controller_id=1)).healthy


def with_internal(replicas: int, brokers: int, topic: str = OFFSETS_TOPIC) -> ClusterMetadata:
    """An internal topic with two partitions, of which the last has ``replicas``."""
    known = metadata(brokers=brokers)
    counts = brokers, replicas
    partitions = tuple(
        PartitionMetadata(TopicPartition(topic, number), 0, tuple(range(count)), tuple(range(count)))
        for number, count in enumerate(counts)
    )
    return replace(known, topics={topic: TopicMetadata(topic, ErrorCode.NONE, True, partitions)})


@pytest.mark.parametrize("topic", INTERNAL)
def test_internal_topic_with_too_few_replicas_is_reported_but_healthy(topic: str) -> None:
    health = health_of(with_internal(1, brokers=4, topic=topic))
    assert health.few_replicas == (FewReplicas(topic, has=1, wanted=3),)
    assert health.healthy
    assert health_of(with_internal(1, 2, topic)).few_replicas == (FewReplicas(topic, 1, 2),)


@pytest.mark.parametrize("topic", INTERNAL)
def test_internal_topic_needs_at_most_one_replica_per_broker(topic: str) -> None:
    assert health_of(with_internal(3, 4, topic)).few_replicas == ()
    assert health_of(with_internal(1, 1, topic)).few_replicas == ()
    one = InternalTopicSettings({topic: 1})
    assert health_of(with_internal(1, 3, topic), settings=one).few_replicas == ()
    assert health_of(metadata((0, (0,), (0,)))).few_replicas == ()


@pytest.mark.parametrize(
    ("replicas", "min_isr", "wanted", "low"),
    [
        (3, 1, 2, LowMinIsr(1, 2)),
        (2, 1, 3, LowMinIsr(1, 2)),
        (3, 2, 2, None),
        (1, 1, 2, None),
        (3, 1, 1, None),
        (3, None, 2, None),
    ],
)
def test_low_min_isr_of_the_transaction_topic_is_reported(
    replicas: int, min_isr: int | None, wanted: int, low: LowMinIsr | None
) -> None:
    settings = InternalTopicSettings(wanted_min_isr=wanted, min_isr=min_isr)
    health = health_of(with_internal(replicas, 3, TRANSACTION_STATE_TOPIC), settings=settings)
    assert health.low_min_isr == low
    assert health.healthy


def test_partitions_that_take_no_transactions_are_reported() -> None:
    states = [(0, (0, 1), (0, 1)), (0, (0, 1), (0,)), (-1, (2,), (2,)), (2, (2,), (2,))]
    rows = tuple(
        PartitionMetadata(TopicPartition(TRANSACTION_STATE_TOPIC, number), *state)
        for number, state in enumerate(states)
    )
    topic = TopicMetadata(TRANSACTION_STATE_TOPIC, ErrorCode.NONE, True, rows)
    known = replace(metadata(brokers=2), topics={TRANSACTION_STATE_TOPIC: topic})
    found = health_of(known, settings=InternalTopicSettings(min_isr=2)).without_transactions
    assert [row.topic_partition.partition for row in found] == [1, 2, 3]
    assert [row.topic_partition.partition for row in health_of(known).without_transactions] == [2, 3]


def test_settings_of_internal_topics_have_kafkas_defaults() -> None:
    assert InternalTopicSettings.of({}, {}) == InternalTopicSettings()
    broker = {"transaction.state.log.replication.factor": "5", "transaction.state.log.min.isr": "3"}
    found = InternalTopicSettings.of(broker, {"min.insync.replicas": "1"})
    assert found == InternalTopicSettings({TRANSACTION_STATE_TOPIC: 5}, 3, 1)


def test_a_cluster_with_an_offline_directory_is_not_healthy() -> None:
    offline = (OfflineLogDir(0, "/first"),)
    health = health_of(metadata((0, (0,), (0,))), offline_log_dirs=offline)
    assert (health.healthy, health.offline_log_dirs) == (False, offline)


def test_findings_name_the_problem_and_the_brokers() -> None:
    ill = metadata((0, (0, 1), (0,)), (-1, (2, 1), (2,)), brokers=2)
    texts = [finding.text for finding in findings(health_of(ill))]
    assert [text.partition(":")[0] for text in texts] == [
        "1 partition (t-1) without a leader, which nobody can read or write",
        "2 partitions (t-0, t-1) under-replicated",
    ]
    assert findings(health_of(metadata((0, (0, 1), (0, 1))))) == []


def test_a_dead_broker_is_one_finding() -> None:
    todo = "; start it, or move its replicas with minikafka reassign"

    def texts(*partitions: tuple[int, tuple[int, ...], tuple[int, ...]]) -> list[str]:
        return [finding.text for finding in findings(health_of(metadata(*partitions, brokers=2)))]

    assert texts((0, (0, 2), (0,)), (1, (1, 2), (1,))) == [
        f"broker 2 is dead: 2 partitions (t-0, t-1) under-replicated{todo}"
    ]
    assert texts((0, (0, 2), (0,)), (0, (0, 1), (0,))) == [
        f"broker 2 is dead: 1 partition (t-0) under-replicated{todo}",
        "1 partition (t-1) under-replicated: not in sync at broker 1; see the broker's log for the reason",
    ]
    (leaderless,) = texts((-1, (2,), (2,)))
    assert leaderless.endswith("nobody can read or write: start a broker that has a replica in sync: 2")
    both = texts((0, (0, 2), (0,)), (0, (0, 3), (0,)))
    assert both[0].startswith("brokers 2, 3 are dead: 2 partitions (t-0, t-1) under-replicated; start them, ")


def test_a_cluster_without_a_controller_is_a_finding() -> None:
    ill = metadata((0, (0, 1), (0,)))
    assert "no broker is the controller" in findings(health_of(replace(ill, controller_id=None)))[0].text

"""Which partitions wait for the rate of replication, and for how long."""

from __future__ import annotations

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.registry.entity_configs import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS
from minikafka.server.config.replication import ReplicationConfig
from minikafka.server.quotas.client_quotas import UNLIMITED
from minikafka.server.quotas.replication_quotas import ReplicationQuotaManager, ReplicationQuotas

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def both() -> ReplicationQuotas:
    return ReplicationQuotas(1, ReplicationConfig())


def limited(limit: int) -> ReplicationQuotaManager:
    quota = ReplicationQuotaManager(11, 1000)
    quota.set_limit(limit)
    return quota


def test_throttled_replicas_are_listed_by_partition_and_broker(both: ReplicationQuotas) -> None:
    both.set_topic("t", {LEADER_REPLICAS: "0:1,1:2", FOLLOWER_REPLICAS: "1:1"})
    assert [both.leader.covers(partition) for partition in (FIRST, SECOND)] == [True, False]
    assert [both.follower.covers(partition) for partition in (FIRST, SECOND)] == [False, True]


def test_a_star_names_all_partitions_of_its_topic(both: ReplicationQuotas) -> None:
    both.set_topic("t", {LEADER_REPLICAS: "*"})
    assert both.leader.covers(TopicPartition("t", 999))
    assert not both.leader.covers(TopicPartition("other", 0))
    assert not both.follower.covers(FIRST)


@pytest.mark.parametrize(
    "settings", [{}, {LEADER_REPLICAS: ""}, {LEADER_REPLICAS: "0:1,x"}, {LEADER_REPLICAS: f"{'9' * 5_000}:1"}]
)
def test_a_list_that_goes_or_makes_no_sense_names_nothing(
    both: ReplicationQuotas, settings: dict[str, str]
) -> None:
    both.set_topic("t", {LEADER_REPLICAS: "0:1"})
    both.set_topic("t", settings)
    assert not both.leader.covers(FIRST)


def test_nothing_is_asked_or_counted_where_no_partition_has_a_limit(both: ReplicationQuotas) -> None:
    assert not both.leader.active
    both.set_rates({LEADER_RATE: "1000"})
    assert not both.leader.active
    both.set_topic("t", {LEADER_REPLICAS: "0:1"})
    assert (both.leader.active, both.follower.active) == (True, False)
    both.set_rates({})
    assert not both.leader.active
    assert both.leader.limit == UNLIMITED


def test_unsupported_configs_and_invalid_rates_are_logged(
    both: ReplicationQuotas, caplog: pytest.LogCaptureFixture
) -> None:
    both.set_rates({FOLLOWER_RATE: "fast", "log.cleaner.threads": "2"})
    both.set_rates({FOLLOWER_RATE: "fast", "log.cleaner.threads": "2"})
    both.set_rates({FOLLOWER_RATE: "-1"})
    assert both.follower.limit == UNLIMITED
    assert caplog.messages == [
        ("configs of broker 1: ignored log.cleaner.threads: that cannot be changed while it runs"),
        f"{FOLLOWER_RATE}='fast': must be bytes per second, at least 0; applying no limit",
        f"{FOLLOWER_RATE}='-1': must be bytes per second, at least 0; applying no limit",
    ]


def test_a_rate_of_more_digits_than_a_number_may_have_is_no_limit(both: ReplicationQuotas) -> None:
    both.set_rates({LEADER_RATE: "9" * 5_000})
    assert both.leader.limit == UNLIMITED


def test_first_bytes_count_as_one_window_and_pause_accordingly() -> None:
    quota = limited(1000)
    assert quota.pause_ms(0) == 0
    quota.record(1000, 0)
    assert quota.pause_ms(0) == 0
    quota.record(2000, 0)
    assert quota.pause_ms(0) == 3000
    assert quota.pause_ms(2900) == 100
    assert quota.pause_ms(3000) == 0


def test_fetches_of_one_second_of_bytes_keep_to_the_limit() -> None:
    quota, now_ms, copied, limit = limited(1000), 0, 0, 1000
    while now_ms < 60_000:
        if quota.pause_ms(now_ms) == 0:
            quota.record(limit, now_ms)
            copied += limit
        assert copied <= limit * (now_ms / 1000 + 2)
        now_ms += 50
    assert copied >= 0.9 * limit * 60


def test_limit_of_zero_pauses_until_all_windows_have_passed() -> None:
    quota = limited(0)
    quota.record(1, 0)
    assert quota.pause_ms(10_999) == 1000
    assert quota.pause_ms(11_000) == 0

"""``clients/admin/configs``: settings are read and changed, also with older APIs."""

from __future__ import annotations

import pytest

from minikafka.base.errors import BrokerError
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin
from minikafka.clients.admin.configs import Setting
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.alter_configs import AlterableConfig
from minikafka.wire.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from minikafka.wire.apis.describe_configs import (
    ConfigResourceType,
    ConfigSource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from minikafka.wire.apis.incremental_alter_configs import AlterOperation, IncrementalAlterableConfig
from tests.support.broker_harness import BrokerHarness

TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER


@pytest.fixture
def brokers() -> BrokerHarness:
    return BrokerHarness(2, {"t": 2})


@pytest.fixture
def admin(brokers: BrokerHarness) -> Admin:
    return Admin(brokers.client())


def sources(admin: Admin, kind: ConfigResourceType, name: str) -> dict[str, ConfigSource]:
    return {setting.name: setting.source for setting in admin.describe_configs(kind, name)}


def test_settings_come_sorted_with_their_source(admin: Admin) -> None:
    admin.change_configs(TOPIC, "t", {"retention.ms": "5"})
    found = admin.describe_configs(TOPIC, "t")
    assert [setting.name for setting in found] == sorted(setting.name for setting in found)
    assert {
        Setting("retention.ms", "5", ConfigSource.TOPIC, read_only=False, is_sensitive=False),
        Setting("segment.ms", "604800000", ConfigSource.DEFAULT, read_only=False, is_sensitive=False),
    } <= set(found)


def test_an_old_broker_tells_only_what_is_the_default(brokers: BrokerHarness, admin: Admin) -> None:
    admin.change_configs(TOPIC, "t", {"retention.ms": "5"})
    brokers.newest[ApiKey.DESCRIBE_CONFIGS] = 0
    old = Admin(brokers.client())
    of_topic, of_broker = sources(old, TOPIC, "t"), sources(old, BROKER, "1")
    assert (of_topic["retention.ms"], of_topic["segment.ms"]) == (ConfigSource.TOPIC, ConfigSource.DEFAULT)
    assert (of_broker["broker.id"], of_broker["num.partitions"]) == (
        ConfigSource.STATIC_BROKER,
        ConfigSource.DEFAULT,
    )


def test_a_broker_is_asked_itself_for_its_settings(brokers: BrokerHarness, admin: Admin) -> None:
    assert sources(admin, BROKER, "2")["broker.id"] is ConfigSource.STATIC_BROKER
    assert [broker_id for broker_id, key, _, _ in brokers.requests if key is ApiKey.DESCRIBE_CONFIGS] == [2]
    with pytest.raises(BrokerError, match="expected a broker id, got 'two'"):
        admin.describe_configs(BROKER, "two")


def test_only_what_is_to_change_is_sent(brokers: BrokerHarness, admin: Admin) -> None:
    admin.change_configs(TOPIC, "t", {"segment.bytes": "100000"})
    admin.change_configs(TOPIC, "t", {"retention.ms": "5", "segment.bytes": None})
    assert brokers.asked(ApiKey.INCREMENTAL_ALTER_CONFIGS)[-1].resources[0].configs == (
        IncrementalAlterableConfig("retention.ms", AlterOperation.SET, "5"),
        IncrementalAlterableConfig("segment.bytes", AlterOperation.DELETE, None),
    )
    changed = [name for name, source in sources(admin, TOPIC, "t").items() if source is ConfigSource.TOPIC]
    assert changed == ["retention.ms"]


def test_old_broker_gets_all_topic_settings_by_alter_configs(brokers: BrokerHarness, admin: Admin) -> None:
    admin.change_configs(TOPIC, "t", {"retention.ms": "5", "segment.bytes": "100000"})
    brokers.unknown.add(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    Admin(brokers.client()).change_configs(TOPIC, "t", {"segment.bytes": None, "max.message.bytes": "4000"})
    (request,) = brokers.asked(ApiKey.ALTER_CONFIGS)
    assert request.resources[0].configs == (
        AlterableConfig("retention.ms", "5"),
        AlterableConfig("max.message.bytes", "4000"),
    )


def test_old_broker_gets_all_its_dynamic_settings_by_alter_configs(
    brokers: BrokerHarness, admin: Admin
) -> None:
    leader, follower = (f"{name}.replication.throttled.rate" for name in ("leader", "follower"))
    admin.change_configs(BROKER, "2", {leader: "1000"})
    brokers.unknown.add(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    Admin(brokers.client()).change_configs(BROKER, "2", {follower: "4"})
    (request,) = brokers.asked(ApiKey.ALTER_CONFIGS)
    assert request.resources[0].configs == (AlterableConfig(leader, "1000"), AlterableConfig(follower, "4"))
    assert [broker_id for broker_id, key, _, _ in brokers.requests if key is ApiKey.ALTER_CONFIGS] == [2]


def test_a_secret_that_an_old_broker_would_lose_has_to_be_given(brokers: BrokerHarness, admin: Admin) -> None:
    secret = DescribeConfigsResourceResult(
        "ssl.key.password", None, False, False, int(ConfigSource.DYNAMIC_BROKER), True, ()
    )
    brokers.unknown.add(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    result = DescribeConfigsResult(0, None, BROKER, "2", (secret,))
    brokers.script(ApiKey.DESCRIBE_CONFIGS, lambda *_: DescribeConfigsResponse(0, (result,)))
    with pytest.raises(BrokerError, match=r"give ssl\.key\.password too"):
        admin.change_configs(BROKER, "2", {"new": "4"})


def test_a_refusal_has_the_brokers_own_words(admin: Admin) -> None:
    with pytest.raises(BrokerError, match=r"^INVALID_CONFIG: x\.y='1': unknown topic property"):
        admin.change_configs(TOPIC, "t", {"x.y": "1"})


def test_more_partitions_are_waited_for_until_they_have_leaders(brokers: BrokerHarness, admin: Admin) -> None:
    def grow(broker_id: int, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        (topic,) = request.topics
        assert (topic.name, topic.count, topic.assignments) == ("t", 3, None)
        brokers.waiter.wait = lambda _: brokers.add_topic("t", 3)  # type: ignore[method-assign]
        return CreatePartitionsResponse(0, (CreatePartitionsTopicResult("t", 0, None),))

    brokers.script(ApiKey.CREATE_PARTITIONS, grow)
    admin.create_partitions("t", 3)
    assert len(admin.describe_cluster().topics["t"].partitions) == 3


def test_more_partitions_wait_for_no_leader_of_those_that_were_there(
    brokers: BrokerHarness, admin: Admin
) -> None:
    brokers.lose_leader(TopicPartition("t", 0))
    admin.create_partitions("t", 3)
    assert brokers.waiter.waits == []


def test_new_partitions_without_leaders_are_reported(brokers: BrokerHarness, admin: Admin) -> None:
    def grow(broker_id: int, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        served = brokers.serve(broker_id, request)
        brokers.lose_leader(TopicPartition("t", 2))
        return served

    brokers.script(ApiKey.CREATE_PARTITIONS, grow)
    with pytest.raises(BrokerError, match="'t' has 3 partitions now, but the new ones have no leaders yet"):
        admin.create_partitions("t", 3)


def test_partitions_that_cannot_be_are_refused_in_the_brokers_words(admin: Admin) -> None:
    with pytest.raises(BrokerError, match=r"^INVALID_PARTITIONS: topic t has 2 partitions, so 2 is no"):
        admin.create_partitions("t", 2)

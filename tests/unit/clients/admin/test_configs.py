"""``clients/admin/configs``: settings are read and changed, also with older APIs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin
from minikafka.clients.admin.configs import Setting
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.alter_configs import (
    AlterableConfig,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
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


def described(*settings: tuple[str, str, ConfigSource]) -> Any:
    """An answer to DescribeConfigs, as all its versions have it."""
    rows = tuple(
        DescribeConfigsResourceResult(
            name, value, False, source is ConfigSource.DEFAULT, int(source), False, ()
        )
        for name, value, source in settings
    )
    return lambda _, request: DescribeConfigsResponse(
        0,
        tuple(
            DescribeConfigsResult(0, None, resource.resource_type, resource.resource_name, rows)
            for resource in request.resources
        ),
    )


def altered(code: ErrorCode = ErrorCode.NONE, message: str | None = None) -> Any:
    """An answer to AlterConfigs or IncrementalAlterConfigs."""
    return lambda _, request: AlterConfigsResponse(
        0,
        tuple(
            AlterConfigsResourceResponse(int(code), message, resource.resource_type, resource.resource_name)
            for resource in request.resources
        ),
    )


def test_settings_come_sorted_with_their_source(brokers: BrokerHarness, admin: Admin) -> None:
    brokers.script(
        ApiKey.DESCRIBE_CONFIGS,
        described(("b", "2", ConfigSource.DEFAULT), ("a", "1", ConfigSource.STATIC_BROKER)),
    )
    assert admin.describe_configs(TOPIC, "t") == [
        Setting("a", "1", ConfigSource.STATIC_BROKER, read_only=False, is_sensitive=False),
        Setting("b", "2", ConfigSource.DEFAULT, read_only=False, is_sensitive=False),
    ]


@pytest.mark.parametrize(
    ("kind", "source"), [(TOPIC, ConfigSource.TOPIC), (BROKER, ConfigSource.STATIC_BROKER)]
)
def test_an_old_broker_tells_only_what_is_the_default(
    brokers: BrokerHarness, admin: Admin, kind: ConfigResourceType, source: ConfigSource
) -> None:
    brokers.newest[ApiKey.DESCRIBE_CONFIGS] = 0
    brokers.script(ApiKey.DESCRIBE_CONFIGS, described(("a", "1", source), ("b", "2", ConfigSource.DEFAULT)))
    assert [setting.source for setting in admin.describe_configs(kind, "1")] == [source, ConfigSource.DEFAULT]


def test_a_broker_is_asked_itself_for_its_settings(brokers: BrokerHarness, admin: Admin) -> None:
    brokers.script(ApiKey.DESCRIBE_CONFIGS, described())
    admin.describe_configs(BROKER, "2")
    assert [broker_id for broker_id, key, _, _ in brokers.requests if key is ApiKey.DESCRIBE_CONFIGS] == [2]
    with pytest.raises(BrokerError, match="expected a broker id, got 'two'"):
        admin.describe_configs(BROKER, "two")


def test_only_what_is_to_change_is_sent(brokers: BrokerHarness, admin: Admin) -> None:
    brokers.script(ApiKey.INCREMENTAL_ALTER_CONFIGS, altered())
    admin.change_configs(TOPIC, "t", {"retention.ms": "5", "segment.bytes": None})
    (request,) = brokers.asked(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    assert request.resources[0].configs == (
        IncrementalAlterableConfig("retention.ms", AlterOperation.SET, "5"),
        IncrementalAlterableConfig("segment.bytes", AlterOperation.DELETE, None),
    )


def test_old_broker_gets_all_topic_settings_by_alter_configs(brokers: BrokerHarness, admin: Admin) -> None:
    brokers.unknown.add(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    brokers.script(
        ApiKey.DESCRIBE_CONFIGS,
        described(
            ("kept", "1", ConfigSource.TOPIC),
            ("gone", "2", ConfigSource.TOPIC),
            ("default", "3", ConfigSource.DEFAULT),
        ),
    )
    brokers.script(ApiKey.ALTER_CONFIGS, altered())
    admin.change_configs(TOPIC, "t", {"gone": None, "new": "4"})
    (request,) = brokers.asked(ApiKey.ALTER_CONFIGS)
    assert request.resources[0].configs == (AlterableConfig("kept", "1"), AlterableConfig("new", "4"))


def test_old_broker_gets_all_its_dynamic_settings_by_alter_configs(
    brokers: BrokerHarness, admin: Admin
) -> None:
    brokers.unknown.add(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    own = [("kept", "1", ConfigSource.DYNAMIC_BROKER), ("static", "2", ConfigSource.STATIC_BROKER)]
    brokers.script(ApiKey.DESCRIBE_CONFIGS, described(*own))
    brokers.script(ApiKey.ALTER_CONFIGS, altered())
    admin.change_configs(BROKER, "2", {"new": "4"})
    (request,) = brokers.asked(ApiKey.ALTER_CONFIGS)
    assert request.resources[0].configs == (AlterableConfig("kept", "1"), AlterableConfig("new", "4"))
    assert [broker_id for broker_id, key, _, _ in brokers.requests if key is ApiKey.ALTER_CONFIGS] == [2]


def test_a_secret_that_an_old_broker_would_lose_has_to_be_given(brokers: BrokerHarness, admin: Admin) -> None:
    brokers.unknown.add(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    brokers.script(
        ApiKey.DESCRIBE_CONFIGS, described(("ssl.key.password", None, ConfigSource.DYNAMIC_BROKER))
    )
    with pytest.raises(BrokerError, match=r"give ssl\.key\.password too"):
        admin.change_configs(BROKER, "2", {"new": "4"})


def test_a_refusal_has_the_brokers_own_words(brokers: BrokerHarness, admin: Admin) -> None:
    brokers.script(ApiKey.INCREMENTAL_ALTER_CONFIGS, altered(ErrorCode.INVALID_CONFIG, "no such setting"))
    with pytest.raises(BrokerError, match=r"^INVALID_CONFIG: no such setting$"):
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


def grown(brokers: BrokerHarness, *, led: bool) -> Callable[..., CreatePartitionsResponse]:
    def grow(broker_id: int, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        brokers.add_topic("t", 3)
        if not led:
            brokers.lose_leader(TopicPartition("t", 2))
        return CreatePartitionsResponse(0, (CreatePartitionsTopicResult("t", 0, None),))

    return grow


def test_more_partitions_wait_for_no_leader_of_those_that_were_there(
    brokers: BrokerHarness, admin: Admin
) -> None:
    brokers.add_topic("t", 2)
    brokers.lose_leader(TopicPartition("t", 0))
    brokers.script(ApiKey.CREATE_PARTITIONS, grown(brokers, led=True))
    admin.create_partitions("t", 3)


def test_new_partitions_without_leaders_are_reported(brokers: BrokerHarness, admin: Admin) -> None:
    brokers.add_topic("t", 2)
    brokers.script(ApiKey.CREATE_PARTITIONS, grown(brokers, led=False))
    with pytest.raises(BrokerError, match="'t' has 3 partitions now, but the new ones have no leaders yet"):
        admin.create_partitions("t", 3)


def test_partitions_that_cannot_be_are_refused_in_the_brokers_words(
    brokers: BrokerHarness, admin: Admin
) -> None:
    result = CreatePartitionsTopicResult("t", int(ErrorCode.INVALID_PARTITIONS), "it has 2 already")
    brokers.script(ApiKey.CREATE_PARTITIONS, lambda *_: CreatePartitionsResponse(0, (result,)))
    with pytest.raises(BrokerError, match=r"^INVALID_PARTITIONS: it has 2 already$"):
        admin.create_partitions("t", 2)

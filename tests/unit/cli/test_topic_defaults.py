"""``cli/topic``: what ``topic create`` asks for, and what it leaves to the brokers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.cli.topic import create_topic
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.admin.topics import BROKER_DEFAULT
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import BrokerHarness
from tests.support.command_line import CommandLine


@pytest.fixture
def brokers() -> BrokerHarness:
    return BrokerHarness(2)


@pytest.mark.parametrize("version", [0, 3, 4, 7])
@pytest.mark.parametrize(("given", "made"), [((BROKER_DEFAULT, 2), (1, 2)), ((3, BROKER_DEFAULT), (3, 1))])
def test_numbers_that_are_not_given_are_the_brokers_or_one(
    brokers: BrokerHarness, version: int, given: tuple[int, int], made: tuple[int, int]
) -> None:
    brokers.newest[ApiKey.CREATE_TOPICS] = version
    created = create_topic(Admin(brokers.client()), NewTopic("a", *given))
    assert (created.partitions, created.replication_factor) == made
    (request,) = brokers.asked(ApiKey.CREATE_TOPICS)
    (row,) = request.topics
    assert (row.num_partitions, row.replication_factor) == (made if version < 4 else given)


def test_other_errors_are_raised(brokers: BrokerHarness) -> None:
    with pytest.raises(BrokerError) as caught:
        create_topic(Admin(brokers.client()), NewTopic("a", BROKER_DEFAULT, 9))
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize(
    "options",
    [
        ("--partitions", "3", "--replication-factor", "2", "--config", "retention.ms=5"),
        ("-p", "3", "-r", "2", "-c", "retention.ms=5"),
    ],
)
def test_create_takes_the_options_of_kafka_and_of_rpk(
    brokers: BrokerHarness,
    serve: Callable[[BrokerHarness], BrokerHarness],
    cli: CommandLine,
    options: tuple[str, ...],
) -> None:
    serve(brokers)
    assert cli.run("topic", "create", "a", *options) == 0
    (request,) = brokers.asked(ApiKey.CREATE_TOPICS)
    (row,) = request.topics
    assert (row.num_partitions, row.replication_factor, row.configs[0].value) == (3, 2, "5")

"""The pages of the web console on real Kafka: 0.10.1.1, 3.9.1 and 4."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.admin.groups import GroupAdmin
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce import BatchingProducer
from minikafka.console.app import make_app
from minikafka.console.settings import ConsoleSettings
from tests.interop.releases import KAFKA_0_10, KAFKA_4, RELEASES
from tests.support.kafka_broker import KafkaBroker, running

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

NEEDS_NEWER = {"/topics/orders/configuration", "/transactions", "/transactions/hanging?find=1"}
"""Pages that 0.10.1.1 has nothing for."""


@pytest.fixture(scope="module", params=[*RELEASES, KAFKA_4], ids=str)
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with running(request.param, tmp_path_factory.mktemp("real-kafka")) as broker:
        yield broker


@pytest.fixture(scope="module")
def console(kafka: KafkaBroker) -> Iterator[TestClient]:
    """A console of a cluster with a topic of three messages, of which a group has read the first."""
    with ClusterClient(kafka.bootstrap) as cluster:
        assert Admin(cluster).create_topics([NewTopic("orders", 2)]) == {"orders": None}
        with BatchingProducer(cluster) as producer:
            for number in range(3):
                producer.send("orders", b"order-%d" % number, b"k", number % 2)
        GroupAdmin(cluster).set_offsets("billing", {TopicPartition("orders", 0): 1})
    settings = ConsoleSettings(lambda *_: ClusterClient(kafka.bootstrap, creates_topics=False))
    with TestClient(make_app(settings), base_url="http://localhost") as client:
        yield client


def test_every_page_shows_its_noun(kafka: KafkaBroker, console: TestClient) -> None:
    shown = {
        "/": "controller",
        "/topics": "orders",
        "/topics/orders": "in sync",
        "/topics/orders/configuration": "cleanup.policy",
        "/topics/orders/groups": "billing",
        "/topics/orders/messages": "order-2",
        "/topics/orders/0/1": "order-2",
        "/topics/orders/search?text=order-1": "1 found",
        "/topics/orders/export": "order-2",
        "/groups": "billing",
        "/group?id=billing": "Lag by partition",
        "/group/reset?id=billing&rule=latest": "Dry run: 1 partition",
        "/brokers": "alive",
        "/access": "rules",
        "/reassignments": "under way",
        "/transactions": "no transactional ids",
        "/transactions/hanging?find=1": "None.",
    }
    for address, text in shown.items():
        response = console.get(address)
        if kafka.release == KAFKA_0_10 and address in NEEDS_NEWER:
            assert response.status_code == 501, address
            continue
        assert response.status_code == 200, (address, response.text[-500:])
        assert text in response.text, address

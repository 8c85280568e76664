"""Fetches of one consumer from several leaders."""

from __future__ import annotations

from minikafka.base.ids import TopicPartition
from minikafka.clients.group.config import GroupConsumerConfig
from minikafka.clients.group.fetcher import GroupFetcher
from minikafka.clients.network.connections import DedicatedConnectionPool
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import BrokerHarness, Later

T0 = TopicPartition("t", 0)


def test_responses_of_old_and_new_leader_are_returned_once() -> None:
    brokers, late = BrokerHarness(2, {"t": 1}), Later()
    brokers.fill(T0, *(b"%d" % number for number in range(5)))
    cluster = brokers.client()
    fetcher = GroupFetcher(cluster, GroupConsumerConfig("g"), DedicatedConnectionPool())
    cluster.metadata(["t"])
    brokers.script(ApiKey.FETCH, lambda *_: late)
    fetcher.send_fetches({T0: 0})
    brokers.network.run()
    (asked,) = brokers.asked(ApiKey.FETCH)
    old_leaders = brokers.serve(1, asked)
    brokers.move_leader(T0, 2)
    cluster.metadata(["t"], refresh=True)
    fetcher.send_fetches({T0: 0})
    late.give(old_leaders)
    brokers.network.run()
    found = fetcher.collect_fetch({T0: 0}, 50)
    assert [
        (fetched.topic_partition, fetched.start_offset, fetched.next_offset) for fetched in found.sets
    ] == [(T0, 0, 5)]
    assert len(brokers.asked(ApiKey.FETCH)) == 2

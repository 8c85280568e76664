"""What one consumer fetches from several leaders."""

from __future__ import annotations

from minikafka.base.ids import TopicPartition
from minikafka.clients.group.config import GroupConsumerConfig
from minikafka.clients.group.fetcher import GroupFetcher
from minikafka.clients.network.cluster import DedicatedConnectionPool
from minikafka.wire.api import ApiKey
from tests.support.brokers_in_memory import BrokersInMemory
from tests.support.groups_in_memory import Later

T0 = TopicPartition("t", 0)


def test_what_an_old_and_a_new_leader_answer_at_the_same_time_is_given_out_once() -> None:
    brokers, late = BrokersInMemory(2, {"t": 1}), Later()
    brokers.fill(T0, *(b"%d" % number for number in range(5)))
    cluster = brokers.client()
    fetcher = GroupFetcher(cluster, GroupConsumerConfig("g"), DedicatedConnectionPool())
    cluster.metadata(["t"])
    brokers.script(ApiKey.FETCH, lambda *_: late)
    fetcher.send_fetches({T0: 0})
    brokers.network.run()
    (asked,) = brokers.asked(ApiKey.FETCH)
    old_leaders = brokers.answer_fetch(1, asked)
    brokers.leaders[T0] = 2
    cluster.metadata(["t"], refresh=True)
    fetcher.send_fetches({T0: 0})
    late.give(old_leaders)
    brokers.network.run()
    found = fetcher.collect_fetch({T0: 0}, 50)
    assert [(one.topic_partition, one.start_offset, one.next_offset) for one in found.sets] == [(T0, 0, 5)]
    assert len(brokers.asked(ApiKey.FETCH)) == 2

"""``clients/admin/record_deletion``: the start of logs is deleted by their leaders."""

from __future__ import annotations

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import OFFSETS_TOPIC, TopicPartition
from minikafka.clients.admin.admin import EARLIEST, Admin
from minikafka.clients.admin.record_deletion import HIGH_WATERMARK, check_deletable, delete_records
from minikafka.clients.produce import BatchingConfig, BatchingProducer
from tests.support.broker_harness import BrokerHarness


def test_records_of_several_leaders_are_deleted() -> None:
    brokers = BrokerHarness(2, {"t": 4})
    client = brokers.client()
    tps = [TopicPartition("t", number) for number in range(4)]
    with BatchingProducer(client, BatchingConfig(acks=-1), threads=False) as producer:
        for tp in tps:
            producer.wait([producer.send("t", b"%d" % n, partition=tp.partition) for n in range(5)])
    wanted = dict.fromkeys(tps, 3) | {tps[3]: HIGH_WATERMARK}
    starts = delete_records(client, wanted, client.deadline())
    assert starts == {tps[0]: 3, tps[1]: 3, tps[2]: 3, tps[3]: 5}
    assert Admin(client).offsets(dict.fromkeys(tps, EARLIEST)) == starts


def test_an_offset_beyond_the_log_is_an_error() -> None:
    client = BrokerHarness(1, {"t": 1}).client()
    with pytest.raises(BrokerError, match="deleting records of t-0") as caught:
        delete_records(client, {TopicPartition("t", 0): 9}, client.deadline())
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_internal_topic_is_an_error_that_says_so() -> None:
    client = BrokerHarness(1, {OFFSETS_TOPIC: 1}).client()
    admin = Admin(client)
    with pytest.raises(BrokerError, match="__consumer_offsets is an internal topic, so") as before:
        check_deletable(admin, admin.describe_topic(OFFSETS_TOPIC))
    with pytest.raises(BrokerError) as caught:
        delete_records(client, {TopicPartition(OFFSETS_TOPIC, 0): 0}, client.deadline())
    assert str(caught.value) == str(before.value)

"""A coordinator that was replaced without hearing of it, and a leader that has not heard of it either."""

from __future__ import annotations

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TRANSACTION_STATE_TOPIC, ProducerIdAndEpoch, TopicPartition
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Record
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from minikafka.wire.apis.end_txn import EndTxnRequest
from minikafka.wire.apis.init_producer_id import InitProducerIdRequest
from minikafka.wire.apis.produce import ProducePartition, ProduceRequest, ProduceTopic
from tests.support import requests
from tests.support.requests import Request
from tests.support.simulation import Simulation

SETTINGS = {"auto.leader.rebalance.enable": "false"}
ID = "x"
CONTROLLER, COORDINATOR, LEADER = range(3)
T0 = TopicPartition("t", 0)


class World(Simulation):
    """The controller, a coordinator that it will replace, and the leader of t-0."""

    def __init__(self) -> None:
        super().__init__()
        self.start_brokers(3, SETTINGS)
        assert self.machine_of(CONTROLLER).broker.controller.active
        for topic, replicas in ((TRANSACTION_STATE_TOPIC, (COORDINATOR, CONTROLLER)), ("t", (LEADER,))):
            assert self.call(requests.place_topic(topic, replicas)).topics[0].error_code == 0
        self.pass_time(1_000)
        self.move_to(f"machine-{COORDINATOR}")
        found = self.call(Request(ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(ID, 60_000)))
        self.producer = ProducerIdAndEpoch(found.producer_id, found.producer_epoch)
        topics = (AddPartitionsToTxnTopic("t", (0,)),)
        self.call(
            Request(ApiKey.ADD_PARTITIONS_TO_TXN, 3, AddPartitionsToTxnRequest(ID, *self.producer, topics))
        )

    def replace_coordinator(self) -> None:
        for number in (COORDINATOR, LEADER):
            self.machine_of(number).held = True
        self.zookeeper.expire(self.machine_of(COORDINATOR).store)
        self.pass_time(40_000)
        self.move_to(f"machine-{CONTROLLER}")

    def abort(self) -> ErrorCode:
        request = Request(ApiKey.END_TXN, 3, EndTxnRequest(ID, *self.producer, committed=False))
        ended = self.call(request)
        self.pass_time(1_000)
        return ErrorCode(ended.error_code)

    def produce(self) -> ErrorCode:
        """Send a batch of the transaction to the leader, which talks to the coordinator that it knows."""
        batch = build_batch(
            [Record(None, b"v", 1)],
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            base_sequence=0,
            transactional=True,
        )
        topics = (ProduceTopic("t", (ProducePartition(0, batch),)),)
        self.move_to(f"machine-{LEADER}")
        self.begin(Request(ApiKey.PRODUCE, 11, ProduceRequest(ID, 1, 5_000, topics)))
        running = self.machine_of(LEADER).running
        assert running is not None
        while not self.answered():
            assert running._verifier.step()
            self.network.run()
        return ErrorCode(self.finish().topics[0].partitions[0].error_code)

    def log_and_stable_end(self) -> tuple[int, int]:
        partition = self.machine_of(LEADER).broker.partitions[T0]
        return partition.log.end_offset, partition.last_stable_offset


def test_batch_in_the_transaction_is_verified() -> None:
    world = World()
    assert world.produce() is ErrorCode.NONE


def test_late_batch_is_not_verified_by_a_replaced_coordinator() -> None:
    world = World()
    world.replace_coordinator()
    assert world.abort() is ErrorCode.NONE
    assert world.log_and_stable_end() == (1, 1)
    assert world.produce() is ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.log_and_stable_end() == (1, 1)

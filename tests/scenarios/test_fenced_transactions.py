"""Transactions whose producer was fenced by somebody else: each comes to its end, and its outcome is true."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TRANSACTION_STATE_TOPIC, ProducerIdAndEpoch, TopicPartition
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Record
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.produce import ProducePartition, ProduceRequest, ProduceTopic
from minikafka.wire.apis.write_txn_markers import WRITE_TXN_MARKERS
from minikafka.wire.framing import RequestHeader
from tests.support import requests, transaction_requests
from tests.support.requests import Request
from tests.support.simulation import PORT, Simulation

ID = "x"
SETTINGS = {"auto.leader.rebalance.enable": "false"}


class World(Simulation):
    """A coordinator, broker 0, and t: partition 0 is led by broker ``fenced_at``, partition 1 by broker 1."""

    def __init__(self, fenced_at: int, **settings: str) -> None:
        super().__init__()
        more = {name.replace("_", "."): value for name, value in settings.items()}
        self.start_brokers(2, {**SETTINGS, **more})
        self.leaders = (fenced_at, 1)
        placed = [(TRANSACTION_STATE_TOPIC, [(0,)]), ("t", [(leader,) for leader in self.leaders])]
        for topic, replicas in placed:
            assert self.call(requests.place_topic(topic, *replicas)).topics[0].error_code == 0
        self.pass_time(1_000)
        found = self.call(transaction_requests.init(ID))
        self.producer = ProducerIdAndEpoch(found.producer_id, found.producer_epoch)

    def produce(
        self, number: int, *, epoch: int = 0, sequence: int = 0, transactional_id: str | None = ID
    ) -> ErrorCode:
        """Send one record with the producer's id; without a transactional id it is in no transaction."""
        batch = build_batch(
            [Record(None, b"v", 1)],
            producer_id=self.producer.producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional_id is not None,
        )
        topics = (ProduceTopic("t", (ProducePartition(number, batch),)),)
        self.move_to(f"machine-{self.leaders[number]}")
        found = self.call(Request(ApiKey.PRODUCE, 9, ProduceRequest(transactional_id, 1, 5_000, topics)))
        return ErrorCode(found.topics[0].partitions[0].error_code)

    def add(self, *numbers: int) -> ErrorCode:
        self.move_to("machine-0")
        added = self.call(transaction_requests.add(ID, self.producer, {"t": numbers}))
        return ErrorCode(added.results_by_topic[0].results_by_partition[0].partition_error_code)

    def end(self, *, commit: bool = True) -> ErrorCode:
        self.move_to("machine-0")
        ended = self.call(transaction_requests.end(ID, self.producer, commit=commit))
        self.pass_time(2_000)
        return ErrorCode(ended.error_code)

    def state(self) -> str:
        self.move_to("machine-0")
        found: str = self.call(transaction_requests.describe(ID)).transaction_states[0].transaction_state
        return found

    def undecided(self, number: int) -> int:
        """The number of records that readers of committed ones wait for."""
        partition = self.machine_of(self.leaders[number]).broker.partitions[TopicPartition("t", number)]
        return partition.log.end_offset - partition.last_stable_offset


@pytest.mark.parametrize("fenced_at", [0, 1])
@pytest.mark.parametrize("commit", [True, False])
def test_stranger_with_a_newer_epoch_does_not_hold_the_end_back(fenced_at: int, commit: bool) -> None:
    world = World(fenced_at)
    assert world.add(0, 1) is ErrorCode.NONE
    assert world.produce(0, epoch=1, transactional_id=None) is ErrorCode.NONE
    assert world.produce(1) is ErrorCode.NONE
    assert world.end(commit=commit) is ErrorCode.NONE
    assert world.state() == ("CompleteCommit" if commit else "CompleteAbort")
    assert (world.undecided(0), world.undecided(1)) == (0, 0)
    assert world.add(1) is ErrorCode.NONE
    assert world.produce(1, sequence=1) is ErrorCode.NONE


def test_newer_epoch_of_a_stranger_does_not_join_an_open_transaction() -> None:
    """Also without verification: the marker of the transaction would be refused."""
    world = World(1, transaction_partition_verification_enable="false")
    assert world.add(0) is ErrorCode.NONE
    assert world.produce(0) is ErrorCode.NONE
    assert world.produce(0, epoch=1, transactional_id="y") is ErrorCode.INVALID_TXN_STATE
    assert world.end() is ErrorCode.NONE
    assert (world.state(), world.undecided(0)) == ("CompleteCommit", 0)


def test_marker_of_a_sender_that_gave_up_does_not_end_the_next_transaction() -> None:
    """Nothing in it differs from the marker of the next transaction, except that nobody waits for it."""
    world = World(1)
    for sequence in range(2):
        assert world.add(0) is ErrorCode.NONE
        assert world.produce(0, sequence=sequence) is ErrorCode.NONE
        if sequence == 0:
            assert world.end() is ErrorCode.NONE
    late = transaction_requests.write_markers([world.producer], {"t": [0]})
    connection = world.network.connect("machine-1", PORT)
    header = RequestHeader(int(late.key), late.version, 1, "late")
    connection.request([header.encode(), *WRITE_TXN_MARKERS.encode_request(late.version, late.body)])
    connection.close()
    world.network.run()
    assert world.undecided(0) == 1
    assert world.end(commit=False) is ErrorCode.NONE
    assert (world.state(), world.undecided(0)) == ("CompleteAbort", 0)
